/* The suites of client/command/, one per file. */
#pragma once

#include <check.h>

Suite *chat_suite(void);
Suite *command_suite(void);
Suite *control_suite(void);
Suite *png_suite(void);
Suite *standard_suite(void);
Suite *timeline_suite(void);
Suite *window_suite(void);
