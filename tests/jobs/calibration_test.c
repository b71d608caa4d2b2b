/* The sweep of chunks and lanes: each point runs all of its jobs, and what is chosen is the least
 * memory near the best. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/option.h"
#include "daemon/jobs/calibration.h"
#include "gpu/jobs/module.h"
#include "protocol/base/json.h"
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
            found.points[i][j] = (struct calibration_point){.chunk_bytes = UINT64_C(65536) << i,
                                                            .lanes = 1 + j,
                                                            .bytes = 1,
                                                            .rate = rates[i][j]};
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
    calibration_print(&(struct calibration_told){&found, NULL, "affine", "CPU"}, file);
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

static const struct gpu_machine example_machine = {
    .copy_engines = 3,
    .rates = {{10e9, 10e9}, {50e9, 40e9}},
    .both_rate = 88e9,
    .allocation_bytes = 16 << 20,
    .allocators = {{100, 2, 300}, {50, 1.5, 200}, {2, 1, 20}},
    .kept_bytes = 16 << 20,
    .batches = 4,
    .batch_bytes = 1 << 20,
    .stage_us = {10, 10, 10},
    .issue_us = {120, 130, 60, 61},
    .stream_count = 3,
    .streams = {1, 2, 4},
    .streams_gain = {1, 1.9, 2.5},
    .default_gain = 1,
    .threads_gain = 3.9};

/* ---- a configuration that has been one before --------------------------------------------------
 */

static const char before[] = "# mine\njob-lanes = 3\nprogram = /a.so\n  job-chunk=1MiB # old\n"
                             "#job-chunk = 2MiB\njob-chunks-not = 1\nsocket = /s"; /* no end */

static void store(const char *path)
{
    struct error error;
    ck_assert_msg(
        !calibration_store(&(struct calibration_told){&found, NULL, "affine", "CPU"}, path, &error),
        "%s", error.text);
}

static char *content(const char *path)
{
    static char text[8192];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

static uint32_t times(const char *text, const char *what)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

START_TEST(what_is_found_takes_the_place_of_what_was_set)
{
    static const double first[3][2] = {{1, 2}, {2, 9}, {3, 0}},
                        second[3][2] = {{9, 1}, {1, 1}, {1, 1}};
    static const char kept[] =
        "# mine\nprogram = /a.so\n#job-chunk = 2MiB\njob-chunks-not = 1\nsocket = /s\n"
        "# sluiced --calibrate: what it found\n# affine on CPU";
    char folder[] = "/tmp/sluice-store-XXXXXX", path[64], other[64], *text;
    struct stat status;
    struct error error;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/sluiced.conf", folder);
    snprintf(other, sizeof(other), "%s/sluiced.conf.new", folder);
    make_points(first);
    ck_assert(calibration_choose(&found));
    store(path); /* where there is none, one is made */
    ck_assert_uint_eq(times(content(path), "\njob-chunk = 128KiB\njob-lanes = 2\n"), 1);
    FILE *file = fopen(path, "w");
    fputs(before, file);
    fclose(file);
    ck_assert_int_eq(chmod(path, 0640), 0);
    store(path);
    text = content(path);
    ck_assert_msg(!strncmp(text, kept, sizeof(kept) - 1), "%s", text);
    ck_assert_uint_eq(times(text, "\njob-chunk = 128KiB\njob-lanes = 2\n"), 1);
    make_points(second);
    ck_assert(calibration_choose(&found));
    store(path);
    text = content(path);
    ck_assert_msg(!strncmp(text, kept, sizeof(kept) - 1), "%s", text);
    ck_assert_uint_eq(times(text, "\njob-chunk = 64KiB\njob-lanes = 1\n"), 1);
    ck_assert_uint_eq(times(text, "GB/s of inputs"), 1);
    ck_assert(!stat(path, &status) && (status.st_mode & 07777) == 0640 && access(other, F_OK) != 0);
    ck_assert_int_eq(calibration_store(&(struct calibration_told){&found, NULL, "affine", "CPU"},
                                       folder, &error),
                     -ERR_IO); /* it is a folder, and nothing is left beside it */
    snprintf(other, sizeof(other), "%s.new", folder);
    ck_assert(access(other, F_OK) != 0 && !unlink(path) && !rmdir(folder));
}
END_TEST

/* What stood behind a block whose end somebody took away is not ours. */
START_TEST(a_block_without_its_end_ends_before_the_next_option)
{
    static const double rates[3][2] = {{1, 2}, {2, 9}, {3, 0}};
    char path[] = "/tmp/sluice-store-XXXXXX";
    int fd = mkstemp(path);
    static const char cut[] =
        "# sluiced --calibrate: what it found\n# a curve\njob-chunk = 1MiB\nsocket = /s\n# mine\n\0zero\n";
    ck_assert(fd >= 0 && write(fd, cut, sizeof(cut) - 1) == sizeof(cut) - 1);
    close(fd);
    make_points(rates);
    ck_assert(calibration_choose(&found));
    store(path);
    ck_assert(!memcmp(content(path), "socket = /s\n# mine\n\0zero\n# sluiced", 34));
    unlink(path);
}
END_TEST

static char *told(void (*tell)(const struct calibration_told *told, FILE *file))
{
    static const double rates[3][2] = {{1, 2}, {2, 9}, {3, 4}};
    char *text = NULL;
    size_t length;
    make_points(rates);
    ck_assert(calibration_choose(&found));
    FILE *file = open_memstream(&text, &length);
    tell(&(struct calibration_told){&found, &example_machine, "affine", "cuda"}, file);
    fclose(file);
    return text;
}

START_TEST(the_machine_stands_beside_the_choice_as_comments)
{
    char *text = told(calibration_print);
    ck_assert_ptr_nonnull(strstr(text, "pinned 5.0 and 4.0 times\n"));
    ck_assert_ptr_nonnull(strstr(text, "a pool that keeps costs 98 % less than cudaMalloc"));
    ck_assert_ptr_nonnull(strstr(text, "interleaved 60 us (2.00 times), grouped 61 us"));
    ck_assert_ptr_nonnull(strstr(text, "nearly linear up to 2\n"));
    ck_assert_ptr_null(strstr(text, "emulates"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        ck_assert(line[0] == '#' || strncmp(line, "job-", 4) == 0);
    free(text);
}
END_TEST

static uint32_t count_of(const char *text, const char *what)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

START_TEST(the_page_has_a_curve_for_each_number_of_lanes_and_marks_the_best)
{
    char *text = told(calibration_page);
    ck_assert_uint_eq(count_of(text, "<svg"), 3);
    ck_assert_uint_eq(count_of(text, "</svg>"), 3);
    ck_assert_uint_eq(count_of(text, "<polyline"), 2 + 3 + 1); /* lanes, stages, streams */
    ck_assert_uint_eq(count_of(text, "<title>best</title>"), 1);
    ck_assert_uint_eq(count_of(text, "<title>chosen</title>"), 1);
    ck_assert_uint_eq(count_of(text, "<title>the knee</title>"), 1);
    ck_assert_ptr_nonnull(strstr(text, "job-lanes = 2\n</pre>"));
    free(text);
}
END_TEST

START_TEST(json_has_all_of_it)
{
    char *text = told(calibration_json);
    json *all;
    ck_assert_int_eq(json_parse(text, strlen(text),
                                (struct json_bounds){.bytes_max = 1 << 20, .depth_max = 8}, &all,
                                NULL),
                     0);
    ck_assert_uint_eq(json_count(json_get(all, "points")), 6);
    ck_assert(json_number(json_get(json_get(all, "chosen"), "lanes")) == 2);
    const json *machine = json_get(all, "machine");
    ck_assert(json_number(json_get(machine, "pinned_both")) == 88e9);
    ck_assert(json_number(json_get(machine, "knee")) == 2);
    ck_assert_uint_eq(json_count(json_get(machine, "streams")), 3);
    ck_assert(json_number(json_get(json_get(json_get(machine, "allocators"), "pool_keep"), "us")) ==
              2);
    json_free(all);
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
                                            .staging_max = 1 << 20,
                                            .limit_us = 3600000000};
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

/* The first point is run as far as it must be; for the others there is no time. */
START_TEST(a_sweep_whose_time_is_over_leaves_points_out)
{
    const struct calibration_range range = {.chunk_min = 64 << 10,
                                            .chunk_max = 128 << 10,
                                            .lanes_max = 2,
                                            .data_min = 1 << 20,
                                            .staging_max = 1 << 20,
                                            .limit_us = 0};
    struct error error;
    bench_setup(EMU_THREADS, 0);
    load_affine();
    ck_assert_msg(run(&range, &error) == 0, "%s", error.text);
    for (uint32_t i = 0; i < 4; i++) {
        const struct calibration_point *point = &found.points[i / 2][i % 2];
        ck_assert(point->late);
        ck_assert_uint_eq(point->jobs, i == 0 ? 2 : 0);
        ck_assert((point->rate > 0) == (i == 0));
    }
    ck_assert_ptr_eq(found.chosen, &found.points[0][0]);
    check_clean();
}
END_TEST

static void set_up_machine(void)
{
    const struct emu_options options = {.engine = EMU_THREADS,
                                        .devices = 1,
                                        .memory_bytes = 256u << 20,
                                        .team_threads = 1,
                                        .poison = true,
                                        .strict = true};
    ck_assert_int_eq(emu_setup(&options), cudaSuccess);
}

/* What it says of an emulation is worth nothing; that it says all of it, and leaves nothing. */
START_TEST(the_machine_is_measured_once_at_least_and_given_back)
{
    const struct gpu_jobs_options options = {.lanes = 1, .ring = 1, .stream_count = 1};
    struct gpu_machine machine;
    struct error error;
    set_up_machine();
    ck_assert_msg(gpu_jobs.measure(&options, 0, &machine, &error) == 0, "%s", error.text);
    ck_assert(machine.emulated && machine.copy_engines > 0 && machine.both_rate > 0);
    for (int i = 0; i < 4; i++)
        ck_assert(machine.rates[i / 2][i % 2] > 0 && machine.issue_us[i] > 0);
    for (int i = 0; i < GPU_MACHINE_ALLOCATORS; i++)
        ck_assert(machine.allocators[i].us > 0 && machine.allocators[i].others > 0);
    ck_assert(machine.kept_bytes >= machine.allocation_bytes && machine.trimmed_bytes == 0);
    ck_assert_uint_eq(machine.stream_count, 5); /* 1 to 16 */
    ck_assert_uint_eq(machine.streams[4], 16);
    ck_assert(machine.threads_gain > 0 && machine.default_gain > 0);
    check_clean();
    ck_assert_uint_eq(emu_live().device_bytes, 0);
}
END_TEST

START_TEST(what_measuring_has_taken_goes_back_when_a_call_fails)
{
    static const struct {
        enum emu_call call;
        uint64_t nth;
    } fails[] = {{EMU_cudaStreamCreateWithPriority, 3},
                 {EMU_cudaEventCreateWithFlags, 5},
                 {EMU_cudaHostAlloc, 2},
                 {EMU_cudaMalloc, 2},
                 {EMU_cudaMemcpyAsync, 3},
                 {EMU_cudaMemPoolCreate, 2},
                 {EMU_cudaMallocFromPoolAsync, 2},
                 {EMU_cudaStreamWaitEvent, 2},
                 {EMU_launch, 20}};
    const struct gpu_jobs_options options = {.lanes = 1, .ring = 1, .stream_count = 1};
    struct gpu_machine machine;
    struct error error;
    set_up_machine();
    emu_fault_set(fails[_i].call, fails[_i].nth, cudaErrorMemoryAllocation);
    ck_assert_int_eq(gpu_jobs.measure(&options, 0, &machine, &error), -ERR_DEVICE_MEMORY);
    check_clean();
    ck_assert_uint_eq(emu_live().device_bytes, 0);
}
END_TEST

START_TEST(a_program_that_fails_or_fits_no_chunk_is_refused)
{
    const struct calibration_range range = {.chunk_min = 64 << 10,
                                            .chunk_max = 64 << 10,
                                            .lanes_max = 1,
                                            .data_min = 1 << 20,
                                            .staging_max = 1 << 20,
                                            .limit_us = 3600000000};
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
    tcase_add_test(tests, what_is_found_takes_the_place_of_what_was_set);
    tcase_add_test(tests, a_block_without_its_end_ends_before_the_next_option);
    tcase_add_test(tests, every_point_runs_its_jobs_through_its_lanes);
    tcase_add_test(tests, a_program_that_fails_or_fits_no_chunk_is_refused);
    tcase_add_test(tests, the_machine_stands_beside_the_choice_as_comments);
    tcase_add_test(tests, the_page_has_a_curve_for_each_number_of_lanes_and_marks_the_best);
    tcase_add_test(tests, json_has_all_of_it);
    tcase_add_test(tests, a_sweep_whose_time_is_over_leaves_points_out);
    tcase_add_test(tests, the_machine_is_measured_once_at_least_and_given_back);
    tcase_add_loop_test(tests, what_measuring_has_taken_goes_back_when_a_call_fails, 0, 9);
    suite_add_tcase(suite, tests);
    return suite;
}
