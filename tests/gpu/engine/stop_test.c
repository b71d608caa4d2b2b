/* Stopping: what the device does not take back is told, and nothing else is left. */
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/emu/emu.h"
#include "gpu/engine/engine.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/drive.h"

static struct drive drive;
/* Those that failed are never freed: a host function may be running. */
static struct gpu_engine *lost[256];
static uint32_t lost_count;

static void lose(struct gpu_engine *engine)
{
    ck_assert_uint_lt(lost_count, sizeof lost / sizeof lost[0]);
    lost[lost_count++] = engine;
    gpu_module.close(engine);
}

/* One that has served: with slabs, graphs, and what slots keep beside their KV. */
static void serve(void)
{
    const struct emu_options setup = {.engine = EMU_STEPPER,
                                      .memory_bytes = 256u << 20,
                                      .team_threads = 1,
                                      .seed = 1,
                                      .poison = true,
                                      .strict = true};
    const struct drive_options options = {.seed = 31, .stepping = true, .graphs = true};
    ck_assert_int_eq(emu_setup(&setup), cudaSuccess);
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    ck_assert_int_eq(drive_steps(&drive, 100), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    struct rank *rank = &drive.engine->rank;
    ck_assert_int_eq(state_seen_take(&rank->state, &rank->mem, NULL), 0);
    ck_assert_int_eq(state_kept_take(&rank->state, &rank->mem, NULL), 0);
    ck_assert_uint_gt(drive.slabs, 0);
    ck_assert_uint_gt(emu_live().graphs, 0);
}

/* What cudaEventDestroy() and cudaStreamDestroy() leave has no bytes, and is not told. */
static const enum emu_call calls[] = {EMU_cudaFreeAsync,        EMU_cudaGraphExecDestroy,
                                      EMU_cudaGraphDestroy,     EMU_cudaStreamSynchronize,
                                      EMU_cudaFree,             EMU_cudaFreeHost,
                                      EMU_cudaMemPoolDestroy};
#define CALLS (int)(sizeof calls / sizeof calls[0])

static const cudaError_t failures[] = {cudaErrorInvalidValue, cudaErrorMemoryAllocation,
                                       cudaErrorIllegalAddress};
#define FAILURES 3

/* What is told of the engine is what there is; pools hand out rounded pieces. */
static void told_check(void)
{
    const struct emu_live live = emu_live();
    struct gpu_memory told;
    gpu_module.memory(drive.engine, 0, &told);
    const uint64_t used = told.weights + told.kv_used + told.scratch_used + told.graphs;
    ck_assert((live.device_bytes > 0) == (used > 0));
    ck_assert_uint_ge(live.device_bytes, used);
    ck_assert_uint_le(live.device_bytes,
                      told.weights + told.kv_held + told.scratch_held + told.graphs);
    ck_assert((live.host_ranges > 0) == (told.pinned > 0));
    ck_assert((live.pools > 0) == (told.kv_held + told.scratch_held + told.graphs > 0));
}

static void clean_check(void)
{
    const struct emu_live live = emu_live();
    ck_assert_uint_eq(live.streams + live.events + live.pools + live.graphs + live.host_ranges, 0);
    ck_assert_uint_eq(live.device_bytes, 0);
}

/* Every one of its calls, by every error, also those that say of a device that it goes on. */
START_TEST(a_call_that_fails_while_stopping_is_told)
{
    const enum emu_call call = calls[_i / FAILURES];
    bool failed = true;
    uint32_t count = 0;
    for (uint64_t nth = 1; failed; nth++) {
        struct error error = {.code = 0};
        serve();
        emu_fault_set(call, nth, failures[_i % FAILURES]);
        uint64_t before = emu_calls(call);
        int status = gpu_module.stop(drive.engine, 0, &error);
        failed = emu_calls(call) - before >= nth;
        ck_assert_int_eq(status, failed ? -ERR_DEVICE : 0);
        if (failed) {
            count++;
            ck_assert_int_eq(error.code, ERR_DEVICE);
            ck_assert_msg(strstr(error.text, emu_call_name(call)) != NULL, "%s: %s",
                          emu_call_name(call), error.text);
            told_check();
            lose(drive.engine);
        } else {
            clean_check();
            gpu_module.close(drive.engine);
        }
        close(drive.wake_fd);
    }
    ck_assert_uint_gt(count, 0);
}
END_TEST

/* A graph's scratch outlives what cannot be destroyed, which goes on with it. */
START_TEST(a_graph_that_stays_keeps_its_arena)
{
    struct error error;
    serve();
    struct rank *rank = &drive.engine->rank;
    void *arena = rank->graphs.arena;
    emu_fault_set(EMU_cudaGraphExecDestroy, 1, cudaErrorInvalidValue);
    ck_assert_int_eq(cuda_graph_drop(rank, &rank->graphs, &error), -ERR_DEVICE);
    ck_assert_ptr_eq(rank->graphs.arena, arena);
    ck_assert_uint_gt(emu_live().graphs, 0);
    ck_assert_int_eq(cuda_graph_drop(rank, &rank->graphs, &error), 0);
    ck_assert_ptr_null(rank->graphs.arena);
    ck_assert_uint_eq(emu_live().graphs, 0);
    ck_assert_int_eq(gpu_module.stop(drive.engine, 0, &error), 0);
    clean_check();
    gpu_module.close(drive.engine);
    close(drive.wake_fd);
}
END_TEST

/* Of half a step whose scratch nobody could free the pool stays, and all else is given back. */
START_TEST(an_engine_that_failed_says_so_again_when_it_stops)
{
    struct error error;
    void *scratch;
    serve();
    ck_assert_int_eq(mem_scratch(&drive.engine->rank.mem, 512, &scratch, NULL), 0);
    emu_fault_set(EMU_cudaMemcpyAsync, 1, cudaErrorInvalidValue);
    ck_assert_int_eq(drive_steps(&drive, 1), -ERR_DEVICE);
    ck_assert_int_eq(gpu_module.stop(drive.engine, 0, &error), -ERR_DEVICE);
    ck_assert_str_eq(error.text, "the device failed before");
    ck_assert_uint_eq(emu_live().pools, 1);
    told_check();
    lose(drive.engine);
}
END_TEST

/* That it was refused memory is then not all. */
START_TEST(a_start_that_is_refused_and_leaves_something_has_failed)
{
    const struct emu_options setup = {.engine = EMU_STEPPER, .memory_bytes = 64u << 20};
    const struct gpu_options options = {.model = "synthetic:null"};
    const int fd = eventfd(0, EFD_CLOEXEC);
    struct gpu_engine *engine;
    struct gpu_model model;
    struct gpu_limits limits;
    struct error error;
    ck_assert_int_eq(emu_setup(&setup), cudaSuccess);
    ck_assert_int_eq(gpu_module.open(&options, &engine, &model, &limits, &error), 0);
    emu_fault_set(EMU_cudaMalloc, 2, cudaErrorMemoryAllocation);
    emu_fault_set(EMU_cudaFree, 1, cudaErrorInvalidValue);
    ck_assert_int_eq(gpu_module.start(engine, 0, fd, &error), -ERR_DEVICE);
    ck_assert_int_eq(error.code, ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(error.text, "cudaFree:"));
    lose(engine);
    close(fd);
}
END_TEST

Suite *stop_suite(void)
{
    Suite *suite = suite_create("stop");
    TCase *tcase = tcase_create("stop");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_call_that_fails_while_stopping_is_told, 0, CALLS * FAILURES);
    tcase_add_test(tcase, a_graph_that_stays_keeps_its_arena);
    tcase_add_test(tcase, an_engine_that_failed_says_so_again_when_it_stops);
    tcase_add_test(tcase, a_start_that_is_refused_and_leaves_something_has_failed);
    suite_add_tcase(suite, tcase);
    return suite;
}
