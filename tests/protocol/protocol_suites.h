/* The suites of protocol/ but for base/, one per file. */
#pragma once

#include <check.h>

Suite *frame_suite(void);
Suite *message_suite(void);
Suite *job_suite(void);
Suite *records_suite(void);
Suite *submit_suite(void);
Suite *text_suite(void);
Suite *wire_suite(void);
