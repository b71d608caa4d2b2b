#pragma once

#include <check.h>

Suite *admission_suite(void);
Suite *backlog_suite(void);
Suite *cancel_suite(void);
Suite *conn_suite(void);
Suite *deadline_suite(void);
Suite *device_suite(void);
Suite *ending_suite(void);
Suite *errand_suite(void);
Suite *layout_suite(void);
Suite *least_suite(void);
Suite *listen_suite(void);
Suite *log_suite(void);
Suite *log_writer_suite(void);
Suite *manager_suite(void);
Suite *option_suite(void);
Suite *reach_suite(void);
Suite *result_suite(void);
Suite *server_suite(void);
Suite *service_suite(void);
Suite *share_suite(void);
Suite *standard_suite(void);
Suite *trace_suite(void);
Suite *unit_suite(void);
Suite *waiting_suite(void);
