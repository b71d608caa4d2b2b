/* Suites of programs that come with it, on either device. */
#pragma once

#include <check.h>

Suite *relevance_suite(void);
