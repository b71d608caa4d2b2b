/* Greedy choice, log-probabilities, penalties, bias and end tokens; scores of targets. */
#include <math.h>

#include "gpu/kernels/sampling/count.h"
#include "gpu/kernels/sampling/score.h"
#include "tests/gpu/kernels/sampler.h"
#include "tests/gpu/kernels/suites.h"

static struct scene scene;
static struct sampler_rig sampler;

static void begin(uint32_t vocab)
{
    rig_begin();
    scene = (struct scene){.slots = 6, .vocab = vocab, .hidden = 1};
    scene_begin(&scene);
    sampler_begin(&sampler, vocab);
}

static void end(void)
{
    sampler_end(&sampler);
    scene_end(&scene);
}

/* Logits on a coarse grid, so that ties are common. */
static void random_logits(uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < sampler.vocab; i++)
            sampler_row(&sampler, r)[i] = roundf(rig_normal() * 8) / 4;
}

static void check_top(uint32_t index, uint32_t wanted)
{
    const struct gpu_top *top = sampler.top[index];
    const float *logits = sampler_row(&sampler, index);
    uint32_t count = wanted < sampler.vocab ? wanted : sampler.vocab;
    ck_assert_uint_eq(sampler.sample[index].top_count, count);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t before = 0, token = (uint32_t)top[n].token;
        for (uint32_t i = 0; i < sampler.vocab; i++)
            before += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
        ck_assert_uint_eq(before, n);
        ck_assert(fabs((double)top[n].logprob - sampler_logprob(&sampler, index, token)) < 2e-5);
    }
}

START_TEST(greedy_takes_the_lowest_of_the_greatest_and_lists_the_likeliest)
{
    static const uint32_t vocabs[] = {1, 7, 20, 1000, 50257};
    static const uint32_t slots[] = {4, 2, 0, 5};
    begin(vocabs[_i]);
    scene_row(&scene, 4, 17, 3, GPU_SAMPLE);
    scene_row(&scene, 1, 2, 5, 0);
    for (uint32_t i = 1; i < 4; i++)
        scene_row(&scene, slots[i], 40 + i, 1, GPU_SAMPLE);
    for (uint32_t i = 0; i < 6; i++)
        scene.slot[i].logprobs = i == 4 ? 20 : i;
    scene.slot[1].last = -9;
    scene_step(&scene);
    random_logits(4);
    sampler_run(&sampler, &scene);
    scene_slots(&scene);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t token = (uint32_t)sampler.sample[i].token;
        float *logits = sampler_row(&sampler, i);
        for (uint32_t j = 0; j < sampler.vocab; j++)
            ck_assert(j < token ? logits[j] < logits[token] : logits[j] <= logits[token]);
        ck_assert(fabs((double)sampler.sample[i].logprob - sampler_logprob(&sampler, i, token)) <
                  2e-5);
        ck_assert_int_eq(scene.slot[slots[i]].last, (int)token);
        ck_assert_uint_eq(sampler.sample[i].finished, 0);
        check_top(i, scene.slot[slots[i]].logprobs);
    }
    ck_assert_int_eq(scene.slot[1].last, -9);
    end();
}
END_TEST

/* With a control: what a run without one leaves at the fixed places is where the control says. */
START_TEST(results_go_to_the_step_s_own_place_and_end_it)
{
    bool tops = _i % 2, others = _i / 2;
    struct {
        struct result_head head;
        struct gpu_sample samples[4];
        struct gpu_top tops[4][GPU_LOGPROBS_MAX];
    } result;
    int32_t tokens[6];
    begin(1000);
    for (uint32_t i = 0; i < 4; i++)
        scene_row(&scene, i + 1, 40 + i, 1, i == 2 ? 0 : GPU_SAMPLE);
    for (uint32_t i = 0; i < 6; i++) {
        scene.slot[i].logprobs = i;
        scene.slot[i].last = -1 - (int32_t)i;
    }
    scene.slot[4].sampler.temperature = 1;
    scene_step(&scene);
    random_logits(3);
    sampler_run(&sampler, &scene);
    void *place = rig_new(NULL, sizeof result), *out = rig_new(NULL, sizeof tokens);
    struct step_control control = {
        .step = 9,
        .start_ns = 5,
        .result = place,
        .result_samples = offsetof(__typeof__(result), samples),
        .result_tops = tops ? offsetof(__typeof__(result), tops) : 0,
        .tokens_out = others ? out : NULL,
    };
    struct sampler_rig alone = sampler;
    sampler.control = rig_new(&control, sizeof control);
    scene_step(&scene);
    sampler_run(&sampler, &scene);
    rig_read(&result, place, sizeof result);
    rig_read(tokens, out, sizeof tokens);
    scene_slots(&scene);
    ck_assert_uint_eq(result.head.step, 9);
    ck_assert_uint_eq(result.head.start_ns, 5);
    ck_assert_uint_gt(result.head.end_ns, 5);
    ck_assert_mem_eq(result.samples, alone.sample, 3 * sizeof *result.samples);
    ck_assert_uint_eq(result.samples[3].top_count, 0xa5a5a5a5u);
    for (uint32_t i = 0; i < 3; i++) {
        const struct gpu_top *got = tops ? result.tops[i] : sampler.top[i];
        ck_assert_mem_eq(got, alone.top[i], alone.sample[i].top_count * sizeof *got);
    }
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(tokens[i], others ? scene.slot[i].last : (int32_t)0xa5a5a5a5);
    uint32_t next_item;
    rig_read(&next_item, scene.batch.next_item, sizeof next_item);
    ck_assert_uint_eq(next_item, 0);
    end();
}
END_TEST

/* What the sequence of slot 0 has seen, fed in chunks, counted without a table. */
static void feed(uint32_t length, uint32_t chunk, int32_t *ret_ids)
{
    struct count_args args = {.vocab = sampler.vocab};
    for (uint32_t position = 0, count; position < length; position += count) {
        count = length - position < chunk ? length - position : chunk;
        scene.counts = (struct batch_counts){0};
        scene_row(&scene, 3, position, 2, 0); /* without penalties: its counts stay poison */
        scene_row(&scene, 0, position, count, GPU_SAMPLE);
        memcpy(ret_ids + position, scene.ids + 2, count * sizeof *ret_ids);
        scene_step(&scene);
        args.batch = scene.batch;
        OK(op_count(&args, rig_stream));
    }
    rig_wait();
}

START_TEST(penalties_follow_what_was_seen)
{
    int32_t ids[200];
    float scores[61];
    begin(61);
    struct batch_slot *slot = &scene.slot[0];
    *slot = (struct batch_slot){.flags = GPU_SLOT_PENALTIES,
                                .prompt_len = 20,
                                .sampler.top_p = 1,
                                .sampler.repetition_penalty = 1.3f,
                                .sampler.presence_penalty = 0.5f,
                                .sampler.frequency_penalty = 0.25f};
    uint32_t length = (uint32_t[]){1, 20, 21, 60, 200}[_i];
    feed(length, 7, ids);
    uint16_t seen[4 * 61];
    rig_read(seen, scene.batch.seen, sizeof seen);
    random_logits(1);
    sampler_run(&sampler, &scene);
    for (int32_t token = 0; token < 61; token++) {
        uint32_t output = 0, prompt = 0;
        for (uint32_t i = 0; i < length; i++)
            *(i < 20 ? &prompt : &output) += ids[i] == token;
        ck_assert_uint_eq(seen[token], output | (prompt ? COUNT_PROMPT : 0));
        ck_assert_uint_eq(seen[3 * 61 + token], 0xa5a5);
        float score = sampler_row(&sampler, 0)[token];
        if (prompt || output)
            score = score > 0 ? score / 1.3f : score * 1.3f;
        if (output)
            score = score - 0.5f - 0.25f * (float)output;
        scores[token] = score;
    }
    int32_t got = sampler.sample[0].token;
    for (int32_t token = 0; token < 61; token++)
        ck_assert(token < got ? scores[token] < scores[got] : scores[token] <= scores[got]);
    ck_assert(fabs((double)sampler.sample[0].logprob -
                   sampler_logprob(&sampler, 0, (uint32_t)got)) < 2e-5);
    feed(3, 3, ids); /* the slot's next sequence starts from nothing */
    rig_read(seen, scene.batch.seen, sizeof seen);
    uint32_t marked = 0;
    for (int32_t token = 0; token < 61; token++)
        marked += seen[token] != 0;
    ck_assert_uint_le(marked, 3);
    end();
}
END_TEST

enum { DRAFTS = 6, DRAFT_VOCAB = 97 };

/* Slot 0 is told of 40 tokens, then of DRAFTS and one more: one by one, or in one row whose last
 * are guesses, told of by a later row. What was sampled behind each, and what was seen at last. */
static void sample_drafts(bool together, const int32_t *ids, struct gpu_sample *ret_samples,
                          struct gpu_top (*ret_tops)[GPU_LOGPROBS_MAX], uint16_t *ret_seen,
                          int32_t *ret_last)
{
    enum { BEFORE = 40 };
    struct count_args args = {.vocab = DRAFT_VOCAB};
    for (uint32_t at = 0, q_len; at <= BEFORE + DRAFTS + 1; at += q_len) {
        bool guesses = together && at == BEFORE, told = together && at == BEFORE + DRAFTS + 1;
        q_len = at == 0 ? BEFORE : guesses ? DRAFTS + 1 : 1;
        scene.counts = (struct batch_counts){0};
        scene_row(&scene, 1, at, 1, GPU_SAMPLE); /* another beside it */
        scene_row(&scene, 0, at, q_len, at == 0 ? 0 : GPU_SAMPLE);
        memcpy(scene.ids + 1, ids + at, q_len * sizeof *ids);
        scene.rows[1].drafts = guesses ? DRAFTS : 0;
        if (told) {
            scene.rows[1].uncounted = DRAFTS;
            scene.slot[0].before = rig_new(ids + at - DRAFTS, DRAFTS * sizeof *ids);
        }
        scene_step(&scene);
        args.batch = scene.batch;
        OK(op_count(&args, rig_stream));
        rig_wait();
        if (at == 0 || at > BEFORE + DRAFTS)
            continue;
        for (uint32_t i = 0; i < DRAFT_VOCAB * (q_len + 1); i++) { /* a function of the place */
            uint32_t place = i / DRAFT_VOCAB, of = place ? at + place - 1 : 7;
            sampler_row(&sampler, place)[i % DRAFT_VOCAB] =
                (float)((of * 131 + i % DRAFT_VOCAB * 37) % 61) * 0.05f;
        }
        sampler_run(&sampler, &scene);
        memcpy(ret_samples + (at - BEFORE), sampler.sample + 1, q_len * sizeof *ret_samples);
        memcpy(ret_tops + (at - BEFORE), sampler.top + 1, q_len * sizeof *ret_tops);
        scene_slots(&scene);
        ret_last[0] = scene.slot[0].last;
        ret_last[1] = scene.slot[1].last - sampler.sample[0].token;
        scene.slot[0].last = -5;
    }
    rig_read(ret_seen, scene.batch.seen, DRAFT_VOCAB * sizeof *ret_seen);
}

/* Greedy or drawn; with penalties or none; end tokens masked up to the middle of the guesses. */
START_TEST(guesses_are_sampled_as_if_they_were_known)
{
    struct gpu_sample sample[2][DRAFTS + 1];
    struct gpu_top top[2][DRAFTS + 1][GPU_LOGPROBS_MAX];
    uint16_t seen[2][DRAFT_VOCAB];
    int32_t ids[40 + DRAFTS + 2], last[2][2];
    for (int together = 0; together < 2; together++) {
        begin(DRAFT_VOCAB);
        for (uint32_t i = 0; i < 40 + DRAFTS + 2; i++)
            ids[i] = (int32_t)(i < 40 ? i * 5 % 23 : i % 3 ? 50 + i % 2 : i % 7);
        scene.slot[0] = (struct batch_slot){.flags = _i % 2 ? GPU_SLOT_PENALTIES : 0,
                                            .seed = 77,
                                            .logprobs = 3,
                                            .prompt_len = 30,
                                            .eos_from = 44,
                                            .last = -5,
                                            .stop_count = 1,
                                            .stop_ids = {50},
                                            .sampler = {.temperature = _i / 2 ? 0.9f : 0,
                                                        .top_p = _i / 2 ? 0.95f : 1,
                                                        .repetition_penalty = 1.4f,
                                                        .presence_penalty = 0.6f,
                                                        .frequency_penalty = 0.3f}};
        sample_drafts(together, ids, sample[together], top[together], seen[together],
                      last[together]);
        end();
    }
    for (uint32_t i = 0; i <= DRAFTS; i++) {
        ck_assert_mem_eq(&sample[0][i], &sample[1][i], sizeof sample[0][i]);
        ck_assert_mem_eq(top[0][i], top[1][i], 3 * sizeof *top[0][i]);
    }
    if (_i % 2)
        ck_assert_mem_eq(seen[0], seen[1], sizeof seen[0]);
    ck_assert_int_eq(last[0][0], sample[0][DRAFTS].token);
    ck_assert_int_eq(last[1][0], -5); /* of guesses no token is left */
    ck_assert_int_eq(last[0][1], 0);
    ck_assert_int_eq(last[1][1], 0);
}
END_TEST

/* A slot that begins behind tokens which others have read, more than a block of threads has. */
START_TEST(the_first_row_counts_what_lies_before_it)
{
    enum { BEFORE = 320, PROMPT = 310, VOCAB = 61, COUNT = 5 };
    int32_t ids[BEFORE + COUNT];
    begin(VOCAB);
    for (int32_t i = 0; i < BEFORE; i++)
        ids[i] = i * 7 % 50; /* and never the last eleven */
    scene.slot[0].flags = GPU_SLOT_PENALTIES;
    scene.slot[0].prompt_len = PROMPT;
    scene.slot[0].first = BEFORE;
    scene.slot[0].before = rig_new(ids, BEFORE * sizeof *ids);
    for (int twice = 0; twice < 2; twice++) { /* what the slot had before counts no more */
        struct count_args args = {.vocab = VOCAB};
        scene.counts = (struct batch_counts){0};
        scene_row(&scene, 0, BEFORE, COUNT, GPU_SAMPLE);
        memcpy(ids + BEFORE, scene.ids, COUNT * sizeof *ids);
        scene_step(&scene);
        args.batch = scene.batch;
        OK(op_count(&args, rig_stream));
        rig_wait();
    }
    uint16_t seen[VOCAB];
    rig_read(seen, scene.batch.seen, sizeof seen);
    for (int32_t token = 0; token < VOCAB; token++) {
        uint32_t output = 0, prompt = 0;
        for (uint32_t i = 0; i < BEFORE + COUNT; i++)
            *(i < PROMPT ? &prompt : &output) += ids[i] == token;
        ck_assert_uint_eq(seen[token], output | (prompt ? COUNT_PROMPT : 0));
    }
    end();
}
END_TEST

START_TEST(counts_stop_at_their_greatest_value)
{
    begin(2);
    scene.slot[0].flags = GPU_SLOT_PENALTIES;
    scene.slot[0].prompt_len = 1;
    struct count_args args = {.vocab = 2};
    for (uint32_t position = 0; position < COUNT_MAX + 2000; position += 1000) {
        scene.counts = (struct batch_counts){0};
        scene_row(&scene, 0, position, 1000, 0);
        memset(scene.ids, 0, sizeof scene.ids);
        scene_step(&scene);
        args.batch = scene.batch;
        OK(op_count(&args, rig_stream));
        rig_wait();
    }
    uint16_t seen[2];
    rig_read(seen, scene.batch.seen, sizeof seen);
    ck_assert_uint_eq(seen[0], COUNT_PROMPT | COUNT_MAX);
    ck_assert_uint_eq(seen[1], 0);
    end();
}
END_TEST

START_TEST(bias_and_end_tokens_are_heeded)
{
    begin(100);
    sampler.eos_count = 2;
    sampler.eos[0] = 10;
    sampler.eos[1] = 11;
    for (uint32_t i = 0; i < 4; i++) {
        scene.slot[i].stop_count = 1;
        scene.slot[i].stop_ids[0] = 12;
        scene_row(&scene, i, 50, 1, GPU_SAMPLE);
        sampler_row(&sampler, i)[10] = 9;
        sampler_row(&sampler, i)[12] = i == 1 ? 12 : 8;
        sampler_row(&sampler, i)[50] = 5;
    }
    scene.slot[2].eos_from = 52; /* the sampled position is 51 */
    scene.slot[3].eos_from = 51;
    scene.slot[0].bias_count = 2;
    scene.bias[0] = (struct gpu_bias){10, -100};
    scene.bias[1] = (struct gpu_bias){77, 8.5f};
    scene.slot[3].bias_count = 1;
    scene.bias[3 * GPU_BIAS_MAX] = (struct gpu_bias){11, INFINITY};
    scene_step(&scene);
    sampler_run(&sampler, &scene);
    scene_slots(&scene);
    static const int32_t tokens[4] = {77, 12, 50, 11};
    static const uint32_t finished[4] = {0, 1, 0, 1};
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(sampler.sample[i].token, tokens[i]);
        ck_assert_uint_eq(sampler.sample[i].finished, finished[i]);
        ck_assert_uint_eq(scene.slot[i].finished, finished[i]);
        double want = sampler_logprob(&sampler, i, (uint32_t)tokens[i]);
        ck_assert(fabs((double)sampler.sample[i].logprob - want) < 2e-5);
    }
    end();
}
END_TEST

#define KEPT 5u /* rows, of slots in another order */

static void kept_slots(void)
{
    for (uint32_t i = 0; i < 6; i++) {
        struct batch_slot *slot = &scene.slot[i];
        *slot = (struct batch_slot){.flags = GPU_SLOT_MASKED,
                                    .seed = 77 + i,
                                    .logprobs = i,
                                    .last = -9,
                                    .sampler.repetition_penalty = 1,
                                    .sampler.top_p = i == 3 ? 0.5f : 1,
                                    .sampler.top_k = i == 1 ? 4 : 0,
                                    .sampler.min_p = i == 4 ? 0.1f : 0,
                                    .sampler.temperature = i == 2 ? 0 : 0.25f * (float)(i + 1)};
        slot->bias_count = i == 5;
        scene.bias[i * GPU_BIAS_MAX] = (struct gpu_bias){.token = 0, .value = 2};
    }
}

static void kept_rows(uint32_t want)
{
    static const uint32_t slots[KEPT] = {4, 1, 0, 5, 3};
    scene.counts = (struct batch_counts){0};
    for (uint32_t i = 0; i < KEPT; i++)
        scene_row(&scene, slots[i], 30 + i, 1, want);
}

/* Kept, and sampled by a mask: the token of a row in which all else is impossible; its
 * log-probability and the likeliest are those of the row as it was. */
START_TEST(a_mask_leaves_what_it_allows)
{
    uint32_t vocab = (uint32_t[]){3, 33, 1000, 50257}[_i], words = (vocab + 31) / 32;
    uint32_t *masks = calloc(KEPT, words * sizeof *masks);
    begin(vocab);
    kept_slots();
    float *kept = rig_new(NULL, (size_t)6 * sampler.stride * sizeof *kept);
    for (uint32_t i = 0; i < 6; i++)
        scene.slot[i].kept = kept + (size_t)i * sampler.stride;
    kept_rows(GPU_SAMPLE | GPU_KEEP);
    scene_step(&scene);
    random_logits(KEPT);
    sampler_run(&sampler, &scene);
    scene_slots(&scene);
    for (uint32_t i = 0; i < KEPT; i++) {
        ck_assert_int_eq(sampler.sample[i].token, -1);
        ck_assert_uint_eq(sampler.sample[i].top_count, 0);
    }
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(scene.slot[i].last, -9);
    for (uint32_t i = 0; i < KEPT; i++) { /* few, half, or one */
        for (uint32_t t = 0; t < vocab; t++)
            if (rig_between(0, i == 0 ? 9 : 1) == 0)
                masks[i * words + t / 32] |= 1u << t % 32;
        uint32_t one = rig_between(0, vocab - 1);
        if (i == 4)
            memset(masks + i * words, 0, words * sizeof *masks);
        masks[i * words + one / 32] |= 1u << one % 32;
    }
    kept_rows(GPU_SAMPLE);
    scene_step(&scene);
    struct sampler_rig masked = sampler, plain = sampler;
    masked.device = kept;
    masked.masks = masks;
    masked.mask_words = words;
    sampler_run(&masked, &scene);
    scene_slots(&scene);
    plain.logits = calloc((size_t)KEPT * sampler.stride, sizeof(float));
    memcpy(plain.logits, sampler.logits, (size_t)KEPT * sampler.stride * sizeof(float));
    for (uint32_t i = 0; i < KEPT; i++)
        for (uint32_t t = 0; t < vocab; t++)
            if (!(masks[i * words + t / 32] >> t % 32 & 1))
                sampler_row(&plain, i)[t] = -INFINITY;
    static const uint32_t slots[KEPT] = {4, 1, 0, 5, 3};
    for (uint32_t i = 0; i < KEPT; i++)
        ck_assert_int_eq(scene.slot[slots[i]].last, masked.sample[i].token);
    sampler_run(&plain, &scene);
    for (uint32_t i = 0; i < KEPT; i++) {
        uint32_t token = (uint32_t)masked.sample[i].token;
        ck_assert_int_eq(masked.sample[i].token, plain.sample[i].token);
        ck_assert(masks[i * words + token / 32] >> token % 32 & 1);
        ck_assert(fabs((double)masked.sample[i].logprob - sampler_logprob(&sampler, i, token)) <
                  2e-5);
        memcpy(sampler.sample, masked.sample, sizeof sampler.sample);
        memcpy(sampler.top, masked.top, sizeof sampler.top);
        check_top(i, scene.slot[slots[i]].logprobs);
    }
    free(plain.logits);
    free(masks);
    end();
}
END_TEST

START_TEST(what_is_no_number_is_never_taken)
{
    begin(9);
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t j = 0; j < 9; j++)
            sampler_row(&sampler, i)[j] = j == 5 && i != 3 ? 1 + (float)i : NAN;
        scene.slot[i].sampler.temperature = i == 1 ? 0.7f : 0;
        scene_row(&scene, i, 3, 1, GPU_SAMPLE);
    }
    scene_step(&scene);
    sampler_run(&sampler, &scene);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(sampler.sample[i].token, 5);
        ck_assert(fabs((double)sampler.sample[i].logprob) < 1e-6);
    }
    ck_assert_uint_lt((uint32_t)sampler.sample[3].token, 9);
    end();
}
END_TEST

START_TEST(scores_are_log_probabilities_of_targets_and_the_likeliest)
{
    rig_begin();
    uint32_t vocab = (uint32_t[]){1, 33, 5000}[_i], total = 11, max = 4;
    int32_t targets[11];
    struct gpu_score scores[13];
    struct tensor logits = tensor_random(DTYPE_F32, total, vocab, 5);
    for (uint32_t i = 0; i < total; i++)
        targets[i] = (int32_t)rig_between(0, vocab - 1);
    void *device_targets = rig_new(targets, sizeof targets);
    void *device_scores = rig_new(NULL, sizeof scores);
    for (uint32_t first = 0; first < 16; first += max) {
        struct score_args args = {
            .rows = rig_span(total, first, max),
            .logits = (float *)logits.device + (size_t)first * logits.stride,
            .stride = logits.stride,
            .vocab = vocab,
            .targets = device_targets,
            .scores = device_scores,
        };
        OK(op_score(&args, rig_stream));
    }
    rig_read(scores, device_scores, sizeof scores);
    sampler = (struct sampler_rig){.vocab = vocab, .stride = logits.stride, .logits = logits.host};
    for (uint32_t i = 0; i < total; i++) {
        uint32_t best = 0;
        for (uint32_t j = 1; j < vocab; j++)
            best = tensor_at(&logits, i, j) > tensor_at(&logits, i, best) ? j : best;
        double want = sampler_logprob(&sampler, i, (uint32_t)targets[i]);
        double top = sampler_logprob(&sampler, i, best);
        ck_assert(fabs((double)scores[i].logprob - want) < 2e-5);
        ck_assert_int_eq(scores[i].top_token, (int)best);
        ck_assert(fabs((double)scores[i].top_logprob - top) < 2e-5);
    }
    ck_assert_int_eq(scores[total].top_token, (int32_t)0xa5a5a5a5u);
    rig_end();
}
END_TEST

/* Three rows of four positions, whose tokens run backwards: of four slots the first asks for all,
 * the third for two, the second for some in a row that does not want them. */
START_TEST(scores_list_the_likeliest_that_the_position_s_slot_asks_for)
{
    rig_begin();
    uint32_t vocab = (uint32_t[]){7, 33, 5000}[_i], total = 12, max = 5, tokens[12], of[12];
    static const uint32_t slot_of[] = {3, 0, 1}, asked[] = {20, 4, 9, 2};
    int32_t targets[12] = {0};
    struct batch_row rows[3] = {{0}};
    struct batch_slot slots[4] = {{0}};
    struct gpu_top tops[12][GPU_LOGPROBS_MAX];
    struct tensor logits = tensor_random(DTYPE_F32, total, vocab, 6);
    for (uint32_t i = 0; i < total; i++) {
        tokens[i] = total - 1 - i;
        of[tokens[i]] = i / 4;
        rows[i / 4] = (struct batch_row){.slot = slot_of[i / 4],
                                         .want = GPU_SCORE | (i / 4 == 2 ? 0 : GPU_LOGPROBS)};
        for (uint32_t j = 0; j < vocab; j++) /* ties */
            logits.host[(size_t)i * logits.stride + j] =
                floorf(logits.host[(size_t)i * logits.stride + j] * 8) / 8;
    }
    for (uint32_t i = 0; i < 4; i++)
        slots[i].logprobs = asked[i];
    logits.device = rig_new(logits.host, (size_t)total * logits.stride * sizeof(float));
    struct score_args args = {.stride = logits.stride,
                              .vocab = vocab,
                              .targets = rig_new(targets, sizeof targets),
                              .scores = rig_new(NULL, 12 * sizeof(struct gpu_score)),
                              .tops = rig_new(NULL, sizeof tops),
                              .tokens = rig_new(tokens, sizeof tokens),
                              .token_row = rig_new(of, sizeof of),
                              .batch_rows = rig_new(rows, sizeof rows),
                              .slots = rig_new(slots, sizeof slots)};
    for (uint32_t first = 0; first < 15; first += max) {
        args.rows = rig_span(total, first, max);
        args.logits = (float *)logits.device + (size_t)first * logits.stride;
        OK(op_score(&args, rig_stream));
    }
    rig_read(tops, args.tops, sizeof tops);
    sampler = (struct sampler_rig){.vocab = vocab, .stride = logits.stride, .logits = logits.host};
    for (uint32_t i = 0; i < total; i++) {
        uint32_t wanted = i / 4 == 2 ? 0 : asked[slot_of[i / 4]];
        uint32_t there = wanted < vocab ? wanted : vocab;
        for (uint32_t n = 0; n < there; n++) {
            uint32_t token = (uint32_t)tops[i][n].token, above = 0;
            ck_assert_uint_lt(token, vocab);
            for (uint32_t j = 0; j < vocab; j++)
                above += tensor_at(&logits, i, j) > tensor_at(&logits, i, token) ||
                         (tensor_at(&logits, i, j) == tensor_at(&logits, i, token) && j < token);
            ck_assert_uint_eq(above, n);
            double want = sampler_logprob(&sampler, i, token);
            ck_assert(fabs((double)tops[i][n].logprob - want) < 2e-5);
        }
        for (uint32_t n = there; n < wanted; n++)
            ck_assert_int_eq(tops[i][n].token, -1);
        for (uint32_t n = wanted; n < GPU_LOGPROBS_MAX; n++)
            ck_assert_int_eq(tops[i][n].token, (int32_t)0xa5a5a5a5u);
    }
    rig_end();
}
END_TEST

Suite *sample_suite(void)
{
    Suite *suite = suite_create("kernels: sample");
    TCase *tcase = tcase_create("sample");
    tcase_add_loop_test(tcase, greedy_takes_the_lowest_of_the_greatest_and_lists_the_likeliest, 0,
                        5);
    tcase_add_loop_test(tcase, results_go_to_the_step_s_own_place_and_end_it, 0, 4);
    tcase_add_loop_test(tcase, penalties_follow_what_was_seen, 0, 5);
    tcase_add_loop_test(tcase, guesses_are_sampled_as_if_they_were_known, 0, 4);
    tcase_add_test(tcase, counts_stop_at_their_greatest_value);
    tcase_add_test(tcase, the_first_row_counts_what_lies_before_it);
    tcase_add_test(tcase, bias_and_end_tokens_are_heeded);
    tcase_add_loop_test(tcase, a_mask_leaves_what_it_allows, 0, 4);
    tcase_add_test(tcase, what_is_no_number_is_never_taken);
    tcase_add_loop_test(tcase, scores_are_log_probabilities_of_targets_and_the_likeliest, 0, 3);
    tcase_add_loop_test(tcase, scores_list_the_likeliest_that_the_position_s_slot_asks_for, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
