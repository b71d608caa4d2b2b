/* Text as Python has it: white space, escapes, code points. Valid UTF-8 throughout. Private to
 * chat. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool chat_is_space(uint32_t code);                         /* str.isspace */
size_t chat_space_before(const char *text, size_t length); /* bytes of white space at the start */
size_t chat_space_behind(const char *text, size_t length); /* at the end */

/* The value of a string literal, no longer than it is written. False: an escape is not known. */
bool chat_unescape(const char *text, size_t length, char *out, size_t *ret_length);

size_t chat_count(const char *text, size_t length);                /* code points */
size_t chat_offset(const char *text, size_t length, size_t codes); /* bytes of the first `codes` */
