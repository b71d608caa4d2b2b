/* The suites of protocol/base, one per file. */
#pragma once

#include <check.h>

Suite *error_suite(void);
Suite *hist_suite(void);
Suite *json_suite(void);
Suite *json_write_suite(void);
Suite *list_suite(void);
Suite *log_ring_suite(void);
Suite *log_suite(void);
Suite *number_suite(void);
Suite *repeat_suite(void);
