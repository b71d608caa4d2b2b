/* The key that an HTTP server asks for: from a file, or from the environment, never from the command
 * line, which everybody on the machine can read. */
#pragma once

#include "protocol/base/error.h"

#define API_KEY_MAX 1024

/* path: the last word of its first line that is neither empty nor begins with #, so that a key alone
 * is taken as well as a daemon's own "NAME KEY". NULL: $OPENAI_API_KEY, and "" where that is not set
 * or empty. */
int api_key_read(const char *path, char key[API_KEY_MAX], struct error *error);
