/* The suites of jobs that run against a daemon as a process, one per file. */
#pragma once

#include <check.h>

Suite *files_suite(void);
Suite *flood_suite(void);
Suite *service_suite(void);
Suite *shown_suite(void);
