/* A model shared by several devices gives what one device gives, and mistakes in that are seen. One
 * thread stands for those of all ranks. */
#include <math.h>
#include <string.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/runner.h"

#define DENSE "gemma-default-bf16" /* a model without experts */

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference reference;
static char names[REFERENCES_MAX][REFERENCE_NAME];
static uint32_t name_count;

static void setup(enum emu_engine engine, uint64_t seed)
{
    ck_assert(rig_emu(engine, RIG_DEVICES, seed));
}

static struct rank *rank(uint32_t number)
{
    return engine_rank(talk.engine, number);
}

/* Sums and logits as large ones are made, by the communicator. */
static void post_close_all(void)
{
    for (uint32_t i = 0; i < talk.ranks; i++)
        rank(i)->comm.p2p.sum_bytes = 0;
}

/* False where the model's heads, or its experts where they stay whole, do not divide. */
static bool shared_open(const char *name, uint32_t ranks, bool whole_experts, bool stepping)
{
    ck_assert(reference_read(name, &reference));
    struct gpu_options options = {.model = reference.directory,
                                  .tp = ranks,
                                  .ep = whole_experts,
                                  .tokens_max = 512,
                                  .slots_max = 64};
    int status = engine_client_open(&talk, &options, stepping);
    if (status == -ERR_BAD_CONFIG)
        return false;
    ck_assert_msg(status == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
    return true;
}

static bool model_open(const char *name, uint32_t ranks, bool stepping)
{
    return shared_open(name, ranks, false, stepping);
}

static struct rig_error error_run(void)
{
    rig_score_jobs(jobs, &reference);
    int status = engine_client_run(&talk, jobs, REFERENCE_PROMPTS);
    ck_assert_msg(status == 0, "%d %s", status, talk.error.text);
    return rig_compare(jobs, &reference);
}

START_TEST(shared_models_score_as_transformers_does)
{
    setup(EMU_THREADS, 0);
    if (!model_open(names[_i], 2, false))
        RUNNER_SKIP("%s cannot be shared", names[_i]);
    static const uint32_t chunks[] = {0, 7, 0};
    for (int i = 0; i < 3; i++) {
        talk.chunk = chunks[i];
        if (i == 2)
            post_close_all();
        struct rig_error error = error_run();
        ck_assert_msg(rig_right(error, &reference), "%s: off by %g", names[_i], error.max);
    }
    engine_client_close(&talk);
}
END_TEST

static const char *const mixtures[] = {
    "mixtral-default-bf16",        "mixtral-window-f16",   "qwen2-moe-shared-bf16",
    "qwen2-moe-step-f16",          "qwen3-moe-norm-bf16",  "qwen3-moe-dense-f16",
    "olmoe-default-bf16",          "olmoe-norm-f16",       "glm4-moe-shared-bf16",
    "glm4-moe-dense-f16",          "gpt-oss-yarn-bf16",    "gpt-oss-clamp-f16",
    "granite-moe-bias-bf16",       "granite-moe-tied-f16", "granite-moe-shared-bf16",
    "granite-moe-shared-none-f16", "deepseek-shared-bf16", "deepseek-norm-f16"};

/* Each rank has whole experts, and no more memory for them than with columns of all. */
START_TEST(mixtures_whose_experts_are_shared_score_as_transformers_does)
{
    struct gpu_options options = {.tp = 2};
    struct gpu_model columns, whole;
    struct error error;
    setup(EMU_THREADS, 0);
    ck_assert(shared_open(mixtures[_i], 2, true, false));
    options.model = reference.directory;
    ck_assert_int_eq(gpu_module.check(&options, &columns, &error), 0);
    options.ep = true;
    ck_assert_int_eq(gpu_module.check(&options, &whole, &error), 0);
    ck_assert_uint_le(whole.weight_bytes, columns.weight_bytes);
    for (int i = 0; i < 2; i++) {
        talk.chunk = i * 7;
        struct rig_error off = error_run();
        ck_assert_msg(rig_right(off, &reference), "%s: off by %g", mixtures[_i], off.max);
    }
    engine_client_close(&talk);
}
END_TEST

/* The second rank's begin with the last of the first one's. */
START_TEST(a_rank_whose_experts_begin_one_off_is_seen)
{
    setup(EMU_THREADS, 0);
    ck_assert(shared_open(mixtures[0], 2, true, false));
    struct program *program = &rank(1)->program;
    for (uint32_t i = 0; i < program->op_count; i++) {
        uint8_t kind = program->ops[i].kind;
        if (kind == OP_SEGMENTS || kind == OP_EXPERTS || kind == OP_COMBINE)
            program->ops[i].experts.own--;
    }
    ck_assert(!rig_right(error_run(), &reference));
    engine_client_close(&talk);
}
END_TEST

START_TEST(a_model_without_experts_shares_none)
{
    setup(EMU_THREADS, 0);
    ck_assert(!shared_open(DENSE, 2, true, false));
    ck_assert_ptr_nonnull(strstr(talk.error.text, "ep: the model is no mixture of experts"));
}
END_TEST

START_TEST(models_that_can_be_shared_are_many)
{
    uint32_t shared = 0;
    for (uint32_t i = 0; i < name_count; i++) {
        setup(EMU_THREADS, 0);
        if (!model_open(names[i], 2, false))
            continue;
        shared++;
        engine_client_close(&talk);
    }
    ck_assert_uint_ge(shared, ENGINE_CLIENT_THIN > 1 ? 1 : 4); /* sanitizers see every seventh */
}
END_TEST

START_TEST(devices_that_do_not_reach_each_other_share_all_the_same)
{
    setup(EMU_THREADS, 0);
    emu_fault_set(EMU_cudaDeviceCanAccessPeer, 1 + (uint64_t)_i, cudaErrorInvalidDevice);
    ck_assert(model_open(DENSE, 2, false));
    ck_assert(!p2p_can_gather(&rank(0)->comm.p2p) && !p2p_can_gather(&rank(1)->comm.p2p));
    ck_assert(rig_right(error_run(), &reference));
    engine_client_close(&talk);
}
END_TEST

#define WIDE_PROMPTS 6
#define WIDE_TOKENS 48

/* Log-probabilities of a model with heads for four, on one device or shared. */
static void wide_score(uint32_t count, bool p2p, struct gpu_score scores[WIDE_PROMPTS][WIDE_TOKENS])
{
    static int32_t tokens[WIDE_PROMPTS][WIDE_TOKENS];
    struct gpu_options options = {
        .model = "synthetic:tiny-wide", .tp = count, .tokens_max = 512, .slots_max = 64};
    setup(EMU_THREADS, 0);
    ck_assert_msg(engine_client_open(&talk, &options, false) == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
    if (!p2p)
        post_close_all();
    for (uint32_t i = 0; i < WIDE_PROMPTS; i++) {
        for (uint32_t j = 0; j < WIDE_TOKENS; j++)
            tokens[i][j] = (int32_t)((i * 131 + j * j * 7 + j) % 512);
        jobs[i] = (struct engine_client_job){
            .prompt = tokens[i], .prompt_len = WIDE_TOKENS - i, .score = true};
    }
    ck_assert_int_eq(engine_client_run(&talk, jobs, WIDE_PROMPTS), 0);
    for (uint32_t i = 0; i < WIDE_PROMPTS; i++)
        memcpy(scores[i], jobs[i].scores, sizeof scores[i]);
    engine_client_close(&talk);
}

START_TEST(two_and_four_devices_give_what_one_gives)
{
    static struct gpu_score one[WIDE_PROMPTS][WIDE_TOKENS], shared[WIDE_PROMPTS][WIDE_TOKENS];
    double most = 0;
    wide_score(1, false, one);
    wide_score(_i / 2 ? 4 : 2, _i % 2, shared);
    for (uint32_t i = 0; i < WIDE_PROMPTS; i++) {
        for (uint32_t j = 0; j + 1 < WIDE_TOKENS - i; j++)
            most = fmax(most, fabs((double)one[i][j].logprob - (double)shared[i][j].logprob));
    }
    ck_assert_msg(most < 2e-4, "off by %g", most);
    ck_assert(one[0][0].logprob < -1 && one[0][1].logprob != one[0][0].logprob);
}
END_TEST

static void jobs_generate(void)
{
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i] = (struct engine_client_job){.prompt = reference.prompts[i].tokens,
                                             .prompt_len = reference.prompts[i].count,
                                             .generate = REFERENCE_GREEDY,
                                             .open = {.eos_from = UINT32_MAX,
                                                      .sampler.repetition_penalty = 1,
                                                      .seed = i,
                                                      .sampler.temperature = 0.8f,
                                                      .sampler.top_p = 0.9f}};
}

/* Sampled tokens and their log-probabilities of a run, decode steps as graphs. */
static void generate(struct gpu_sample samples[REFERENCE_PROMPTS][REFERENCE_GREEDY])
{
    setup(EMU_THREADS, 0);
    ck_assert(model_open(DENSE, 2, false));
    jobs_generate();
    ck_assert_int_eq(engine_client_run(&talk, jobs, REFERENCE_PROMPTS), 0);
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        memcpy(samples[i], jobs[i].samples, sizeof samples[i]);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct gpu_counters counters;
        gpu_module.counters(talk.engine, rank, &counters);
        ck_assert_uint_gt(counters.graph_steps, 0);
    }
    engine_client_close(&talk);
}

START_TEST(runs_of_one_layout_give_the_same_bits)
{
    static struct gpu_sample first[REFERENCE_PROMPTS][REFERENCE_GREEDY],
        again[REFERENCE_PROMPTS][REFERENCE_GREEDY];
    generate(first);
    for (int i = 0; i < 3; i++) {
        generate(again);
        ck_assert_mem_eq(first, again, sizeof first);
    }
}
END_TEST

/* ---- mistakes ---- */

static void shards_swapped(void)
{
    struct weight *one = rig_weight(rank(0), "model.layers.0.mlp.down_proj.weight");
    struct weight *two = rig_weight(rank(1), "model.layers.0.mlp.down_proj.weight");
    struct weight kept = *one;
    *one = *two;
    *two = kept;
}

static void heads_swapped(void)
{
    struct weight *one = rig_weight(rank(0), "model.layers.1.self_attn.o_proj.weight");
    struct weight *two = rig_weight(rank(1), "model.layers.1.self_attn.o_proj.weight");
    struct weight kept = *one;
    *one = *two;
    *two = kept;
}

static void sums_skipped(void)
{
    rig_without(rank(0), OP_ALL_REDUCE);
    rig_without(rank(1), OP_ALL_REDUCE);
}

static void vocabulary_swapped(void)
{
    uint32_t first = rank(0)->weights.vocabulary_first;
    rank(0)->weights.vocabulary_first = rank(1)->weights.vocabulary_first;
    rank(1)->weights.vocabulary_first = first;
}

START_TEST(mistakes_in_sharing_are_seen)
{
    static void (*const mistakes[])(void) = {shards_swapped, heads_swapped, sums_skipped,
                                             vocabulary_swapped};
    setup(EMU_THREADS, 0);
    ck_assert(model_open(DENSE, 2, false));
    mistakes[_i]();
    ck_assert(rig_wrong(error_run(), &reference));
    engine_client_close(&talk);
}
END_TEST

/* Whether a run with the nth event wait left out gives something wrong under some order of work. */
static bool skip_is_seen(uint64_t nth)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        setup(EMU_STEPPER, seed);
        ck_assert(model_open(DENSE, 2, true));
        talk.chunk = 7; /* short steps: sums in one piece */
        post_close_all();
        emu_fault_skip_wait(nth);
        bool seen = !rig_right(error_run(), &reference);
        engine_client_close(&talk);
        if (seen)
            return true;
    }
    return false;
}

/* Of a step's waits the first is compute's for the plan; then come those of the sums: the stream of
 * sums for compute, compute for the sums. */
START_TEST(a_wait_left_out_around_a_sum_is_seen)
{
    ck_assert(skip_is_seen(3 + (uint64_t)_i));
}
END_TEST

START_TEST(any_order_of_work_gives_the_right_scores)
{
    setup(EMU_STEPPER, (uint64_t)_i + 1);
    ck_assert(model_open(DENSE, 2, true));
    talk.chunk = _i % 3 ? 7 : 0;
    if (_i % 4 > 1)
        post_close_all();
    ck_assert(rig_right(error_run(), &reference));
    engine_client_close(&talk);
}
END_TEST

/* Whether a run is wrong under some order of work once the inboxes were spoilt. */
static bool spoilt_is_seen(void (*spoil)(void))
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        setup(EMU_STEPPER, seed);
        ck_assert(model_open(DENSE, 2, true));
        talk.chunk = 7;
        cudaStream_t tally = talk.engine->comms[0]->office.desk[1].tally;
        spoil();
        bool seen = !rig_right(error_run(), &reference);
        talk.engine->comms[0]->office.desk[1].tally = tally;
        engine_client_close(&talk);
        if (seen)
            return true;
    }
    return false;
}

static void turns_taken_by_none(void)
{
    rank(0)->comm.p2p.turn_bytes = rank(1)->comm.p2p.turn_bytes = 0;
}

/* A rank's stream meets itself alone. */
static void meetings_skipped(void)
{
    talk.engine->comms[0]->office.desk[1].tally = talk.engine->comms[0]->office.desk[0].tally;
}

START_TEST(inboxes_without_turns_or_meetings_are_seen)
{
    static void (*const mistakes[])(void) = {turns_taken_by_none, meetings_skipped};
    ck_assert(spoilt_is_seen(mistakes[_i]));
}
END_TEST

/* ---- memory and failure ---- */

START_TEST(memory_that_one_rank_lacks_is_taken_on_none)
{
    setup(EMU_THREADS, 0);
    ck_assert(model_open(DENSE, 2, false));
    uint64_t used[2];
    struct gpu_memory memory;
    for (uint32_t i = 0; i < 2; i++) {
        gpu_module.memory(talk.engine, i, &memory);
        used[i] = memory.kv_used;
    }
    uint32_t slab;
    rank(1)->mem.limits.kv_max = 1;
    ck_assert_int_eq(gpu_module.kv_grow(talk.engine, 0, &slab, &talk.error), -ERR_DEVICE_MEMORY);
    for (uint32_t i = 0; i < 2; i++) {
        gpu_module.memory(talk.engine, i, &memory);
        ck_assert_uint_eq(memory.kv_used, used[i]);
    }
    rank(1)->mem.limits.kv_max = 0;
    ck_assert_int_eq(gpu_module.kv_grow(talk.engine, 0, &slab, &talk.error), 0);
    engine_client_close(&talk);
}
END_TEST

START_TEST(a_rank_that_is_lost_ends_the_group_and_nothing_hangs)
{
    setup(EMU_THREADS, 0);
    ck_assert(model_open(DENSE, 2, false));
    jobs_generate();
    emu_fault_set(EMU_launch, 40 + 13 * (uint64_t)_i, cudaErrorLaunchFailure);
    ck_assert_int_eq(engine_client_run(&talk, jobs, REFERENCE_PROMPTS), -ERR_DEVICE);
    struct error error;
    ck_assert_int_eq(gpu_module.query(talk.engine, 1, &error), GPU_FAILED);
    engine_client_close(&talk);
}
END_TEST

START_TEST(heads_that_do_not_divide_are_refused)
{
    setup(EMU_THREADS, 0);
    ck_assert(reference_read(DENSE, &reference));
    struct gpu_options options = {.model = reference.directory, .tp = 3};
    ck_assert_int_eq(engine_client_open(&talk, &options, false), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(talk.error.text, "tp is 3"));
}
END_TEST

Suite *ranks_suite(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tcase = tcase_create("ranks");
    tcase_set_timeout(tcase, 120);
    name_count = reference_names(names);
    tcase_add_loop_test(tcase, shared_models_score_as_transformers_does, 0, (int)name_count);
    tcase_add_loop_test(tcase, mixtures_whose_experts_are_shared_score_as_transformers_does, 0,
                        sizeof mixtures / sizeof *mixtures);
    tcase_add_test(tcase, a_rank_whose_experts_begin_one_off_is_seen);
    tcase_add_test(tcase, a_model_without_experts_shares_none);
    tcase_add_test(tcase, models_that_can_be_shared_are_many);
    tcase_add_loop_test(tcase, devices_that_do_not_reach_each_other_share_all_the_same, 0, 2);
    tcase_add_loop_test(tcase, two_and_four_devices_give_what_one_gives, 0, 4);
    tcase_add_test(tcase, runs_of_one_layout_give_the_same_bits);
    tcase_add_loop_test(tcase, mistakes_in_sharing_are_seen, 0, 4);
    tcase_add_loop_test(tcase, a_wait_left_out_around_a_sum_is_seen, 0, 2);
    tcase_add_loop_test(tcase, any_order_of_work_gives_the_right_scores, 0, 12);
    tcase_add_loop_test(tcase, inboxes_without_turns_or_meetings_are_seen, 0, 2);
    tcase_add_test(tcase, memory_that_one_rank_lacks_is_taken_on_none);
    tcase_add_loop_test(tcase, a_rank_that_is_lost_ends_the_group_and_nothing_hangs, 0, 3);
    tcase_add_test(tcase, heads_that_do_not_divide_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
