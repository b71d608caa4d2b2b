/* What layers is, for both of its bodies: a chain of dense layers, shared out over stages.
 *
 * A stage has a stream and its share of the layers, and a stream of their own carries the copies
 * between them. Rows go through in blocks: while a stage computes one, the next block is in the
 * stage before it, and a third one may be between them.
 */
#pragma once

#include <string.h>

#include "gpu/sluice_program.h"

#ifdef __CUDACC__
#define LAYERS_CALL static __host__ __device__ inline
#else
#define LAYERS_CALL static inline
#endif

#define LAYERS_STAGES_MAX 3
#define LAYERS_LINK LAYERS_STAGES_MAX /* the stream of copies */
#define LAYERS_BLOCK_ROWS 256u        /* at least, but for the last block */
#define LAYERS_BLOCKS 8u              /* of an item, at most */
#define LAYERS_CUT 64

static const struct sluice_size layers_sizes[] = {
    {"n", 1, 1 << 20}, {"width", 1, 8192}, {"layers", 1, 64}};
static const struct sluice_tensor layers_inputs[] = {
    {"x", SLUICE_BF16, 2, {SLUICE_SIZE(0), SLUICE_SIZE(1)}},
    {"weights", SLUICE_BF16, 3, {SLUICE_SIZE(2), SLUICE_SIZE(1), SLUICE_SIZE(1)}},
    {"bias", SLUICE_BF16, 2, {SLUICE_SIZE(2), SLUICE_SIZE(1)}}};
static const struct sluice_tensor layers_outputs[] = {
    {"y", SLUICE_BF16, 2, {SLUICE_SIZE(0), SLUICE_SIZE(1)}}};
static const struct sluice_parameter layers_parameters[] = {
    {"stages",
     "streams that the layers are shared out to",
     SLUICE_INTEGER,
     0,
     {.integer = LAYERS_STAGES_MAX},
     {.integer = 1},
     {.integer = LAYERS_STAGES_MAX}}};

/* ---- numbers -----------------------------------------------------------------------------------
 */

/* The product of two of them is exact in a float, so a fused sum and one that is not are the same.
 */
LAYERS_CALL float layers_float(uint16_t bf16)
{
    const uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To the nearest, of two the even one; what is no number stays that, the same one everywhere. */
LAYERS_CALL uint16_t layers_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* A layer's result: with its bias and, but for the last layer, not below 0. */
LAYERS_CALL uint16_t layers_result(float sum, uint16_t bias, uint32_t last)
{
    const float value = sum + layers_float(bias);
    return layers_bf16(!last && value < 0 ? 0.0f : value);
}

/* ---- the way of a block ------------------------------------------------------------------------
 */

/* One layer of one block: to = from times weights, turned, and bias. */
struct layers_step {
    uint32_t rows, width, last;
    const uint16_t *from, *weights, *bias;
    uint16_t *to;
};

/* What differs by device. 0, or an error. */
static int layers_dense(const struct layers_step *step, const struct sluice_batch *batch,
                        const struct sluice_streams *streams, uint32_t stream);
static int layers_copy(void *to, const void *from, uint64_t bytes, const struct sluice_batch *batch,
                       const struct sluice_streams *streams);
/* `behind` goes on once all that is in `before` by now is through. */
static int layers_join(const struct sluice_streams *streams, uint32_t before, uint32_t behind,
                       uint32_t event);

static inline uint32_t layers_stages(const struct sluice_item *item)
{
    const uint64_t asked = (uint64_t)item->values[0].integer;
    return (uint32_t)(asked < item->sizes[2] ? asked : item->sizes[2]);
}

/* Bytes of all of an item's activations. */
static inline uint64_t layers_room(const struct sluice_item *item)
{
    const uint64_t bytes = item->sizes[0] * item->sizes[1] * sizeof(uint16_t);
    return (bytes + SLUICE_ALIGN - 1) / SLUICE_ALIGN * SLUICE_ALIGN;
}

/* Each stage has three: its inbox, and two that its layers go to and fro between. */
static inline uint64_t scratch(const struct sluice_item *item)
{
    return 3 * layers_stages(item) * layers_room(item);
}

static inline uint16_t *layers_place(const struct sluice_item *item, uint32_t stage, uint32_t which,
                                     uint64_t first)
{
    unsigned char *rooms = (unsigned char *)item->scratch;
    return (uint16_t *)(void *)(rooms + (3 * stage + which) * layers_room(item)) +
           first * item->sizes[1];
}

/* The block's rows from one stage to the next: computed, copied, there. The events are free again
 * at once: a wait is for what was recorded when it was enqueued. */
static inline int layers_hand_over(const struct sluice_batch *batch,
                                   const struct sluice_streams *streams, uint32_t stage, void *to,
                                   const void *from, uint64_t bytes)
{
    int rc = layers_join(streams, stage - 1, LAYERS_LINK, 2 * (stage - 1));
    if (!rc)
        rc = layers_copy(to, from, bytes, batch, streams);
    return rc ? rc : layers_join(streams, LAYERS_LINK, stage, 2 * stage - 1);
}

static inline int layers_block(const struct sluice_batch *batch,
                               const struct sluice_streams *streams, const struct sluice_item *item,
                               uint64_t first, uint32_t rows)
{
    const uint32_t count = (uint32_t)item->sizes[2], stages = layers_stages(item);
    const uint64_t width = item->sizes[1];
    struct layers_step step = {0, 0, 0, NULL, NULL, NULL, NULL};
    int rc = 0;
    step.rows = rows;
    step.width = (uint32_t)width;
    step.from = (const uint16_t *)item->inputs[0] + first * width;
    for (uint32_t stage = 0; stage < stages; stage++) {
        if (!rc && stage > 0) {
            uint16_t *inbox = layers_place(item, stage, 2, first);
            rc = layers_hand_over(batch, streams, stage, inbox, step.from,
                                  rows * width * sizeof(uint16_t));
            step.from = inbox;
        }
        for (uint32_t i = stage * count / stages; !rc && i < (stage + 1) * count / stages; i++) {
            step.last = i + 1 == count;
            step.to = step.last ? (uint16_t *)item->outputs[0] + first * width
                                : layers_place(item, stage, i % 2, first);
            step.weights = (const uint16_t *)item->inputs[1] + i * width * width;
            step.bias = (const uint16_t *)item->inputs[2] + i * width;
            rc = layers_dense(&step, batch, streams, stage);
            step.from = step.to;
        }
    }
    return rc;
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    int rc = 0;
    (void)allocator;
    for (uint32_t i = 0; !rc && i < batch->count; i++) {
        const struct sluice_item *item = &batch->items[i];
        const uint64_t rows = item->sizes[0], share = (rows + LAYERS_BLOCKS - 1) / LAYERS_BLOCKS;
        const uint64_t block = share > LAYERS_BLOCK_ROWS ? share : LAYERS_BLOCK_ROWS;
        for (uint64_t first = 0; !rc && first < rows; first += block)
            rc = layers_block(batch, streams, item, first,
                              (uint32_t)(rows - first < block ? rows - first : block));
    }
    return rc;
}

#define LAYERS                                                                                     \
    {                                                                                              \
        .abi = SLUICE_PROGRAM_ABI, .flags = SLUICE_WRITES_ALL, .name = "layers",                   \
        .summary = "a chain of dense layers, in stages", .size_count = 3, .input_count = 3,        \
        .output_count = 1, .parameter_count = 1, .sizes = layers_sizes, .inputs = layers_inputs,   \
        .outputs = layers_outputs, .parameters = layers_parameters,                                \
        .stream_count = LAYERS_STAGES_MAX + 1, .event_count = 2 * (LAYERS_STAGES_MAX - 1),         \
        .cut_rows = LAYERS_CUT, .batch_items_max = 32, .reserved = 0, .batch_scratch = 0,          \
        .scratch = scratch, .enqueue = enqueue, .check = NULL                                      \
    }
