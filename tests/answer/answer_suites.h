/* The suites of the program test_answer. */
#pragma once

#include <check.h>

Suite *answer_reader_suite(void);
