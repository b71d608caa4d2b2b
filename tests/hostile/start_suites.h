/* The suites of hostile_start, a file each. */
#pragma once

#include <check.h>

Suite *start_suite(void);
Suite *limits_suite(void);
Suite *place_suite(void);
