/* Suites of programs that come with it, on either device. */
#pragma once

#include <check.h>

Suite *gemm_suite(void);
Suite *layers_suite(void);
Suite *pipeline_suite(void);
Suite *relevance_suite(void);
