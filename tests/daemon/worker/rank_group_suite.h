#pragma once

#include <check.h>

Suite *rank_group_suite(void);
