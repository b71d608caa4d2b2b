/* Synthetic models in each format: their weights are spread as those of plain ones are, two devices
 * that share one have the same between them, and what they score is a number. */
#include "gpu/models/synthetic.h"

#include <math.h>
#include <stdio.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"

#define FORMATS_MADE 9
#define TOKENS (ENGINE_CLIENT_THIN > 1 ? 8 : 40)
#define DOWN "model.layers.0.mlp.down_proj.weight"

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct reference said; /* of a run on one device */

static void model_open(const char *format, uint32_t tp)
{
    char name[64];
    snprintf(name, sizeof name, "synthetic:tiny%s%s", format ? ":" : "", format ? format : "");
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    struct gpu_options options = {.model = name, .tp = tp, .tokens_max = 512, .slots_max = 64};
    ck_assert_msg(engine_client_open(&talk, &options, false) == 0, "%s", talk.error.text);
    ck_assert_str_eq(talk.model.id, name);
    ck_assert_int_eq(engine_client_start(&talk), 0);
}

/* Ranks round their parts of inputs by scales of their own. */
static void inputs_leave(void)
{
    for (uint32_t r = 0; r < talk.ranks; r++)
        for (uint32_t i = 0; i < talk.engine->facts.source.list.weight_count; i++)
            engine_rank(talk.engine, r)->weights.at[i].input.rounding = ROUNDING_NONE;
}

static void run(void)
{
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        said.prompts[i].count = TOKENS;
        for (uint32_t j = 0; j < TOKENS; j++)
            said.prompts[i].tokens[j] = (int32_t)((i * 131 + j * 37) % 512);
    }
    rig_score_jobs(jobs, &said);
    ck_assert_int_eq(engine_client_run(&talk, jobs, REFERENCE_PROMPTS), 0);
}

static float e4m3_value(uint8_t byte)
{
    int exponent = byte >> 3 & 15, fraction = byte & 7;
    float value =
        exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
    return byte & 0x80 ? -value : value;
}

static uint32_t ceil_of(uint32_t size, uint32_t each)
{
    return each ? (size + each - 1) / each : 1;
}

static float element_at(const struct weight *w, const uint8_t *bytes, uint32_t i, uint8_t zero)
{
    if (w->format == FORMAT_E4M3)
        return e4m3_value(bytes[i]);
    uint8_t whole = w->format == FORMAT_U8 ? bytes[i]
                    : i % 2                ? bytes[i / 2] >> 4
                                           : bytes[i / 2] & 15;
    return (float)whole - (float)zero;
}

/* Of down of the first layer, all of it on one device. */
static void check_spread(const char *format)
{
    static uint8_t bytes[256 * 512], zeros[1 << 16];
    static float scales[1 << 16];
    struct weight *w = rig_weight(&talk.engine->rank, DOWN);
    uint32_t columns = ceil_of(w->k, w->scales.k), rows = ceil_of(w->n, w->scales.n);
    double sum = 0, squares = 0;
    ck_assert_uint_eq((uint64_t)w->n * w->k, sizeof bytes);
    rig_fetch(bytes, w->data, format_bytes(w->format, w->n, w->k));
    rig_fetch(scales, w->scales.data, (size_t)rows * columns * sizeof *scales);
    ck_assert((w->zeros != NULL) == (w->format != FORMAT_E4M3));
    if (w->zeros)
        rig_fetch(zeros, w->zeros, (size_t)rows * columns);
    for (uint32_t i = 0; i < w->n * w->k; i++) {
        uint32_t row = i / w->k, column = i % w->k;
        uint32_t at = (w->scales.n ? row / w->scales.n : 0) * columns +
                      (w->scales.k ? column / w->scales.k : 0);
        double value = (double)(element_at(w, bytes, i, zeros[at]) * scales[at]);
        sum += value;
        squares += value * value;
    }
    double mean = sum / (w->n * w->k), deviation = sqrt(squares / (w->n * w->k));
    ck_assert_msg(fabs(mean) < 5e-4, "%s: %g", format, mean);
    ck_assert_msg(deviation > 0.015 && deviation < 0.026, "%s: %g", format, deviation);
}

START_TEST(each_format_has_weights_that_stay_sane)
{
    const char *format = synthetic_format((size_t)_i * ENGINE_CLIENT_THIN);
    model_open(format, 1);
    check_spread(format);
    run();
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        for (uint32_t j = 0; j + 1 < TOKENS; j++)
            ck_assert(isfinite(jobs[i].scores[j].logprob) && jobs[i].scores[j].logprob > -30);
    inputs_leave();
    run();
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        for (uint32_t j = 0; j + 1 < TOKENS; j++)
            said.prompts[i].logprobs[j] = jobs[i].scores[j].logprob;
    engine_client_close(&talk);
    model_open(format, 2);
    inputs_leave();
    run();
    struct rig_error error = rig_compare(jobs, &said);
    ck_assert_msg(rig_near(error), "%s: mean %g, worst %g", format, error.mean, error.max);
    engine_client_close(&talk);
    model_open(NULL, 1); /* and they are no others' */
    run();
    ck_assert(!rig_near(rig_compare(jobs, &said)));
    engine_client_close(&talk);
}
END_TEST

START_TEST(each_format_is_run_here)
{
    ck_assert_ptr_nonnull(synthetic_format(FORMATS_MADE - 1));
    ck_assert_ptr_null(synthetic_format(FORMATS_MADE));
}
END_TEST

Suite *synthetic_format_suite(void)
{
    Suite *suite = suite_create("synthetic");
    TCase *tcase = tcase_create("synthetic");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, each_format_has_weights_that_stay_sane, 0,
                        ENGINE_CLIENT_TURNS(FORMATS_MADE));
    tcase_add_test(tcase, each_format_is_run_here);
    suite_add_tcase(suite, tcase);
    return suite;
}
