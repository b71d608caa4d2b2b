/* That a text has a part, or has it not. */
#pragma once

#include <check.h>
#include <string.h>

#define has(text, part) ck_assert_msg(strstr(text, part) != NULL, "%s not in %s", part, text)
#define has_not(text, part) ck_assert_msg(strstr(text, part) == NULL, "%s in %s", part, text)
