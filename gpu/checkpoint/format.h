/* Formats of models that are not read here. Who brings one is told its name, and not only which file
 * is missing. Any thread.
 */
#pragma once

#include "protocol/base/error.h"

/* For a path that lacks `wanted`, a file that is read here: ERR_BAD_MODEL when the path is a file of
 * such a format, a directory that holds one, or a repository whose snapshots are meant; else 0, and
 * others say what is missing. */
int format_refuse(const char *path, const char *wanted, struct error *error);
