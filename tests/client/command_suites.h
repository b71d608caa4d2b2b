/* The suites of client/command/, one per file. */
#pragma once

#include <check.h>

Suite *command_suite(void);
Suite *window_suite(void);
