/* y += scale * B (A x), each row with its own adapter's A, B and scale, in place; rows without one
 * are left alone.
 *
 * A product of several parts has for each its own A and B, or none; parts of one tensor read the
 * A x of the first of them that has one. A is [rank][k], B [rows of the part][rank], row major
 * without gaps, of any plain dtype each. x is read as it is, A x kept in float32; the sum of each
 * output is rounded once, where it is added.
 *
 * Where adapt_fuses() says so, the activation behind gate and up is done with it: then all rows
 * have it, those without an adapter too, and y is left as it is.
 *
 * A step's ADAPTs go by one list of its rows, those of an adapter side by side, so that A and B are
 * read once for some of them. The first of a step makes it. What a row gets does not depend on it.
 *
 * On CUDA rows that share few adapters and rows of many go different ways, whose sums have orders
 * of their own; adapt_spread() says which suits a step. */
#pragma once

#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/common/batch.h"

#define ADAPT_PARTS 4
#define ADAPT_RANK_MAX 256
#define ADAPT_LIST 4   /* words of the list of rows, for each */
#define ADAPT_FEW 512  /* rows, up to which those of many adapters have kernels of their own */
#define ADAPT_SLICES 8 /* of k, whose sums stand apart there */
#define ADAPT_RANK_ROOM(rank_max) (((rank_max) + 15) / 16 * 16)
/* Floats of `sums`; and its words, with one behind them: which ADAPT's x is there (adapted.cuh). */
#define ADAPT_FLOATS(rank_max) (ADAPT_FEW * ADAPT_PARTS * ADAPT_SLICES * ADAPT_RANK_ROOM(rank_max))
#define ADAPT_SUMS(rank_max) (ADAPT_FLOATS(rank_max) + 4)

struct adapt_part {
    const void *a, *b; /* NULL: the part has none; all or neither */
    enum dtype a_dtype, b_dtype;
    uint32_t from; /* the part whose A x is read: itself, or one before it of the same A */
    uint32_t reserved;
};

/* What an adapter has of a product. Device memory. */
struct adapt_place {
    struct adapt_part parts[ADAPT_PARTS];
    uint32_t rank; /* at most ADAPT_RANK_MAX */
    float scale;
};

struct adapt_args {
    struct row_range rows; /* tokens; first is 0 */
    const uint32_t *token_row;
    const struct batch_row *batch_rows;
    const struct adapt_place *places; /* of adapter 1 and on, as many as rows name */
    const void *x;                    /* [max][x_stride], k of each row */
    void *y;                          /* [max][y_stride] */
    float *inner;                     /* [max][ADAPT_PARTS][rank_max]; written */
    uint32_t *list;                   /* [max][ADAPT_LIST]; CUDA */
    float *sums; /* [ADAPT_FEW][ADAPT_PARTS][ADAPT_SLICES][ADAPT_RANK_ROOM(rank_max)], and a word;
                    aligned to 16 bytes; written; CUDA */
    uint32_t k, x_stride, y_stride, rank_max;
    uint32_t number;  /* from 1 on, greater than those of the step's ADAPTs before */
    uint32_t part_count;
    uint32_t ends[ADAPT_PARTS]; /* of each part's outputs; they begin where those before end */
    enum dtype x_dtype, y_dtype;
    bool lists;     /* the first of the step: it writes `list` */
    bool spreads;   /* by the way of many adapters */
    bool invariant; /* bits do not depend on which rows have which adapters, or on how many: each
                       row by itself */
    bool alike;     /* A and B of all places have x's dtype */
    bool gated;     /* y is gate, then up, and f(gate) * up goes to `out`, in y's dtype */
    enum activation activation; /* f */
    void *out;                  /* [max][out_stride] */
    uint32_t out_stride;
};

/* How many adapters so many rows share; what is faster then, as measured: EXPERIMENTS.md. */
enum adapt_spread {
    ADAPT_SHARED, /* few: rows of one go together */
    ADAPT_MIXED,  /* more: A and B are what there is to read, and `spreads` is faster, but not than
                     products that add them (adapted.h) */
    ADAPT_SPREAD, /* so many that it is faster than those, too, of several parts not activated */
    ADAPT_SPREADS
};

static inline enum adapt_spread adapt_spread(uint32_t rows, uint32_t adapters)
{
    if (adapters < 8 || rows > 8 * adapters)
        return ADAPT_SHARED;
    return adapters <= 32 ? ADAPT_MIXED : ADAPT_SPREAD;
}

/* Whether op_adapt is `gated` for such arguments; else it refuses. Never on the CPU device. */
OP_C bool adapt_fuses(const struct adapt_args *args);
OP_C cudaError_t op_adapt(const struct adapt_args *args, cudaStream_t stream);
