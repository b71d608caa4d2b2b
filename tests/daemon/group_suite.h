#pragma once

#include <check.h>

Suite *group_suite(void);
