/* Blocks to host memory and back: whole, behind what must come before, and refused by name. */
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/emu/emu.h"
#include "gpu/engine/engine.h"
#include "gpu/kernels/step/null_rule.h"
#include "gpu/memory/host_pages.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/rig.h"

#define SLAB_BLOCKS 8u
#define CHUNK_BLOCKS 4u
#define BLOCK_BYTES (NULL_BLOCK_TOKENS * sizeof(uint64_t))
#define SEEDS 60

static struct {
    struct gpu_engine *engine;
    struct gpu_model model;
    struct gpu_limits limits;
    struct error error;
    int wake_fd;
    uint64_t step, copies[GPU_WAYS];
} rig;

static void rig_open(uint64_t seed)
{
    struct emu_options emu = {.engine = EMU_STEPPER,
                              .memory_bytes = 64u << 20,
                              .team_threads = 1,
                              .seed = seed,
                              .poison = true,
                              .strict = true};
    struct gpu_options options = {.model = "synthetic:null",
                                  .slots_max = 4,
                                  .tokens_max = 1024,
                                  .context_max = 1024,
                                  .slab_bytes = SLAB_BLOCKS * BLOCK_BYTES,
                                  .host_chunk_bytes = CHUNK_BLOCKS * BLOCK_BYTES,
                                  .host_max = 3 * CHUNK_BLOCKS * BLOCK_BYTES + 1};
    memset(&rig, 0, sizeof rig);
    ck_assert_int_eq(emu_setup(&emu), cudaSuccess);
    rig.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ck_assert_int_eq(gpu_module.open(&options, &rig.engine, &rig.model, &rig.limits, &rig.error),
                     0);
    ck_assert_uint_eq(rig.model.groups[0].chunk_blocks, CHUNK_BLOCKS);
    ck_assert_uint_eq(rig.limits.chunks_max, 3);
    ck_assert_int_eq(gpu_module.start(rig.engine, 0, rig.wake_fd, &rig.error), 0);
}

static void rig_close(void)
{
    (void)gpu_module.stop(rig.engine, 0, NULL);
    gpu_module.close(rig.engine);
    close(rig.wake_fd);
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.host_ranges, 0);
    ck_assert_uint_eq(live.device_bytes, 0);
}

static uint32_t grow(void)
{
    uint32_t slab;
    ck_assert_int_eq(gpu_module.kv_grow(rig.engine, 0, &slab, &rig.error), 0);
    return slab;
}

/* A sequence that fills the blocks from `first` on with what follows from its tokens. */
static void read_prompt(uint32_t slot, uint32_t first, uint32_t count, int32_t token, bool fresh)
{
    static int32_t ids[1024];
    struct gpu_append appends[SLAB_BLOCKS];
    struct gpu_slab slab = {.slab = first / SLAB_BLOCKS};
    uint32_t tokens = count * NULL_BLOCK_TOKENS;
    for (uint32_t i = 0; i < tokens; i++)
        ids[i] = token + (int32_t)i % 7;
    for (uint32_t i = 0; i < count; i++)
        appends[i] = (struct gpu_append){.slot = slot, .index = i, .block = first + i};
    struct gpu_open open = {.slot = slot, .prompt_len = tokens};
    struct gpu_row row = {.slot = slot, .q_len = tokens, .want = GPU_SAMPLE};
    struct gpu_plan plan = {.step = ++rig.step,
                            .slab_count = fresh,
                            .open_count = 1,
                            .append_count = count,
                            .row_count = 1,
                            .id_count = tokens,
                            .token_count = tokens,
                            .slabs = &slab,
                            .opens = &open,
                            .appends = appends,
                            .rows = &row,
                            .ids = ids};
    ck_assert_int_eq(gpu_module.submit(rig.engine, 0, &plan, &rig.error), 0);
}

static int copy(enum gpu_way way, uint32_t block, uint32_t place, uint32_t count)
{
    struct gpu_copy copies[SLAB_BLOCKS];
    for (uint32_t i = 0; i < count; i++)
        copies[i] = (struct gpu_copy){.block = block + i, .place = place + i};
    struct gpu_copies all = {
        .number = ++rig.copies[way], .way = way, .count = count, .copies = copies};
    return gpu_module.copy(rig.engine, 0, &all, &rig.error);
}

static bool ended(void)
{
    return gpu_module.completed(rig.engine, 0) >= rig.step &&
           gpu_module.copied(rig.engine, 0, GPU_TO_HOST) >= rig.copies[GPU_TO_HOST] &&
           gpu_module.copied(rig.engine, 0, GPU_FROM_HOST) >= rig.copies[GPU_FROM_HOST];
}

static void finish(void)
{
    while (!ended())
        ck_assert(emu_step());
}

static void *block_at(uint32_t block)
{
    char *base = rig.engine->rank.slabs[0].base[block / SLAB_BLOCKS];
    return base + block % SLAB_BLOCKS * BLOCK_BYTES;
}

static void fetch(uint32_t block, uint64_t words[NULL_BLOCK_TOKENS])
{
    rig_fetch(words, block_at(block), BLOCK_BYTES);
}

static bool same(uint32_t block, uint32_t place)
{
    uint64_t words[NULL_BLOCK_TOKENS];
    fetch(block, words);
    return !memcmp(words, host_chunks_at(&rig.engine->chunks, 0, 0, place), BLOCK_BYTES);
}

static void make_chunks(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ck_assert_int_eq(gpu_module.chunk_make(rig.engine, 0, i, &rig.error), 0);
}

START_TEST(blocks_go_out_and_come_back_over_the_ends_of_slabs_and_chunks)
{
    uint64_t before[SLAB_BLOCKS][NULL_BLOCK_TOKENS], after[NULL_BLOCK_TOKENS];
    rig_open(5);
    make_chunks(3);
    read_prompt(0, SLAB_BLOCKS * grow(), SLAB_BLOCKS, 3, true);
    finish();
    for (uint32_t i = 0; i < SLAB_BLOCKS; i++)
        fetch(i, before[i]);
    ck_assert(memcmp(before[0], before[1], BLOCK_BYTES) != 0);
    /* Places 2 to 9 lie in three chunks: as many copies. */
    uint64_t calls = emu_calls(EMU_cudaMemcpyAsync);
    ck_assert_int_eq(copy(GPU_TO_HOST, 0, 2, SLAB_BLOCKS), 0);
    ck_assert_uint_eq(emu_calls(EMU_cudaMemcpyAsync) - calls, 3);
    finish();
    for (uint32_t i = 0; i < SLAB_BLOCKS; i++)
        ck_assert(same(i, 2 + i));
    /* Into blocks 12 to 19, of two slabs; places 2 and 3, 4 to 7, 8 and 9. */
    (void)grow();
    (void)grow();
    calls = emu_calls(EMU_cudaMemcpyAsync);
    ck_assert_int_eq(copy(GPU_FROM_HOST, 12, 2, SLAB_BLOCKS), 0);
    ck_assert_uint_eq(emu_calls(EMU_cudaMemcpyAsync) - calls, 4);
    finish();
    for (uint32_t i = 0; i < SLAB_BLOCKS; i++) {
        fetch(12 + i, after);
        ck_assert_mem_eq(after, before[i], BLOCK_BYTES);
    }
    struct gpu_counters counters;
    gpu_module.counters(rig.engine, 0, &counters);
    ck_assert_uint_eq(counters.blocks_out, SLAB_BLOCKS);
    ck_assert_uint_eq(counters.blocks_in, SLAB_BLOCKS);
    ck_assert_uint_eq(counters.synchronizes, 0);
    ck_assert_uint_eq(emu_pageable_copies(), 0);
    rig_close();
}
END_TEST

/* A copy is asked for while the step that fills the blocks is in flight. Without its wait there is
 * an order in which it takes what was there before. */
static bool out_is_right(uint64_t seed, bool skip)
{
    rig_open(seed);
    make_chunks(1);
    (void)grow();
    read_prompt(0, 0, CHUNK_BLOCKS, 3, true);
    if (skip)
        emu_fault_skip_wait(1);
    ck_assert_int_eq(copy(GPU_TO_HOST, 0, 0, CHUNK_BLOCKS), 0);
    finish();
    bool right = true;
    for (uint32_t i = 0; i < CHUNK_BLOCKS; i++)
        right = right && same(i, i);
    rig_close();
    return right;
}

/* A slab is given back with a step in flight that writes to it, and its memory becomes that of
 * another at once, into which blocks come back. Without the wait there is an order in which that
 * step writes over them. */
static bool in_is_right(uint64_t seed, bool skip)
{
    rig_open(seed);
    make_chunks(1);
    (void)grow();
    for (uint32_t i = 0; i < CHUNK_BLOCKS; i++)
        memset(host_chunks_at(&rig.engine->chunks, 0, 0, i), 0x31 + (int)i, BLOCK_BYTES);
    read_prompt(0, 0, CHUNK_BLOCKS, 3, true);
    ck_assert_int_eq(gpu_module.kv_shrink(rig.engine, 0, 0, &rig.error), 0);
    ck_assert_uint_eq(grow(), 0);
    if (skip)
        emu_fault_skip_wait(1);
    ck_assert_int_eq(copy(GPU_FROM_HOST, 0, 0, CHUNK_BLOCKS), 0);
    finish();
    bool right = true;
    for (uint32_t i = 0; i < CHUNK_BLOCKS; i++)
        right = right && same(i, i);
    rig_close();
    return right;
}

START_TEST(a_wait_of_a_copy_left_out_is_seen)
{
    bool (*is_right)(uint64_t, bool) = _i ? in_is_right : out_is_right;
    uint32_t seen = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        ck_assert(is_right(seed, false));
        seen += !is_right(seed, true);
    }
    ck_assert_uint_gt(seen, 0);
}
END_TEST

/* Some go out while others come in, from and to neighbours in one slab and one chunk, a call at a
 * time each way as often as the device takes them, and a step reads beside both: in any order that
 * streams may take, each ends well, and none has what is another's. */
START_TEST(copies_both_ways_beside_each_other_end_well)
{
    uint64_t before[2][NULL_BLOCK_TOKENS];
    rig_open((uint64_t)_i + 1);
    make_chunks(1);
    (void)grow();
    (void)grow();
    read_prompt(0, 0, 2, 3, true);
    finish();
    for (uint32_t i = 0; i < 2; i++)
        fetch(i, before[i]);
    for (uint32_t i = 2; i < 4; i++)
        memset(host_chunks_at(&rig.engine->chunks, 0, 0, i), 0x51 + (int)i, BLOCK_BYTES);
    for (uint32_t turn = 0; turn < GPU_COPIES_MAX; turn++) {
        ck_assert_int_eq(copy(GPU_TO_HOST, turn % 2, turn % 2, 1), 0);
        ck_assert_int_eq(copy(GPU_FROM_HOST, 2 + turn % 2, 2 + turn % 2, 1), 0);
        if (turn == 1) /* it writes blocks of its own beside them */
            read_prompt(1, SLAB_BLOCKS, 2, 5, true);
    }
    finish();
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(same(i, i));
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_mem_eq(host_chunks_at(&rig.engine->chunks, 0, 0, i), before[i], BLOCK_BYTES);
    struct gpu_counters counters;
    gpu_module.counters(rig.engine, 0, &counters);
    ck_assert_uint_eq(counters.blocks_out, GPU_COPIES_MAX);
    ck_assert_uint_eq(counters.blocks_in, GPU_COPIES_MAX);
    ck_assert_uint_eq(counters.synchronizes, 0);
    rig_close();
}
END_TEST

START_TEST(host_memory_that_is_refused_is_as_if_it_had_not_been_asked_for)
{
    rig_open(1);
    struct emu_live before = emu_live();
    struct gpu_memory memory;
    emu_fault_set(EMU_cudaHostRegister, 1, cudaErrorMemoryAllocation);
    ck_assert_int_eq(gpu_module.chunk_make(rig.engine, 0, 1, &rig.error), -ERR_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(rig.error.text, "a chunk of"));
    gpu_module.memory(rig.engine, 0, &memory);
    ck_assert_uint_eq(memory.host_blocks, 0);
    ck_assert_uint_eq(emu_live().host_ranges, before.host_ranges);
    ck_assert_int_eq(gpu_module.chunk_make(rig.engine, 0, 1, &rig.error), 0);
    gpu_module.memory(rig.engine, 0, &memory);
    ck_assert_uint_ge(memory.host_blocks, CHUNK_BLOCKS * BLOCK_BYTES);
    ck_assert_uint_eq(emu_live().host_ranges, before.host_ranges + 1);
    gpu_module.chunk_drop(rig.engine, 1);
    gpu_module.memory(rig.engine, 0, &memory);
    ck_assert_uint_eq(memory.host_blocks, 0);
    ck_assert_uint_eq(emu_live().host_ranges, before.host_ranges);
    /* The device is as well as before. */
    (void)grow();
    read_prompt(0, 0, 1, 3, true);
    finish();
    rig_close();
}
END_TEST

/* What the driver does not let go of is held, and may not be promised to another. */
START_TEST(host_memory_that_the_driver_keeps_stays_counted)
{
    struct gpu_memory memory;
    const uint64_t reserved = host_pages_reserved();
    rig_open(1);
    ck_assert_int_eq(gpu_module.chunk_make(rig.engine, 0, 1, &rig.error), 0);
    const struct host_chunk chunk = rig.engine->chunks.chunks[1];
    emu_fault_set(EMU_cudaHostUnregister, 1, cudaErrorInvalidValue);
    gpu_module.chunk_drop(rig.engine, 1);
    gpu_module.memory(rig.engine, 0, &memory);
    ck_assert_uint_eq(memory.host_blocks, chunk.bytes);
    ck_assert_uint_eq(host_pages_reserved(), reserved + chunk.bytes);
    ck_assert(host_pages_drop(chunk.base, chunk.bytes, true));
    host_pages_return(chunk.bytes);
    rig_close();
}
END_TEST

/* The slab is there, and no memory for what copies wait for: it goes back, and its number is the next
 * one's. */
START_TEST(a_slab_that_copies_cannot_wait_for_is_refused_whole)
{
    struct gpu_memory memory;
    uint32_t slab;
    rig_open(1);
    emu_fault_set(EMU_cudaEventRecord, 1, cudaErrorMemoryAllocation);
    ck_assert_int_eq(gpu_module.kv_grow(rig.engine, 0, &slab, &rig.error), -ERR_DEVICE_MEMORY);
    gpu_module.memory(rig.engine, 0, &memory);
    ck_assert_uint_eq(memory.kv_used, 0);
    ck_assert_uint_eq(grow(), 0);
    read_prompt(0, 0, 1, 3, true);
    finish();
    rig_close();
}
END_TEST

START_TEST(a_copy_that_fails_is_the_end_of_the_engine)
{
    rig_open(1);
    make_chunks(1);
    (void)grow();
    enum emu_call calls[] = {EMU_cudaMemcpyAsync, EMU_cudaStreamWaitEvent, EMU_cudaLaunchHostFunc};
    emu_fault_set(calls[_i], 1, cudaErrorInvalidValue);
    ck_assert_int_eq(copy(GPU_TO_HOST, 0, 0, 1), -ERR_DEVICE);
    ck_assert_int_eq(rig.error.code, ERR_DEVICE);
    ck_assert_uint_eq(gpu_module.copied(rig.engine, 0, GPU_TO_HOST), 0);
    ck_assert_int_eq(copy(GPU_TO_HOST, 0, 0, 1), -ERR_DEVICE); /* and nothing is tried any more */
    (void)gpu_module.stop(rig.engine, 0, NULL);
    gpu_module.close(rig.engine);
    close(rig.wake_fd);
}
END_TEST

START_TEST(host_memory_for_less_than_a_block_is_refused_by_name)
{
    struct gpu_options options = {
        .model = "synthetic:null", .slab_bytes = BLOCK_BYTES, .host_max = BLOCK_BYTES - 1};
    ck_assert_int_eq(gpu_module.check(&options, &rig.model, &rig.error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(rig.error.text, "host-cache gives"));
    options.host_max = BLOCK_BYTES;
    ck_assert_int_eq(gpu_module.check(&options, &rig.model, &rig.error), 0);
    ck_assert_uint_eq(rig.model.groups[0].chunk_blocks, 1);
    ck_assert_uint_eq(rig.model.host_bytes, BLOCK_BYTES);
    for (int i = 0; i < 2; i++) { /* none asked for; and what the CPU device chooses */
        options.host_max = i ? GPU_HOST_AUTO : 0;
        ck_assert_int_eq(gpu_module.check(&options, &rig.model, &rig.error), 0);
        ck_assert_uint_eq(rig.model.groups[0].chunk_blocks, 0);
        ck_assert_uint_eq(rig.model.host_bytes, 0);
    }
}
END_TEST

Suite *copies_suite(void)
{
    Suite *suite = suite_create("copies");
    TCase *tcase = tcase_create("copies");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, blocks_go_out_and_come_back_over_the_ends_of_slabs_and_chunks);
    tcase_add_loop_test(tcase, a_wait_of_a_copy_left_out_is_seen, 0, 2);
    tcase_add_loop_test(tcase, copies_both_ways_beside_each_other_end_well, 0, 20);
    tcase_add_test(tcase, host_memory_that_is_refused_is_as_if_it_had_not_been_asked_for);
    tcase_add_test(tcase, host_memory_that_the_driver_keeps_stays_counted);
    tcase_add_test(tcase, a_slab_that_copies_cannot_wait_for_is_refused_whole);
    tcase_add_loop_test(tcase, a_copy_that_fails_is_the_end_of_the_engine, 0, 3);
    tcase_add_test(tcase, host_memory_for_less_than_a_block_is_refused_by_name);
    suite_add_tcase(suite, tcase);
    return suite;
}
