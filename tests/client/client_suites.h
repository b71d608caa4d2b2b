/* The suites of client/, one per file. */
#pragma once

#include <check.h>

Suite *address_suite(void);
Suite *connection_suite(void);
Suite *blocking_suite(void);
Suite *submit_suite(void);
