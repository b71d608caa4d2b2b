#include "tests/sim/question.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/emu/emu.h"
#include "gpu/kernels/step/null_rule.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/sim/chance.h"

#define REAL_OUT_MAX 24 /* tokens that a real model is asked for */
#define REAL_PROMPT_MAX 48

static void *make(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

static uint32_t draw_length(uint32_t most, uint64_t *random)
{
    switch (chance_below(random, 4)) {
    case 0:
        return 1;
    case 1:
        return chance_between(random, 1, most);
    default:
        return chance_between(random, 1, most < 24 ? most : 24);
    }
}

/* Every other one begins as one before it does, so that prompts are trees. */
static void begin_alike(const struct questions *questions, struct question *question,
                        uint64_t *random)
{
    uint32_t number = (uint32_t)(question - questions->question);
    if (number == 0 || chance_one_in(random, 2))
        return;
    const struct question *other = &questions->question[chance_below(random, number)];
    bool texts = question->text && other->text;
    uint32_t most =
        question->prompt_len < other->prompt_len ? question->prompt_len : other->prompt_len;
    uint32_t common = chance_between(random, 1, most);
    if (question->text && !texts) /* tokens of the other may be no text */
        return;
    memcpy(question->prompt, other->prompt, common * sizeof(*question->prompt));
    if (texts)
        memcpy(question->text, other->text, common);
}

static void draw(const struct questions *questions, struct question *question, uint32_t out_max,
                 uint32_t prompt_max, uint64_t *random)
{
    /* With adapters whole blocks, for what is cached of one. */
    question->prompt_len = questions->adapters.count
                               ? chance_between(random, prompt_max / 2 + 1, prompt_max)
                               : draw_length(prompt_max, random);
    question->prompt = make(question->prompt_len, sizeof(int32_t));
    if (questions->null && chance_one_in(random, 3))
        question->text = make(question->prompt_len + 1, 1);
    for (uint32_t i = 0; i < question->prompt_len; i++) {
        /* The null model's tokens are the bytes; these are characters, too. */
        question->prompt[i] = question->text ? (int32_t)chance_between(random, 1, 127)
                                             : (int32_t)chance_below(random, questions->vocab);
        if (question->text)
            question->text[i] = (char)question->prompt[i];
    }
    begin_alike(questions, question, random);
    uint32_t letters = 0;
    if (questions->null && chance_one_in(random, 5))
        letters = chance_between(random, 1, QUESTION_CHOICE_MAX);
    for (uint32_t i = 0; i < letters; i++)
        question->choice[i] = (char)chance_between(random, 'a', 'z');
    question->ignore_eos = chance_one_in(random, 4);
    question->seed = chance_below(random, 1u << 30);
    if (chance_one_in(random, 2))
        question->temperature = (float)chance_between(random, 1, 20) / 10;
    question->repeats = !questions->null && chance_one_in(random, 2);
    if (chance_one_in(random, 3))
        question->stop_id_count = chance_between(random, 1, QUESTION_STOPS);
    for (uint32_t i = 0; i < question->stop_id_count; i++)
        question->stop_ids[i] = (int32_t)chance_below(random, questions->vocab);
    if (chance_one_in(random, 4))
        question->min_tokens = chance_between(random, 1, 8);
    if (question->choice[0]) { /* none of these can stand beside a constraint */
        question->ignore_eos = false;
        question->stop_id_count = question->min_tokens = 0;
    }
    question->tokens = make(out_max, sizeof(int32_t));
    question->logprobs = make(out_max, sizeof(float));
    question->tops = make(out_max, sizeof(*question->tops));
    question->scores = make(question->prompt_len, sizeof(*question->scores));
    question->last = make(questions->hidden, sizeof(float));
    question->mean = make(questions->hidden, sizeof(float));
}

/* ---- the rule ----------------------------------------------------------------------------------
 */

static bool is_stop(const struct question *question, int32_t token)
{
    for (uint32_t i = 0; i < question->stop_id_count; i++)
        if (question->stop_ids[i] == token)
            return true;
    return false;
}

static uint64_t answer_prompt(struct question *question)
{
    uint64_t state = NULL_START;
    question->all = make(question->prompt_len, NULL_HIDDEN * sizeof(float));
    for (uint32_t i = 0; i < question->prompt_len; i++) {
        state = null_state(state, question->prompt[i]);
        for (uint32_t e = 0; e < NULL_HIDDEN; e++) {
            question->last[e] = null_hidden(state, e);
            question->mean[e] += question->last[e];
            question->all[i * NULL_HIDDEN + e] = question->last[e];
        }
        if (i + 1 < question->prompt_len)
            question->scores[i] =
                (struct message_score){.logprob = null_logprob(state, question->prompt[i + 1]),
                                       .top_token = null_top(state, 0),
                                       .top_logprob = null_logprob(state, null_top(state, 0))};
    }
    for (uint32_t e = 0; e < NULL_HIDDEN; e++)
        question->mean[e] /= (float)question->prompt_len;
    return state;
}

static void answer_by_rule(struct question *question, uint32_t out_max)
{
    uint64_t state = answer_prompt(question);
    while (question->count < out_max && !question->stops) {
        uint32_t at = question->count++;
        bool may_end = !question->ignore_eos && at >= question->min_tokens;
        int32_t token = null_sample(state, may_end);
        if (question->choice[0]) /* its bytes, of which there is one way, and the end */
            token = at < strlen(question->choice) ? (uint8_t)question->choice[at] : NULL_END;
        question->tokens[at] = token;
        question->logprobs[at] = null_logprob(state, token);
        for (uint32_t i = 0; i < QUESTION_TOPS; i++)
            question->tops[at][i] = (struct gpu_top){
                .token = null_top(state, i), .logprob = null_logprob(state, null_top(state, i))};
        question->stops = may_end && (token == NULL_END || is_stop(question, token));
        state = null_state(state, token);
    }
}

/* ---- a model alone -----------------------------------------------------------------------------
 */

static struct gpu_open opening(const struct question *question)
{
    return (struct gpu_open){
        .seed = question->seed,
        .sampler.temperature = question->temperature,
        .sampler.top_p = 1,
        .sampler.repetition_penalty = 1,
        .eos_from = question->ignore_eos ? UINT32_MAX : question->prompt_len + question->min_tokens,
        .logprobs = QUESTION_TOPS,
        .adapter = question->adapter,
    };
}

static void keep_generated(struct question *question, const struct engine_client_job *job)
{
    question->count = job->sampled;
    for (uint32_t i = 0; i < job->sampled; i++) {
        question->tokens[i] = job->samples[i].token;
        question->logprobs[i] = job->samples[i].logprob;
        memcpy(question->tops[i], job->tops[i], sizeof(question->tops[i]));
        question->stops = job->samples[i].finished;
    }
}

static int ask_alone(struct engine_client *talk, struct question *question, uint32_t out_max,
                     uint32_t hidden)
{
    struct engine_client_job *jobs = make(4, sizeof(*jobs));
    for (uint32_t i = 0; i < 4; i++) {
        jobs[i].prompt = question->prompt;
        jobs[i].prompt_len = question->prompt_len;
        jobs[i].open = opening(question);
    }
    jobs[0].generate = out_max;
    if (question->repeats) {
        jobs[0].open.flags = GPU_SLOT_PENALTIES;
        jobs[0].open.sampler.frequency_penalty = QUESTION_PENALTY;
    }
    jobs[0].open.stop_ids_count = question->stop_id_count;
    memcpy(jobs[0].stop_ids, question->stop_ids, sizeof(jobs[0].stop_ids));
    jobs[1].score = true;
    jobs[2].embed = GPU_EMBED_LAST;
    jobs[3].embed = GPU_POOL_OUT;
    jobs[3].open.flags = GPU_SLOT_POOL;
    int rc = engine_client_run(talk, jobs, 4);
    if (!rc) {
        keep_generated(question, &jobs[0]);
        for (uint32_t i = 0; i + 1 < question->prompt_len; i++)
            question->scores[i] =
                (struct message_score){.logprob = jobs[1].scores[i].logprob,
                                       .top_token = jobs[1].scores[i].top_token,
                                       .top_logprob = jobs[1].scores[i].top_logprob};
        memcpy(question->last, jobs[2].embedding, hidden * sizeof(float));
        memcpy(question->mean, jobs[3].embedding, hidden * sizeof(float));
    }
    free(jobs);
    return rc;
}

/* ---- the set -----------------------------------------------------------------------------------
 */

static void make_all(struct questions *questions, uint32_t context_max, uint64_t *random)
{
    for (uint32_t i = 0; i < questions->count; i++) {
        struct question *question = &questions->question[i];
        draw(questions, question, context_max, context_max - 1, random);
        uint32_t out_max = context_max - question->prompt_len;
        if (question->min_tokens > out_max)
            question->min_tokens = out_max;
        answer_by_rule(question, out_max);
    }
}

/* The same prompt by each adapter: what is cached of one is wrong for another. */
static void ask_alike(struct question *question)
{
    const struct question *other = question - 1;
    if (!question->adapter)
        return;
    free(question->prompt);
    free(question->scores);
    question->prompt_len = other->prompt_len;
    question->prompt = make(question->prompt_len, sizeof(int32_t));
    question->scores = make(question->prompt_len, sizeof(*question->scores));
    memcpy(question->prompt, other->prompt, question->prompt_len * sizeof(*question->prompt));
}

static int ask_all(struct questions *questions, uint32_t context_max, uint64_t *random,
                   struct error *error)
{
    static struct engine_client talk;
    struct gpu_adapter adapters[GPU_ADAPTERS_MAX];
    const struct gpu_options options = {.model = questions->model,
                                        .adapters = adapters,
                                        .adapter_count = questions->adapters.count,
                                        .tp = questions->tp,
                                        .ep = questions->ep,
                                        .pp = 1,
                                        .depth = 1,
                                        .slots_max = 8,
                                        .context_max = context_max};
    adapter_names_give(&questions->adapters, adapters);
    if (emu_setup(
            &(struct emu_options){.engine = EMU_STEPPER, .devices = 2, .memory_bytes = 256u << 20}))
        return error_set(error, ERR_NO_MEMORY, "no emulated device");
    int rc = engine_client_open(&talk, &options, true);
    if (!rc)
        rc = engine_client_start(&talk);
    if (rc) {
        *error = talk.error;
        return rc;
    }
    questions->vocab = talk.model.vocab;
    questions->hidden = talk.model.hidden;
    for (uint32_t i = 0; !rc && i < questions->count; i++) {
        struct question *question = &questions->question[i];
        uint32_t prompt_max = context_max - REAL_OUT_MAX;
        draw(questions, question, REAL_OUT_MAX,
             prompt_max < REAL_PROMPT_MAX ? prompt_max : REAL_PROMPT_MAX, random);
        question->adapter = i % (questions->adapters.count + 1);
        ask_alike(question);
        question->stop_id_count = question->stop_id_count < 4 ? question->stop_id_count : 4;
        rc = ask_alone(&talk, question, REAL_OUT_MAX, questions->hidden);
    }
    if (rc)
        *error = talk.error;
    engine_client_close(&talk);
    return rc;
}

int questions_make(struct questions *questions, const struct question_model *model,
                   uint32_t context_max, uint32_t count, uint64_t *random, struct error *error)
{
    memset(questions, 0, sizeof(*questions));
    int rc = adapter_names_read(&questions->adapters, model->adapters, error);
    if (rc)
        return rc;
    questions->tp = model->tp;
    questions->ep = model->ep;
    snprintf(questions->model, sizeof(questions->model), "%s", model->model);
    questions->null = strcmp(model->model, "synthetic:null") == 0;
    questions->texts = strncmp(model->model, "synthetic:", 10) == 0;
    questions->vocab = NULL_VOCAB;
    questions->hidden = NULL_HIDDEN;
    questions->context_max = context_max;
    questions->count = count;
    questions->question = make(count, sizeof(*questions->question));
    if (!questions->null)
        return ask_all(questions, context_max, random, error);
    make_all(questions, context_max, random);
    return 0;
}

void questions_free(struct questions *questions)
{
    for (uint32_t i = 0; i < questions->count; i++) {
        struct question *question = &questions->question[i];
        free(question->prompt);
        free(question->text);
        free(question->tokens);
        free(question->logprobs);
        free(question->tops);
        free(question->scores);
        free(question->last);
        free(question->mean);
        free(question->all);
    }
    free(questions->question);
    questions->question = NULL;
}
