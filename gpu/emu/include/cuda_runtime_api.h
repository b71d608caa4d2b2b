/* The emulated CUDA runtime, under the name and with the prototypes of NVIDIA's header, so that
 * gpu/ compiles unchanged against either. What it promises stands in gpu/emu/README.md; what only
 * the emulation has is in gpu/emu/emu.h. Any thread. */
#pragma once

#include "driver_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CALL(name, parameters) cudaError_t name parameters;
#include "gpu/emu/cudart.def"
#undef CALL

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

#ifdef __cplusplus
}
#endif
