/* Files of tests/text/data, read whole. */
#pragma once

#include <stddef.h>

#include "daemon/text/tokenizer.h"

/* Ends the program where the file is missing; the caller frees. The bytes are followed by a 0. */
char *file_read(const char *name, size_t *ret_length);
struct tokenizer *file_tokenizer(const char *name);
