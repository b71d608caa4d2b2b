/* Adapters that PEFT made (tests/model/adapted.py) give what PEFT gives, in every layout and in any
 * mix within a step; mistakes in that are seen. What is refused: adapter_files_test.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/adapters/adapters.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/runner.h"

#define PLACE "tests/model/adapted/"
#define LLAMA "llama-default-bf16"
#define STEPS 10

/* A directory is called BASE.NAME; bases in a format stand beside the plain ones. */
static const struct {
    const char *base, *name, *place;
    bool rounds; /* the base rounds its inputs: a value may fall on the other side of an edge */
} cases[] = {
    {LLAMA, "all", "", false},
    {LLAMA, "root", "", false},
    {LLAMA, "wide", "", false},
    {LLAMA, "one", "", false},
    {"phi3-partial-f32", "all", "", false},
    {"glm-default-bf16", "all", "", false},
    {"qwen2-default-bf16", "all", "", false},
    {"qwen3-default-bf16", "all", "", false},
    {"gemma2-default-bf16", "all", "", false},
    {"olmo2-default-bf16", "all", "", false},
    {"starcoder2-plain-f16", "all", "", false},
    {"qwen2-ct-weights", "all", "../quantized/", false},
    {"llama-fp8-tensor", "all", "../quantized/", true},
};
#define CASES (int)(sizeof cases / sizeof *cases)
#define MIXED 4 /* the first cases have one base */
#define MANY 8  /* enough for ADAPT_MIXED */

static const struct {
    uint32_t tp, pp;
} layouts[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
#define LAYOUTS (int)(sizeof layouts / sizeof *layouts)

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference base, references[MIXED + 1]; /* 0: of the base */
static char directories[MIXED][128];

static void reference_of(int number, struct reference *ret)
{
    char path[160];
    snprintf(path, sizeof path, "../adapted/%s.%s", cases[number].base, cases[number].name);
    ck_assert_msg(reference_read(path, ret), "%s", path);
}

static struct gpu_adapter adapter_of(int number, char directory[128])
{
    snprintf(directory, 128, PLACE "%s.%s", cases[number].base, cases[number].name);
    return (struct gpu_adapter){.name = cases[number].name, .directory = directory};
}

static int model_open(const char *name, const struct gpu_adapter *adapters, uint32_t count,
                      int layout)
{
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    ck_assert(reference_read(name, &base));
    struct gpu_options options = {.model = base.directory,
                                  .adapters = adapters,
                                  .adapter_count = count,
                                  .tp = layouts[layout].tp,
                                  .pp = layouts[layout].pp,
                                  .tokens_max = 512,
                                  .slots_max = ENGINE_CLIENT_JOBS};
    return engine_client_open(&talk, &options, false);
}

/* With its own adapter. False: the base does not go into the layout. */
static bool case_open(int number, int layout)
{
    char path[160];
    struct gpu_adapter adapter = adapter_of(number, directories[0]);
    snprintf(path, sizeof path, "%s%s", cases[number].place, cases[number].base);
    int status = model_open(path, &adapter, 1, layout);
    reference_of(number, &references[1]);
    if (status == -ERR_BAD_CONFIG && layout)
        return false;
    ck_assert_msg(status == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
    return true;
}

static void jobs_run(uint32_t count)
{
    int status = engine_client_run(&talk, jobs, count);
    ck_assert_msg(status == 0, "%d %s", status, talk.error.text);
}

static struct rig_error adapted_run(uint32_t adapter)
{
    rig_score_jobs(jobs, &references[adapter]);
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i].open.adapter = adapter;
    jobs_run(REFERENCE_PROMPTS);
    return rig_compare(jobs, &references[adapter]);
}

START_TEST(adapters_score_as_peft_does)
{
    int number = _i / LAYOUTS * ENGINE_CLIENT_THIN, layout = _i % LAYOUTS;
    if (!case_open(number, layout))
        RUNNER_SKIP("%s does not go into tp %u, pp %u", cases[number].base, layouts[layout].tp,
                    layouts[layout].pp);
    if (cases[number].rounds && layouts[layout].tp > 1) {
        engine_client_close(&talk);
        RUNNER_SKIP("%s: ranks round their own parts of inputs", cases[number].base);
    }
    static const uint32_t chunks[] = {0, 7};
    for (int i = 0; i < 2; i++) {
        talk.chunk = chunks[i];
        struct rig_error off = adapted_run(1);
        rig_tell(cases[number].base, off);
        bool right = cases[number].rounds ? off.mean <= 1e-3 && off.max <= 0.02 : off.max <= 2e-4;
        ck_assert_msg(right, "%s.%s: mean %g, worst %g", cases[number].base, cases[number].name,
                      off.mean, off.max);
    }
    engine_client_close(&talk);
}
END_TEST

/* ---- mixes ---- */

static void mixed_open(int layout)
{
    struct gpu_adapter adapters[MIXED];
    for (int i = 0; i < MIXED; i++)
        adapters[i] = adapter_of(i, directories[i]);
    ck_assert_msg(model_open(LLAMA, adapters, MIXED, layout) == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
    references[0] = base;
    for (int i = 0; i < MIXED; i++)
        reference_of(i, &references[i + 1]);
}

/* Each prompt by the base and by each adapter, all in the same steps. */
START_TEST(a_step_has_any_mix)
{
    mixed_open(_i);
    talk.chunk = 9;
    for (uint32_t i = 0; i < (MIXED + 1) * REFERENCE_PROMPTS; i++) {
        uint32_t adapter = i % (MIXED + 1);
        const struct reference_prompt *prompt =
            &references[adapter].prompts[i / (MIXED + 1)];
        jobs[i] = (struct engine_client_job){.prompt = prompt->tokens,
                                             .prompt_len = prompt->count,
                                             .score = true,
                                             .open.adapter = adapter};
    }
    jobs_run((MIXED + 1) * REFERENCE_PROMPTS);
    for (uint32_t adapter = 0; adapter <= MIXED; adapter++) {
        static struct engine_client_job own[REFERENCE_PROMPTS];
        for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
            own[i] = jobs[i * (MIXED + 1) + adapter];
        struct rig_error off = rig_compare(own, &references[adapter]);
        ck_assert_msg(off.max <= 2e-4, "adapter %u: %g", adapter, off.max);
    }
    engine_client_close(&talk);
}
END_TEST

static void decode_jobs(uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++)
        jobs[i - first] =
            (struct engine_client_job){.prompt = base.prompts[4].tokens,
                                       .prompt_len = base.prompts[4].count,
                                       .generate = STEPS,
                                       .open = {.eos_from = UINT32_MAX,
                                                .adapter = i,
                                                .sampler.repetition_penalty = 1}};
}

/* Decode steps of a mix run as one graph; a row has the bits that it has alone, and so have rows
 * without an adapter in an engine without any. */
START_TEST(rows_have_the_bits_that_they_have_alone)
{
    static struct gpu_sample together[MIXED + 1][STEPS];
    mixed_open(0);
    for (int again = 0; again < 2; again++) { /* the second time graphs are there */
        decode_jobs(0, MIXED + 1);
        jobs_run(MIXED + 1);
    }
    struct gpu_counters counters;
    gpu_module.counters(talk.engine, 0, &counters);
    ck_assert_uint_gt(counters.graph_steps, 0);
    for (uint32_t i = 0; i <= MIXED; i++)
        memcpy(together[i], jobs[i].samples, sizeof together[i]);
    for (uint32_t i = 0; i <= MIXED; i++) {
        if (i == 0) {
            engine_client_close(&talk);
            ck_assert_int_eq(model_open(LLAMA, NULL, 0, 0), 0);
            ck_assert_int_eq(engine_client_start(&talk), 0);
        } else if (i == 1) {
            engine_client_close(&talk);
            mixed_open(0);
        }
        decode_jobs(i, 1);
        jobs_run(1);
        ck_assert_msg(!memcmp(together[i], jobs[0].samples, sizeof together[i]), "adapter %u", i);
    }
    for (uint32_t i = 1; i <= MIXED; i++)
        ck_assert(memcmp(together[i], together[0], sizeof together[i]) != 0);
    engine_client_close(&talk);
}
END_TEST

/* Graphs of steps whose rows have many adapters. */
static uint32_t graphs_spread(void)
{
    uint32_t count = 0;
    for (uint32_t rows = 0; rows < GRAPH_ROWS; rows++)
        for (uint32_t context = 0; context < GRAPH_CONTEXTS; context++)
            for (uint32_t counts = 0; counts < 2; counts++) {
                struct cuda_graph_key key = {.rows = rows,
                                             .context = context,
                                             .counts = counts,
                                             .adapted = true,
                                             .spread = true};
                count += cuda_graph_exists(&talk.engine->rank.graphs, &key);
            }
    return count;
}

/* Steps of many adapters are graphs of their own, with the numbers of the others. */
START_TEST(many_adapters_have_steps_of_their_own)
{
    static struct gpu_sample alone[MIXED][STEPS];
    static char names[MANY][16];
    struct gpu_adapter adapters[MANY];
    for (int i = 0; i < MANY; i++) {
        adapters[i] = adapter_of(i % MIXED, directories[i % MIXED]);
        snprintf(names[i], sizeof names[i], "of %d", i);
        adapters[i].name = names[i];
    }
    ck_assert_msg(model_open(LLAMA, adapters, MANY, 0) == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
    for (int again = 0; again < 2; again++) {
        decode_jobs(1, MIXED);
        jobs_run(MIXED);
    }
    ck_assert_uint_eq(graphs_spread(), 0);
    for (uint32_t i = 0; i < MIXED; i++)
        memcpy(alone[i], jobs[i].samples, sizeof alone[i]);
    for (int again = 0; again < 3; again++) {
        decode_jobs(1, MANY);
        jobs_run(MANY);
        for (uint32_t i = 0; i < MANY; i++)
            ck_assert(!memcmp(alone[i % MIXED], jobs[i].samples, sizeof alone[0]));
    }
    ck_assert_uint_gt(graphs_spread(), 0);
    engine_client_close(&talk);
}
END_TEST

/* ---- mistakes ---- */

static struct adapt_place *place(uint32_t site)
{
    return (struct adapt_place *)talk.engine->rank.adapters.places + site;
}

static void left_out(void)
{
    rig_without(&talk.engine->rank, OP_ADAPT);
}

static void scale_by_rank(void) /* of one that is scaled by its root */
{
    struct adapt_place at;
    for (uint32_t i = 0; i < talk.engine->facts.adapters.site_count; i++) {
        rig_fetch(&at, place(i), sizeof at);
        at.scale /= 4;
        rig_store(place(i), &at, sizeof at);
    }
}

static void parts_swapped(void) /* B of q and k, of the first layer */
{
    struct adapt_place at;
    rig_fetch(&at, place(0), sizeof at);
    const void *b = at.parts[1].b;
    at.parts[1].b = at.parts[2].b;
    at.parts[2].b = b;
    rig_store(place(0), &at, sizeof at);
}

static void part_missing(void)
{
    struct adapt_place at;
    rig_fetch(&at, place(2), sizeof at); /* up of the first layer */
    at.parts[1].a = at.parts[1].b = NULL;
    rig_store(place(2), &at, sizeof at);
}

static void inner_of_another(void) /* k reads what is q's */
{
    struct adapt_place at;
    rig_fetch(&at, place(0), sizeof at);
    at.parts[1].from = 0;
    rig_store(place(0), &at, sizeof at);
}

static void order_left(void) /* rows of B as they stand */
{
    struct adapters *adapters = &talk.engine->facts.adapters;
    struct op_list *list = &adapters->at[0].list;
    for (uint32_t i = 0; i < list->weight_count; i++)
        list->weights[i].parts[0].order.head_dim = 0;
}

static void rank_cut(void)
{
    struct adapt_place at;
    for (uint32_t i = 0; i < talk.engine->facts.adapters.site_count; i++) {
        rig_fetch(&at, place(i), sizeof at);
        at.rank--; /* rows of B are read as if they were shorter */
        rig_store(place(i), &at, sizeof at);
    }
}

static const struct {
    const char *what;
    int of;
    void (*before)(void), (*after)(void); /* weights are loaded */
} mutations[] = {
    {"left out", 0, NULL, left_out},
    {"scale by the rank", 1, NULL, scale_by_rank},
    {"parts swapped", 0, NULL, parts_swapped},
    {"part missing", 0, NULL, part_missing},
    {"A x of another part", 0, NULL, inner_of_another},
    {"order of rows left", 5, order_left, NULL},
    {"rank cut", 3, NULL, rank_cut},
};
#define MUTATIONS (int)(sizeof mutations / sizeof *mutations)

START_TEST(mistakes_are_seen)
{
    int number = mutations[_i].of;
    char path[160];
    struct gpu_adapter adapter = adapter_of(number, directories[0]);
    snprintf(path, sizeof path, "%s%s", cases[number].place, cases[number].base);
    ck_assert_msg(model_open(path, &adapter, 1, 0) == 0, "%s", talk.error.text);
    reference_of(number, &references[1]);
    if (mutations[_i].before)
        mutations[_i].before();
    ck_assert_int_eq(engine_client_start(&talk), 0);
    if (mutations[_i].after)
        mutations[_i].after();
    struct rig_error off = adapted_run(1);
    ck_assert_msg(off.max > 2e-3, "%s: %g", mutations[_i].what, off.max);
    engine_client_close(&talk);
}
END_TEST

/* Rows of another adapter are as far off. */
START_TEST(the_wrong_adapter_is_seen)
{
    mixed_open(0);
    for (uint32_t adapter = 0; adapter <= MIXED; adapter++) {
        rig_score_jobs(jobs, &references[1]);
        for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
            jobs[i].open.adapter = adapter;
        jobs_run(REFERENCE_PROMPTS);
        struct rig_error off = rig_compare(jobs, &references[1]);
        ck_assert_msg(adapter == 1 ? off.max <= 2e-4 : off.max > 0.1, "%u: %g", adapter, off.max);
    }
    engine_client_close(&talk);
}
END_TEST

Suite *adapter_suite(void)
{
    Suite *suite = suite_create("adapter");
    TCase *tcase = tcase_create("adapter");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, adapters_score_as_peft_does, 0,
                        ENGINE_CLIENT_TURNS(CASES) * LAYOUTS);
    tcase_add_loop_test(tcase, a_step_has_any_mix, 0, LAYOUTS);
    tcase_add_test(tcase, rows_have_the_bits_that_they_have_alone);
    tcase_add_test(tcase, many_adapters_have_steps_of_their_own);
    tcase_add_loop_test(tcase, mistakes_are_seen, 0, MUTATIONS);
    tcase_add_test(tcase, the_wrong_adapter_is_seen);
    suite_add_tcase(suite, tcase);
    return suite;
}
