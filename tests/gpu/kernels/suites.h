#pragma once

#include <check.h>

Suite *adapt_suite(void);
Suite *attention_bits_suite(void);
Suite *tune_line_suite(void);
Suite *attention_suite(void);
Suite *draft_suite(void);
Suite *draw_suite(void);
Suite *exchange_suite(void);
Suite *expand_suite(void);
Suite *experts_suite(void);
Suite *experts_packed_suite(void);
Suite *hand_suite(void);
Suite *invariant_suite(void);
Suite *norm_suite(void);
Suite *number_suite(void);
Suite *place_suite(void);
Suite *pool_suite(void);
Suite *formats_suite(void);
Suite *matmul_suite(void);
Suite *rows_suite(void);
Suite *sample_suite(void);
Suite *simd_suite(void);
Suite *whole_suite(void);
