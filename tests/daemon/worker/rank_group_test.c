/* Ranks of one engine driven from their own threads: they start and stop together, a step runs on
 * all of them or on none, and one that is lost ends them all. */
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/worker/rank_group.h"
#include "gpu/emu/emu.h"
#include "tests/daemon/worker/rank_group_suite.h"

#define RANKS 2

static struct gpu_engine *engine;
static struct gpu_model model;
static struct gpu_limits limits;
static struct rank_group *group;
static struct error error;
static int wake_fd;
static uint64_t step;

/* Two ranks that share each layer, or the layers out. */
static const struct {
    uint32_t tp, pp;
} layouts[] = {{2, 1}, {1, 2}};

static void engine_open(const char *name, int layout)
{
    struct emu_options emu = {.engine = EMU_THREADS,
                              .devices = RANKS,
                              .memory_bytes = 128u << 20,
                              .team_threads = 1,
                              .poison = true,
                              .strict = true};
    struct gpu_options options = {.model = name,
                                  .tp = layouts[layout].tp,
                                  .pp = layouts[layout].pp,
                                  .slots_max = 8,
                                  .tokens_max = 64};
    ck_assert_int_eq(emu_setup(&emu), cudaSuccess);
    int rc = gpu_module.open(&options, &engine, &model, &limits, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ck_assert_int_eq(rank_group_make(&gpu_module, engine, RANKS, &group, &error), 0);
    step = 0;
}

/* Of an engine that failed a host function may write to the descriptor still. */
static void engine_leave(void)
{
    (void)rank_group_stop(group, &error);
    rank_group_free(group);
    gpu_module.close(engine);
}

static void engine_close(void)
{
    engine_leave();
    close(wake_fd);
}

static void nothing_is_left(void)
{
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.streams, 0);
    ck_assert_uint_eq(live.events, 0);
    ck_assert_uint_eq(live.pools, 0);
    ck_assert_uint_eq(live.graphs, 0);
    ck_assert_uint_eq(live.host_ranges, 0);
    ck_assert_uint_eq(live.device_bytes, 0);
}

/* The first step opens a sequence of one block; every further one makes a token of it. */
static int submit_one(void)
{
    static const int32_t ids[] = {1, 2, 3};
    static struct gpu_slab slab;
    static struct gpu_append append;
    static struct gpu_open open;
    static struct gpu_row rows[2]; /* of two steps in flight */
    static struct gpu_plan plans[2];
    struct gpu_plan *plan = &plans[step % 2];
    struct gpu_row *row = &rows[step % 2];
    bool first = step == 0;
    if (first && rank_group_kv_grow(group, 0, &slab.slab, &error))
        return -ERR_DEVICE_MEMORY;
    if (first) { /* a follower may read the last plan still */
        append = (struct gpu_append){.block = slab.slab * model.groups[0].slab_blocks};
        open = (struct gpu_open){.eos_from = UINT32_MAX,
                                 .sampler.top_p = 1,
                                 .sampler.repetition_penalty = 1,
                                 .prompt_len = 3};
    }
    *row = (struct gpu_row){.input = first ? GPU_IDS : GPU_LAST,
                            .position = first ? 0 : (uint32_t)step + 2,
                            .q_len = first ? 3 : 1,
                            .want = GPU_SAMPLE};
    *plan = (struct gpu_plan){.step = step + 1,
                              .slab_count = first,
                              .slabs = &slab,
                              .open_count = first,
                              .opens = &open,
                              .append_count = first,
                              .appends = &append,
                              .row_count = 1,
                              .rows = row,
                              .id_count = first ? 3 : 0,
                              .ids = ids,
                              .token_count = row->q_len};
    int rc = rank_group_submit(group, plan, &error);
    step += rc == 0;
    return rc;
}

/* False when it does not come; a lost device tells so at the next query. */
static bool await(uint64_t number)
{
    for (int i = 0; i < 200 && rank_group_completed(group) < number; i++) {
        struct pollfd wait = {.fd = wake_fd, .events = POLLIN};
        uint64_t count;
        if (poll(&wait, 1, 50) > 0)
            (void)!read(wake_fd, &count, sizeof count);
        else if (rank_group_query(group, &error) == GPU_FAILED)
            return false;
    }
    return rank_group_completed(group) >= number;
}

static int run(uint32_t steps)
{
    int rc = 0;
    while (!rc && steps-- > 0) {
        if (step >= 2 && !await(step - 1))
            return -ERR_DEVICE;
        rc = submit_one();
    }
    return rc || await(step) ? rc : -ERR_DEVICE;
}

static const char *const names[] = {"synthetic:null", "synthetic:tiny"};

/* 200 times in all, fewer where a sanitizer makes a start last a second; every third group is
 * stopped with its last steps under way. */
START_TEST(ranks_start_work_and_stop_together)
{
    for (uint32_t i = 0; i < GROUP_STARTS; i++) {
        engine_open(names[_i / 2], _i % 2);
        ck_assert_msg(rank_group_start(group, wake_fd, true, &error) == 0, "%s", error.text);
        ck_assert_int_eq(run(i % 20), 0);
        if (i % 20) {
            struct gpu_results results;
            gpu_module.results(engine, step, &results);
            ck_assert_uint_eq(results.sample_count, 1);
        }
        if (i % 3 == 0) {
            ck_assert_int_eq(submit_one(), 0);
            ck_assert_int_eq(submit_one(), 0);
        }
        engine_close();
        nothing_is_left();
    }
}
END_TEST

START_TEST(a_start_that_fails_on_one_rank_leaves_nothing)
{
    static const enum emu_call calls[] = {EMU_cudaStreamCreateWithPriority, EMU_cudaMalloc,
                                          EMU_cudaMemPoolCreate, EMU_cudaHostAlloc,
                                          EMU_cudaEventCreateWithFlags};
    for (uint64_t nth = 1; nth <= 12; nth++) {
        engine_open("synthetic:tiny", _i % 2);
        emu_fault_set(calls[_i / 2], nth, cudaErrorMemoryAllocation);
        if (rank_group_start(group, wake_fd, true, &error) == 0)
            ck_assert_int_eq(run(2), 0); /* so many calls are not made */
        else
            ck_assert_uint_gt(strlen(error.text), 0);
        engine_close();
        nothing_is_left();
    }
}
END_TEST

/* Whichever rank it is, and in whichever of its calls. */
START_TEST(devices_that_cannot_reach_each_other_are_named)
{
    engine_open("synthetic:tiny", 0);
    emu_fault_set(EMU_cudaDeviceEnablePeerAccess, 1 + (uint64_t)_i, cudaErrorInvalidDevice);
    ck_assert_int_eq(rank_group_start(group, wake_fd, true, &error), -ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(error.text, "cannot use the memory of device"));
    engine_close();
    nothing_is_left();
}
END_TEST

START_TEST(a_step_for_which_one_rank_lacks_memory_is_made_by_none)
{
    engine_open("synthetic:tiny", _i);
    ck_assert_int_eq(rank_group_start(group, wake_fd, true, &error), 0);
    ck_assert_int_eq(run(1), 0);
    /* What the pools hold is used again, so no call of them can be refused: the limit is. */
    ck_assert_int_eq(rank_group_trim(group, &error), 0);
    emu_memory_limit(1);
    ck_assert_int_eq(submit_one(), -ERR_DEVICE_MEMORY);
    emu_memory_limit(UINT64_MAX);
    ck_assert_int_eq(run(4), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        ck_assert_uint_eq(gpu_module.completed(engine, rank), step);
    engine_close();
    nothing_is_left();
}
END_TEST

START_TEST(a_rank_that_is_lost_ends_the_others)
{
    engine_open("synthetic:tiny", _i % 2);
    ck_assert_int_eq(rank_group_start(group, wake_fd, true, &error), 0);
    ck_assert_int_eq(run(3), 0);
    emu_fault_set(EMU_cudaGraphLaunch, 5 + (uint64_t)_i / 2, cudaErrorLaunchFailure);
    int rc = run(20);
    ck_assert_int_eq(rc, -ERR_DEVICE);
    ck_assert_int_eq(rank_group_query(group, &error), GPU_FAILED);
    ck_assert_msg(strstr(error.text, "launch failure") != NULL, "%s", error.text);
    engine_leave();
}
END_TEST

/* Whichever rank it is whose memory is not taken back. */
START_TEST(a_rank_that_does_not_stop_well_is_told_of_all)
{
    static struct gpu_engine *lost[64]; /* never freed: a host function may be running */
    uint64_t calls = 0;
    engine_open("synthetic:tiny", _i);
    ck_assert_int_eq(rank_group_start(group, wake_fd, true, &error), 0);
    calls = emu_calls(EMU_cudaFree);
    ck_assert_int_eq(rank_group_stop(group, &error), 0);
    calls = emu_calls(EMU_cudaFree) - calls;
    engine_close();
    nothing_is_left();
    ck_assert_uint_lt(2 * calls, sizeof lost / sizeof lost[0]);
    for (uint64_t nth = 1; nth <= calls; nth++) {
        engine_open("synthetic:tiny", _i);
        lost[2 * nth + (uint64_t)_i - 2] = engine;
        ck_assert_int_eq(rank_group_start(group, wake_fd, true, &error), 0);
        emu_fault_set(EMU_cudaFree, nth, cudaErrorInvalidValue);
        ck_assert_int_eq(rank_group_stop(group, &error), -ERR_DEVICE);
        ck_assert_uint_gt(emu_live().device_bytes, 0);
        engine_leave();
    }
}
END_TEST

Suite *rank_group_suite(void)
{
    Suite *suite = suite_create("group");
    TCase *tcase = tcase_create("group");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, ranks_start_work_and_stop_together, 0, 4);
    tcase_add_loop_test(tcase, a_start_that_fails_on_one_rank_leaves_nothing, 0, 10);
    tcase_add_loop_test(tcase, devices_that_cannot_reach_each_other_are_named, 0, 2);
    tcase_add_loop_test(tcase, a_step_for_which_one_rank_lacks_memory_is_made_by_none, 0, 2);
    tcase_add_loop_test(tcase, a_rank_that_is_lost_ends_the_others, 0, 12);
    tcase_add_loop_test(tcase, a_rank_that_does_not_stop_well_is_told_of_all, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
