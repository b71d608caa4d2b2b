/* The engine with synthetic:null: every answer right, whatever the plans, on both engines of the
 * emulation. */
#include <sched.h>
#include <string.h>

#include "gpu/emu/emu.h"
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
}

static void clean_check(void)
{
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.streams, 0);
    ck_assert_uint_eq(live.events, 0);
    ck_assert_uint_eq(live.pools, 0);
    ck_assert_uint_eq(live.host_ranges, 0);
    ck_assert_uint_eq(live.device_bytes, 0);
}

START_TEST(random_plans_give_the_answers_of_the_rule_when_stepped)
{
    uint64_t shrunk = 0, score_tops = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        setup(EMU_STEPPER, seed);
        struct drive_options options = {.seed = seed * 7919, .stepping = true};
        ck_assert_int_eq(drive_open(&drive, &options), 0);
        ck_assert_int_eq(drive_steps(&drive, 150), 0);
        ck_assert_int_eq(drive_finish(&drive), 0);
        ck_assert_msg(drive.wrong == 0, "seed %lu: %lu wrong", (unsigned long)seed,
                      (unsigned long)drive.wrong);
        ck_assert_uint_gt(drive.samples, 0);
        ck_assert_uint_gt(drive.scores, 0);
        ck_assert_uint_gt(drive.embeds, 0);
        ck_assert_uint_gt(drive.moves, 0);
        shrunk += drive.shrunk;
        score_tops += drive.score_tops;
        drive_close(&drive);
        clean_check();
    }
    ck_assert_uint_gt(shrunk, 0);
    ck_assert_uint_gt(score_tops, 0);
}
END_TEST

START_TEST(random_plans_give_the_answers_of_the_rule_on_threads)
{
    setup(_i ? EMU_STREAM_THREAD : EMU_THREADS, 0);
    struct drive_options options = {.seed = 5 + (uint64_t)_i};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    ck_assert_int_eq(drive_steps(&drive, 2000), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    ck_assert_uint_eq(drive.wrong, 0);
    ck_assert_uint_gt(drive.ends, 0);
    struct gpu_counters counters;
    gpu_module.counters(drive.engine, 0, &counters);
    ck_assert_uint_eq(counters.steps, 2000);
    ck_assert_uint_eq(counters.allocations, 0);
    ck_assert_uint_eq(counters.synchronizes, 0);
    ck_assert_uint_eq(emu_pageable_copies(), 0);
    drive_close(&drive);
    clean_check();
}
END_TEST

START_TEST(kv_that_cannot_grow_is_refused_and_the_rest_goes_on)
{
    setup(EMU_STEPPER, 3);
    /* Four slabs for sequences that want many more. */
    struct drive_options options = {.seed = 11, .stepping = true, .kv_max = 4 * 8 * 256};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    ck_assert_int_eq(drive_steps(&drive, 400), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    ck_assert_uint_gt(drive.refused, 0);
    ck_assert_uint_gt(drive.samples, 0);
    ck_assert_uint_eq(drive.wrong, 0);
    ck_assert_int_eq(drive.error.code, ERR_DEVICE_MEMORY);
    drive_close(&drive);
    clean_check();
}
END_TEST

START_TEST(a_step_whose_scratch_cannot_grow_may_be_submitted_again)
{
    setup(EMU_STEPPER, 3);
    struct drive_options options = {.seed = 12, .stepping = true};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    int32_t ids[300];
    memset(ids, 0, sizeof ids);
    struct gpu_open open = {.slot = 0, .prompt_len = 300};
    uint32_t slab;
    ck_assert_int_eq(gpu_module.kv_grow(drive.engine, 0, &slab, NULL), 0);
    ck_assert_int_eq(gpu_module.kv_grow(drive.engine, 0, &slab, NULL), 0);
    struct gpu_slab slabs[] = {{0, 0}, {0, 1}};
    struct gpu_append appends[10];
    for (uint32_t i = 0; i < 10; i++)
        appends[i] = (struct gpu_append){.slot = 0, .index = i, .block = i};
    struct gpu_row row = {.q_len = 300, .want = GPU_SAMPLE};
    struct gpu_plan plan = {.step = 1,
                            .slab_count = 2,
                            .open_count = 1,
                            .append_count = 10,
                            .row_count = 1,
                            .id_count = 300,
                            .token_count = 300,
                            .slabs = slabs,
                            .opens = &open,
                            .appends = appends,
                            .rows = &row,
                            .ids = ids};
    emu_fault_set(EMU_cudaMallocFromPoolAsync, 1, cudaErrorMemoryAllocation);
    /* The engine tries once more by itself, so the first failure passes unseen. */
    ck_assert_int_eq(gpu_module.submit(drive.engine, 0, &plan, NULL), 0);
    while (gpu_module.completed(drive.engine, 0) < 1)
        ck_assert(emu_step());
    emu_memory_limit(0);
    row = (struct gpu_row){.position = 300, .q_len = 20, .want = GPU_SAMPLE};
    plan = (struct gpu_plan){
        .step = 2, .row_count = 1, .id_count = 20, .token_count = 20, .rows = &row, .ids = ids};
    ck_assert_int_eq(gpu_module.trim(drive.engine, NULL), 0);
    struct error error;
    ck_assert_int_eq(gpu_module.submit(drive.engine, 0, &plan, &error), -ERR_DEVICE_MEMORY);
    emu_memory_limit(UINT64_MAX);
    ck_assert_int_eq(gpu_module.submit(drive.engine, 0, &plan, &error), 0);
    while (gpu_module.completed(drive.engine, 0) < 2)
        ck_assert(emu_step());
    drive_close(&drive);
    clean_check();
}
END_TEST

/* The calls that a step makes. */
static const enum emu_call step_calls[] = {
    EMU_cudaMemcpyAsync,         EMU_cudaEventRecord, EMU_cudaStreamWaitEvent, EMU_launch,
    EMU_cudaMallocFromPoolAsync, EMU_cudaFreeAsync,   EMU_cudaLaunchHostFunc,
};
#define STEP_CALLS (int)(sizeof step_calls / sizeof step_calls[0])

START_TEST(a_sticky_error_in_any_call_ends_the_engine_and_says_so)
{
    setup(EMU_STREAM_THREAD, 0);
    struct drive_options options = {.seed = 13};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    ck_assert_int_eq(drive_steps(&drive, 50), 0);
    emu_fault_set(step_calls[_i], 2, cudaErrorIllegalAddress);
    int status = drive_steps(&drive, 20);
    ck_assert_msg(status == -ERR_DEVICE, "%s: %d", emu_call_name(step_calls[_i]), status);
    ck_assert_int_eq(drive.error.code, ERR_DEVICE);
    struct error error;
    ck_assert_int_eq(gpu_module.query(drive.engine, 0, &error), GPU_FAILED);
    drive_close(&drive);
}
END_TEST

START_TEST(a_call_that_fails_halfway_through_a_step_ends_the_engine)
{
    setup(EMU_STREAM_THREAD, 0);
    struct drive_options options = {.seed = 13};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    ck_assert_int_eq(drive_steps(&drive, 50), 0);
    emu_fault_set(step_calls[_i], 2, cudaErrorInvalidValue);
    ck_assert_int_eq(drive_steps(&drive, 20), -ERR_DEVICE);
    struct gpu_plan plan = {.step = drive.step + 1};
    ck_assert_int_eq(gpu_module.submit(drive.engine, 0, &plan, &drive.error), -ERR_DEVICE);
    drive_close(&drive);
}
END_TEST

START_TEST(a_kernel_that_never_ends_keeps_the_device_busy)
{
    setup(EMU_STREAM_THREAD, 0);
    struct drive_options options = {.seed = 14};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    ck_assert_int_eq(drive_steps(&drive, 10), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    struct error error;
    /* The last host function has stored its number, but may still be on its way back. */
    enum gpu_progress progress;
    while ((progress = gpu_module.query(drive.engine, 0, &error)) == GPU_BUSY)
        sched_yield();
    ck_assert_int_eq(progress, GPU_IDLE);
    emu_fault_hang(1);
    ck_assert_int_eq(drive_steps(&drive, 1), 0);
    ck_assert_int_eq(gpu_module.query(drive.engine, 0, &error), GPU_BUSY);
    /* Only a lost device lets go of it. */
    emu_fault_set(EMU_cudaStreamQuery, 1, cudaErrorLaunchFailure);
    ck_assert_int_eq(gpu_module.query(drive.engine, 0, &error), GPU_FAILED);
    ck_assert_int_eq(error.code, ERR_DEVICE);
    struct gpu_plan plan = {.step = drive.step + 1};
    ck_assert_int_eq(gpu_module.submit(drive.engine, 0, &plan, &error), -ERR_DEVICE);
    drive_close(&drive);
}
END_TEST

START_TEST(lanes_have_times_in_their_order_only_when_profiling)
{
    setup(EMU_THREADS, 0);
    struct drive_options options = {.seed = 15, .profile = _i};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    ck_assert_int_eq(drive_steps(&drive, 50), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    ck_assert_uint_eq(drive.wrong, 0);
    ck_assert(_i == (drive.in_ns > 0));
    ck_assert(_i == (drive.out_ns > 0));
    ck_assert_uint_eq(drive.profiled, _i ? 50 : 0);
    drive_close(&drive);
    clean_check();
}
END_TEST

START_TEST(unknown_models_and_options_are_refused_with_a_reason)
{
    static const struct {
        struct gpu_options options;
        int code;
    } cases[] = {
        {{.model = "synthetic:none-such"}, ERR_BAD_MODEL},
        {{.model = ""}, ERR_BAD_CONFIG},
        {{.model = "synthetic:null", .pp = 9}, ERR_BAD_CONFIG},
        {{.model = "synthetic:null", .tp = 17}, ERR_BAD_CONFIG},
        {{.model = "synthetic:tiny", .tp = 3}, ERR_BAD_CONFIG},
        {{.model = "synthetic:tiny", .ep = true}, ERR_BAD_CONFIG},
        {{.model = "synthetic:null", .depth = 3}, ERR_BAD_CONFIG},
        {{.model = "synthetic:null", .block_tokens = 24}, ERR_BAD_CONFIG},
        {{.model = "synthetic:null", .slots_max = 1u << 20}, ERR_BAD_CONFIG},
        {{.model = "synthetic:null", .tokens_max = 1u << 20}, ERR_BAD_CONFIG},
    };
    struct gpu_model model;
    struct error error;
    ck_assert_int_eq(gpu_module.check(&cases[_i].options, &model, &error), -cases[_i].code);
    ck_assert_int_eq(error.code, cases[_i].code);
    ck_assert_str_ne(error.text, "");
}
END_TEST

Suite *engine_suite(void)
{
    Suite *suite = suite_create("engine");
    TCase *tcase = tcase_create("engine");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, random_plans_give_the_answers_of_the_rule_when_stepped);
    tcase_add_loop_test(tcase, random_plans_give_the_answers_of_the_rule_on_threads, 0, 2);
    tcase_add_test(tcase, kv_that_cannot_grow_is_refused_and_the_rest_goes_on);
    tcase_add_test(tcase, a_step_whose_scratch_cannot_grow_may_be_submitted_again);
    tcase_add_loop_test(tcase, a_sticky_error_in_any_call_ends_the_engine_and_says_so, 0,
                        STEP_CALLS);
    tcase_add_loop_test(tcase, a_call_that_fails_halfway_through_a_step_ends_the_engine, 0,
                        STEP_CALLS);
    tcase_add_test(tcase, a_kernel_that_never_ends_keeps_the_device_busy);
    tcase_add_loop_test(tcase, lanes_have_times_in_their_order_only_when_profiling, 0, 2);
    tcase_add_loop_test(tcase, unknown_models_and_options_are_refused_with_a_reason, 0, 7);
    suite_add_tcase(suite, tcase);
    return suite;
}
