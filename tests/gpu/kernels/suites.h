#pragma once

#include <check.h>

Suite *attend_bits_suite(void);
Suite *attend_suite(void);
Suite *draw_suite(void);
Suite *exchange_suite(void);
Suite *expand_suite(void);
Suite *number_suite(void);
Suite *place_suite(void);
Suite *pool_suite(void);
Suite *product_suite(void);
Suite *rows_suite(void);
Suite *sample_suite(void);
Suite *simd_suite(void);
