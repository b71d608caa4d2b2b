/* Programs that come with it, by what a device module exports alone: the same on the CPU device and
 * on a GPU, against plain arithmetic, to the bit. */
#include <stdlib.h>
#include <string.h>

#include "tests/jobs/device_rig.h"
#include "tests/jobs/device_suites.h"
#include "tests/runner.h"

#define ITEMS 40
#define LONGEST 3000001u /* more than blocks and threads of a grid at once */
#define ROUNDS 12

struct item {
    float *x, *y;
    uint32_t length;
};

/* Lengths around what the kernels divide by, and any. */
static uint32_t draw_length(uint32_t i)
{
    static const uint32_t edges[] = {LONGEST, 1, 3, 4, 5, 255, 256, 1023, 1024, 1025, 16384, 16385};
    return i < sizeof(edges) / sizeof(edges[0]) ? edges[i] : 1 + device_rig_draw(20000);
}

static void make_chunk(const struct program *program, struct gpu_chunk *chunk,
                       struct gpu_piece *pieces, struct item *items)
{
    *chunk = (struct gpu_chunk){.program = program, .count = ITEMS, .pieces = pieces};
    for (uint32_t i = 0; i < ITEMS; i++) {
        struct item *item = &items[i];
        item->length = draw_length(i);
        item->x = malloc(item->length * sizeof(float));
        item->y = calloc(item->length, sizeof(float));
        ck_assert(item->x && item->y);
        for (uint32_t j = 0; j < item->length; j++)
            item->x[j] = (float)device_rig_draw(1 << 20) / 777 - 600;
        pieces[i] = (struct gpu_piece){.sizes = {item->length}, .whole = item->length};
        pieces[i].values[0].number = device_rig_draw(1000) / 7.0;
        pieces[i].values[1].number = device_rig_draw(1000) / 3.0;
        pieces[i].values[2].integer = i < 4 ? 1 : 1 + device_rig_draw(4); /* rounds */
        pieces[i].inputs[0] = item->x;
        pieces[i].outputs[0] = item->y;
    }
}

static uint32_t wrong_elements(const struct gpu_piece *piece, const struct item *item)
{
    uint32_t wrong = 0;
    for (uint32_t j = 0; j < item->length; j++) {
        float expected = item->x[j];
        for (int64_t round = 0; round < piece->values[2].integer; round++) {
            volatile float product = (float)piece->values[0].number * expected;
            volatile float sum = product + (float)piece->values[1].number;
            expected = sum;
        }
        wrong += memcmp(&expected, &item->y[j], sizeof(expected)) != 0;
    }
    return wrong;
}

/* The same chunks again and again, several at once. */
static void go_round(struct device_rig *rig, struct gpu_chunk *chunks, uint32_t count)
{
    uint32_t sent = 0, ended = 0;
    while (ended < ROUNDS) {
        if (sent < ROUNDS && sent - ended < count) {
            device_rig_submit(rig, &chunks[sent % count]);
            sent++;
            continue;
        }
        for (; ended < sent; ended++) /* all of these, before any of them goes again */
            (void)device_rig_wait(rig);
    }
}

START_TEST(test_affine_gives_the_bits_of_plain_arithmetic)
{
    const struct gpu_jobs_options options = {
        .lanes = 2, .ring = 2, .chunk_bytes = 32u << 20, .stream_count = 1, .background = _i};
    static struct gpu_piece pieces[3][ITEMS];
    static struct item items[3][ITEMS];
    struct gpu_chunk chunks[3];
    struct device_rig rig;
    if (!device_rig_open(&rig, AFFINE_FILE, &options))
        RUNNER_SKIP("there is no device");
    for (int i = 0; i < 3; i++)
        make_chunk(&rig.program, &chunks[i], pieces[i], items[i]);
    go_round(&rig, chunks, 3);
    for (int i = 0; i < 3; i++)
        for (uint32_t j = 0; j < ITEMS; j++) {
            ck_assert_uint_eq(wrong_elements(&pieces[i][j], &items[i][j]), 0);
            free(items[i][j].x);
            free(items[i][j].y);
        }
    const struct gpu_jobs_counters counters = device_rig_close(&rig);
    ck_assert_uint_eq(counters.chunks, ROUNDS);
    ck_assert_uint_gt(counters.overlapped, 0);
}
END_TEST

static Suite *affine_suite(void)
{
    Suite *suite = suite_create("affine");
    TCase *tests = tcase_create("affine");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_affine_gives_the_bits_of_plain_arithmetic, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(affine_suite());
    srunner_add_suite(runner, layers_suite());
    srunner_add_suite(runner, pipeline_suite());
    srunner_add_suite(runner, gemm_suite());
    srunner_add_suite(runner, relevance_suite());
    return runner_run(runner);
}
