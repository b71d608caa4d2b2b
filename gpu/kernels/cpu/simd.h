/* The inner loops of the CPU bodies, compiled once per instruction set.
 *
 * All variants give the same bits: sums run over SIMD_LANES lanes whatever the width of a register,
 * multiply and add are rounded apart (built with -ffp-contract=off), lanes are added 8 apart, then
 * 4, 2 and 1. A lane that has no element adds zero. Pointers are host addresses of any alignment.
 * Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gpu/kernels/common/kernel.h"

#define SIMD_LANES 16

/* y[r * y_stride + i] = dot(x row r, w row i) */
struct simd_panel {
    const void *w;
    const void *x;
    float *y;
    size_t w_stride, x_stride, y_stride; /* elements */
    uint32_t n, rows, k;
    enum dtype w_dtype, x_dtype;
};

/* sum[h * stride + d] += p[h * stride + i] * v[i][d], for i in order */
struct simd_values {
    const void *v; /* [count][head_dim] */
    const float *p;
    float *sum;
    size_t stride;
    uint32_t heads, count, head_dim;
    enum dtype v_dtype;
};

struct simd {
    const char *name;
    void (*panel)(const struct simd_panel *panel);
    void (*values)(const struct simd_values *values);
    /* Adds squares to lanes: element i to lane i % 16. */
    void (*squares)(float lanes[SIMD_LANES], const float *x, size_t count);
    /* Adds exp(x - shift) to lanes; `out` takes the terms and may be x, or NULL. Arguments below
     * -87 give 0, and so does NaN. */
    void (*exps)(float lanes[SIMD_LANES], float *out, const float *x, float shift, size_t count);
    /* out = f(x), and times `up`, unless that is NULL; see activation.h. `out` may be x. */
    void (*silu)(float *out, const float *x, const float *up, size_t count);
    void (*gelu)(float *out, const float *x, const float *up, size_t count);
};

/* The widest variant of this machine. */
const struct simd *simd_best(void);

/* Variants that this machine can run, from the narrowest; NULL past the last. For tests. */
const struct simd *simd_variant(uint32_t index);

float simd_add_lanes(const float lanes[SIMD_LANES]);
float simd_exp(float x); /* one element, as `exps` has it */
/* x = cap * tanh(x / cap), of what is infinite NaN: what overflowed must not pass for a number. The
 * error is a unit of float32 of the cap, not of the result. */
void simd_softcap(float *x, float cap, size_t count);

extern const struct simd simd_base, simd_avx2, simd_avx512;
