#include <string.h>

#include "gpu/programs/gemm/gemm.h"

/* Rows and columns of C of an index. */
#define ROWS 4u
#define COLUMNS 256u

static float widened(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof(value));
    return value;
}

/* To nearest even; NaN stays NaN. */
static uint16_t narrowed(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof(word));
    if ((word & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(word >> 16 | 0x40);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static uint64_t parts(uint64_t size, uint64_t of)
{
    return (size + of - 1) / of;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Of one row: columns from `first` on, at most COLUMNS of them. */
static void multiply_row(const struct sluice_item *item, uint64_t row, uint64_t first)
{
    const uint64_t k = item->sizes[GEMM_K], n = item->sizes[GEMM_N];
    const uint64_t count = least(n - first, COLUMNS);
    const uint16_t *a = (const uint16_t *)item->inputs[0] + row * k;
    const uint16_t *b = (const uint16_t *)item->inputs[1] + first;
    uint16_t *c = (uint16_t *)item->outputs[0] + row * n + first;
    float sums[COLUMNS] = {0};
    for (uint64_t i = 0; i < k; i++, b += n) {
        const float by = widened(a[i]);
        for (uint64_t j = 0; j < count; j++)
            sums[j] += by * widened(b[j]);
    }
    for (uint64_t j = 0; j < count; j++)
        c[j] = narrowed(sums[j]);
}

static uint64_t blocks_of(const struct sluice_item *item)
{
    return parts(item->sizes[GEMM_M], ROWS) * parts(item->sizes[GEMM_N], COLUMNS);
}

/* Which block of which item an index is. */
static void multiply(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = items;
    uint64_t block = index;
    (void)args;
    for (; block >= blocks_of(item); item++)
        block -= blocks_of(item);
    const uint64_t across = parts(item->sizes[GEMM_N], COLUMNS);
    const uint64_t first = block / across * ROWS;
    const uint64_t end = least(first + ROWS, item->sizes[GEMM_M]);
    for (uint64_t row = first; row < end; row++)
        multiply_row(item, row, block % across * COLUMNS);
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    uint64_t blocks = 0;
    (void)allocator;
    for (uint32_t i = 0; i < batch->count; i++)
        blocks += blocks_of(&batch->items[i]);
    return streams->cpu->launch(streams->streams[0], "gemm", multiply, batch, NULL, 0,
                                (uint32_t)blocks);
}

SLUICE_EXPORT const struct sluice_program sluice_program_cpu = GEMM;
