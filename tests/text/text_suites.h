#pragma once

#include <check.h>

Suite *reference_suite(void);
Suite *stop_suite(void);
