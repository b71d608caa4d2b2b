/* The suites of tests/gpu/, each in the file of its name. */
#pragma once

#include <check.h>

Suite *engine_suite(void);
Suite *memory_suite(void);
Suite *reference_suite(void);
Suite *wait_suite(void);
