#pragma once

#include <check.h>

Suite *schedule_suite(void);
Suite *driver_suite(void);
Suite *summary_suite(void);
Suite *event_suite(void);
Suite *session_suite(void);
Suite *http_suite(void);
Suite *screen_suite(void);
