/* Loading a program's module. What is looked at first, and why, stands in README.md: the file and its
 * folder, its ELF, its symbol, and what it says of itself.
 *
 * At the start of the process, one thread. A module is never unloaded.
 */
#pragma once

#include "gpu/jobs/program.h"

/* `device`: "cpu" or "cuda", whose body is taken. ERR_BAD_CONFIG names the file and what is wrong. */
int module_load(const char *path, const char *device, struct program *ret_program,
                struct error *error);
