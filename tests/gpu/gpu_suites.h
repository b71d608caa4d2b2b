/* The suites of tests/gpu/, each in the file of its name. */
#pragma once

#include <check.h>

Suite *adapter_suite(void);
Suite *adapter_files_suite(void);
Suite *adapter_load_suite(void);
Suite *bits_suite(void);
Suite *copies_suite(void);
Suite *device_suite(void);
Suite *dtype_suite(void);
Suite *eagle_suite(void);
Suite *eagle_refused_suite(void);
Suite *engine_suite(void);
Suite *experts_suite(void);
Suite *format_suite(void);
Suite *graph_suite(void);
Suite *invariant_suite(void);
Suite *keep_suite(void);
Suite *load_suite(void);
Suite *memory_suite(void);
Suite *mutation_suite(void);
Suite *pipeline_suite(void);
Suite *quantize_suite(void);
Suite *ranks_suite(void);
Suite *reference_suite(void);
Suite *several_suite(void);
Suite *start_suite(void);
Suite *stop_suite(void);
Suite *synthetic_format_suite(void); /* synthetic_test.c */
Suite *wait_suite(void);
Suite *wake_suite(void);
Suite *whole_suite(void);
Suite *waits_suite(void); /* several_test.c; of a GPU alone */
