/* Steps while the weights of a model that wakes are still coming (gpu/weights/arrival.h): as late
 * as a device may bring them, which is when nothing else can go on, and in orders of the stepper's
 * seeds, with memory that is no number where nothing has come yet. What is said is what was said
 * before the sleep, to the bit; each wait for weights is needed; and the engine may end, or fail,
 * at any time. */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/runner.h"

#define LLAMA "llama-default-bf16"
#define CHUNK 40960u
#define SMALL 4096u /* so that more chunks come than there are events */
#define PROMPTS 3u
#define SAID 3u
#define LATE 0 /* a seed: weights come when nothing else can go on */
#define SEEDS 6

static const struct {
    const char *model;
    enum gpu_quantize quantize;
    uint32_t chunk_bytes, tokens; /* of host memory; of a prompt in a step, 0: all */
} cases[] = {{LLAMA, GPU_QUANTIZE_NONE, CHUNK, 0},
             {LLAMA, GPU_QUANTIZE_NONE, SMALL, 50},
             {LLAMA, GPU_QUANTIZE_FP8, SMALL, 0},
             {"gemma3-default-bf16", GPU_QUANTIZE_NONE, SMALL, 7},
             {"phi3-window-bf16", GPU_QUANTIZE_NONE, SMALL, 0},
             {"gpt-oss-yarn-bf16", GPU_QUANTIZE_NONE, CHUNK, 50},
             {"starcoder2-window-bf16", GPU_QUANTIZE_NONE, SMALL, 0},
             {"qwen2-moe-shared-bf16", GPU_QUANTIZE_NONE, CHUNK, 0},
             {"mixtral-default-bf16", GPU_QUANTIZE_FP8, SMALL, 0}};
#define CASES (int)(sizeof cases / sizeof *cases)

static struct engine_client talk;
static struct engine_client_job jobs[PROMPTS], before[PROMPTS];
static struct reference base;
static struct gpu_kept *kept;
static struct gpu_options options;
static uint32_t tokens;

static int start(void)
{
    int status = engine_client_open(&talk, &options, true);
    talk.chunk = tokens;
    return status ? status : engine_client_start(&talk);
}

static void wake(void)
{
    ck_assert_msg(start() == 0, "%s", talk.error.text);
}

static void sleep_now(void)
{
    engine_client_close(&talk);
}

/* Scored, and then a few tokens behind each prompt. */
static int answer(void)
{
    struct engine_client_job scored[REFERENCE_PROMPTS];
    rig_score_jobs(scored, &base);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        jobs[i] = scored[i];
        jobs[i].generate = SAID;
    }
    return engine_client_run(&talk, jobs, PROMPTS);
}

static bool same(void)
{
    bool is_same = true;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        for (uint32_t j = 0; j + 1 < jobs[i].prompt_len; j++)
            is_same = is_same && jobs[i].scores[j].logprob == before[i].scores[j].logprob;
        for (uint32_t j = 0; j < SAID; j++)
            is_same = is_same && jobs[i].samples[j].token == before[i].samples[j].token &&
                      jobs[i].samples[j].logprob == before[i].samples[j].logprob;
    }
    return is_same;
}

/* A model that sleeps, and whose weights are kept; what it has said stands in `before`. */
static void setup_chunks(int number, uint64_t seed, uint64_t chunk_bytes)
{
    struct error error;
    const struct emu_options emu = {.engine = EMU_STEPPER,
                                    .memory_bytes = 256u << 20,
                                    .team_threads = 1,
                                    .seed = seed,
                                    .lazy = seed == LATE,
                                    .poison = true,
                                    .strict = true};
    ck_assert_int_eq(emu_setup(&emu), cudaSuccess);
    ck_assert(reference_read(cases[number].model, &base));
    ck_assert_int_eq(gpu_module.kept_make(0, &kept, &error), 0);
    kept->chunk_bytes = chunk_bytes;
    tokens = cases[number].tokens;
    options = (struct gpu_options){.model = base.directory,
                                   .quantize = cases[number].quantize,
                                   .tokens_max = 512,
                                   .slots_max = 16,
                                   .slab_bytes = 8u << 20,
                                   .kept = kept};
    wake();
    ck_assert_int_eq(answer(), 0);
    memcpy(before, jobs, sizeof before);
    ck_assert_msg(gpu_module.keep(talk.engine, &error) == 0, "%s", error.text);
    sleep_now();
}

static void setup(int number, uint64_t seed)
{
    setup_chunks(number, seed, cases[number].chunk_bytes);
}

static void end(void)
{
    gpu_module.kept_free(kept);
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.host_ranges, 0);
    ck_assert_uint_eq(live.device_bytes, 0);
    ck_assert_uint_eq(live.streams + live.events, 0);
}

static struct rank *rank(void)
{
    return &talk.engine->rank;
}

static bool nothing_is_there(void)
{
    const uint32_t poison = UINT32_MAX;
    return gpu_module.progress(talk.engine) < 1000 &&
           !memcmp(dev(rank()->weights.memory), &poison, sizeof poison);
}

/* ---- the bits ----------------------------------------------------------------------------------
 */

START_TEST(what_a_model_says_while_it_wakes_has_its_bits)
{
    for (uint64_t seed = LATE; seed <= SEEDS; seed++) {
        setup(_i, seed);
        wake();
        const struct arrival *arrival = &rank()->arrival;
        ck_assert_uint_gt(arrival->count, 1);
        ck_assert_uint_le(arrival->count, ARRIVAL_EVENTS);
        ck_assert_uint_eq(arrival->ends[arrival->count - 1], rank()->weights.bytes);
        ck_assert(seed != LATE || nothing_is_there());
        ck_assert_int_eq(answer(), 0);
        ck_assert_msg(same(), "seed %lu", (unsigned long)seed);
        ck_assert(!arrival_on(arrival));
        while (emu_step())
            continue;
        ck_assert_uint_eq(gpu_module.progress(talk.engine), 1000);
        sleep_now();
        end();
    }
}
END_TEST

/* The first copy ends where a weight begins, each in its turn. */
START_TEST(whatever_comes_late_is_waited_for_by_who_takes_it)
{
    setup(_i, LATE);
    wake();
    const uint32_t count = talk.engine->facts.source.list.weight_count;
    const uint64_t bytes = rank()->weights.bytes;
    uint64_t *cuts = malloc(count * sizeof *cuts);
    memcpy(cuts, rank()->weights.ends, count * sizeof *cuts);
    sleep_now();
    end();
    for (uint32_t i = 0; i < count; i++) {
        if (cuts[i] == bytes || cuts[i] * ARRIVAL_EVENTS < bytes)
            continue; /* the last; or events are further apart */
        setup_chunks(_i, LATE, cuts[i]);
        wake();
        ck_assert_int_eq(answer(), 0);
        ck_assert_msg(same(), "cut behind weight %u", i);
        sleep_now();
        end();
    }
    free(cuts);
}
END_TEST

/* The plain way through prompts, a token a step, for which steps have graphs: the head comes when
 * the prompt has been read. */
START_TEST(graphs_are_made_once_nothing_is_waited_for)
{
    struct gpu_counters counters;
    for (uint64_t seed = LATE; seed <= SEEDS; seed++) {
        setup(1, seed);
        for (int turn = 0; turn < 2; turn++) {
            struct engine_client_job job = {
                .prompt = base.prompts[0].tokens, .prompt_len = 12, .generate = 2 * SAID};
            tokens = 1;
            wake();
            jobs[0] = job;
            ck_assert_int_eq(engine_client_run(&talk, jobs, 1), 0);
            gpu_module.counters(talk.engine, 0, &counters);
            ck_assert_uint_gt(counters.captures, 0);
            ck_assert_uint_gt(counters.graph_steps, 0);
            if (turn == 0)
                before[0] = jobs[0];
            for (uint32_t i = 0; i < 2 * SAID; i++)
                ck_assert(jobs[0].samples[i].logprob == before[0].samples[i].logprob);
            sleep_now();
        }
        end();
    }
}
END_TEST

/* ---- a step of its own -------------------------------------------------------------------------
 */

static int submit(uint64_t step, uint32_t first, uint32_t count)
{
    uint32_t slab_number = 0;
    int grown = step > 1 ? 0 : gpu_module.kv_grow(talk.engine, 0, &slab_number, &talk.error);
    struct gpu_append appends[REFERENCE_TOKENS];
    const struct gpu_slab slab = {.slab = 0};
    const struct gpu_open open = {.slot = 0, .prompt_len = base.prompts[0].count};
    const struct gpu_row row = {
        .slot = 0, .position = first, .q_len = count, .want = step == 2 ? GPU_SAMPLE : 0};
    uint32_t blocks = REFERENCE_TOKENS / talk.model.block_tokens;
    for (uint32_t i = 0; i < blocks; i++)
        appends[i] = (struct gpu_append){.index = i, .block = i};
    const bool opens = step == 1;
    const struct gpu_plan plan = {.step = step,
                                  .slab_count = opens,
                                  .open_count = opens,
                                  .append_count = opens ? blocks : 0,
                                  .row_count = 1,
                                  .id_count = count,
                                  .token_count = count,
                                  .slabs = &slab,
                                  .opens = &open,
                                  .appends = appends,
                                  .rows = &row,
                                  .ids = base.prompts[0].tokens + first};
    return grown ? grown : gpu_module.submit(talk.engine, 0, &plan, &talk.error);
}

/* The first layer has left a key, and the last weights are not there. */
static bool computes_before_the_last(void)
{
    const struct kept_part *part = &kept->parts[0];
    const struct weights *weights = &rank()->weights;
    const uint64_t at = (part->count - 1) * kept->chunk_bytes;
    const uint32_t poison = UINT32_MAX;
    return memcmp(dev(rank()->slabs[0].base[0]), &poison, sizeof poison) != 0 &&
           memcmp(dev((char *)weights->memory + at), part->chunks[part->count - 1].base,
                  weights->bytes - at) != 0;
}

START_TEST(first_layers_compute_while_the_last_come)
{
    struct gpu_results results;
    bool early = false;
    setup(1, LATE);
    wake();
    ck_assert_int_eq(submit(1, 0, 9), 0);
    while (gpu_module.completed(talk.engine, 0) < 1) {
        ck_assert(emu_step());
        early = early || computes_before_the_last();
    }
    ck_assert(early);
    gpu_module.results(talk.engine, 1, &results);
    ck_assert(results.waited);
    for (uint64_t step = 2; step <= 3; step++) { /* the head is waited for by who samples */
        ck_assert_int_eq(submit(step, 9 * (uint32_t)(step - 1), 9), 0);
        while (gpu_module.completed(talk.engine, 0) < step)
            ck_assert(emu_step());
        gpu_module.results(talk.engine, step, &results);
        ck_assert_int_eq(results.waited, step == 2);
    }
    sleep_now();
    end();
}
END_TEST

/* ---- what goes wrong ---------------------------------------------------------------------------
 */

/* How often the first step waits, the plan's and the results' waits beside. */
static uint64_t count_waits(void)
{
    setup(1, LATE);
    wake();
    uint64_t calls = emu_calls(EMU_cudaStreamWaitEvent);
    ck_assert_int_eq(submit(1, 0, 9), 0);
    ck_assert_int_eq(submit(2, 9, 9), 0);
    calls = emu_calls(EMU_cudaStreamWaitEvent) - calls - 6;
    ck_assert(!arrival_on(&rank()->arrival));
    sleep_now();
    end();
    return calls;
}

START_TEST(a_wait_for_weights_left_out_is_seen)
{
    const uint64_t waits = count_waits();
    ck_assert_uint_gt(waits, 2);
    for (uint64_t wait = 0; wait <= waits; wait++) {
        setup(1, LATE);
        tokens = 0;
        wake();
        emu_fault_skip_wait(wait ? 1 + wait : 0); /* behind the plan's; 0: none */
        ck_assert_int_eq(answer(), 0);
        ck_assert_msg(same() == !wait, "wait %lu of %lu", (unsigned long)wait,
                      (unsigned long)waits);
        sleep_now();
        end();
    }
}
END_TEST

/* Before any step, or with one in the streams: what is asleep then has given all of it back, and
 * wakes as ever. */
START_TEST(who_falls_asleep_while_weights_come_waits_for_them)
{
    for (uint64_t seed = LATE; seed <= SEEDS; seed++) {
        setup(_i, seed);
        for (int turn = 0; turn < 2; turn++) {
            wake();
            ck_assert(seed != LATE || nothing_is_there());
            if (turn == 1)
                ck_assert_int_eq(submit(1, 0, 9), 0);
            ck_assert_int_eq(gpu_module.stop(talk.engine, 0, &talk.error), 0);
            ck_assert_uint_eq(emu_live().device_bytes, 0);
            sleep_now();
        }
        wake();
        ck_assert_int_eq(answer(), 0);
        ck_assert(same());
        sleep_now();
        end();
    }
}
END_TEST

/* Idle memory is given back beside them, too. */
START_TEST(a_trim_while_weights_come_leaves_them)
{
    setup(0, LATE);
    wake();
    ck_assert_int_eq(gpu_module.trim(talk.engine, &talk.error), 0);
    ck_assert(nothing_is_there());
    ck_assert_int_eq(answer(), 0);
    ck_assert(same());
    sleep_now();
    end();
}
END_TEST

/* As for any copy: the engine is dead, and says so to whoever asks. */
START_TEST(a_device_that_is_lost_while_weights_come_is_lost)
{
    struct error error;
    setup(1, LATE);
    wake();
    emu_fault_set(_i ? EMU_cudaStreamWaitEvent : EMU_cudaMemcpyAsync, _i ? 3 : 1,
                  cudaErrorIllegalAddress);
    ck_assert_int_eq(submit(1, 0, 9), -ERR_DEVICE);
    ck_assert_int_eq(submit(1, 0, 9), -ERR_DEVICE);
    ck_assert_int_eq(gpu_module.stop(talk.engine, 0, &error), -ERR_DEVICE);
    sleep_now();
}
END_TEST

/* Half of them are on their way when a call fails: the start ends behind those, and the next has
 * all. */
START_TEST(a_start_that_fails_between_copies_leaves_nothing)
{
    static const enum emu_call calls[] = {EMU_cudaMemcpyAsync, EMU_cudaEventRecord,
                                          EMU_cudaEventCreateWithFlags, EMU_cudaLaunchHostFunc,
                                          EMU_cudaHostAlloc};
    for (uint64_t nth = 1; nth <= (calls[_i] == EMU_cudaLaunchHostFunc ? 1 : 12); nth++) {
        setup(0, nth % 3); /* late, and in other orders */
        emu_fault_set(calls[_i], nth, cudaErrorMemoryAllocation);
        (void)start(); /* the call may not be made so often */
        sleep_now();
        ck_assert_uint_eq(emu_live().device_bytes, 0);
        emu_fault_set(calls[_i], 0, cudaSuccess);
        wake();
        ck_assert_int_eq(answer(), 0);
        ck_assert(same());
        sleep_now();
        end();
    }
}
END_TEST

Suite *wake_suite(void)
{
    Suite *suite = suite_create("wake");
    TCase *tcase = tcase_create("wake");
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, what_a_model_says_while_it_wakes_has_its_bits, 0, CASES);
    tcase_add_loop_test(tcase, whatever_comes_late_is_waited_for_by_who_takes_it, 0, CASES);
    tcase_add_test(tcase, graphs_are_made_once_nothing_is_waited_for);
    tcase_add_test(tcase, first_layers_compute_while_the_last_come);
    tcase_add_test(tcase, a_wait_for_weights_left_out_is_seen);
    tcase_add_loop_test(tcase, who_falls_asleep_while_weights_come_waits_for_them, 0, 2);
    tcase_add_test(tcase, a_trim_while_weights_come_leaves_them);
    tcase_add_loop_test(tcase, a_device_that_is_lost_while_weights_come_is_lost, 0, 2);
    tcase_add_loop_test(tcase, a_start_that_fails_between_copies_leaves_nothing, 0, 5);
    suite_add_tcase(suite, tcase);
    return suite;
}
