#include "gpu/programs/relevance/relevance_math.h"

#define BAND 16u /* rows of an index */

/* The items of a launch: so many from the first on. */
struct group {
    uint32_t first, count;
};

static uint32_t bands_of(const struct sluice_item *item)
{
    return (uint32_t)((item->sizes[0] + BAND - 1) / BAND);
}

static uint32_t slices_of(const struct sluice_item *item)
{
    return relevance_patches(item) * RELEVANCE_SLICES;
}

/* Which item an index of a launch belongs to, and the how manieth of that one it is. */
static const struct sluice_item *find(const struct sluice_item *items, const void *args,
                                      uint32_t (*count_of)(const struct sluice_item *item),
                                      uint32_t *index)
{
    const struct group *group = args;
    const struct sluice_item *item = &items[group->first];
    while (*index >= count_of(item))
        *index -= count_of(item++);
    return item;
}

static uint32_t last_row(const struct sluice_item *item, uint32_t band)
{
    const uint32_t end = (band + 1) * BAND, height = (uint32_t)item->sizes[0];
    return end < height ? end : height;
}

/* ---- texture -----------------------------------------------------------------------------------
 */

/* What a pixel has by itself. */
static void colours(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = find(items, args, bands_of, &index);
    const uint32_t width = (uint32_t)item->sizes[1];
    const uint64_t pixels = relevance_pixels(item);
    float linear[256], *planes = relevance_plane(item, 0);
    for (uint32_t i = 0; i < 256; i++)
        linear[i] = relevance_linear(i);
    for (uint32_t y = index * BAND; y < last_row(item, index); y++)
        for (uint32_t x = 0; x < width; x++) {
            const uint64_t pixel = (uint64_t)y * width + x;
            const unsigned char *rgb = (const unsigned char *)item->inputs[0] + pixel * 3;
            const struct relevance_lab lab =
                relevance_lab(linear[rgb[0]], linear[rgb[1]], linear[rgb[2]]);
            for (int i = 0; i < 3; i++)
                planes[(uint64_t)(CHANNEL_RED + i) * pixels + pixel] = (float)rgb[i] / 255;
            planes[CHANNEL_LIGHTNESS * pixels + pixel] = lab.l;
            planes[CHANNEL_A * pixels + pixel] = lab.a;
            planes[CHANNEL_B * pixels + pixel] = lab.b;
            relevance_place(item, x, y, planes, pixels, pixel);
        }
}

/* The plane around a pixel; beyond the image's edge it goes on as it ends. */
static void look_around(const float *plane, uint32_t width, uint32_t height, uint32_t x, uint32_t y,
                        float at[9])
{
    const uint32_t columns[3] = {x > 0 ? x - 1 : 0, x, x + 1 < width ? x + 1 : x};
    const uint32_t rows[3] = {y > 0 ? y - 1 : 0, y, y + 1 < height ? y + 1 : y};
    for (int i = 0; i < 9; i++)
        at[i] = plane[(uint64_t)rows[i / 3] * width + columns[i % 3]];
}

static void edges(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = find(items, args, bands_of, &index);
    const uint32_t height = (uint32_t)item->sizes[0], width = (uint32_t)item->sizes[1];
    const uint64_t pixels = relevance_pixels(item);
    float around[3][9];
    for (uint32_t y = index * BAND; y < last_row(item, index); y++)
        for (uint32_t x = 0; x < width; x++) {
            for (int i = 0; i < 3; i++)
                look_around(relevance_plane(item, CHANNEL_LIGHTNESS + i), width, height, x, y,
                            around[i]);
            relevance_edges((const float(*)[9])around, relevance_plane(item, 0), pixels,
                            (uint64_t)y * width + x);
        }
}

/* ---- relevance ---------------------------------------------------------------------------------
 */

static void sums(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = find(items, args, slices_of, &index);
    const struct relevance_patch patch = relevance_patch(item, index / RELEVANCE_SLICES);
    const uint64_t pixels = relevance_pixels(item), width = item->sizes[1];
    const float *planes = relevance_plane(item, 0);
    struct relevance_slice slice = {.salience = 0};
    for (uint32_t y = index % RELEVANCE_SLICES; y < patch.height; y += RELEVANCE_SLICES)
        for (uint32_t x = 0; x < patch.width; x++) {
            const uint64_t pixel = (patch.y + y) * width + patch.x + x;
            for (uint32_t i = 0; i < CHANNELS; i++)
                slice.sums[i] += relevance_fixed(planes[i * pixels + pixel]);
            slice.histogram[relevance_bin(planes[CHANNEL_LIGHTNESS * pixels + pixel])]++;
        }
    relevance_slices(item)[index] = slice;
}

static struct relevance_lab mean_of(const struct sluice_item *item)
{
    const struct relevance_slice *slices = relevance_slices(item);
    int64_t all[3] = {0};
    for (uint32_t i = 0; i < slices_of(item); i++)
        for (int j = 0; j < 3; j++)
            all[j] += slices[i].sums[CHANNEL_LIGHTNESS + j];
    return relevance_mean(all, relevance_pixels(item));
}

static void salience(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct sluice_item *item = find(items, args, slices_of, &index);
    const struct relevance_patch patch = relevance_patch(item, index / RELEVANCE_SLICES);
    const struct relevance_lab mean = mean_of(item);
    const uint64_t pixels = relevance_pixels(item), width = item->sizes[1];
    int64_t sum = 0;
    for (uint32_t y = index % RELEVANCE_SLICES; y < patch.height; y += RELEVANCE_SLICES)
        for (uint32_t x = 0; x < patch.width; x++)
            sum += relevance_salience(relevance_plane(item, 0), pixels,
                                      (patch.y + y) * width + patch.x + x, mean);
    relevance_slices(item)[index].salience = sum;
}

/* ---- allocation --------------------------------------------------------------------------------
 */

static void score(const struct sluice_item *item, uint32_t patch, uint32_t scores[SCORES])
{
    const struct relevance_patch bounds = relevance_patch(item, patch);
    const struct relevance_slice *slices = relevance_slices(item) + patch * RELEVANCE_SLICES;
    const uint32_t pixels = bounds.width * bounds.height;
    struct relevance_slice all = {.salience = 0};
    uint64_t count_logs = 0;
    for (int i = 0; i < RELEVANCE_SLICES; i++) {
        for (int j = 0; j < CHANNELS; j++)
            all.sums[j] += slices[i].sums[j];
        for (int j = 0; j < RELEVANCE_BINS; j++)
            all.histogram[j] += slices[i].histogram[j];
        all.salience += slices[i].salience;
    }
    for (int i = 0; i < RELEVANCE_BINS; i++)
        if (all.histogram[i] > 0)
            count_logs += (uint64_t)all.histogram[i] * relevance_log2(all.histogram[i]);
    scores[SCORE_ENTROPY] = relevance_entropy(count_logs, pixels);
    scores[SCORE_SALIENCE] = (uint32_t)((uint64_t)all.salience / pixels);
    scores[SCORE_SIMILARITY] =
        relevance_similarity(all.sums, pixels, &item->values[RELEVANCE_QUERY_FIRST]);
}

static void weigh(uint32_t (*scores)[SCORES], uint32_t patches, uint32_t *weights)
{
    for (uint32_t i = 0; i < patches; i++)
        weights[i] = 1; /* so that where all are alike all get the same */
    for (int which = 0; which < SCORES; which++) {
        uint32_t least = UINT32_MAX, greatest = 0;
        for (uint32_t i = 0; i < patches; i++) {
            least = scores[i][which] < least ? scores[i][which] : least;
            greatest = scores[i][which] > greatest ? scores[i][which] : greatest;
        }
        for (uint32_t i = 0; i < patches; i++)
            weights[i] += relevance_balanced(scores[i][which], least, greatest);
    }
}

/* In turns: who would get more than its room in proportion gets that, and the others share the
 * rest. *spare and the sum of their weights are what is left for them. */
static uint64_t fill(const uint32_t *weights, uint32_t patches, uint32_t *shares, uint64_t *spare)
{
    for (;;) {
        uint64_t sum = 0, full = 0;
        for (uint32_t i = 0; i < patches; i++)
            sum += shares[i] < RELEVANCE_ROOM ? weights[i] : 0;
        for (uint32_t i = 0; i < patches; i++)
            if (shares[i] < RELEVANCE_ROOM && *spare * weights[i] >= RELEVANCE_ROOM * sum) {
                shares[i] = RELEVANCE_ROOM;
                full++;
            }
        if (full == 0)
            return sum;
        *spare -= full * RELEVANCE_ROOM;
    }
}

/* Largest remainders: each gets its share rounded down, and those that lost the most by that one
 * more; of equal ones the first. */
static void apportion(const uint32_t *weights, uint32_t patches, uint64_t spare, uint32_t *shares)
{
    uint32_t rests[RELEVANCE_PATCHES_MAX];
    const uint64_t sum = fill(weights, patches, shares, &spare);
    uint64_t left = spare;
    for (uint32_t i = 0; i < patches; i++) {
        rests[i] = 0;
        if (shares[i] == RELEVANCE_ROOM)
            continue;
        shares[i] = (uint32_t)(spare * weights[i] / sum);
        rests[i] = (uint32_t)(spare * weights[i] % sum);
        left -= shares[i];
    }
    for (; left > 0; left--) {
        uint32_t most = patches;
        for (uint32_t i = 0; i < patches; i++)
            if (rests[i] > 0 && (most == patches || rests[i] > rests[most]))
                most = i;
        shares[most]++;
        rests[most] = 0;
    }
}

static void allocate(const struct sluice_item *items, const void *args, uint32_t index)
{
    const struct group *group = args;
    const struct sluice_item *item = &items[group->first + index];
    const uint32_t patches = relevance_patches(item);
    uint32_t scores[RELEVANCE_PATCHES_MAX][SCORES], weights[RELEVANCE_PATCHES_MAX];
    uint32_t shares[RELEVANCE_PATCHES_MAX] = {0};
    int32_t *budgets = item->outputs[0];
    float *told = item->outputs[1];
    for (uint32_t i = 0; i < patches; i++)
        score(item, i, scores[i]);
    weigh(scores, patches, weights);
    apportion(weights, patches,
              (uint64_t)item->values[RELEVANCE_TOTAL].integer - patches * RELEVANCE_BUDGET_MIN,
              shares);
    for (uint32_t i = 0; i < patches; i++) {
        budgets[i] = (int32_t)(RELEVANCE_BUDGET_MIN + shares[i]);
        for (uint32_t j = 0; j < SCORES; j++)
            told[i * SCORES + j] = (float)scores[i][j] / RELEVANCE_ONE;
    }
}

/* ---- the streams -------------------------------------------------------------------------------
 */

struct stage {
    const char *name;
    void (*kernel)(const struct sluice_item *items, const void *args, uint32_t index);
    uint32_t (*count_of)(const struct sluice_item *item); /* NULL: one an item */
    uint32_t stream;
};

static int launch(const struct stage *stage, const struct sluice_batch *batch,
                  const struct group *group, const struct sluice_streams *streams)
{
    uint32_t count = stage->count_of ? 0 : group->count;
    for (uint32_t i = 0; stage->count_of && i < group->count; i++)
        count += stage->count_of(&batch->items[group->first + i]);
    return streams->cpu->launch(streams->streams[stage->stream], stage->name, stage->kernel, batch,
                                group, sizeof(*group), count);
}

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    static const struct stage stages[] = {{"colours", colours, bands_of, 0},
                                          {"edges", edges, bands_of, 0},
                                          {"sums", sums, slices_of, 1},
                                          {"salience", salience, slices_of, 1},
                                          {"allocate", allocate, NULL, 2}};
    int rc = 0;
    (void)allocator;
    for (struct group group = {.first = 0}; !rc && group.first < batch->count;
         group.first += group.count) {
        group.count = relevance_group(batch, group.first);
        for (uint32_t i = 0; !rc && i < sizeof(stages) / sizeof(stages[0]); i++) {
            const uint32_t stream = stages[i].stream;
            if (i > 0 && stages[i - 1].stream != stream) {
                rc =
                    streams->cpu->record(streams->events[stream - 1], streams->streams[stream - 1]);
                if (!rc)
                    rc = streams->cpu->wait(streams->streams[stream], streams->events[stream - 1]);
            }
            if (!rc)
                rc = launch(&stages[i], batch, &group, streams);
        }
    }
    return rc;
}

SLUICE_EXPORT const struct sluice_program sluice_program_cpu = RELEVANCE;
