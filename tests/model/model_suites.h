/* The suites of gpu/models and gpu/checkpoint, one per file. */
#pragma once

#include <check.h>

Suite *checkpoint_suite(void);
Suite *config_refusal_suite(void);
Suite *config_suite(void);
Suite *directory_suite(void);
Suite *generation_suite(void);
Suite *quantization_suite(void);
Suite *quantized_files_suite(void);
Suite *reference_suite(void);
Suite *rope_suite(void);
Suite *safetensors_suite(void);
Suite *synthetic_suite(void);
Suite *unused_suite(void);
Suite *words_suite(void);
