/* Programs that come with it, by what a device module exports alone: the same on the CPU device and on a
 * GPU, against plain arithmetic, to the bit. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/jobs/gpu_jobs.h"
#include "gpu/jobs/module.h"
#include "tests/runner.h"

#define ITEMS 40
#define LONGEST 3000001u /* more than blocks and threads of a grid at once */
#define ROUNDS 12

struct item {
    float *x, *y;
    uint32_t length;
};

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

/* Lengths around what the kernels divide by, and any. */
static uint32_t draw_length(uint32_t i)
{
    static const uint32_t edges[] = {LONGEST, 1, 3, 4, 5, 255, 256, 1023, 1024, 1025, 16384, 16385};
    return i < sizeof(edges) / sizeof(edges[0]) ? edges[i] : 1 + draw(20000);
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
            item->x[j] = (float)draw(1 << 20) / 777 - 600;
        pieces[i] = (struct gpu_piece){.sizes = {item->length}, .whole = item->length};
        pieces[i].values[0].number = draw(1000) / 7.0;
        pieces[i].values[1].number = draw(1000) / 3.0;
        pieces[i].inputs[0] = item->x;
        pieces[i].outputs[0] = item->y;
    }
}

static uint32_t wrong_elements(const struct gpu_piece *piece, const struct item *item)
{
    uint32_t wrong = 0;
    for (uint32_t j = 0; j < item->length; j++) {
        volatile float product = (float)piece->values[0].number * item->x[j];
        volatile float sum = product + (float)piece->values[1].number;
        float expected = sum;
        wrong += memcmp(&expected, &item->y[j], sizeof(expected)) != 0;
    }
    return wrong;
}

static struct gpu_chunk *wait_for_chunk(struct gpu_jobs *jobs, int wake_fd)
{
    struct gpu_chunk *chunk;
    struct error error;
    uint64_t drained;
    while (!(chunk = gpu_jobs.take(jobs, &error))) {
        struct pollfd poll_fd = {.fd = wake_fd, .events = POLLIN};
        ck_assert_msg(!error.code, "%s", error.text);
        ck_assert_msg(poll(&poll_fd, 1, 60000) == 1, "no chunk has ended for a minute");
        ck_assert(read(wake_fd, &drained, sizeof(drained)) == sizeof(drained));
    }
    return chunk;
}

/* The same chunks again and again, several at once. */
static void go_round(struct gpu_jobs *jobs, int wake_fd, struct gpu_chunk *chunks, uint32_t count)
{
    struct error error;
    uint32_t sent = 0, ended = 0;
    while (ended < ROUNDS) {
        if (sent < ROUNDS && sent - ended < count) {
            ck_assert_msg(!gpu_jobs.submit(jobs, &chunks[sent % count], &error), "%s", error.text);
            sent++;
            continue;
        }
        struct gpu_chunk *chunk = wait_for_chunk(jobs, wake_fd);
        ck_assert_int_eq(chunk->status, 0);
        ended++;
        while (ended < sent) { /* all of these, before any of them goes again */
            ck_assert_int_eq(wait_for_chunk(jobs, wake_fd)->status, 0);
            ended++;
        }
    }
}

START_TEST(test_affine_gives_the_bits_of_plain_arithmetic)
{
    const struct gpu_jobs_options options = {
        .lanes = 2, .ring = 2, .chunk_bytes = 32u << 20, .stream_count = 1, .background = _i};
    static struct gpu_piece pieces[3][ITEMS];
    static struct item items[3][ITEMS];
    struct gpu_chunk chunks[3];
    struct gpu_device device;
    struct program program;
    struct gpu_jobs *jobs;
    struct gpu_jobs_counters counters;
    struct error error;
    uint32_t found = 0;
    if (gpu_module.devices(&device, 1, &found, &error) || found == 0)
        RUNNER_SKIP("there is no device");
    ck_assert_msg(!module_load(AFFINE, gpu_module.name, &program, &error), "%s", error.text);
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_msg(!gpu_jobs.open(&options, &jobs, &error), "%s", error.text);
    ck_assert_msg(!gpu_jobs.start(jobs, wake_fd, &error), "%s", error.text);
    for (int i = 0; i < 3; i++)
        make_chunk(&program, &chunks[i], pieces[i], items[i]);
    go_round(jobs, wake_fd, chunks, 3);
    for (int i = 0; i < 3; i++)
        for (uint32_t j = 0; j < ITEMS; j++) {
            ck_assert_uint_eq(wrong_elements(&pieces[i][j], &items[i][j]), 0);
            free(items[i][j].x);
            free(items[i][j].y);
        }
    gpu_jobs.counters(jobs, &counters);
    ck_assert_uint_eq(counters.chunks, ROUNDS);
    ck_assert_uint_gt(counters.overlapped, 0);
    ck_assert_uint_eq(counters.synchronizes + counters.pageable_copies + counters.allocations, 0);
    ck_assert_msg(!gpu_jobs.trim(jobs, &error), "%s", error.text);
    gpu_jobs.stop(jobs);
    gpu_jobs.close(jobs);
    close(wake_fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("programs");
    TCase *tests = tcase_create("programs");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_affine_gives_the_bits_of_plain_arithmetic, 0, 2);
    suite_add_tcase(suite, tests);
    return runner_run(srunner_create(suite));
}
