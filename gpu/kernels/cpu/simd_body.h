/* The inner loops of simd.h for one width of registers: SIMD_WIDTH floats. Included once by each
 * variant's file, which also says the size of the panel's tile, so that its sums stay in registers.
 */
#include <math.h>
#include <string.h>
#if SIMD_WIDTH > 4
#include <immintrin.h>
#endif

#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/cpu/simd.h"

#define PARTS (SIMD_LANES / SIMD_WIDTH)
#define ALWAYS static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef uint32_t vu __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef int32_t vi __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef float v4 __attribute__((vector_size(16)));
typedef uint16_t vh __attribute__((vector_size(2 * SIMD_WIDTH)));

#include "gpu/kernels/cpu/simd_told.h"

#include "gpu/kernels/cpu/simd_math.h"
#include "gpu/kernels/cpu/simd_panel.h"
#include "gpu/kernels/cpu/simd_values.h"

const struct simd SIMD_VARIANT = {SIMD_NAME, panel, values, squares, exps, silu, gelu};
