/* Adapters that come while steps run (gpu_api.adapter_load): each place gives what PEFT gives for what
 * was read last into it, in every layout, and what runs beside a load keeps its bits. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/runner.h"

#define PLACE "tests/model/adapted/llama-default-bf16."
#define LLAMA "llama-default-bf16"
#define PLACES 3
#define RANK_MAX 256
#define TURNS 12

static const char *const names[] = {"all", "root", "wide", "one"};
#define NAMES 4

static const struct {
    uint32_t tp, pp;
} layouts[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference base, references[NAMES];

static int open_with(const struct gpu_adapter *first, uint32_t count, uint32_t places,
                     uint32_t rank_max, int layout)
{
    char path[160];
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    ck_assert(reference_read(LLAMA, &base));
    for (int i = 0; i < NAMES; i++) {
        snprintf(path, sizeof path, "../adapted/" LLAMA ".%s", names[i]);
        ck_assert(reference_read(path, &references[i]));
    }
    struct gpu_options options = {.model = base.directory,
                                  .adapters = first,
                                  .adapter_count = count,
                                  .adapters_max = places,
                                  .adapter_rank_max = rank_max,
                                  .tp = layouts[layout].tp,
                                  .pp = layouts[layout].pp,
                                  .tokens_max = 512,
                                  .slots_max = ENGINE_CLIENT_JOBS};
    return engine_client_open(&talk, &options, false);
}

static void start(int layout)
{
    ck_assert_msg(open_with(NULL, 0, PLACES, RANK_MAX, layout) == 0, "%s", talk.error.text);
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
}

static int load(uint32_t number, const char *name, struct error *error)
{
    char directory[160];
    snprintf(directory, sizeof directory, PLACE "%s", name);
    const struct gpu_adapter adapter = {.name = name, .directory = directory};
    return gpu_module.adapter_load(talk.engine, number, &adapter, error);
}

static void holds(uint32_t number, const struct reference *reference)
{
    rig_score_jobs(jobs, reference);
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        jobs[i].open.adapter = number;
    ck_assert_msg(engine_client_run(&talk, jobs, REFERENCE_PROMPTS) == 0, "%s", talk.error.text);
    struct rig_error off = rig_compare(jobs, reference);
    ck_assert_msg(off.max <= 2e-4, "place %u: %g", number, off.max);
}

/* Smaller behind larger, and the other way: nothing is left of what was there. */
START_TEST(a_place_has_what_was_read_last)
{
    struct error error;
    start(_i);
    holds(0, &base);
    for (uint32_t turn = 0; turn < NAMES + 2; turn++) {
        uint32_t name = turn % NAMES, number = 1 + turn % 2;
        ck_assert_msg(load(number, names[name], &error) == 0, "%s", error.text);
        holds(number, &references[name]);
        holds(0, &base);
    }
    holds(1, &references[(NAMES + 2 - 2) % NAMES]);
    engine_client_close(&talk);
}
END_TEST

/* Those of the start have places as others do. */
START_TEST(places_of_the_start_are_given_anew)
{
    struct error error;
    const struct gpu_adapter first = {.name = "all", .directory = PLACE "all"};
    ck_assert_int_eq(open_with(&first, 1, 2, RANK_MAX, _i), 0);
    ck_assert_int_eq(engine_client_start(&talk), 0);
    holds(1, &references[0]);
    ck_assert_int_eq(load(2, "root", &error), 0);
    holds(1, &references[0]);
    ck_assert_int_eq(load(1, "wide", &error), 0);
    holds(1, &references[2]);
    holds(2, &references[1]);
    engine_client_close(&talk);
}
END_TEST

static void *load_often(void *failed)
{
    struct error error;
    for (int i = 0; i < TURNS; i++)
        if (load(2, names[i % NAMES], &error))
            *(bool *)failed = true;
    return NULL;
}

START_TEST(what_runs_beside_a_load_keeps_its_bits)
{
    struct error error;
    static struct gpu_sample before[ENGINE_CLIENT_JOBS][8];
    bool failed = false;
    pthread_t thread;
    start(_i);
    ck_assert_int_eq(load(1, "all", &error), 0);
    for (int turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < 4; i++)
            jobs[i] = (struct engine_client_job){.prompt = base.prompts[i].tokens,
                                                 .prompt_len = base.prompts[i].count,
                                                 .generate = 8,
                                                 .open = {.eos_from = UINT32_MAX,
                                                          .adapter = i % 2,
                                                          .sampler.repetition_penalty = 1}};
        if (turn == 1)
            ck_assert_int_eq(pthread_create(&thread, NULL, load_often, &failed), 0);
        ck_assert_int_eq(engine_client_run(&talk, jobs, 4), 0);
        for (uint32_t i = 0; i < 4; i++) {
            if (turn == 0)
                memcpy(before[i], jobs[i].samples, sizeof before[i]);
            ck_assert(!memcmp(before[i], jobs[i].samples, sizeof before[i]));
        }
    }
    pthread_join(thread, NULL);
    ck_assert(!failed);
    holds(2, &references[(TURNS - 1) % NAMES]);
    engine_client_close(&talk);
}
END_TEST

START_TEST(what_has_no_place_is_refused)
{
    struct error error;
    ck_assert_int_eq(open_with(NULL, 0, 2, 8, 0), 0);
    ck_assert_int_eq(engine_client_start(&talk), 0);
    ck_assert_int_eq(load(0, "all", &error), -ERR_BAD_CONFIG);
    ck_assert_int_eq(load(3, "all", &error), -ERR_BAD_CONFIG);
    ck_assert_int_eq(load(1, "wide", &error), -ERR_TOO_LARGE);
    ck_assert_msg(strstr(error.text, "adapter wide: r: ") && strstr(error.text, "at most 8"), "%s",
                  error.text);
    ck_assert_int_eq(load(1, "nowhere", &error), -ERR_BAD_MODEL);
    ck_assert_int_eq(load(1, "all", &error), 0);
    ck_assert_int_eq(load(2, "nowhere", &error), -ERR_BAD_MODEL);
    holds(1, &references[0]);
    engine_client_close(&talk);
    const struct gpu_adapter first = {.name = "all", .directory = PLACE "all"};
    ck_assert_int_eq(open_with(&first, 1, 0, 0, 0), 0);
    ck_assert_int_eq(engine_client_start(&talk), 0);
    ck_assert_int_eq(load(1, "root", &error), -ERR_BAD_CONFIG);
    holds(1, &references[0]);
    engine_client_close(&talk);
    ck_assert_int_eq(open_with(NULL, 0, 1, 0, 0), -ERR_BAD_CONFIG);
    ck_assert_int_eq(open_with(NULL, 0, 1, 257, 0), -ERR_BAD_CONFIG);
    ck_assert_int_eq(open_with(NULL, 0, GPU_ADAPTERS_MAX + 1, 8, 0), -ERR_BAD_CONFIG);
}
END_TEST

Suite *adapter_load_suite(void)
{
    Suite *suite = suite_create("adapter_load");
    TCase *tcase = tcase_create("adapter_load");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_place_has_what_was_read_last, 0, 4);
    tcase_add_loop_test(tcase, places_of_the_start_are_given_anew, 0, 2);
    tcase_add_loop_test(tcase, what_runs_beside_a_load_keeps_its_bits, 0, 4);
    tcase_add_test(tcase, what_has_no_place_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
