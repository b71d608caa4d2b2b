/* What relevance is, for both of its bodies: which parts of an image deserve how many tokens.
 *
 *   texture      pixels to 13 channels                                 stream 0
 *   relevance    channels to sums, histograms and distances, slice by slice   stream 1
 *   allocation   three scores of each patch, balanced, to budgets      stream 2
 *
 * Channels are floats, computed in one order that both bodies have; all that is summed are whole
 * numbers. So every device gives the same bits, however it divides the work. Formulas: README.md.
 */
#pragma once

#include "gpu/sluice_program.h"

#define RELEVANCE_BUDGET_MIN 64u /* tokens of a patch */
#define RELEVANCE_BUDGET_MAX 400u
#define RELEVANCE_GRID_MAX 32 /* patches in a row, and in a column */
#define RELEVANCE_PATCHES_MAX (RELEVANCE_GRID_MAX * RELEVANCE_GRID_MAX)
#define RELEVANCE_SIDE_MAX 16384      /* pixels */
#define RELEVANCE_BINS 64             /* of lightness */
#define RELEVANCE_SLICES 8            /* of a patch, each every eighth row of it */
#define RELEVANCE_GROUP (512u * 512u) /* pixels: small images go through a stage together */

enum relevance_channel {
    CHANNEL_RED, /* as the image has it, of 1 */
    CHANNEL_GREEN,
    CHANNEL_BLUE,
    CHANNEL_LIGHTNESS, /* L* / 100 */
    CHANNEL_A,         /* a* / 128 */
    CHANNEL_B,         /* b* / 128 */
    CHANNEL_EDGE_X,    /* Sobel, of lightness */
    CHANNEL_EDGE_Y,
    CHANNEL_EDGE,         /* how steep it is */
    CHANNEL_COLOUR_EDGE,  /* likewise, of a and b */
    CHANNEL_X,            /* -1 left to 1 right */
    CHANNEL_Y,            /* -1 above to 1 below */
    CHANNEL_ECCENTRICITY, /* 0 in the middle to 1 in a corner */
    CHANNELS
};

enum relevance_score { SCORE_ENTROPY, SCORE_SALIENCE, SCORE_SIMILARITY, SCORES };

/* What a slice of a patch comes to: 65,536 is 1. */
struct relevance_slice {
    int64_t sums[CHANNELS];
    int64_t salience;
    uint32_t histogram[RELEVANCE_BINS];
};

static const struct sluice_size relevance_sizes[] = {{"height", 32, RELEVANCE_SIDE_MAX},
                                                     {"width", 32, RELEVANCE_SIDE_MAX},
                                                     {"rows", 1, RELEVANCE_GRID_MAX},
                                                     {"columns", 1, RELEVANCE_GRID_MAX}};
static const struct sluice_tensor relevance_inputs[] = {
    {"image", SLUICE_U8, 3, {SLUICE_SIZE(0), SLUICE_SIZE(1), 3}}};
static const struct sluice_tensor relevance_outputs[] = {
    {"budgets", SLUICE_I32, 2, {SLUICE_SIZE(2), SLUICE_SIZE(3)}},
    {"scores", SLUICE_F32, 3, {SLUICE_SIZE(2), SLUICE_SIZE(3), SCORES}}};

#define RELEVANCE_QUERY(channel)                                                                   \
    {                                                                                              \
        "query-" channel, "the query's " channel, SLUICE_NUMBER, 0, {.number = 0},                 \
            {.number = -1e6},                                                                      \
        {                                                                                          \
            .number = 1e6                                                                          \
        }                                                                                          \
    }
#define RELEVANCE_ROWS 0 /* numbers of parameters */
#define RELEVANCE_COLUMNS 1
#define RELEVANCE_TOTAL 2
#define RELEVANCE_QUERY_FIRST 3
static const struct sluice_parameter relevance_parameters[] = {
    {"rows",
     "patches one above the other",
     SLUICE_INTEGER,
     0,
     {.integer = 5},
     {.integer = 1},
     {.integer = RELEVANCE_GRID_MAX}},
    {"columns",
     "patches side by side",
     SLUICE_INTEGER,
     0,
     {.integer = 5},
     {.integer = 1},
     {.integer = RELEVANCE_GRID_MAX}},
    {"total",
     "tokens of all patches together",
     SLUICE_INTEGER,
     0,
     {.integer = 4096},
     {.integer = RELEVANCE_BUDGET_MIN},
     {.integer = RELEVANCE_BUDGET_MAX * RELEVANCE_PATCHES_MAX}},
    RELEVANCE_QUERY("red"),
    RELEVANCE_QUERY("green"),
    RELEVANCE_QUERY("blue"),
    RELEVANCE_QUERY("lightness"),
    RELEVANCE_QUERY("a"),
    RELEVANCE_QUERY("b"),
    RELEVANCE_QUERY("edge-x"),
    RELEVANCE_QUERY("edge-y"),
    RELEVANCE_QUERY("edge"),
    RELEVANCE_QUERY("colour-edge"),
    RELEVANCE_QUERY("x"),
    RELEVANCE_QUERY("y"),
    RELEVANCE_QUERY("eccentricity"),
};

/* ---- on the host -------------------------------------------------------------------------------
 */

static inline uint64_t relevance_align(uint64_t bytes)
{
    return (bytes + SLUICE_ALIGN - 1) / SLUICE_ALIGN * SLUICE_ALIGN;
}

/* A plane of floats for each channel, then the slices of each patch. */
static inline uint64_t scratch(const struct sluice_item *item)
{
    const uint64_t pixels = item->sizes[0] * item->sizes[1];
    return relevance_align(CHANNELS * pixels * sizeof(float)) +
           item->sizes[2] * item->sizes[3] * RELEVANCE_SLICES * sizeof(struct relevance_slice);
}

static inline const char *check(const struct sluice_item *item)
{
    const int64_t patches = (int64_t)(item->sizes[2] * item->sizes[3]);
    const int64_t total = item->values[RELEVANCE_TOTAL].integer;
    if (total < patches * (int64_t)RELEVANCE_BUDGET_MIN)
        return "total is less than 64 tokens for each of rows x columns patches";
    if (total > patches * (int64_t)RELEVANCE_BUDGET_MAX)
        return "total is more than 400 tokens for each of rows x columns patches";
    return NULL;
}

/* How many images, from that one on, go through a stage together. */
static inline uint32_t relevance_group(const struct sluice_batch *batch, uint32_t first)
{
    uint64_t pixels = 0;
    uint32_t end = first;
    while (end < batch->count && pixels < RELEVANCE_GROUP) {
        pixels += batch->items[end].sizes[0] * batch->items[end].sizes[1];
        end++;
    }
    return end - first;
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator);

#define RELEVANCE                                                                                  \
    {                                                                                              \
        .abi = SLUICE_PROGRAM_ABI, .flags = SLUICE_WRITES_ALL, .name = "relevance",                \
        .summary = "which patches of an image deserve how many tokens", .size_count = 4,           \
        .input_count = 1, .output_count = 2,                                                       \
        .parameter_count = sizeof(relevance_parameters) / sizeof(relevance_parameters[0]),         \
        .sizes = relevance_sizes, .inputs = relevance_inputs, .outputs = relevance_outputs,        \
        .parameters = relevance_parameters, .stream_count = 3, .event_count = 2, .cut_rows = 0,    \
        .batch_items_max = 0, .reserved = 0, .batch_scratch = 0, .scratch = scratch,               \
        .enqueue = enqueue, .check = check                                                         \
    }
