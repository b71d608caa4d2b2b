/* What benches of programs on a GPU have in common. Whatever fails ends the process, and says what. */
#pragma once

#include <cuda_runtime_api.h>
#include <limits.h>

#include "gpu/jobs/program.h"

void on_gpu_check(cudaError_t status, const char *what);
#define CHECK(call) on_gpu_check((call), #call)

void *on_gpu_memory(size_t bytes);
/* Where the programs' modules are: what the command line says, else ../../gpu/programs beside this
 * program. Ends with 77 where there is no GPU. */
void on_gpu_folder(int argc, char **argv, char ret[PATH_MAX]);
struct program on_gpu_load(const char *folder, const char *name);
