/* What all kernels share: dtypes, weights, counts that only the device knows, and the rules below.
 *
 * An op is a header with a params struct and one launcher, and two bodies: op.cu and op_cpu.c. The
 * launcher enqueues on the stream, copies its params, allocates nothing and returns what the
 * runtime returned. Any thread that may enqueue on the stream; the launchers keep no state.
 *
 * Rules, unless an op says otherwise
 * - Pointers in params are device addresses. "Aligned" is 256 bytes for the base of a buffer, which
 *   every allocation gives; rows are `stride` elements apart. Any shape is right; rows whose size
 * in bytes is a multiple of 16 are fast on CUDA. An op never reads past the last element of a row.
 * - Buffers do not overlap, except where an op names what may be done in place.
 * - Memory class: activations and scratch are of the scratch pool, or of a graph's arena; batch
 * state is fixed memory of the engine; weights live as long as the engine. Inboxes (inbox.h) are
 * fixed memory that other devices write; nothing else needs to be within their reach.
 * - Grids and index counts come from the host's upper bounds (`max`), the work from the counts in
 *   device memory, so a captured launch is right for every count up to its bounds. Rows at and
 * beyond the count are not written. (op_matmul may write them, inside the first `max` rows.)
 * - CUDA: every kernel is launched with the programmatic attribute and waits (griddepcontrol.wait)
 * on all paths, before its first dependent read and any write; only weights may be fetched earlier.
 * - Sums are float32 (masses in the sampler: integers) in an order that depends on the shape of one
 *   output alone: never on other rows, on the number of rows, on chunks or on threads. Values are
 *   rounded to nearest even, where they are stored and nowhere else. op_cpu.c rounds where op.cu
 * does.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "gpu/kernels/common/format.h"

#ifdef __cplusplus
#define OP_C extern "C"
#else
#define OP_C extern
#endif

/* What elements are multiplied by: [ceil(n of the weight / n)][ceil(k / k)], one for n rows and k
 * columns each; 0 stands for all of them. Aligned. */
struct weight_scales {
    const void *data; /* NULL: there are none */
    enum dtype dtype;
    uint32_t n, k;
    bool exponents; /* whatever `dtype`: bytes (OCP's e8m0), 2^(byte - 127) each */
};

/* How x is rounded to e4m3 before the product, where a model was made so: x becomes
 * e4m3(x / s) * s, where e4m3() keeps to +-448. The greatest of none but zeros gives s = 1. With
 * ranks that share out columns each has its own part of x, and scales of its own for that. */
enum weight_rounding {
    ROUNDING_NONE,
    ROUNDING_TOKEN,  /* s is the greatest of a row / 448, or where `scale` is above 0 and less, that
                      */
    ROUNDING_GROUP,  /* the same of each `group` columns of a row */
    ROUNDING_STATIC, /* s is `scale`, for all */
};

struct weight_input {
    enum weight_rounding rounding;
    uint32_t group;
    float scale;
    const float *scales; /* of experts, ROUNDING_STATIC: one each; NULL: `scale` is all matrices' */
};

/* A matrix [n][k], row major without gaps: output n is the dot product with row n. Aligned. An
 * element is (what the format reads - its zero) * its scale. */
struct weight {
    const void *data; /* NULL: there is none */
    enum format format;
    uint32_t n, k;
    struct weight_scales scales;
    const uint8_t *zeros; /* of u4, up to 127, and u8, as many as there are scales; NULL: 0 */
    const uint32_t
        *order; /* [k]: the column of x that each column is multiplied by; NULL: its own */
    struct weight_input input;
};

/* Elements alone. */
static inline bool weight_is_plain(const struct weight *weight)
{
    return !weight->scales.data && !weight->zeros && !weight->order &&
           weight->input.rounding == ROUNDING_NONE;
}

/* Of one scale. */
static inline uint64_t weight_scale_bytes(const struct weight_scales *scales)
{
    return scales->exponents ? 1 : sizeof(float);
}

/* Scales of a matrix, and zeros. */
static inline uint64_t weight_scale_count(const struct weight *weight)
{
    uint32_t n = weight->scales.n, k = weight->scales.k;
    uint64_t rows = n ? (weight->n + n - 1) / n : 1;
    return rows * (k ? (weight->k + k - 1) / k : 1);
}

/* Matrices of experts, and what they come with, lie behind one another. */
static inline struct weight weight_of_expert(const struct weight *weight, uint32_t expert)
{
    struct weight of = *weight;
    uint64_t scales = expert * weight_scale_count(weight);
    of.data = (const char *)weight->data + expert * format_bytes(of.format, of.n, of.k);
    if (of.scales.data)
        of.scales.data =
            (const char *)of.scales.data + scales * weight_scale_bytes(&weight->scales);
    if (of.zeros)
        of.zeros += scales;
    if (of.order)
        of.order += (uint64_t)expert * of.k;
    if (of.input.scales)
        of.input.scales += expert;
    return of;
}

/* Rows of which the device knows how many: min(max, *count - first), none when *count <= first.
 * Row i of the op's operands is row i of this range, whatever `first` is; lists that run over all
 * rows of a step are read at first + i. */
struct row_range {
    const uint32_t *count; /* device memory */
    uint32_t first;        /* for work in chunks; 0 otherwise */
    uint32_t max;          /* rows of the buffers, and the grid's bound */
};
