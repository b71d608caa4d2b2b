/* What a model is called by the directory that holds it: by its last part, and where that is a
 * snapshot of Hugging Face's cache (models--ORG--NAME/snapshots/HASH), by its repository, ORG/NAME.
 * Any thread.
 */
#pragma once

#include <stddef.h>

/* Cut at `size`. The directory need not exist. */
void snapshot_name(const char *directory, char *name, size_t size);
