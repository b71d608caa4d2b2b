/* Suites of test_one_prompt: what is not computed again has the bits that it would have. */
#pragma once

#include <check.h>

Suite *one_prompt_suite(void);
Suite *cache_bits_suite(void);
Suite *draft_bits_suite(void);
Suite *together_suite(void);
