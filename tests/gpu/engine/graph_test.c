/* Decode steps as graphs: right, dropped when idle, and done without where a capture fails. */
#include <stdio.h>
#include <string.h>

#include "gpu/emu/emu.h"
#include "gpu/engine/engine.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/drive.h"

static struct drive drive;

static void setup(enum emu_engine engine, uint64_t seed)
{
    struct emu_options options = {.engine = engine,
                                  .memory_bytes = 256u << 20,
                                  .team_threads = 1,
                                  .seed = seed,
                                  .poison = true,
                                  .strict = true};
    ck_assert_int_eq(emu_setup(&options), cudaSuccess);
    struct drive_options drive_options = {
        .seed = seed + 100, .stepping = engine == EMU_STEPPER, .graphs = true};
    ck_assert_int_eq(drive_open(&drive, &drive_options), 0);
}

static struct gpu_counters counters(void)
{
    struct gpu_counters now;
    gpu_module.counters(drive.engine, 0, &now);
    return now;
}

static void close_clean(void)
{
    drive_close(&drive);
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.graphs, 0);
    ck_assert_uint_eq(live.device_bytes, 0);
}

START_TEST(graphs_give_the_answers_of_the_rule)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        setup(_i ? EMU_STREAM_THREAD : EMU_STEPPER, seed);
        ck_assert_int_eq(drive_steps(&drive, 200), 0);
        ck_assert_int_eq(drive_finish(&drive), 0);
        ck_assert_msg(drive.wrong == 0, "seed %lu", (unsigned long)seed);
        ck_assert_uint_gt(counters().graph_steps, 50);
        ck_assert_uint_lt(counters().graph_steps, 200); /* eager ones between */
        close_clean();
    }
}
END_TEST

START_TEST(a_graph_is_captured_behind_the_second_step_that_wants_it)
{
    struct cuda_graph before[GRAPH_ROWS * GRAPH_CONTEXTS * GRAPH_KINDS];
    uint32_t wanted = 0, captured = 0;
    setup(EMU_STEPPER, 2);
    const struct cuda_graph *now = &drive.engine->rank.graphs.table[0][0][0];
    for (uint32_t step = 0; step < 200; step++) {
        memcpy(before, now, sizeof before);
        ck_assert_int_eq(drive_steps(&drive, 1), 0);
        for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
            if (now[i].wanted && !before[i].wanted) {
                wanted++;
                ck_assert_ptr_null(now[i].exec);
            } else if (now[i].exec && !before[i].exec) {
                captured++;
            }
        }
    }
    ck_assert_uint_gt(captured, 2);
    ck_assert_uint_ge(wanted, captured);
    ck_assert_uint_eq(captured, counters().captures);
    ck_assert_int_eq(drive_finish(&drive), 0);
    close_clean();
}
END_TEST

START_TEST(idle_drops_graphs_and_their_arena)
{
    setup(EMU_STEPPER, 1);
    for (int cycle = 0; cycle < 3; cycle++) {
        drive.target_seqs = DRIVE_SEQS;
        uint64_t captures = counters().captures;
        ck_assert_int_eq(drive_steps(&drive, 100), 0);
        ck_assert_uint_gt(counters().captures, captures);
        struct gpu_memory memory;
        gpu_module.memory(drive.engine, 0, &memory);
        ck_assert_uint_gt(memory.graphs, 0);
        ck_assert_uint_gt(emu_live().graphs, 0);
        drive_end_all(&drive);
        ck_assert_int_eq(drive_steps(&drive, 2), 0);
        ck_assert_int_eq(drive_finish(&drive), 0);
        ck_assert_int_eq(gpu_module.trim(drive.engine, NULL), 0);
        gpu_module.memory(drive.engine, 0, &memory);
        ck_assert_uint_eq(memory.graphs + memory.scratch_used + memory.scratch_held, 0);
        ck_assert_uint_eq(emu_live().graphs, 0);
    }
    ck_assert_uint_eq(drive.wrong, 0);
    close_clean();
}
END_TEST

static const enum emu_call graph_calls[] = {
    EMU_cudaStreamBeginCapture, EMU_cudaStreamEndCapture, EMU_cudaGraphGetNodes,
    EMU_cudaGraphInstantiate,   EMU_cudaGraphUpload,
};
#define GRAPH_CALLS (int)(sizeof graph_calls / sizeof graph_calls[0])

static char last_line[512];
static uint32_t lines;

static void line_keep(enum gpu_log_level level, const char *line)
{
    ck_assert_int_eq(level, GPU_LOG_WARNING);
    snprintf(last_line, sizeof last_line, "%s", line);
    lines++;
}

START_TEST(a_capture_that_fails_is_done_without)
{
    setup(EMU_STEPPER, 3);
    drive.engine->log = line_keep;
    lines = 0;
    emu_fault_set(graph_calls[_i], 1, cudaErrorInvalidValue);
    ck_assert_int_eq(drive_steps(&drive, 200), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    ck_assert_uint_eq(drive.wrong, 0);
    ck_assert_uint_eq(lines, 1);
    ck_assert_ptr_nonnull(strstr(last_line, emu_call_name(graph_calls[_i])));
    ck_assert_uint_gt(counters().graph_steps, 0); /* of other buckets */
    close_clean();
}
END_TEST

START_TEST(a_launch_that_fails_ends_the_engine)
{
    setup(EMU_STREAM_THREAD, 4);
    ck_assert_int_eq(drive_steps(&drive, 50), 0);
    emu_fault_set(EMU_cudaGraphLaunch, 2, cudaErrorIllegalAddress);
    ck_assert_int_eq(drive_steps(&drive, 50), -ERR_DEVICE);
    drive_close(&drive);
}
END_TEST

Suite *graph_suite(void)
{
    Suite *suite = suite_create("graph");
    TCase *tcase = tcase_create("graph");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, graphs_give_the_answers_of_the_rule, 0, 2);
    tcase_add_test(tcase, a_graph_is_captured_behind_the_second_step_that_wants_it);
    tcase_add_test(tcase, idle_drops_graphs_and_their_arena);
    tcase_add_loop_test(tcase, a_capture_that_fails_is_done_without, 0, GRAPH_CALLS);
    tcase_add_test(tcase, a_launch_that_fails_ends_the_engine);
    suite_add_tcase(suite, tcase);
    return suite;
}
