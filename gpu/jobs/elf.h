/* What can be said of a module before it is loaded: that it is a shared object of this machine,
 * which libraries it needs, and that it imports nothing that a program may not (forbidden.def).
 *
 * Reads bytes that may be anything: every offset is looked at before it is used. Pure. Any thread.
 */
#pragma once

#include <stddef.h>

#include "protocol/base/error.h"

/* The libcudart that the daemon's device module goes together with. */
#define ELF_CUDART "libcudart.so.13"

/* ERR_BAD_CONFIG with what is wrong with the module. `cuda`: it is for a CUDA device. */
int elf_check(const void *bytes, size_t length, int cuda, struct error *error);
