/* The random draw: what is kept, how often it comes, and what the random numbers depend on. */
#include <math.h>
#include <stdlib.h>

#include "gpu/kernels/cpu/choose.h"
#include "tests/gpu/kernels/sampler.h"
#include "tests/gpu/kernels/suites.h"

#define STEPS 60     /* of SCENE_ROWS_MAX draws each */
#define STEPS_MIN 12 /* with fewer, frequencies say nothing */

static struct scene scene;
static struct sampler_rig sampler;

static void begin(uint32_t vocab)
{
    rig_begin();
    scene = (struct scene){.slots = SCENE_ROWS_MAX, .vocab = vocab, .hidden = 1};
    scene_begin(&scene);
    sampler_begin(&sampler, vocab);
}

static void end(void)
{
    sampler_end(&sampler);
    scene_end(&scene);
}

/* A sanitizer of kernels sees the same in all of them: DRAW_STEPS says how many it gets. */
static uint32_t steps(void)
{
    const char *few = getenv("DRAW_STEPS");
    return few ? (uint32_t)strtoul(few, NULL, 10) : STEPS;
}

static void run_step(uint32_t position)
{
    scene.counts = (struct batch_counts){0};
    for (uint32_t i = 0; i < SCENE_ROWS_MAX; i++)
        scene_row(&scene, i, position, 1, GPU_SAMPLE);
    scene_step(&scene);
    sampler_run(&sampler, &scene);
}

/* Tokens 0 .. 6, unordered; probabilities at temperature 1. Expected: relative weights, 0 where the
 * token must never come. */
static const double chances[7] = {0.06, 0.4, 0.04, 0.15, 0.25, 0.05, 0.05};

static const struct {
    int32_t top_k;
    float top_p, min_p, temperature;
    double weights[7];
} kept[] = {
    {0, 1, 0, 1, {0.06, 0.4, 0.04, 0.15, 0.25, 0.05, 0.05}},
    {3, 1, 0, 1, {0, 0.4, 0, 0.15, 0.25, 0, 0}},
    {1, 1, 0, 1, {0, 1, 0, 0, 0, 0, 0}},
    {100, 1, 0, 1, {0.06, 0.4, 0.04, 0.15, 0.25, 0.05, 0.05}},
    {5, 1, 0, 1, {0.06, 0.4, 0, 0.15, 0.25, 0.05, 0}}, /* a tie: the lower id */
    {0, 0.6f, 0, 1, {0, 0.4, 0, 0, 0.25, 0, 0}},
    {0, 0.7f, 0, 1, {0, 0.4, 0, 0.15, 0.25, 0, 0}},
    {0, 0.89f, 0, 1, {0.06, 0.4, 0, 0.15, 0.25, 0.05, 0}},
    {0, 0.93f, 0, 1, {0.06, 0.4, 0, 0.15, 0.25, 0.05, 0.05}},
    {0, 0.0f, 0, 1, {0, 1, 0, 0, 0, 0, 0}},
    {3, 0.6f, 0, 1, {0, 0.4, 0, 0, 0.25, 0, 0}}, /* 0.6 of 0.8 */
    {0, 1, 0.3f, 1, {0, 0.4, 0, 0.15, 0.25, 0, 0}},
    {0, 1, 1.0f, 1, {0, 1, 0, 0, 0, 0, 0}},
    {0, 1, 0, 0.5f, {0.0036, 0.16, 0.0016, 0.0225, 0.0625, 0.0025, 0.0025}},
    {0, 1, 0, 2, {0.244949, 0.632456, 0.2, 0.387298, 0.5, 0.223607, 0.223607}},
};

START_TEST(kept_tokens_come_as_often_as_they_should_and_others_never)
{
    uint32_t count[7] = {0}, all = steps();
    double sum = 0, unlikely = 0, draws = all * SCENE_ROWS_MAX;
    begin(7);
    for (uint32_t i = 0; i < SCENE_ROWS_MAX; i++) {
        struct batch_slot *slot = &scene.slot[i];
        slot->sampler.temperature = kept[_i].temperature;
        slot->sampler.top_k = kept[_i].top_k;
        slot->sampler.top_p = kept[_i].top_p;
        slot->sampler.min_p = kept[_i].min_p;
        slot->seed = 1000 + i;
        for (uint32_t j = 0; j < 7; j++)
            sampler_row(&sampler, i)[j] = 3 + logf((float)chances[j]);
    }
    for (uint32_t step = 0; step < all; step++) {
        run_step(step);
        for (uint32_t i = 0; i < SCENE_ROWS_MAX; i++)
            count[sampler.sample[i].token]++;
    }
    for (uint32_t j = 0; j < 7; j++)
        sum += kept[_i].weights[j];
    for (uint32_t j = 0; j < 7; j++) {
        double p = kept[_i].weights[j] / sum, deviation = sqrt(draws * p * (1 - p));
        if (p > 0 && all < STEPS_MIN)
            continue;
        ck_assert_msg(fabs(count[j] - draws * p) <= 4.5 * deviation, "token %u came %u times", j,
                      count[j]);
        unlikely += p > 0 && !count[j];
    }
    ck_assert(unlikely == 0);
    end();
}
END_TEST

#define VOCAB 3000

static float scores[VOCAB];

static int the_greatest_first(const void *one, const void *other)
{
    uint32_t i = *(const uint32_t *)one, j = *(const uint32_t *)other;
    if (scores[i] != scores[j])
        return scores[i] > scores[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

/* By sorting, with a margin around the cut where single precision may decide either way. */
static void sort(uint32_t top_k, double top_p, bool ret_may_keep[VOCAB])
{
    static uint32_t order[VOCAB];
    double before = 0, all = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        order[i] = i;
    qsort(order, VOCAB, sizeof *order, the_greatest_first);
    for (uint32_t rank = 0; rank < top_k; rank++)
        all += exp((double)scores[order[rank]]);
    for (uint32_t rank = 0; rank < VOCAB; rank++) {
        ret_may_keep[order[rank]] = rank < top_k && before < top_p * all * (1 + 1e-5);
        before += exp((double)scores[order[rank]]);
    }
}

START_TEST(large_vocabularies_keep_what_sorting_would_keep)
{
    static bool may_keep[VOCAB];
    begin(VOCAB);
    for (uint32_t i = 0; i < VOCAB; i++)
        scores[i] = _i % 2 ? roundf(rig_normal() * 4) / 2 : rig_normal() * 2;
    const struct sampler cut = {.top_k = 100 << _i / 2, .top_p = 0.8f};
    struct choose choose = {.scores = scores, .vocab = VOCAB, .sampler = &cut, .seed = 7};
    uint32_t different = 0, last = VOCAB;
    sort((uint32_t)cut.top_k, 0.8, may_keep);
    for (choose.position = 0; choose.position < 200; choose.position++) {
        uint32_t token = choose_draw(&choose);
        ck_assert(may_keep[token]);
        different += token != last;
        last = token;
    }
    ck_assert_uint_gt(different, 100);
    end();
}
END_TEST

START_TEST(a_draw_depends_on_seed_position_and_logits_alone)
{
    uint32_t vocab = 5000;
    int32_t first[SCENE_ROWS_MAX];
    begin(vocab);
    for (uint32_t j = 0; j < vocab; j++)
        sampler_row(&sampler, 0)[j] = rig_normal();
    for (uint32_t i = 0; i < SCENE_ROWS_MAX; i++) {
        memcpy(sampler_row(&sampler, i), sampler_row(&sampler, 0), vocab * sizeof(float));
        scene.slot[i].sampler.temperature = 1;
        scene.slot[i].sampler.top_p = 0.95f;
        scene.slot[i].seed = i / 2 * 1000003u; /* pairs have the same */
    }
    run_step(12);
    uint32_t same_pairs = 0, same_neighbours = 0, same_later = 0;
    for (uint32_t i = 0; i < SCENE_ROWS_MAX; i++)
        first[i] = sampler.sample[i].token;
    for (uint32_t i = 0; i + 2 < SCENE_ROWS_MAX; i += 2) {
        same_pairs += first[i] == first[i + 1];
        same_neighbours += first[i] == first[i + 2];
    }
    ck_assert_uint_eq(same_pairs, SCENE_ROWS_MAX / 2 - 1);
    ck_assert_uint_lt(same_neighbours, 4);
    run_step(13);
    for (uint32_t i = 0; i < SCENE_ROWS_MAX; i++)
        same_later += first[i] == sampler.sample[i].token;
    ck_assert_uint_lt(same_later, 6);
    scene.counts = (struct batch_counts){0};
    scene_row(&scene, 40, 9, 5, GPU_SAMPLE); /* position 14 again, alone, at a chunk's end */
    scene_step(&scene);
    int32_t want = sampler.sample[40].token;
    sampler_run(&sampler, &scene);
    ck_assert_int_eq(sampler.sample[0].token, want);
    end();
}
END_TEST

START_TEST(random_words_are_those_of_philox)
{
    uint32_t words[4];
    choose_random(0, 0, 0, words);
    ck_assert_uint_eq(words[0], 0x6627e8d5);
    ck_assert_uint_eq(words[1], 0xe169c58d);
    ck_assert_uint_eq(words[2], 0xbc57ac4c);
    ck_assert_uint_eq(words[3], 0x9b00dbd8);
}
END_TEST

Suite *draw_suite(void)
{
    Suite *suite = suite_create("kernels: draw");
    TCase *tcase = tcase_create("draw");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, kept_tokens_come_as_often_as_they_should_and_others_never, 0,
                        sizeof kept / sizeof *kept);
    tcase_add_loop_test(tcase, large_vocabularies_keep_what_sorting_would_keep, 0, 6);
    tcase_add_test(tcase, a_draw_depends_on_seed_position_and_logits_alone);
    tcase_add_test(tcase, random_words_are_those_of_philox);
    suite_add_tcase(suite, tcase);
    return suite;
}
