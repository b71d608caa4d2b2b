/* A model whose layers are shared out over the stages of a pipeline gives what one device gives, to
 * the bit, with steps in flight on all stages; and mistakes in that are seen. */
#include <string.h>

#include "gpu/graph/stages.h"
#include "gpu/models/model.h"
#include "gpu/models/synthetic.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/flow.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/runner.h"

#define PROMPTS "llama-default-bf16"
#define MODEL "synthetic:tiny" /* four layers; the reference checkpoints have two or three */

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference reference;
static struct flow_answers expected, answers;
static struct error error;
static char names[REFERENCES_MAX][REFERENCE_NAME];
static uint32_t name_count;

static void setup(enum emu_engine engine, uint64_t seed)
{
    ck_assert(rig_emu(engine, RIG_DEVICES, seed));
}

static const struct {
    uint32_t tp, pp;
} layouts[] = {{1, 2}, {1, 3}, {1, 4}, {2, 2}};
#define LAYOUTS (int)(sizeof layouts / sizeof layouts[0])

/* False where layers or heads do not go so far. */
static bool model_open(const char *name, uint32_t tp, uint32_t pp)
{
    ck_assert(reference_read(name, &reference));
    struct gpu_options options = {
        .model = reference.directory, .tp = tp, .pp = pp, .tokens_max = 512, .slots_max = 64};
    int status = engine_client_open(&talk, &options, false);
    if (status == -ERR_BAD_CONFIG)
        return false;
    ck_assert_msg(status == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
    return true;
}

START_TEST(pipelines_score_as_transformers_does)
{
    uint32_t layout = (uint32_t)_i % LAYOUTS;
    setup(EMU_THREADS, 0);
    if (!model_open(names[_i / LAYOUTS], layouts[layout].tp, layouts[layout].pp))
        RUNNER_SKIP("%s does not go into tp %u, pp %u", names[_i / LAYOUTS], layouts[layout].tp,
                    layouts[layout].pp);
    rig_score_jobs(jobs, &reference);
    static const uint32_t chunks[] = {0, 7};
    for (int i = 0; i < 2; i++) {
        talk.chunk = chunks[i];
        int status = engine_client_run(&talk, jobs, REFERENCE_PROMPTS);
        ck_assert_msg(status == 0, "%d %s", status, talk.error.text);
        struct rig_error off = rig_compare(jobs, &reference);
        ck_assert_msg(rig_right(off, &reference), "%s: off by %g", names[_i / LAYOUTS], off.max);
    }
    engine_client_close(&talk);
}
END_TEST

/* The devices of the second stage do not reach each other: no stage posts, and all name that pair.
 */
START_TEST(stages_post_all_or_none)
{
    setup(EMU_THREADS, 0);
    emu_fault_set(EMU_cudaDeviceCanAccessPeer, 3, cudaErrorInvalidDevice);
    ck_assert(model_open(PROMPTS, 2, 2));
    for (int stage = 0; stage < 2; stage++) {
        const struct p2p_group *office = &talk.engine->comms[stage]->office;
        ck_assert(!office->open);
        ck_assert_int_eq(office->apart[0], 2);
        ck_assert_int_eq(office->apart[1], 3);
    }
    engine_client_close(&talk);
}
END_TEST

/* ---- several steps in flight ---- */

static struct flow_options flow_of(uint32_t tp, uint32_t pp)
{
    return (struct flow_options){
        .gpu = {.model = MODEL, .tp = tp, .pp = pp, .tokens_max = 512, .slots_max = FLOW_SEQS},
        .groups = 4,
        .chunk = 40};
}

static int run(const struct flow_options *options, struct flow_answers *ret)
{
    return flow_run(options, &reference, ret, &error);
}

/* What one stage answers. */
static void expect(const struct flow_options *options)
{
    struct flow_options alone = *options;
    alone.gpu.pp = 1;
    alone.stepping = false;
    alone.after_start = NULL;
    ck_assert(reference_read(PROMPTS, &reference));
    setup(EMU_THREADS, 0);
    ck_assert_msg(run(&alone, &expected) == 0, "%s", error.text);
}

static bool same(void)
{
    return memcmp(&answers, &expected, sizeof answers) == 0;
}

static const uint32_t groups[] = {2, 1, 4};
#define GROUPS (ENGINE_CLIENT_THIN > 1 ? 1 : 3) /* of them are tried */
#define ORDERS (ENGINE_CLIENT_THIN > 1 ? 3 : 9) /* of work, on two, three and four stages in turn  \
                                                 */

START_TEST(a_pipeline_gives_the_bits_of_one_device)
{
    uint32_t layout = (uint32_t)(_i / GROUPS);
    struct flow_options options = flow_of(layouts[layout].tp, layouts[layout].pp);
    options.groups = groups[_i % GROUPS];
    expect(&options);
    for (int i = 0; i < (ENGINE_CLIENT_THIN > 1 ? 1 : 3); i++) {
        setup(EMU_THREADS, 0);
        ck_assert_msg(run(&options, &answers) == 0, "%s", error.text);
        ck_assert(same());
    }
}
END_TEST

START_TEST(layers_of_two_kinds_are_shared_out_too)
{
    struct flow_options options = flow_of(1, 2 + (uint32_t)_i);
    options.gpu.model = REFERENCE_DATA "/qwen2-window-bf16";
    expect(&options);
    setup(EMU_THREADS, 0);
    ck_assert_msg(run(&options, &answers) == 0, "%s", error.text);
    ck_assert(same());
}
END_TEST

static void graphs_off(struct gpu_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++)
        engine_rank(engine, i)->graphs.off = true;
}

START_TEST(stages_without_graphs_give_the_same)
{
    struct flow_options options = flow_of(1, 2);
    expect(&options);
    options.after_start = graphs_off;
    setup(EMU_THREADS, 0);
    ck_assert_int_eq(run(&options, &answers), 0);
    ck_assert(same());
}
END_TEST

START_TEST(any_order_of_work_gives_the_same)
{
    struct flow_options options = flow_of(1, 2 + (uint32_t)_i % 3);
    options.stepping = true;
    expect(&options);
    setup(EMU_STEPPER, (uint64_t)_i + 1);
    ck_assert_msg(run(&options, &answers) == 0, "%s", error.text);
    ck_assert(same());
}
END_TEST

/* ---- mistakes ---- */

static void stages_swapped(struct gpu_engine *engine)
{
    rig_stages_swap(engine_rank(engine, 0), engine_rank(engine, 1));
}

static void tokens_kept(struct gpu_engine *engine)
{
    /* The first stage reads its own slots, where nobody samples. */
    engine->rank.link.first = &engine_rank(engine, 1)->link;
}

static void weights_taken_twice(struct gpu_engine *engine)
{
    struct rank *rank = engine_rank(engine, 1);
    const struct op *first = NULL;
    for (uint32_t i = 0; i < rank->program.op_count; i++) {
        struct op *op = &rank->program.ops[i];
        if (op->kind == OP_MATMUL && op->layer >= 0 && !first)
            first = op;
        if (op->kind == OP_MATMUL && first && op->layer == first->layer + 1 &&
            rank->weights.at[op->weight].n == rank->weights.at[first->weight].n)
            op->weight = first->weight;
    }
}

START_TEST(mistakes_in_handing_on_are_seen)
{
    static void (*const mistakes[])(struct gpu_engine *) = {stages_swapped, tokens_kept,
                                                            weights_taken_twice};
    struct flow_options options = flow_of(1, 2);
    expect(&options);
    options.after_start = mistakes[_i];
    setup(EMU_THREADS, 0);
    ck_assert_int_eq(run(&options, &answers), 0);
    ck_assert(!same());
}
END_TEST

/* ---- waits: relays alone, with little else that could order what they do ---- */

#define WAY_STEPS 6
#define WAY_BYTES 256
#define WAY_STAGES 3

static struct {
    struct pipeline_link relays[WAY_STAGES];
    struct mem mems[WAY_STAGES];
    cudaStream_t compute[WAY_STAGES], out;
    unsigned char *state[WAY_STAGES], *seen; /* a byte pattern per step: what each stage took */
    int32_t *tokens;
} way;

static void way_open(uint64_t seed)
{
    setup(EMU_STEPPER, seed);
    memset(&way, 0, sizeof way);
    for (int i = 0; i < WAY_STAGES; i++)
        pipeline_link_chain(&way.relays[i], i ? &way.relays[i - 1] : NULL, i);
    for (int i = 0; i < WAY_STAGES; i++) {
        void *state, *seen;
        struct pipeline_link_limits limits = {
            .state_bytes = WAY_BYTES, .slots = 4, .places = WAY_STEPS};
        pipeline_link_ends(&way.relays[i], &way.relays[0], &way.relays[WAY_STAGES - 1]);
        ck_assert_int_eq(cudaSetDevice(i), cudaSuccess);
        ck_assert_int_eq(cudaStreamCreateWithPriority(&way.compute[i], cudaStreamNonBlocking, 0),
                         cudaSuccess);
        ck_assert_int_eq(mem_open(&way.mems[i], i, way.compute[i], &(struct mem_limits){0}, &error),
                         0);
        ck_assert_int_eq(pipeline_link_open(&way.relays[i], &way.mems[i], &limits, &error), 0);
        ck_assert_int_eq(mem_fixed(&way.mems[i], WAY_BYTES, &state, &error), 0);
        ck_assert_int_eq(mem_fixed(&way.mems[i], WAY_STEPS * WAY_BYTES, &seen, &error), 0);
        way.state[i] = state;
        way.seen = seen; /* the last stage's */
    }
    void *tokens;
    ck_assert_int_eq(cudaStreamCreateWithPriority(&way.out, cudaStreamNonBlocking, 0), cudaSuccess);
    ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
    ck_assert_int_eq(mem_fixed(&way.mems[0], WAY_STEPS * 4 * sizeof(int32_t), &tokens, &error), 0);
    way.tokens = tokens;
}

static void way_close(void)
{
    for (int i = 0; i < WAY_STAGES; i++) {
        cudaSetDevice(i);
        pipeline_link_close(&way.relays[i]);
        ck_assert_int_eq(mem_close(&way.mems[i], NULL), 0);
        cudaStreamDestroy(way.compute[i]);
    }
    cudaStreamDestroy(way.out);
    for (int i = 0; i < WAY_STAGES; i++)
        pipeline_link_drop(&way.relays[i]);
}

/* A stage's part of a step: the first makes a state and keeps the tokens of two steps ago, the last
 * keeps what it took and makes the step's tokens. */
static void way_stage(int stage, uint64_t step)
{
    struct pipeline_link *link = &way.relays[stage];
    cudaStream_t compute = way.compute[stage];
    struct stage_state state = {.residual = way.state[stage], .bytes = WAY_BYTES};
    size_t tokens = 4 * sizeof(int32_t);
    cudaSetDevice(stage);
    if (stage == 0) {
        if (step > 2) {
            ck_assert_int_eq(pipeline_link_await_tokens(link, step - 2, compute, &error), 0);
            cudaMemcpyAsync(way.tokens + (step - 1) * 4, pipeline_link_tokens(link, step - 2),
                            tokens, cudaMemcpyDeviceToDevice, compute);
        }
        cudaMemsetAsync(state.residual, (int)step, WAY_BYTES, compute);
    } else {
        ck_assert_int_eq(pipeline_link_recv(link, step, &state, compute, &error), 0);
    }
    if (stage + 1 < WAY_STAGES) {
        ck_assert_int_eq(pipeline_link_send(link, step, &state, compute, &error), 0);
        return;
    }
    cudaMemcpyAsync(way.seen + (step - 1) * WAY_BYTES, state.residual, WAY_BYTES,
                    cudaMemcpyDeviceToDevice, compute);
    cudaMemsetAsync(pipeline_link_tokens(link, step), (int)step, tokens, compute);
    cudaEventRecord(link->made, compute); /* which the last stage has no other use for */
    cudaStreamWaitEvent(way.out, link->made, 0);
    ck_assert_int_eq(pipeline_link_return(link, step, way.out, &error), 0);
}

/* Whether every step's state and tokens came as they were sent. */
static bool way_run(uint64_t seed, uint64_t skip_wait)
{
    way_open(seed);
    emu_fault_skip_wait(skip_wait);
    for (uint64_t step = 1; step <= WAY_STEPS; step++) {
        for (int stage = 0; stage < WAY_STAGES; stage++)
            way_stage(stage, step);
    }
    while (emu_step())
        continue;
    bool right = true;
    const unsigned char *seen = dev(way.seen);
    for (uint64_t i = 0; i < WAY_STEPS * WAY_BYTES; i++)
        right = right && seen[i] == i / WAY_BYTES + 1;
    const unsigned char *tokens = dev(way.tokens);
    for (uint64_t i = 2 * 4 * sizeof(int32_t); i < WAY_STEPS * 4 * sizeof(int32_t); i++)
        right = right && tokens[i] == i / (4 * sizeof(int32_t)) - 1;
    way_close();
    return right;
}

START_TEST(relays_are_right_under_any_order_of_work)
{
    for (uint64_t seed = 1; seed <= 200 / ENGINE_CLIENT_THIN; seed++)
        ck_assert_msg(way_run(seed, 0), "seed %d", (int)seed);
}
END_TEST

/* Waits of a step on three stages, as they are made: the first's for tokens (from the third step
 * on), outbox and inbox (from the second on), and what was made; and so on. Of the fourth step,
 * where all of them are there. */
static const char *const waits[] = {
    "tokens are back",         "the first outbox is empty", "its state is made",
    "the next inbox is empty", "state has arrived",         "the second outbox is empty",
    "its state is made",       "the last inbox is empty",   "state has arrived"};
#define WAITS (sizeof waits / sizeof waits[0])

START_TEST(a_wait_left_out_between_stages_is_seen)
{
    /* Before the fourth: 5, 9 and 10 waits, each step's last being this test's own. */
    uint64_t nth = 5 + 9 + 10 + (uint64_t)_i + 1;
    bool seen = false;
    for (uint64_t seed = 1; seed <= 1000 && !seen; seed++)
        seen = !way_run(seed, nth);
    ck_assert_msg(seen, "%s", waits[_i]);
}
END_TEST

/* ---- failure ---- */

START_TEST(a_stage_that_is_lost_ends_the_pipeline_and_nothing_hangs)
{
    ck_assert(reference_read(PROMPTS, &reference));
    struct flow_options options = flow_of(1 + (uint32_t)_i % 2, 2);
    setup(EMU_THREADS, 0);
    emu_fault_set(EMU_launch, 100 + 37 * (uint64_t)_i, cudaErrorLaunchFailure);
    ck_assert_int_eq(run(&options, &answers), -ERR_DEVICE);
}
END_TEST

START_TEST(a_call_that_fails_on_any_stage_ends_the_pipeline)
{
    static const enum emu_call calls[] = {EMU_cudaMemcpyPeerAsync, EMU_cudaStreamWaitEvent,
                                          EMU_cudaEventRecord, EMU_cudaMemcpyAsync};
    ck_assert(reference_read(PROMPTS, &reference));
    struct flow_options options = flow_of(1, 3);
    setup(EMU_THREADS, 0);
    emu_fault_set(calls[_i % 4], _i % 4 ? 200 + (uint64_t)_i : 5 + (uint64_t)_i,
                  cudaErrorLaunchFailure);
    ck_assert_int_eq(run(&options, &answers), -ERR_DEVICE);
}
END_TEST

START_TEST(memory_that_a_stage_lacks_is_taken_on_none)
{
    setup(EMU_THREADS, 0);
    ck_assert(model_open(PROMPTS, 1, 2));
    struct gpu_memory before[2], after[2];
    uint32_t slab;
    engine_rank(talk.engine, 1)->mem.limits.kv_max = 1;
    for (uint32_t i = 0; i < 2; i++)
        gpu_module.memory(talk.engine, i, &before[i]);
    ck_assert_int_eq(gpu_module.kv_grow(talk.engine, 0, &slab, &talk.error), -ERR_DEVICE_MEMORY);
    for (uint32_t i = 0; i < 2; i++) {
        gpu_module.memory(talk.engine, i, &after[i]);
        ck_assert_uint_eq(after[i].kv_used, before[i].kv_used);
    }
    engine_client_close(&talk);
}
END_TEST

START_TEST(a_stage_holds_its_layers_alone)
{
    uint64_t bytes[5] = {0};
    for (uint32_t pp = 1; pp <= 4; pp++) {
        struct gpu_model model;
        struct gpu_options options = {.model = "synthetic:llama-3.1-8b", .pp = pp};
        setup(EMU_THREADS, 0);
        ck_assert_int_eq(gpu_module.check(&options, &model, &error), 0);
        ck_assert_uint_eq(model.ranks, pp);
        bytes[pp] = model.weight_bytes;
        /* Nothing but the table of rope's frequencies is on every stage. */
        ck_assert_uint_lt(bytes[pp] - bytes[1], 4096 * pp);
    }
}
END_TEST

static const struct {
    const char *what;
    struct gpu_options options;
    const char *text;
} refused[] = {
    {"more stages than layers", {.model = MODEL, .pp = 5}, "pp is 5: the model has 4 layers"},
    {"too many stages", {.model = MODEL, .pp = 9}, "pp is 9: at most 8"},
    {"too many devices", {.model = MODEL, .tp = 8, .pp = 4}, "tp * pp is at most 16"},
};

START_TEST(layouts_that_do_not_go_are_refused)
{
    setup(EMU_THREADS, 0);
    ck_assert_int_eq(engine_client_open(&talk, &refused[_i].options, false), -ERR_BAD_CONFIG);
    ck_assert_msg(strstr(talk.error.text, refused[_i].text) != NULL, "%s: %s", refused[_i].what,
                  talk.error.text);
}
END_TEST

static const struct {
    const char *model;
    uint32_t stages, first[GPU_STAGES_MAX + 1];
} splits[] = {
    {"synthetic:tiny", 2, {0, 2, 4}},
    {"synthetic:tiny", 4, {0, 1, 2, 3, 4}},
    {"synthetic:llama-3.1-8b", 1, {0, 32}},
    {"synthetic:llama-3.1-8b", 2, {0, 17, 32}}, /* the head is worth 2.4 layers */
    {"synthetic:llama-3.1-8b", 4, {0, 8, 17, 26, 32}},
    {"synthetic:llama-3.1-70b", 4, {0, 20, 40, 61, 80}},
    {"synthetic:qwen3-0.6b", 2, {0, 19, 28}}, /* a small model with a large vocabulary */
};

START_TEST(layers_are_shared_out_by_their_cost)
{
    struct model_config config;
    uint32_t first[GPU_STAGES_MAX + 1];
    struct op_list list;
    ck_assert_int_eq(synthetic_config(splits[_i].model, &config, &error), 0);
    ck_assert_int_eq(model_list(&config, 1, &list, &error), 0);
    ck_assert_int_eq(stages_split(&list, splits[_i].stages, first, &error), 0);
    op_list_free(&list);
    for (uint32_t i = 0; i <= splits[_i].stages; i++)
        ck_assert_msg(first[i] == splits[_i].first[i], "%s, stage %u of %u: %u", splits[_i].model,
                      i, splits[_i].stages, first[i]);
}
END_TEST

Suite *pipeline_suite(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tcase = tcase_create("pipeline");
    tcase_set_timeout(tcase, 120);
    name_count = reference_names(names);
    tcase_add_loop_test(tcase, pipelines_score_as_transformers_does, 0, LAYOUTS * (int)name_count);
    tcase_add_test(tcase, stages_post_all_or_none);
    tcase_add_loop_test(tcase, a_pipeline_gives_the_bits_of_one_device, 0, GROUPS * LAYOUTS);
    tcase_add_loop_test(tcase, layers_of_two_kinds_are_shared_out_too, 0, 2);
    tcase_add_test(tcase, stages_without_graphs_give_the_same);
    tcase_add_loop_test(tcase, any_order_of_work_gives_the_same, 0, ORDERS);
    tcase_add_loop_test(tcase, mistakes_in_handing_on_are_seen, 0, 3);
    tcase_add_test(tcase, relays_are_right_under_any_order_of_work);
    tcase_add_loop_test(tcase, a_wait_left_out_between_stages_is_seen, 0, (int)WAITS);
    tcase_add_loop_test(tcase, a_stage_that_is_lost_ends_the_pipeline_and_nothing_hangs, 0, 8);
    tcase_add_loop_test(tcase, a_call_that_fails_on_any_stage_ends_the_pipeline, 0, 8);
    tcase_add_test(tcase, memory_that_a_stage_lacks_is_taken_on_none);
    tcase_add_test(tcase, a_stage_holds_its_layers_alone);
    tcase_add_loop_test(tcase, layouts_that_do_not_go_are_refused, 0, 3);
    tcase_add_loop_test(tcase, layers_are_shared_out_by_their_cost, 0, 7);
    suite_add_tcase(suite, tcase);
    return suite;
}
