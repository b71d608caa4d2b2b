#define SIMD_WIDTH 8
#define SIMD_TILE_SUMS 4
#define SIMD_TILE_N_MAX 4
#define SIMD_TILE_ROWS 2
#define SIMD_VARIANT simd_avx2
#define SIMD_NAME "avx2"
#include "gpu/kernels/cpu/simd_body.h"
