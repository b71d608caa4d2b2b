/* The sweep of chunks and lanes: each point runs all of its jobs, and what is chosen is the least
 * memory near the best. */
#include <stdlib.h>
#include <string.h>

#include "daemon/base/option.h"
#include "daemon/jobs/calibration.h"
#include "gpu/jobs/module.h"
#include "tests/jobs/bench.h"
#include "tests/jobs/daemon_suites.h"

static struct calibration found;
static struct job_programs programs;

/* ---- the choice --------------------------------------------------------------------------------
 */

static void make_points(const double rates[3][2])
{
    memset(&found, 0, sizeof(found));
    found.chunk_count = 3;
    found.lane_count = 2;
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t j = 0; j < 2; j++)
            found.points[i][j] = (struct calibration_point){
                .chunk_bytes = UINT64_C(65536) << i, .lanes = 1 + j, .bytes = 1, .rate = rates[i][j]};
}

START_TEST(the_least_memory_near_the_best_is_chosen)
{
    static const double clear[3][2] = {{1, 2}, {2, 9}, {3, 4}};
    static const double level[3][2] = {{1, 9.71}, {2, 9.8}, {9.69, 10}};
    static const double none[3][2] = {{0}};
    make_points(clear);
    ck_assert(calibration_choose(&found));
    ck_assert_ptr_eq(found.best, &found.points[1][1]);
    ck_assert_ptr_eq(found.chosen, found.best);
    make_points(level);
    ck_assert(calibration_choose(&found));
    ck_assert_ptr_eq(found.best, &found.points[2][1]);
    ck_assert_ptr_eq(found.chosen, &found.points[0][1]);
    make_points(none);
    ck_assert(!calibration_choose(&found));
}
END_TEST

/* What is written is a configuration, and says what was chosen. */
START_TEST(what_is_found_can_be_read_as_options)
{
    static const double rates[3][2] = {{1, 2}, {2, 9}, {3, 0}};
    struct options *options;
    struct error error;
    char *text = NULL;
    size_t length;
    make_points(rates);
    found.points[2][1].bytes = 0;
    ck_assert(calibration_choose(&found));
    FILE *file = open_memstream(&text, &length);
    calibration_print(&found, "affine", "CPU", file);
    fclose(file);
    ck_assert_int_eq(options_defaults(&options, &error), 0);
    ck_assert_msg(options_read_text(options, "found", text, length, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(options->job_chunk, 128 << 10);
    ck_assert_uint_eq(options->job_lanes, 2);
    ck_assert_ptr_nonnull(strstr(text, "#  256KiB    0.000        -\n"));
    options_free(options);
    free(text);
}
END_TEST

/* ---- the sweep ---------------------------------------------------------------------------------
 */

static int run(const struct calibration_range *range, struct error *error)
{
    const struct job_worker_options options = {
        .lanes = {.ring = 2, .stream_count = 2, .event_count = 1},
        .timeout_us = 3600000000,
        .idle_release_us = 3600000000};
    programs.count = 1;
    return calibration_run(&gpu_jobs, &programs, &options, range, &found, error);
}

static void load_affine(void)
{
    struct error error;
    memset(&programs, 0, sizeof(programs));
    ck_assert_msg(!module_load(AFFINE_CPU, "cpu", &programs.list[0].program, &error), "%s",
                  error.text);
}

static void check_clean(void)
{
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.streams + live.events + live.pools + live.host_ranges, 0);
}

/* 64 and 128 KiB at 1 and 2 lanes; a third row is over what lanes may hold but for one lane. */
START_TEST(every_point_runs_its_jobs_through_its_lanes)
{
    const struct calibration_range range = {.chunk_min = 64 << 10,
                                            .chunk_max = 256 << 10,
                                            .lanes_max = 3,
                                            .data_min = 1 << 20,
                                            .staging_max = 1 << 20};
    struct error error;
    bench_setup(EMU_THREADS, 0);
    load_affine();
    ck_assert_msg(run(&range, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(found.chunk_count, 3);
    ck_assert_uint_eq(found.lane_count, 2);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t j = 0; j < 2; j++) {
            const struct calibration_point *point = &found.points[i][j];
            const uint64_t chunk = UINT64_C(65536) << i;
            ck_assert_uint_eq(point->chunk_bytes, chunk);
            ck_assert_uint_eq(point->lanes, 1 + j);
            bool left_out = i == 2 && j == 1;
            ck_assert_uint_eq(point->bytes, left_out ? 0 : 2 << 20); /* items that fill a chunk */
            ck_assert((point->rate > 0) == !left_out);
            ck_assert((point->stage_us[0] > 0) == !left_out);
        }
    ck_assert_ptr_nonnull(found.chosen);
    check_clean();
}
END_TEST

START_TEST(a_program_that_fails_or_fits_no_chunk_is_refused)
{
    const struct calibration_range range = {.chunk_min = 64 << 10,
                                            .chunk_max = 64 << 10,
                                            .lanes_max = 1,
                                            .data_min = 1 << 20,
                                            .staging_max = 1 << 20};
    struct error error;
    bench_setup(EMU_THREADS, 0);
    memset(&programs, 0, sizeof(programs));
    programs.list[0].program = bench_program(&bench_failing);
    ck_assert_int_eq(run(&range, &error), -ERR_PROGRAM);
    load_affine();
    programs.list[0].program.sizes[0].min = 100000;
    ck_assert_int_eq(run(&range, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "smallest item of affine"));
    check_clean();
}
END_TEST

Suite *calibration_suite(void)
{
    Suite *suite = suite_create("calibration");
    TCase *tests = tcase_create("calibration");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, the_least_memory_near_the_best_is_chosen);
    tcase_add_test(tests, what_is_found_can_be_read_as_options);
    tcase_add_test(tests, every_point_runs_its_jobs_through_its_lanes);
    tcase_add_test(tests, a_program_that_fails_or_fits_no_chunk_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
