#pragma once

#include <check.h>

Suite *steady_suite(void);
