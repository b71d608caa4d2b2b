/* Memory grows with the load and comes back; a step in steady state makes no heap call. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/emu/emu.h"
#include "gpu/engine/engine.h"
#include "gpu/memory/pools.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/drive.h"
#include "tests/heap.h"

static struct drive drive;

static void setup(enum emu_engine engine)
{
    struct emu_options options = {.engine = engine,
                                  .memory_bytes = 256u << 20,
                                  .team_threads = 1,
                                  .seed = 1,
                                  .poison = true,
                                  .strict = true};
    ck_assert_int_eq(emu_setup(&options), cudaSuccess);
}

static struct gpu_memory memory(void)
{
    struct gpu_memory now;
    gpu_module.memory(drive.engine, 0, &now);
    return now;
}

struct calls {
    uint64_t heap, synchronizes, allocations, pool_allocations;
};

static void calls_note(struct calls *calls)
{
    calls->heap = heap_calls;
    calls->synchronizes = emu_calls(EMU_cudaStreamSynchronize) +
                          emu_calls(EMU_cudaEventSynchronize) +
                          emu_calls(EMU_cudaDeviceSynchronize) + emu_calls(EMU_cudaStreamQuery);
    calls->allocations = emu_calls(EMU_cudaMalloc) + emu_calls(EMU_cudaHostAlloc);
    calls->pool_allocations = emu_calls(EMU_cudaMallocFromPoolAsync);
}

START_TEST(steps_make_no_heap_call_and_no_synchronising_one)
{
    /* Stepped, so that the calls of kernels and copies are counted too. */
    setup(EMU_STEPPER);
    struct drive_options options = {.seed = 21, .stepping = true};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    struct calls calls;
    ck_assert_uint_gt(heap_calls, 0);              /* the wrapper is in place */
    ck_assert_int_eq(drive_steps(&drive, 500), 0); /* pools and queues are as large as the load */
    calls_note(&calls);
    int status = drive_steps(&drive, 1000);
    uint64_t heap_now = heap_calls; /* asserts make some of their own */
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(heap_now, calls.heap);
    struct calls now;
    calls_note(&now);
    ck_assert_uint_eq(now.synchronizes, calls.synchronizes);
    ck_assert_uint_eq(now.allocations, calls.allocations);
    ck_assert_uint_gt(now.pool_allocations, calls.pool_allocations);
    ck_assert_uint_eq(emu_pageable_copies(), 0);
    ck_assert_uint_eq(drive.wrong, 0);
    drive_close(&drive);
}
END_TEST

START_TEST(memory_comes_back_when_idle)
{
    setup(EMU_STEPPER);
    struct drive_options options = {.seed = 22, .stepping = true};
    ck_assert_int_eq(drive_open(&drive, &options), 0);
    struct gpu_memory before = memory();
    ck_assert_uint_eq(before.kv_used + before.kv_held + before.scratch_used + before.scratch_held,
                      0);
    uint64_t idle_free = 0;
    for (int cycle = 0; cycle < 20; cycle++) {
        drive.target_seqs = DRIVE_SEQS;
        ck_assert_int_eq(drive_steps(&drive, 60), 0);
        struct gpu_memory busy = memory();
        ck_assert_uint_gt(busy.kv_used, 0);
        ck_assert_uint_ge(busy.kv_held, busy.kv_used);
        drive_end_all(&drive);
        ck_assert_int_eq(drive_steps(&drive, 2), 0);
        ck_assert_int_eq(drive_finish(&drive), 0);
        ck_assert_int_eq(drive_shrink(&drive), 0);
        ck_assert_uint_eq(drive.slabs, 0);
        ck_assert_int_eq(gpu_module.trim(drive.engine, NULL), 0);
        struct gpu_memory idle = memory();
        ck_assert_uint_eq(idle.kv_used, 0);
        ck_assert_uint_eq(idle.kv_held, 0);
        ck_assert_uint_eq(idle.scratch_used, 0);
        ck_assert_uint_eq(idle.scratch_held, 0);
        ck_assert_uint_eq(idle.weights, before.weights);
        if (!idle_free)
            idle_free = idle.device_free;
        ck_assert_uint_eq(idle.device_free, idle_free); /* no drift */
    }
    ck_assert_uint_eq(drive.wrong, 0);
    drive_close(&drive);
}
END_TEST

#define SLABS 8u
#define SLAB_BYTES (2u << 20)

/* A step without rows, and the one before it has ended. */
static void empty_step(uint64_t step)
{
    struct gpu_slab slabs[SLABS];
    struct gpu_plan plan = {.step = step, .slabs = slabs};
    for (; step == 1 && plan.slab_count < SLABS; plan.slab_count++)
        slabs[plan.slab_count] = (struct gpu_slab){.slab = plan.slab_count};
    ck_assert_int_eq(gpu_module.submit(drive.engine, 0, &plan, NULL), 0);
    while (gpu_module.completed(drive.engine, 0) + 1 < step)
        ck_assert(emu_step());
}

START_TEST(slabs_go_back_to_the_device_beside_steps)
{
    setup(EMU_STEPPER);
    struct gpu_options options = {.model = "synthetic:null", .slab_bytes = SLAB_BYTES};
    uint32_t slab;
    uint64_t step = 0;
    int wake = eventfd(0, EFD_NONBLOCK);
    ck_assert_int_eq(gpu_module.open(&options, &drive.engine, &drive.model, &drive.limits, NULL),
                     0);
    ck_assert_int_eq(gpu_module.start(drive.engine, 0, wake, NULL), 0);
    for (uint32_t i = 0; i < SLABS; i++)
        ck_assert_int_eq(gpu_module.kv_grow(drive.engine, 0, &slab, NULL), 0);
    while (step < 4)
        empty_step(++step);
    ck_assert_uint_eq(memory().kv_held, SLABS * SLAB_BYTES);
    uint64_t waits = emu_calls(EMU_cudaStreamSynchronize);
    for (uint32_t i = 2; i < SLABS; i++)
        ck_assert_int_eq(gpu_module.kv_shrink(drive.engine, 0, i, NULL), 0);
    ck_assert_uint_eq(memory().kv_held, SLABS * SLAB_BYTES); /* the steps in flight may use them */
    while (step < 12)
        empty_step(++step);
    ck_assert_uint_eq(memory().kv_used, 2 * SLAB_BYTES);
    ck_assert_uint_eq(memory().kv_held, 2 * SLAB_BYTES);
    ck_assert_uint_eq(emu_calls(EMU_cudaStreamSynchronize), waits);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(gpu_module.kv_shrink(drive.engine, 0, i, NULL), 0);
    ck_assert_int_eq(gpu_module.stop(drive.engine, 0, NULL), 0);
    gpu_module.close(drive.engine);
    close(wake);
}
END_TEST

/* At its limit a slab takes what scratch holds unused, but for what the device keeps for steps. */
START_TEST(a_slab_takes_unused_scratch_but_for_a_rest)
{
    setup(EMU_STEPPER);
    struct gpu_options options = {.model = "synthetic:null", .slab_bytes = SLAB_BYTES};
    void *pieces[4];
    uint32_t slab;
    ck_assert_int_eq(gpu_module.open(&options, &drive.engine, &drive.model, &drive.limits, NULL),
                     0);
    ck_assert_int_eq(gpu_module.start(drive.engine, 0, 0, NULL), 0);
    struct mem *mem = &drive.engine->rank.mem;
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(mem_scratch(mem, SLAB_BYTES, &pieces[i], NULL), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(mem_scratch_free(mem, pieces[i], SLAB_BYTES, NULL), 0);
    ck_assert_int_eq(cudaStreamSynchronize(drive.engine->rank.lane.compute), cudaSuccess);
    ck_assert_uint_eq(memory().scratch_held, 4 * SLAB_BYTES);
    mem->limits.memory_max = memory().weights + memory().scratch_held;
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(gpu_module.kv_grow(drive.engine, 0, &slab, NULL), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(gpu_module.kv_grow(drive.engine, 0, &slab, NULL), -ERR_DEVICE_MEMORY);
    ck_assert_uint_eq(memory().scratch_held, device_traits.scratch_keep_bytes);
    ck_assert_int_eq(mem_scratch(mem, SLAB_BYTES, &pieces[0], NULL), 0);
    ck_assert_int_eq(mem_scratch_free(mem, pieces[0], SLAB_BYTES, NULL), 0);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(gpu_module.kv_shrink(drive.engine, 0, i, NULL), 0);
    ck_assert_int_eq(gpu_module.stop(drive.engine, 0, NULL), 0);
    gpu_module.close(drive.engine);
}
END_TEST

/* The device refuses once, while the pool holds more unused than is asked for. */
START_TEST(what_a_pool_holds_is_asked_for_again_under_a_reserve)
{
    setup(EMU_STEPPER);
    struct gpu_options options = {.model = "synthetic:null"};
    void *pieces[4];
    struct error error = {0};
    ck_assert_int_eq(gpu_module.open(&options, &drive.engine, &drive.model, &drive.limits, NULL),
                     0);
    ck_assert_int_eq(gpu_module.start(drive.engine, 0, 0, NULL), 0);
    struct mem *mem = &drive.engine->rank.mem;
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(mem_scratch(mem, SLAB_BYTES, &pieces[i], NULL), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(mem_scratch_free(mem, pieces[i], SLAB_BYTES, NULL), 0);
    mem->limits.memory_reserve = 1;
    emu_fault_set(EMU_cudaMallocFromPoolAsync, 1, cudaErrorMemoryAllocation);
    ck_assert_msg(mem_scratch(mem, SLAB_BYTES, &pieces[0], &error) == 0, "%s", error.text);
    ck_assert_uint_eq(memory().scratch_held, 4 * SLAB_BYTES); /* no free was seen to pass */
    ck_assert_int_eq(mem_scratch_free(mem, pieces[0], SLAB_BYTES, NULL), 0);
    emu_fault_set(EMU_cudaMallocFromPoolAsync, 1, cudaErrorMemoryAllocation);
    emu_fault_set(EMU_cudaMemPoolTrimTo, 1, cudaErrorUnknown);
    ck_assert_int_eq(mem_scratch(mem, SLAB_BYTES, &pieces[0], &error), -ERR_DEVICE);
    ck_assert_int_eq(error.code, ERR_DEVICE);
    ck_assert_int_eq(gpu_module.stop(drive.engine, 0, NULL), 0);
    gpu_module.close(drive.engine);
}
END_TEST

START_TEST(null_at_the_default_options_needs_little_memory)
{
    setup(EMU_STEPPER);
    struct gpu_options options = {.model = "synthetic:null"};
    ck_assert_int_eq(gpu_module.open(&options, &drive.engine, &drive.model, &drive.limits, NULL),
                     0);
    ck_assert_int_eq(gpu_module.start(drive.engine, 0, 0, NULL), 0);
    ck_assert_uint_lt(memory().weights + memory().pinned, 16u << 20);
    ck_assert_uint_eq(drive.model.context_max, 8192);
    ck_assert_int_eq(gpu_module.stop(drive.engine, 0, NULL), 0);
    gpu_module.close(drive.engine);
}
END_TEST

START_TEST(memory_limits_hold)
{
    setup(EMU_STEPPER);
    struct gpu_options options = {.model = "synthetic:null", .memory_max = 1u << 20};
    struct error error;
    ck_assert_int_eq(gpu_module.open(&options, &drive.engine, &drive.model, &drive.limits, NULL),
                     0);
    /* No other process's doing: a restart does not help. */
    ck_assert_int_eq(gpu_module.start(drive.engine, 0, 0, &error), -ERR_BAD_CONFIG);
    ck_assert_int_eq(error.code, ERR_BAD_CONFIG);
    ck_assert_uint_eq(error.limit, 1u << 20);
    gpu_module.close(drive.engine);
    options = (struct gpu_options){.model = "synthetic:null", .memory_reserve = UINT64_MAX / 2};
    ck_assert_int_eq(gpu_module.open(&options, &drive.engine, &drive.model, &drive.limits, NULL),
                     0);
    ck_assert_int_eq(gpu_module.start(drive.engine, 0, 0, &error), -ERR_BAD_CONFIG);
    gpu_module.close(drive.engine);

    options = (struct gpu_options){.model = "synthetic:null", .memory_reserve = 240u << 20};
    ck_assert_int_eq(gpu_module.open(&options, &drive.engine, &drive.model, &drive.limits, NULL),
                     0);
    ck_assert_int_eq(gpu_module.start(drive.engine, 0, 0, &error), 0);
    uint32_t slab, slabs = 0;
    int status;
    while ((status = gpu_module.kv_grow(drive.engine, 0, &slab, &error)) == 0)
        slabs++;
    ck_assert_int_eq(status, -ERR_DEVICE_MEMORY);
    ck_assert_uint_gt(slabs, 0);
    struct gpu_memory now = memory();
    ck_assert_uint_ge(now.device_free, 240u << 20);
    for (uint32_t i = 0; i < slabs; i++)
        ck_assert_int_eq(gpu_module.kv_shrink(drive.engine, 0, i, &error), 0);
    ck_assert_int_eq(gpu_module.stop(drive.engine, 0, NULL), 0);
    gpu_module.close(drive.engine);
}
END_TEST

/* Of several models on one device the limit is one. */
START_TEST(engines_of_one_device_share_its_limit)
{
    const struct mem_limits limits = {.memory_max = 10u << 20};
    struct streams lanes[2];
    struct mem mems[2];
    struct error error;
    void *first, *second;
    int fd = eventfd(0, EFD_CLOEXEC);
    setup(EMU_THREADS);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(streams_open(&lanes[i], fd, 0, &error), 0);
        ck_assert_int_eq(mem_open(&mems[i], 0, lanes[i].compute, &limits, &error), 0);
    }
    ck_assert_int_eq(mem_fixed(&mems[0], 6u << 20, &first, &error), 0);
    ck_assert_int_eq(mem_fixed(&mems[1], 6u << 20, &second, &error), -ERR_DEVICE_MEMORY);
    ck_assert_uint_eq(error.value, 12u << 20);
    ck_assert(!mems[1].own_limit); /* not for ever: the other may go */
    ck_assert_int_eq(mem_scratch(&mems[1], 6u << 20, &second, &error), -ERR_DEVICE_MEMORY);
    ck_assert_int_eq(mem_fixed(&mems[1], 4u << 20, &second, &error), 0);
    ck_assert_int_eq(mem_fixed_free(&mems[1], second, &error), 0);
    ck_assert_int_eq(mem_fixed_free(&mems[0], first, &error), 0);
    ck_assert_int_eq(mem_slab(&mems[1], 6u << 20, &second, &error), 0);
    ck_assert_int_eq(mem_fixed(&mems[0], 6u << 20, &first, &error), -ERR_DEVICE_MEMORY);
    ck_assert_int_eq(mem_slab_free(&mems[1], second, 6u << 20, &error), 0);
    ck_assert_int_eq(streams_synchronize(&lanes[1], &error), 0);
    ck_assert_int_eq(mem_trim(&mems[1], &error), 0);
    ck_assert_int_eq(mem_fixed(&mems[0], 10u << 20, &first, &error), 0);
    ck_assert_int_eq(mem_fixed(&mems[0], 1, &second, &error), -ERR_DEVICE_MEMORY);
    ck_assert(mems[0].own_limit);
    ck_assert_int_eq(mem_close(&mems[0], NULL), 0);
    ck_assert_int_eq(mem_fixed(&mems[1], 10u << 20, &second, &error), 0);
    ck_assert_int_eq(mem_close(&mems[1], NULL), 0);
    for (int i = 0; i < 2; i++)
        streams_close(&lanes[i]);
    close(fd);
}
END_TEST

struct starter {
    struct mem *mem;
    int status;
};

static void *takes_fixed(void *context)
{
    struct starter *starter = context;
    struct error error;
    void *base;
    starter->status = mem_fixed(starter->mem, 6u << 20, &base, &error);
    return NULL;
}

/* What the first steps of one engine have goes back: another that starts beside it does not fail
 * for that. */
START_TEST(who_starts_waits_for_what_others_first_steps_have)
{
    const struct mem_limits limits = {.memory_reserve = 246u << 20}; /* of 256 */
    struct streams lanes[2];
    struct mem mems[2];
    struct error error;
    void *scratch;
    int fd = eventfd(0, EFD_CLOEXEC);
    setup(EMU_THREADS);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(streams_open(&lanes[i], fd, 0, &error), 0);
        ck_assert_int_eq(mem_open(&mems[i], 0, lanes[i].compute, &limits, &error), 0);
    }
    mem_warmup_begin();
    ck_assert_int_eq(mem_scratch(&mems[0], 6u << 20, &scratch, &error), 0);
    struct starter starter = {.mem = &mems[1]};
    pthread_t thread;
    uint64_t asked = emu_calls(EMU_cudaMemGetInfo), taken = emu_calls(EMU_cudaMalloc);
    ck_assert_int_eq(pthread_create(&thread, NULL, takes_fixed, &starter), 0);
    while (emu_calls(EMU_cudaMemGetInfo) == asked) /* that it was refused by */
        sched_yield();
    ck_assert_int_eq(mem_scratch_free(&mems[0], scratch, 6u << 20, &error), 0);
    ck_assert_int_eq(streams_synchronize(&lanes[0], &error), 0);
    ck_assert_int_eq(mem_trim(&mems[0], &error), 0);
    mem_warmup_end();
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(starter.status, 0);
    ck_assert_uint_eq(emu_calls(EMU_cudaMalloc), taken + 1);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(mem_close(&mems[i], NULL), 0);
        streams_close(&lanes[i]);
    }
    close(fd);
}
END_TEST

START_TEST(a_copy_from_pageable_memory_is_counted)
{
    struct emu_options options = {.engine = EMU_THREADS, .memory_bytes = 64u << 20};
    ck_assert_int_eq(emu_setup(&options), cudaSuccess);
    struct drive_options drive_options = {.seed = 23};
    ck_assert_int_eq(drive_open(&drive, &drive_options), 0);
    struct ring_place *place = &drive.engine->rank.ring.places[2];
    void *pinned = place->plan_pinned;
    place->plan_pinned = malloc(drive.engine->rank.ring.plan_bytes);
    ck_assert_int_eq(drive_steps(&drive, 30), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    struct gpu_counters counters;
    gpu_module.counters(drive.engine, 0, &counters);
    ck_assert_uint_eq(counters.pageable_copies, 10);
    ck_assert_uint_eq(emu_pageable_copies(), 10);
    free(place->plan_pinned);
    place->plan_pinned = pinned;
    drive_close(&drive);
}
END_TEST

Suite *memory_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, steps_make_no_heap_call_and_no_synchronising_one);
    tcase_add_test(tcase, memory_comes_back_when_idle);
    tcase_add_test(tcase, slabs_go_back_to_the_device_beside_steps);
    tcase_add_test(tcase, a_slab_takes_unused_scratch_but_for_a_rest);
    tcase_add_test(tcase, what_a_pool_holds_is_asked_for_again_under_a_reserve);
    tcase_add_test(tcase, null_at_the_default_options_needs_little_memory);
    tcase_add_test(tcase, memory_limits_hold);
    tcase_add_test(tcase, engines_of_one_device_share_its_limit);
    tcase_add_test(tcase, who_starts_waits_for_what_others_first_steps_have);
    tcase_add_test(tcase, a_copy_from_pageable_memory_is_counted);
    suite_add_tcase(suite, tcase);
    return suite;
}
