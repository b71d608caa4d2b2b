/* Without any flag: what every machine of the architecture has. */
#define SIMD_WIDTH 4
#define SIMD_TILE_SUMS 2
#define SIMD_TILE_N_MAX 2
#define SIMD_TILE_ROWS 2
#define SIMD_VARIANT simd_base
#define SIMD_NAME "base"
#include "gpu/kernels/cpu/simd_body.h"
