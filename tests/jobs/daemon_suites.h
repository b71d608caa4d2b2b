/* The suites of the daemon's side of jobs, one per file. */
#pragma once

#include <check.h>

Suite *calibration_suite(void);
Suite *chunk_suite(void);
Suite *http_sim_suite(void);
Suite *memory_suite(void);
Suite *record_suite(void);
Suite *sim_suite(void);
Suite *timeline_suite(void);
Suite *worker_suite(void);
