#pragma once

#include <check.h>

Suite *chat_suite(void);
Suite *detokenizer_suite(void);
Suite *reference_suite(void);
Suite *regex_suite(void);
Suite *stop_suite(void);
Suite *tokenizer_suite(void);
Suite *window_suite(void);
