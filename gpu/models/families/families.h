/* All families (families.def), each a file of its name beside this one. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "gpu/models/base/family.h"

/* The i-th family, NULL behind the last. */
const struct family *family_at(size_t i);

/* "a, b and c"; architectures without that ending. */
#define FAMILY_CLASS "ForCausalLM"
void family_names(bool architectures, char *text, size_t size);
