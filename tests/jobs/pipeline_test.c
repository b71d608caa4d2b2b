/* pipeline: the bits of fused multiply-adds, with warps that load, compute and store and without.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jobs/device_rig.h"
#include "tests/jobs/device_suites.h"
#include "tests/runner.h"

#define ITEMS 40
#define LONGEST 9000003u /* several tiles for each block of a large GPU */
#define CHUNKS 4

enum { ROUNDS, A, B, SPECIALIZED }; /* parameters */

static uint32_t draw_length(uint32_t i)
{
    static const uint32_t edges[] = {LONGEST, 1,    3,    4,    5,    4092, 4095,  4096,
                                     4097,    4099, 4100, 8191, 8192, 8193, 12289, 1000001};
    return i < sizeof(edges) / sizeof(edges[0]) ? edges[i] : 1 + device_rig_draw(30000);
}

/* b around 1: values stay as large as they are, and each round rounds. */
static void make_piece(struct gpu_piece *piece, uint32_t i, bool specialized)
{
    const uint32_t length = draw_length(i);
    float *x = malloc(length * sizeof(float)), *y = calloc(length, sizeof(float));
    ck_assert(x && y);
    for (uint32_t j = 0; j < length; j++)
        x[j] = (float)(1 + device_rig_draw(1 << 20)) / (float)(1 << 21);
    *piece = (struct gpu_piece){.sizes = {length}, .whole = length};
    piece->values[ROUNDS].integer = length > 100000 ? 2 : device_rig_draw(70);
    piece->values[A].number = device_rig_draw(1000) / 7777.0;
    piece->values[B].number =
        (0.95 + device_rig_draw(1000) / 9999.0) * (device_rig_draw(2) ? 1 : -1);
    piece->values[SPECIALIZED].integer = specialized;
    piece->inputs[0] = x;
    piece->outputs[0] = y;
}

static uint32_t wrong_elements(const struct gpu_piece *piece)
{
    const float *x = piece->inputs[0], *y = piece->outputs[0];
    const float a = (float)piece->values[A].number;
    const float b = (float)piece->values[B].number;
    uint32_t wrong = 0;
    for (uint64_t j = 0; j < piece->sizes[0]; j++) {
        float v = x[j];
        for (int64_t round = 0; round < piece->values[ROUNDS].integer; round++)
            v = fmaf(v, b, a);
        wrong += memcmp(&v, &y[j], sizeof(v)) != 0;
    }
    return wrong;
}

/* _i: whether there are warps for each role. */
START_TEST(test_pipeline_gives_the_bits_of_fused_multiply_adds)
{
    static struct gpu_piece pieces[CHUNKS][ITEMS];
    struct gpu_chunk chunks[CHUNKS];
    const struct gpu_jobs_options options = {
        .lanes = 2, .ring = 2, .chunk_bytes = 48u << 20, .stream_count = 1};
    struct device_rig rig;
    if (!device_rig_open(&rig, PIPELINE_FILE, &options))
        RUNNER_SKIP("there is no device");
    for (int i = 0; i < CHUNKS; i++) {
        for (uint32_t j = 0; j < ITEMS; j++)
            make_piece(&pieces[i][j], i % 2 ? j + 1 : j, _i);
        chunks[i] =
            (struct gpu_chunk){.program = &rig.program, .count = ITEMS, .pieces = pieces[i]};
        device_rig_submit(&rig, &chunks[i]);
    }
    for (int i = 0; i < CHUNKS; i++)
        (void)device_rig_wait(&rig);
    for (int i = 0; i < CHUNKS * ITEMS; i++) {
        const struct gpu_piece *piece = &pieces[i / ITEMS][i % ITEMS];
        ck_assert_uint_eq(wrong_elements(piece), 0);
        free((void *)(uintptr_t)piece->inputs[0]);
        free(piece->outputs[0]);
    }
    (void)device_rig_close(&rig);
}
END_TEST

/* In the same bits as plain doubles, as far as these agree: without rounds, and in whole numbers.
 */
START_TEST(test_pipeline_computes_rounds)
{
    static const double coefficients[] = {2, -3}; /* 2 - 3 v */
    const struct gpu_jobs_options options = {
        .lanes = 1, .ring = 1, .chunk_bytes = 1u << 20, .stream_count = 1};
    float x[7] = {0, 1, 2, 3, -1, 5, 0.5f}, y[3][7];
    struct gpu_piece pieces[3];
    struct device_rig rig;
    if (!device_rig_open(&rig, PIPELINE_FILE, &options))
        RUNNER_SKIP("there is no device");
    ck_assert_str_eq(rig.program.name, "pipeline");
    for (int rounds = 0; rounds < 3; rounds++) {
        pieces[rounds] =
            (struct gpu_piece){.sizes = {7}, .whole = 7, .inputs = {x}, .outputs = {y[rounds]}};
        pieces[rounds].values[ROUNDS].integer = rounds;
        pieces[rounds].values[SPECIALIZED].integer = 1;
        for (int i = 0; i < 2; i++)
            pieces[rounds].values[A + i].number = coefficients[i];
    }
    struct gpu_chunk chunk = {.program = &rig.program, .count = 3, .pieces = pieces};
    device_rig_submit(&rig, &chunk);
    ck_assert_ptr_eq(device_rig_wait(&rig), &chunk);
    for (int i = 0; i < 7; i++) {
        double v = x[i];
        for (int rounds = 0; rounds < 3; rounds++) {
            ck_assert_double_eq(y[rounds][i], v);
            v = coefficients[0] + coefficients[1] * v;
        }
    }
    (void)device_rig_close(&rig);
}
END_TEST

Suite *pipeline_suite(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tests = tcase_create("pipeline");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_pipeline_gives_the_bits_of_fused_multiply_adds, 0, 2);
    tcase_add_test(tests, test_pipeline_computes_rounds);
    suite_add_tcase(suite, tests);
    return suite;
}
