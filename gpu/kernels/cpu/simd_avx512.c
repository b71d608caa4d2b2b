#define SIMD_WIDTH 16
#define SIMD_TILE_SUMS 16
#define SIMD_TILE_N_MAX 8
#define SIMD_TILE_ROWS 4
#define SIMD_VARIANT simd_avx512
#define SIMD_NAME "avx512"
#include "gpu/kernels/cpu/simd_body.h"
