#pragma once

#include <check.h>

Suite *crowd_suite(void);
Suite *framing_suite(void);
Suite *template_suite(void);
Suite *constraint_suite(void);
