/* layers: the bits of plain sums, however the layers are shared out and the rows are cut; and close
 * to doubles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jobs/device_rig.h"
#include "tests/jobs/device_suites.h"
#include "tests/runner.h"

struct chain {
    uint32_t n, width, layers;
    uint16_t *x, *weights, *bias, *y, *expected;
};

static const struct chain cases[] = {
    {1, 1, 1, NULL, NULL, NULL, NULL, NULL},      {600, 40, 7, NULL, NULL, NULL, NULL, NULL},
    {257, 65, 2, NULL, NULL, NULL, NULL, NULL},   {64, 128, 3, NULL, NULL, NULL, NULL, NULL},
    {2500, 33, 12, NULL, NULL, NULL, NULL, NULL}, {3, 190, 64, NULL, NULL, NULL, NULL, NULL},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))
#define CUT 64u

static float wide(uint16_t bf16)
{
    const uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Nearest, by comparing: of both neighbours, and of equal ones the even. */
static uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
    if (isnan(value))
        return 0x7fc0;
    const double down = fabs((double)value - (double)wide(below));
    const double up = fabs((double)wide(above) - (double)value);
    return down < up || (down == up && !(below & 1)) ? below : above;
}

static uint16_t *random_values(size_t count, float scale)
{
    uint16_t *values = malloc(count * sizeof(uint16_t));
    ck_assert_ptr_nonnull(values);
    for (size_t i = 0; i < count; i++)
        values[i] = narrow(((float)device_rig_draw(2001) / 1000 - 1) * scale);
    return values;
}

/* A layer of a row by the same roundings, and beside it by doubles without. */
static void plain_layer(const struct chain *chain, uint32_t layer, uint16_t *row, double *exact)
{
    static uint16_t out[256];
    static double out_exact[256];
    const uint32_t width = chain->width;
    for (uint32_t o = 0; o < width; o++) {
        const uint16_t *weights = chain->weights + ((size_t)layer * width + o) * width;
        const float bias = wide(chain->bias[(size_t)layer * width + o]);
        float sum = 0;
        double sum_exact = 0;
        for (uint32_t k = 0; k < width; k++) {
            sum = fmaf(wide(row[k]), wide(weights[k]), sum);
            sum_exact += exact[k] * (double)wide(weights[k]);
        }
        sum += bias;
        sum_exact += (double)bias;
        if (layer + 1 < chain->layers && sum < 0)
            sum = 0;
        if (layer + 1 < chain->layers && sum_exact < 0)
            sum_exact = 0;
        out[o] = narrow(sum);
        out_exact[o] = sum_exact;
    }
    memcpy(row, out, width * sizeof(*out));
    memcpy(exact, out_exact, width * sizeof(*out_exact));
}

static void compute(struct chain *chain)
{
    const uint32_t width = chain->width;
    double exact[256];
    for (uint32_t r = 0; r < chain->n; r++) {
        uint16_t *row = chain->expected + (size_t)r * width;
        memcpy(row, chain->x + (size_t)r * width, width * sizeof(*row));
        for (uint32_t k = 0; k < width; k++)
            exact[k] = (double)wide(row[k]);
        for (uint32_t layer = 0; layer < chain->layers; layer++)
            plain_layer(chain, layer, row, exact);
        for (uint32_t k = 0; k < width && chain->layers <= 12; k++)
            ck_assert(fabs((double)wide(row[k]) - exact[k]) < 0.05);
    }
}

static void make_chain(struct chain *chain)
{
    const size_t width = chain->width, count = chain->n * width;
    chain->x = random_values(count, 1);
    chain->weights = random_values(chain->layers * width * width, 2.0f / sqrtf((float)width));
    chain->bias = random_values(chain->layers * width, 0.25f);
    chain->y = calloc(count, sizeof(uint16_t));
    chain->expected = malloc(count * sizeof(uint16_t));
    ck_assert(chain->y && chain->expected);
    compute(chain);
}

static void free_chain(struct chain *chain)
{
    free(chain->x);
    free(chain->weights);
    free(chain->bias);
    free(chain->y);
    free(chain->expected);
}

/* So many rows from `first` on. */
static struct gpu_piece piece_of(const struct chain *chain, uint32_t first, uint32_t rows,
                                 uint32_t stages)
{
    const size_t at = (size_t)first * chain->width;
    struct gpu_piece piece = {.sizes = {rows, chain->width, chain->layers},
                              .first = first,
                              .whole = chain->n,
                              .inputs = {chain->x + at, chain->weights, chain->bias},
                              .outputs = {chain->y + at}};
    piece.values[0].integer = stages;
    return piece;
}

static void check_chain(struct chain *chain)
{
    const size_t count = (size_t)chain->n * chain->width;
    uint32_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += chain->y[i] != chain->expected[i];
    ck_assert_msg(wrong == 0, "%u of %zu elements of %u x %u, %u layers", wrong, count, chain->n,
                  chain->width, chain->layers);
    memset(chain->y, 0, count * sizeof(uint16_t));
}

/* _i: stages. */
START_TEST(test_layers_gives_the_bits_of_plain_sums_in_any_number_of_stages)
{
    const struct gpu_jobs_options options = {
        .lanes = 2, .ring = 2, .chunk_bytes = 16u << 20, .stream_count = 4, .event_count = 4};
    struct gpu_piece pieces[2][CASES + 2500 / CUT];
    struct chain chains[CASES];
    struct gpu_chunk chunks[2];
    struct device_rig rig;
    uint32_t cut = 0;
    if (!device_rig_open(&rig, LAYERS_FILE, &options))
        RUNNER_SKIP("there is no device");
    memcpy(chains, cases, sizeof(chains));
    for (uint32_t i = 0; i < CASES; i++) {
        make_chain(&chains[i]);
        pieces[0][i] = piece_of(&chains[i], 0, chains[i].n, (uint32_t)_i);
    }
    chunks[0] = (struct gpu_chunk){.program = &rig.program, .count = CASES, .pieces = pieces[0]};
    device_rig_submit(&rig, &chunks[0]);
    (void)device_rig_wait(&rig);
    for (uint32_t i = 0; i < CASES; i++)
        check_chain(&chains[i]);
    /* In pieces, half of them in each of two chunks that are under way at once. */
    struct chain *chain = &chains[1];
    for (uint32_t first = 0; first < chain->n; first += CUT, cut++)
        pieces[cut % 2][cut / 2] =
            piece_of(chain, first, chain->n - first < CUT ? chain->n - first : CUT, (uint32_t)_i);
    for (uint32_t i = 0; i < 2; i++) {
        chunks[i] = (struct gpu_chunk){
            .program = &rig.program, .count = (cut + 1 - i) / 2, .pieces = pieces[i]};
        device_rig_submit(&rig, &chunks[i]);
    }
    (void)device_rig_wait(&rig);
    (void)device_rig_wait(&rig);
    check_chain(chain);
    for (uint32_t i = 0; i < CASES; i++)
        free_chain(&chains[i]);
    (void)device_rig_close(&rig);
}
END_TEST

Suite *layers_suite(void)
{
    Suite *suite = suite_create("layers");
    TCase *tests = tcase_create("layers");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_layers_gives_the_bits_of_plain_sums_in_any_number_of_stages, 1,
                        4);
    suite_add_tcase(suite, tests);
    return suite;
}
