#include "gpu/programs/layers/layers.h"

#define ROWS 4u /* of an index */
#define OUTPUTS 16u

static uint32_t parts(uint32_t count, uint32_t of)
{
    return (count + of - 1) / of;
}

/* So many sums at once, each from the first k to the last. */
static void add_up(const struct layers_step *step, uint32_t row, uint32_t output, uint32_t rows,
                   uint32_t outputs, float sums[ROWS][OUTPUTS])
{
    const uint16_t *from = step->from + (uint64_t)row * step->width;
    const uint16_t *weights = step->weights + (uint64_t)output * step->width;
    for (uint32_t k = 0; k < step->width; k++)
        for (uint32_t j = 0; j < outputs; j++) {
            const float weight = layers_float(weights[(uint64_t)j * step->width + k]);
            for (uint32_t i = 0; i < rows; i++)
                sums[i][j] += layers_float(from[(uint64_t)i * step->width + k]) * weight;
        }
}

static void dense(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct layers_step *step = args;
    const uint32_t across = parts(step->width, OUTPUTS);
    const uint32_t row = index / across * ROWS, output = index % across * OUTPUTS;
    const uint32_t rows = step->rows - row < ROWS ? step->rows - row : ROWS;
    const uint32_t outputs = step->width - output < OUTPUTS ? step->width - output : OUTPUTS;
    float sums[ROWS][OUTPUTS] = {{0}};
    (void)items;
    add_up(step, row, output, rows, outputs, sums);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < outputs; j++)
            step->to[(uint64_t)(row + i) * step->width + output + j] =
                layers_result(sums[i][j], step->bias[output + j], step->last);
}

static int layers_dense(const struct layers_step *step, const struct sluice_batch *batch,
                        const struct sluice_streams *streams, uint32_t stream)
{
    return streams->cpu->launch(streams->streams[stream], "dense", dense, batch, step,
                                sizeof(*step),
                                parts(step->rows, ROWS) * parts(step->width, OUTPUTS));
}

struct copy {
    void *to;
    const void *from;
    uint64_t bytes;
};

static void copy(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct copy *asked = args;
    (void)items;
    (void)index;
    memcpy(asked->to, asked->from, asked->bytes);
}

static int layers_copy(void *to, const void *from, uint64_t bytes, const struct sluice_batch *batch,
                       const struct sluice_streams *streams)
{
    const struct copy asked = {to, from, bytes};
    return streams->cpu->launch(streams->streams[LAYERS_LINK], "copy", copy, batch, &asked,
                                sizeof(asked), 1);
}

static int layers_join(const struct sluice_streams *streams, uint32_t before, uint32_t behind,
                       uint32_t event)
{
    int rc = streams->cpu->record(streams->events[event], streams->streams[before]);
    return rc ? rc : streams->cpu->wait(streams->streams[behind], streams->events[event]);
}

SLUICE_EXPORT const struct sluice_program sluice_program_cpu = LAYERS;
