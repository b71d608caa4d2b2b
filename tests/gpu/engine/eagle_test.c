/* An EAGLE-3 head guesses what its definition says in PyTorch
 * (tests/model/eagle.py), however its prompts were cut, whoever is beside them, and whatever became
 * of earlier guesses; and what is sampled is what it is without. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/heads.h"
#include "tests/gpu/rig/rig.h"
#include "tests/model/scratch.h"

#define TOLERANCE 2e-4f
#define SEEN (10 * TOLERANCE)
#define MARGIN 1e-3f /* nearer to another token than this, either is right */
/* The same of 16 bits, where roundings of the model and of the head add up, guess by guess. */
#define TOLERANCE_HALF 0.25f
#define MARGIN_HALF 0.25f
#define BLOCKS_MAX 16
#define SAMPLES (1 + HEADS_STEPS)

static const char *const names[] = {"llama-llama3-f32.part", "qwen3-default-bf16.own",
                                    "llama-deep-f16.default", "qwen2-ct-weights.top"};
#define HEADS ((int)(sizeof names / sizeof names[0]))

/* What comes between a prompt and the guesses that are compared. */
enum story {
    AT_ONCE,         /* nothing */
    GUESSES_STAND,   /* guesses, of which HEADS_ACCEPTED are taken for right: they are unread */
    READ_ONE_BY_ONE, /* the target's own tokens, in rows that the head reads */
    GIVEN_BY_PLAN, /* the same as guesses of the plan's, in a row that it does not: they are unread
                    */
    STORIES
};

static const enum heads_round round_of[STORIES] = {HEADS_FIRST, HEADS_STANDING, HEADS_OWN,
                                                   HEADS_OWN};

struct seq {
    const struct heads_prompt *prompt;
    uint32_t slot, chunk, drafts;
    uint32_t planned;      /* positions that are computed */
    uint32_t behind_count; /* tokens behind the prompt that are known */
    int32_t behind[HEADS_BEHIND + HEADS_STEPS];
    uint32_t blocks[GPU_GROUPS_MAX];
    uint32_t turn; /* rows behind the prompt */
    bool open, done;
    const struct gpu_sample *given; /* guesses that its rows bring; NULL: the head makes them */
    /* Of its last row with guesses, and of all others. */
    struct gpu_sample guesses[HEADS_STEPS], samples[SAMPLES];
    uint32_t sampled;
};

static struct engine_client talk;
static struct heads heads;
static bool without_head; /* no row asks for guesses */
static uint32_t slabs_new[GPU_GROUPS_MAX], slabs_made[GPU_GROUPS_MAX];
static struct seq *row_seq[HEADS_PROMPTS];
static uint32_t open_slots[HEADS_PROMPTS], open_slot_count; /* of the run before */

static struct {
    struct gpu_plan plan;
    struct gpu_slab slabs[64];
    struct gpu_open opens[HEADS_PROMPTS];
    struct gpu_append appends[HEADS_PROMPTS * BLOCKS_MAX * GPU_GROUPS_MAX];
    struct gpu_row rows[HEADS_PROMPTS];
    int32_t ids[HEADS_PROMPTS * (HEADS_TOKENS + 16)];
} draft;

/* ---- an engine ---------------------------------------------------------------------------------
 */

static int engine_open(const char *head)
{
    ck_assert(rig_setup());
    struct gpu_options options = {.model = heads.target,
                                  .draft_model = head,
                                  .dtype = rig_dtype,
                                  .tokens_max = 512,
                                  .slots_max = 64};
    without_head = !head;
    open_slot_count = 0;
    memset(slabs_new, 0, sizeof slabs_new);
    memset(slabs_made, 0, sizeof slabs_made);
    return engine_client_open(&talk, &options, false);
}

static void engine_start(void)
{
    ck_assert_msg(engine_client_start(&talk) == 0, "%s", talk.error.text);
    for (uint32_t group = 0; group < talk.model.group_count; group++) {
        const uint32_t each = talk.model.groups[group].slab_blocks;
        for (; slabs_made[group] * each < HEADS_PROMPTS * BLOCKS_MAX; slabs_made[group]++) {
            uint32_t slab;
            ck_assert_int_eq(gpu_module.kv_grow(talk.engine, group, &slab, &talk.error), 0);
            ck_assert_uint_eq(slab, slabs_made[group]);
        }
    }
}

static void head_open(int number)
{
    ck_assert_msg(heads_read(names[number], &heads), "%s", names[number]);
    ck_assert_msg(engine_open(heads.directory) == 0, "%s", talk.error.text);
    ck_assert_uint_ge(talk.limits.drafts_max, HEADS_STEPS);
    engine_start();
}

/* ---- plans -------------------------------------------------------------------------------------
 */

static void plan_begin(void)
{
    draft.plan = (struct gpu_plan){.step = talk.step + 1,
                                   .closes = open_slots,
                                   .slabs = draft.slabs,
                                   .opens = draft.opens,
                                   .appends = draft.appends,
                                   .rows = draft.rows,
                                   .ids = draft.ids};
    for (uint32_t group = 0; group < talk.model.group_count; group++) {
        while (slabs_new[group] < slabs_made[group])
            draft.slabs[draft.plan.slab_count++] =
                (struct gpu_slab){.group = group, .slab = slabs_new[group]++};
    }
}

static void seq_open(struct seq *seq)
{
    draft.opens[draft.plan.open_count++] = (struct gpu_open){.slot = seq->slot,
                                                             .sampler.repetition_penalty = 1,
                                                             .prompt_len = seq->prompt->count,
                                                             .eos_from = UINT32_MAX};
    seq->open = true;
}

static void blocks_ensure(struct seq *seq, uint32_t end)
{
    for (uint32_t group = 0; group < talk.model.group_count; group++) {
        for (; seq->blocks[group] * talk.model.block_tokens < end; seq->blocks[group]++) {
            uint32_t index = seq->blocks[group];
            ck_assert_uint_lt(index, BLOCKS_MAX);
            draft.appends[draft.plan.append_count++] =
                (struct gpu_append){.slot = seq->slot,
                                    .group = group,
                                    .index = index,
                                    .block = (seq->slot % HEADS_PROMPTS) * BLOCKS_MAX + index};
        }
    }
}

static int32_t token_at(const struct seq *seq, uint32_t position)
{
    uint32_t count = seq->prompt->count;
    if (position < count)
        return seq->prompt->tokens[position];
    ck_assert_uint_lt(position - count, seq->behind_count);
    return seq->behind[position - count];
}

/* A row of `known` tokens that the plan names, behind the unread ones before them. */
static struct gpu_row *row_add(struct seq *seq, uint32_t known, uint32_t unread, uint32_t want)
{
    struct gpu_row *row = &draft.rows[draft.plan.row_count];
    row_seq[draft.plan.row_count++] = seq;
    *row = (struct gpu_row){.slot = seq->slot,
                            .position = seq->planned,
                            .q_len = known,
                            .want = (uint16_t)want,
                            .unread = unread,
                            .ids = draft.plan.id_count + unread};
    for (uint32_t i = 0; i < unread + known; i++)
        draft.ids[draft.plan.id_count++] = token_at(seq, seq->planned - unread + i);
    blocks_ensure(seq, seq->planned + known);
    draft.plan.token_count += known;
    return row;
}

/* Guesses behind the known token. */
static void row_guess(struct seq *seq, uint32_t unread)
{
    uint32_t want = GPU_SAMPLE | GPU_LOGPROBS | (seq->given ? 0 : GPU_DRAFT);
    struct gpu_row *row = row_add(seq, 1, unread, want);
    for (uint32_t i = 0; seq->given && i < seq->drafts; i++)
        draft.ids[draft.plan.id_count++] = seq->given[i].token;
    row->drafts = seq->drafts;
    row->q_len += seq->drafts;
    draft.plan.token_count += seq->drafts;
    blocks_ensure(seq, row->position + row->q_len);
}

static void row_read(struct seq *seq)
{
    uint32_t left = seq->prompt->count - seq->planned;
    uint32_t count = seq->chunk && seq->chunk < left ? seq->chunk : left;
    uint32_t want = count == left ? GPU_SAMPLE | GPU_LOGPROBS : 0;
    row_add(seq, count, 0, want | (without_head ? 0 : GPU_DRAFT));
}

static void row_of_story(struct seq *seq, enum story story)
{
    switch (story) {
    case AT_ONCE:
        row_guess(seq, 0);
        return;
    case GUESSES_STAND:
        row_guess(seq, seq->turn == 0 ? 0 : HEADS_ACCEPTED);
        return;
    case READ_ONE_BY_ONE:
        if (seq->turn < 2)
            row_add(seq, 1, 0, GPU_SAMPLE | GPU_LOGPROBS | GPU_DRAFT);
        else
            row_guess(seq, 0);
        return;
    default:
        if (seq->turn > 0) {
            row_guess(seq, 2);
            return;
        }
        seq->behind[seq->behind_count++] = seq->prompt->rounds[HEADS_OWN].behind[1];
        row_add(seq, 2, 0, GPU_SAMPLE | GPU_LOGPROBS)->drafts = 1;
    }
}

static bool ends(const struct seq *seq, enum story story)
{
    static const uint32_t turns[STORIES] = {1, 2, 3, 2};
    return seq->turn == turns[story];
}

/* ---- results -----------------------------------------------------------------------------------
 */

static void known_add(struct seq *seq, int32_t token)
{
    seq->behind[seq->behind_count++] = token;
}

/* What the row leaves: tokens that are computed, and the one behind them. */
static void row_take(struct seq *seq, const struct gpu_row *row, const struct gpu_sample *samples)
{
    bool guessed = row->drafts == seq->drafts;
    uint32_t stood = 0;
    seq->sampled = row->want & GPU_SAMPLE ? 1 + row->drafts : 0;
    memcpy(seq->samples, samples, seq->sampled * sizeof *samples);
    if (guessed) {
        stood = HEADS_ACCEPTED;
        for (uint32_t i = 0; i < stood; i++)
            known_add(seq, seq->guesses[i].token);
    } else if (row->drafts) { /* the plan's, of which the first one is right */
        stood = row->drafts;
    }
    seq->turn += seq->planned >= seq->prompt->count;
    seq->planned += row->q_len - row->drafts + stood;
    if (seq->sampled)
        known_add(seq, samples[stood].token);
}

static void step_run(void)
{
    ck_assert_int_eq(gpu_module.submit(talk.engine, 0, &draft.plan, &talk.error), 0);
    talk.step++;
    while (gpu_module.completed(talk.engine, 0) < talk.step) {
        struct pollfd wait = {.fd = talk.wake_fd, .events = POLLIN};
        uint64_t events;
        ck_assert_int_gt(poll(&wait, 1, 60000), 0);
        (void)!read(talk.wake_fd, &events, sizeof events);
    }
}

static void results_take(enum story story)
{
    struct gpu_results results;
    gpu_module.results(talk.engine, talk.step, &results);
    uint32_t sample = 0, guess[HEADS_STEPS] = {0};
    for (uint32_t i = 0; i < draft.plan.row_count; i++) {
        const struct gpu_row *row = &draft.rows[i];
        struct seq *seq = row_seq[i];
        for (uint32_t j = 0; row->want & GPU_DRAFT && j < row->drafts; j++) {
            ck_assert_ptr_nonnull(results.guesses[j]);
            seq->guesses[j] = results.guesses[j][guess[j]++];
        }
        row_take(seq, row, results.samples + sample);
        sample += seq->sampled;
        seq->done = ends(seq, story);
    }
    ck_assert_uint_eq(results.sample_count, sample);
}

/* Each in a slot of its own, all from the same step on; those of the run before are closed then. */
static void run(struct seq *seqs, uint32_t count, enum story story)
{
    for (bool first = true, left = true; left; first = false) {
        plan_begin();
        draft.plan.close_count = first ? open_slot_count : 0;
        for (uint32_t i = 0; i < count; i++) {
            struct seq *seq = &seqs[i];
            if (!seq->open)
                seq_open(seq);
            if (seq->planned < seq->prompt->count)
                row_read(seq);
            else if (!seq->done)
                row_of_story(seq, story);
        }
        step_run();
        results_take(story);
        left = false;
        for (uint32_t i = 0; i < count; i++)
            left = left || !seqs[i].done;
    }
    open_slot_count = count;
    for (uint32_t i = 0; i < count; i++)
        open_slots[i] = seqs[i].slot;
}

static void seqs_make(struct seq seqs[HEADS_PROMPTS], uint32_t chunk)
{
    for (uint32_t i = 0; i < HEADS_PROMPTS; i++)
        seqs[i] = (struct seq){
            .prompt = &heads.prompts[i], .slot = i, .chunk = chunk, .drafts = HEADS_STEPS};
}

static void run_all(struct seq seqs[HEADS_PROMPTS], uint32_t chunk, enum story story)
{
    seqs_make(seqs, chunk);
    run(seqs, HEADS_PROMPTS, story);
}

/* Float32, whose bits do not depend on how rows are cut. */
static bool is_exact(void)
{
    return rig_dtype == GPU_DTYPE_AUTO;
}

/* How far a log-probability is from the reference's at most; infinite where a token is another. */
static float off(const struct seq *seq, enum heads_round number)
{
    const struct heads_guesses *round = &seq->prompt->rounds[number];
    float most = 0;
    for (uint32_t i = 0; i < seq->drafts; i++) {
        if (seq->guesses[i].token != round->tokens[i]) {
            if (round->margins[i] > (is_exact() ? MARGIN : MARGIN_HALF))
                return INFINITY;
            break; /* another text from here on */
        }
        float apart = fabsf(seq->guesses[i].logprob - round->logprobs[i]);
        if (isnan(apart))
            return INFINITY;
        most = fmaxf(most, apart);
    }
    return most;
}

static void check_same(const struct seq *a, const struct seq *b)
{
    uint32_t count = a->drafts < b->drafts ? a->drafts : b->drafts;
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(a->guesses[i].token, b->guesses[i].token);
        ck_assert_mem_eq(&a->guesses[i].logprob, &b->guesses[i].logprob, sizeof(float));
    }
    for (uint32_t i = 0; i <= count; i++) {
        ck_assert_int_eq(a->samples[i].token, b->samples[i].token);
        ck_assert_mem_eq(&a->samples[i].logprob, &b->samples[i].logprob, sizeof(float));
    }
}

/* ---- tests -------------------------------------------------------------------------------------
 */

/* Slots are used again, so what one has left there must not matter either. */
START_TEST(guesses_are_those_of_the_reference)
{
    static const uint32_t chunks[] = {0, 1, 7, 16, 40};
    const enum story story = (enum story)(_i % STORIES);
    const enum heads_round round = round_of[story];
    static struct seq whole[HEADS_PROMPTS], seqs[HEADS_PROMPTS];
    head_open(_i / STORIES);
    for (uint32_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
        run_all(seqs, chunks[c], story);
        for (uint32_t i = 0; i < HEADS_PROMPTS; i++) {
            const struct heads_guesses *right = &heads.prompts[i].rounds[round];
            bool same = !memcmp(seqs[i].behind, right->behind, right->count * sizeof(int32_t));
            ck_assert(same || !is_exact());
            float apart = same ? off(&seqs[i], round) : 0; /* 16 bits: the model went elsewhere */
            ck_assert_msg(apart <= (is_exact() ? TOLERANCE : TOLERANCE_HALF),
                          "%s: prompt %u, rows of %u, off by %g", heads.directory, i, chunks[c],
                          (double)apart);
            if (c > 0 && is_exact())
                check_same(&seqs[i], &whole[i]);
        }
        if (c == 0)
            memcpy(whole, seqs, sizeof seqs);
    }
    engine_client_close(&talk);
}
END_TEST

START_TEST(they_do_not_depend_on_who_is_beside_them)
{
    const enum story story = (enum story)(_i % STORIES);
    static struct seq together[HEADS_PROMPTS], alone, two[2];
    head_open(_i / STORIES);
    run_all(together, 16, story);
    for (uint32_t i = 0; i < HEADS_PROMPTS; i++) {
        alone =
            (struct seq){.prompt = &heads.prompts[i], .slot = 9, .chunk = 40, .drafts = 3 + i % 4};
        run(&alone, 1, story);
        check_same(&alone, &together[i]);
    }
    for (uint32_t i = 0; i < 2; i++) /* of which one has more guesses */
        two[i] = (struct seq){.prompt = &heads.prompts[4 - i],
                              .slot = 3 - i,
                              .chunk = 33,
                              .drafts = HEADS_STEPS - 2 * i};
    run(two, 2, story);
    for (uint32_t i = 0; i < 2; i++)
        check_same(&two[i], &together[4 - i]);
    engine_client_close(&talk);
}
END_TEST

START_TEST(what_is_sampled_is_what_it_is_without_a_head)
{
    static struct seq with[HEADS_PROMPTS], without[HEADS_PROMPTS];
    head_open(_i);
    run_all(with, 16, AT_ONCE);
    engine_client_close(&talk);
    ck_assert_int_eq(engine_open(NULL), 0);
    engine_start();
    seqs_make(without, 16);
    for (uint32_t i = 0; i < HEADS_PROMPTS; i++)
        without[i].given = with[i].guesses;
    run(without, HEADS_PROMPTS, AT_ONCE);
    for (uint32_t i = 0; i < HEADS_PROMPTS; i++) {
        for (uint32_t j = 0; j < SAMPLES; j++) {
            ck_assert_int_eq(with[i].samples[j].token, without[i].samples[j].token);
            ck_assert_mem_eq(&with[i].samples[j].logprob, &without[i].samples[j].logprob,
                             sizeof(float));
        }
    }
    engine_client_close(&talk);
}
END_TEST

/* eagle_config says which layers' results are read, what stands above it which layers begin so. */
START_TEST(layers_are_named_in_either_way)
{
    static struct seq seqs[HEADS_PROMPTS];
    char directory[SCRATCH_PATH_MAX];
    ck_assert(heads_read("llama-deep-f16.default", &heads));
    scratch_make(directory);
    scratch_copy(heads.directory, directory);
    scratch_replace(directory, "config.json", "\"draft_vocab_size\"",
                    "\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4]}, "
                    "\"draft_vocab_size\"");
    int status = engine_open(directory);
    scratch_remove(directory);
    ck_assert_msg(status == 0, "%s", talk.error.text);
    engine_start();
    run_all(seqs, 0, AT_ONCE);
    for (uint32_t i = 0; i < HEADS_PROMPTS; i++)
        ck_assert_float_lt(off(&seqs[i], HEADS_FIRST), TOLERANCE);
    engine_client_close(&talk);
}
END_TEST

/* ---- mistakes ----------------------------------------------------------------------------------
 *
 * The comparison can fail: a head whose files say something else guesses something else. */

#define WEIGHTS "model.safetensors"

static void neighbouring_layer(const char *directory)
{
    scratch_replace(directory, "config.json", "  0,\n  1,\n  1\n", "  1,\n  0,\n  1\n");
}

static void map_ignored(const char *directory)
{
    static const int64_t zeros[96];
    scratch_overwrite(directory, WEIGHTS, "d2t", zeros, sizeof zeros);
}

/* The tensor's floats; the caller frees them. */
static float *floats_of(const char *directory, const char *tensor, uint32_t count)
{
    size_t length = 0;
    uint64_t header = 0;
    char *file = scratch_read(directory, WEIGHTS, &length), quoted[64];
    memcpy(&header, file, sizeof header);
    snprintf(quoted, sizeof quoted, "\"%s\"", tensor);
    const char *at = memmem(file, length, quoted, strlen(quoted));
    ck_assert_ptr_nonnull(at);
    at = strstr(at, "\"data_offsets\":[");
    ck_assert_ptr_nonnull(at);
    uint64_t begin = strtoull(at + strlen("\"data_offsets\":["), NULL, 10);
    float *values = malloc(count * sizeof *values);
    memcpy(values, file + sizeof header + header + begin, count * sizeof *values);
    free(file);
    return values;
}

/* Columns of a float32 matrix go round by so many. */
static void columns_turn(const char *directory, const char *tensor, uint32_t rows, uint32_t width,
                         uint32_t by)
{
    float *from = floats_of(directory, tensor, rows * width);
    float *to = malloc(sizeof *to * rows * width);
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < width; j++)
            to[i * width + (j + by) % width] = from[i * width + j];
    }
    scratch_overwrite(directory, WEIGHTS, tensor, to, sizeof *to * rows * width);
    free(from);
    free(to);
}

static void parts_swapped(const char *directory)
{
    columns_turn(directory, "fc.weight", 32, 96, 32);
}

/* The hidden state where the embedding stands, and the other way about. */
static void halves_swapped(const char *directory)
{
    columns_turn(directory, "midlayer.self_attn.v_proj.weight", 128, 64, 32);
}

static void ones_put(const char *directory, const char *tensor)
{
    float ones[32];
    for (uint32_t i = 0; i < 32; i++)
        ones[i] = 1;
    scratch_overwrite(directory, WEIGHTS, tensor, ones, sizeof ones);
}

static void hidden_norm_ignored(const char *directory)
{
    ones_put(directory, "midlayer.hidden_norm.weight");
}

static void input_norm_ignored(const char *directory)
{
    ones_put(directory, "midlayer.input_layernorm.weight");
}

static void last_norm_ignored(const char *directory)
{
    ones_put(directory, "norm.weight");
}

static void residual_before_norm(const char *directory)
{
    scratch_replace(directory, "config.json", "\"norm_before_residual\": true",
                    "\"norm_before_residual\": false");
}

static void rope_of_others(const char *directory)
{
    scratch_replace(directory, "config.json", "\"rope_theta\": 500000.0",
                    "\"rope_theta\": 10000.0");
}

/* And an engine whose lists say something else. */
static void captures_swapped(void)
{
    struct op_list *list = &talk.engine->facts.source.list;
    for (uint32_t i = 0; i < list->op_count; i++)
        if (list->ops[i].kind == OP_CAPTURE)
            list->ops[i].capture.part = LIST_FEATURES - 1 - list->ops[i].capture.part;
}

/* An op that there is no need of in its place: a part is captured twice. */
static void keep_left_out(void)
{
    struct op_list *list = &talk.engine->facts.source.list;
    for (uint32_t i = 1; i < list->op_count; i++)
        if (list->ops[i].kind == OP_KEEP)
            list->ops[i] = list->ops[i - 1];
}

static struct op *draft_op(enum op_kind kind, uint32_t number)
{
    struct op_list *list = &talk.engine->facts.draft.source.list;
    for (uint32_t i = 0; i < list->op_count; i++)
        if (list->ops[i].kind == kind && number-- == 0)
            return &list->ops[i];
    ck_abort_msg("there is no such op");
}

static void own_state_left_out(void)
{
    draft_op(OP_STATE, 0)->state.own = false;
    for (uint32_t i = 0; i < 2; i++) /* features, and the product of them */
        draft_op(i ? OP_MATMUL : OP_FEATURES, 0)->rows = ROWS_TOKENS;
}

static void carry_left_out(void)
{
    struct op *op = draft_op(OP_CARRY, 0);
    *op = op[-1];
}

static void norms_swapped(void)
{
    struct op *token = draft_op(OP_NORM, 0), *state = draft_op(OP_NORM, 1);
    weight_id weight = token->weight;
    token->weight = state->weight;
    state->weight = weight;
}

static const struct {
    const char *what, *head;
    void (*make)(const char *directory);
    void (*engine)(void); /* before it starts */
} mistakes[] = {
    {"features of the neighbouring layer", "llama-llama3-f32.part", neighbouring_layer, NULL},
    {"d2t ignored", "llama-llama3-f32.part", map_ignored, NULL},
    {"parts of fc swapped", "llama-llama3-f32.part", parts_swapped, NULL},
    {"embedding and hidden state swapped", "llama-llama3-f32.part", halves_swapped, NULL},
    {"norm of the hidden state ignored", "llama-llama3-f32.part", hidden_norm_ignored, NULL},
    {"norm of the embedding ignored", "llama-llama3-f32.part", input_norm_ignored, NULL},
    {"last norm ignored", "llama-llama3-f32.part", last_norm_ignored, NULL},
    {"the target's rope", "llama-llama3-f32.part", rope_of_others, NULL},
    {"norm before the residual left out", "qwen3-default-bf16.own", residual_before_norm, NULL},
    {"captured layers swapped", "llama-llama3-f32.part", NULL, captures_swapped},
    {"what is kept left out", "llama-llama3-f32.part", NULL, keep_left_out},
    {"the head's own state left out", "llama-llama3-f32.part", NULL, own_state_left_out},
    {"its state not carried on", "llama-llama3-f32.part", NULL, carry_left_out},
    {"norms of token and state swapped", "llama-llama3-f32.part", NULL, norms_swapped}};

START_TEST(a_mistake_is_seen)
{
    static struct seq seqs[HEADS_PROMPTS];
    char directory[SCRATCH_PATH_MAX];
    float most = 0;
    ck_assert(heads_read(mistakes[_i].head, &heads));
    scratch_make(directory);
    scratch_copy(heads.directory, directory);
    if (mistakes[_i].make)
        mistakes[_i].make(directory);
    int status = engine_open(directory);
    if (!status && mistakes[_i].engine)
        mistakes[_i].engine();
    if (!status)
        engine_start();
    scratch_remove(directory);
    ck_assert_msg(status == 0, "%s", talk.error.text);
    run_all(seqs, 0, AT_ONCE);
    for (uint32_t i = 0; i < HEADS_PROMPTS; i++)
        most = fmaxf(most, off(&seqs[i], HEADS_FIRST));
    ck_assert_msg(most >= SEEN, "%s: off by %g only", mistakes[_i].what, (double)most);
    engine_client_close(&talk);
}
END_TEST

Suite *eagle_suite(void)
{
    Suite *suite = suite_create("eagle");
    TCase *tcase = tcase_create("eagle");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, guesses_are_those_of_the_reference, 0, HEADS * STORIES);
    suite_add_tcase(suite, tcase);
    if (!is_exact())
        return suite;
    tcase_add_loop_test(tcase, they_do_not_depend_on_who_is_beside_them, 0, HEADS * STORIES);
    tcase_add_loop_test(tcase, what_is_sampled_is_what_it_is_without_a_head, 0, HEADS);
    tcase_add_test(tcase, layers_are_named_in_either_way);
    tcase_add_loop_test(tcase, a_mistake_is_seen, 0, (int)(sizeof mistakes / sizeof mistakes[0]));
    return suite;
}
