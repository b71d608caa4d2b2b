#pragma once

#include <check.h>

Suite *admit_suite(void);
Suite *conn_suite(void);
Suite *deadline_suite(void);
Suite *device_suite(void);
Suite *layout_suite(void);
Suite *least_suite(void);
Suite *listen_suite(void);
Suite *option_suite(void);
Suite *server_suite(void);
Suite *service_suite(void);
Suite *trace_suite(void);
Suite *waiting_suite(void);
