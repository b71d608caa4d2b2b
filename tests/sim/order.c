#include "tests/sim/order.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/request/backlog.h"
#include "protocol/base/json.h"

#define EMBED_ERROR 1e-5f
#define CHAT_MAX 4096u
#define ORDER_BULK ((uint32_t)BACKLOG_SMALL)

/* ---- asking ------------------------------------------------------------------------------------
 */

static uint32_t draw_max(struct scene *scene, const struct questions *questions,
                         const struct question *question)
{
    uint32_t most = question->count, low = question->min_tokens ? question->min_tokens : 1;
    if (questions->null && scene_one_in(scene, 12))
        return 0;
    if (question->stops && questions->null) /* more than it can give is allowed */
        most = questions->context_max - question->prompt_len;
    if (low > most)
        low = most;
    if (scene_one_in(scene, 3) || most <= low)
        return scene_between(scene, low, most > low ? most : low);
    return scene_between(scene, low, most < low + 12 ? most : low + 12);
}

static void draw_form(struct order *order, struct scene *scene, const struct question *question)
{
    if (!question->text)
        return;
    uint32_t form = scene_below(scene, 3);
    order->texts = form == 1;
    order->chats = form == 2;
    order->bulky = scene_one_in(scene, 6);
}

/* A constraint is the whole order's, and so is an adapter. */
static bool is_apart(const struct order *order, const struct question *question)
{
    const struct question *first = order->seqs[0].question;
    return first->adapter != question->adapter ||
           (order->job == JOB_GENERATE && strcmp(question->choice, first->choice) != 0);
}

static void draw_prompts(struct order *order, struct scene *scene,
                         const struct questions *questions)
{
    order->prompt_count = scene_one_in(scene, 3) ? scene_between(scene, 2, 4) : 1;
    for (uint32_t i = 0; i < order->prompt_count; i++) {
        const struct question *question =
            &questions->question[scene_below(scene, questions->count)];
        if (i > 0 && is_apart(order, question))
            question = order->seqs[0].question;
        if (i == 0)
            draw_form(order, scene, question);
        if (question->adapter)
            order->adapter = questions->adapters.at[question->adapter - 1].name;
        order->texts = order->texts && question->text;
        order->chats = order->chats && question->text;
        bool many = order->job == JOB_GENERATE && scene_one_in(scene, 5) &&
                    (questions->null || question->temperature == 0);
        uint32_t n = many ? scene_between(scene, 2, 4) : 1;
        uint32_t max_tokens = order->job == JOB_GENERATE ? draw_max(scene, questions, question) : 0;
        order->prompt_n[i] = n;
        for (uint32_t r = 0; r < n; r++) {
            order->seqs[order->seq_count++] =
                (struct order_seq){.question = question, .max_tokens = max_tokens};
            order->tokens +=
                question->prompt_len + (max_tokens ? max_tokens : questions->context_max);
        }
    }
}

static int32_t draw_priority(struct scene *scene, const struct order_mood *mood,
                             int32_t priority_max, bool floods)
{
    if (mood->flood)
        return floods ? priority_max : 0;
    /* One in sixty or so is above what is allowed. */
    int32_t any = scene_one_in(scene, 3) ? (int32_t)scene_below(scene, 16) - 8 : 0;
    return any > priority_max && !scene_one_in(scene, 8) ? priority_max : any;
}

void order_draw(struct order *order, struct scene *scene, const struct questions *questions,
                const struct order_mood *mood, int32_t priority_max, bool floods)
{
    uint64_t id = order->id;
    bool patient = order->patient;
    memset(order, 0, sizeof(*order));
    order->id = id;
    uint32_t kind = scene_below(scene, 8);
    order->job = kind == 0 ? JOB_SCORE : kind == 1 ? JOB_EMBED : JOB_GENERATE;
    order->normalize = scene_one_in(scene, 2);
    order->pooling = (enum pooling)scene_below(scene, questions->null ? 3 : 2);
    order->stream = !scene_one_in(scene, 4);
    order->priority = draw_priority(scene, mood, patient ? 0 : priority_max, floods);
    order->priority_max = priority_max;
    order->logprobs = scene_one_in(scene, 4) ? (int32_t)scene_below(scene, QUESTION_TOPS + 1) : -1;
    order->patient = patient;
    if (!patient && scene_one_in(scene, 5))
        order->deadline_ms = scene_between(scene, 1, 60);
    order->no_cache = scene_one_in(scene, 6);
    if (scene_one_in(scene, 4))
        order->salt = scene_one_in(scene, 2) ? "salt" : "pepper";
    order->sent_us = scene->now_us;
    order->model = questions->number;
    order->name = questions->name;
    draw_prompts(order, scene, questions);
}

/* A conversation of which the template makes the question's text. */
static void encode_chat(const struct order *order, const struct question *question,
                        struct message_prompt *prompt, char *buffer, size_t size)
{
    struct json_writer writer;
    json_writer_init(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_open(&writer, "messages", '[');
    json_open(&writer, NULL, '{');
    json_put_text(&writer, "role", "user");
    json_put_string(&writer, "content", question->text, question->prompt_len);
    json_close(&writer, '}');
    json_close(&writer, ']');
    json_close(&writer, '}');
    if (order->bulky) { /* spaces are no less work to take turns for */
        memset(buffer + writer.used, ' ', ORDER_BULK);
        writer.used += ORDER_BULK;
    }
    prompt->tokens = NULL;
    prompt->chat = buffer;
    prompt->chat_length = (uint32_t)writer.used;
}

static bool constrained(const struct order *order)
{
    return order->job == JOB_GENERATE && order->seqs[0].question->choice[0] != '\0';
}

size_t order_encode(const struct order *order, void *buffer, size_t size)
{
    struct message_prompt prompts[ORDER_SEQS];
    static char chats[4][CHAT_MAX + ORDER_BULK];
    uint32_t seq = 0;
    for (uint32_t i = 0; i < order->prompt_count; i++) {
        const struct question *question = order->seqs[seq].question;
        struct message_prompt *prompt = &prompts[i];
        *prompt = (struct message_prompt){.sampling = sampling_unset(),
                                          .tokens = question->prompt,
                                          .token_count = question->prompt_len};
        if (order->texts) {
            prompt->tokens = NULL;
            prompt->text = question->text;
            prompt->text_length = question->prompt_len;
        }
        if (order->chats)
            encode_chat(order, question, prompt, chats[i], CHAT_MAX);
        if (order->job == JOB_GENERATE) {
            struct sampling *sampling = &prompt->sampling;
            sampling->sampler.temperature = question->temperature;
            if (question->repeats)
                sampling->sampler.frequency_penalty = QUESTION_PENALTY;
            sampling->seed = question->seed;
            sampling->seed_given = true;
            sampling->max_tokens = order->seqs[seq].max_tokens;
            sampling->min_tokens = question->min_tokens;
            sampling->ignore_eos = question->ignore_eos;
            sampling->n = order->prompt_n[i];
            sampling->logprobs = order->logprobs;
            prompt->stop_id_count = question->stop_id_count;
            memcpy(prompt->stop_ids, question->stop_ids, sizeof(question->stop_ids));
        }
        seq += order->prompt_n[i];
    }
    char choices[QUESTION_CHOICE_MAX + 8];
    const char *choice = order->seqs[0].question->choice;
    int length = snprintf(choices, sizeof(choices), "[\"%s\"]", choice);
    struct message_constraint constraint = {.kind = MESSAGE_CONSTRAINT_NONE};
    if (constrained(order))
        constraint =
            (struct message_constraint){MESSAGE_CONSTRAINT_CHOICE, choices, (size_t)length};
    const struct message_submit_out submit = {.params.job = order->job,
                                              .constraint = constraint,
                                              .params.priority = order->priority,
                                              .params.deadline_ms = order->deadline_ms,
                                              .params.stream = order->stream,
                                              .params.normalize = order->normalize,
                                              .params.pooling = order->pooling,
                                              .params.no_cache = order->no_cache,
                                              .params.cache_salt = order->salt,
                                              .params.adapter = order->adapter,
                                              .params.model = order->name,
                                              .prompt_count = order->prompt_count,
                                              .prompts = prompts};
    return message_encode_submit(buffer, size, order->id, &submit);
}

/* ---- answers -----------------------------------------------------------------------------------
 */

#define WRONG(...) scene_fail(scene, "answer: " __VA_ARGS__)

/* The sequence of that number, when it may still say something. */
static struct order_seq *speaker(struct order *order, struct scene *scene, uint32_t number)
{
    if (number >= order->seq_count)
        WRONG("sequence %u of %u", number, order->seq_count);
    else if (order->seqs[number].ended)
        WRONG("sequence %u speaks after its end", number);
    else if (!order->request)
        WRONG("sequence %u speaks before ACCEPT", number);
    else
        return &order->seqs[number];
    return NULL;
}

static uint32_t max_of(const struct order_seq *seq, const struct order_mood *mood)
{
    const struct question *question = seq->question;
    if (seq->max_tokens)
        return seq->max_tokens;
    return question->prompt_len < mood->room ? mood->room - question->prompt_len : 1;
}

static void check_record(const struct order *order, struct scene *scene,
                         const struct order_seq *seq, const struct message_tokens *record)
{
    const struct question *question = seq->question;
    uint32_t top = order->logprobs > 0 ? (uint32_t)order->logprobs : 0;
    if ((record->logprobs != NULL) != (order->logprobs >= 0) || record->top_count != top)
        WRONG("log-probabilities of %d were asked for, %u came", order->logprobs,
              record->top_count);
    for (uint32_t i = 0; i < record->count && !scene->failed; i++) {
        uint32_t at = seq->got + i;
        if (at >= question->count || record->tokens[i] != question->tokens[at]) {
            WRONG("token %u is %d, must be %d (of %u)", at, record->tokens[i],
                  at < question->count ? question->tokens[at] : -1, question->count);
            return;
        }
        if (record->logprobs && record->logprobs[i] != question->logprobs[at])
            WRONG("log-probability %u is %g, must be %g", at, (double)record->logprobs[i],
                  (double)question->logprobs[at]);
        for (uint32_t t = 0; t < top; t++) {
            const struct message_top *is = &record->top[i * top + t];
            const struct gpu_top *must = &question->tops[at][t];
            if (is->token != must->token || is->logprob != must->logprob)
                WRONG("likeliest %u of token %u is %d: %g, must be %d: %g", t, at, is->token,
                      (double)is->logprob, must->token, (double)must->logprob);
        }
    }
}

static void take_tokens(struct order *order, struct scene *scene, const struct frame *frame)
{
    struct message_tokens record;
    struct error error;
    size_t offset = 0;
    int rc;
    while ((rc = message_next_tokens(frame, &offset, &record, &error)) == 0 && !scene->failed) {
        struct order_seq *seq = speaker(order, scene, record.sequence);
        if (!seq)
            return;
        if (order->job != JOB_GENERATE)
            WRONG("tokens for a job that is not generate");
        check_record(order, scene, seq, &record);
        seq->got += record.count;
    }
    if (rc < 0)
        WRONG("%s", error.text);
}

static void check_scores(struct scene *scene, const struct order_seq *seq,
                         const struct message_result *result)
{
    if (result->first != seq->got + 1)
        WRONG("scores from %u, must be from %u", result->first, seq->got + 1);
    for (uint32_t i = 0; i < result->count && !scene->failed; i++) {
        uint32_t at = seq->got + i;
        if (at + 1 >= seq->question->prompt_len) {
            WRONG("score %u of %u tokens", at, seq->question->prompt_len);
            return;
        }
        const struct message_score *is = &result->scores[i], *must = &seq->question->scores[at];
        if (is->logprob != must->logprob || is->top_token != must->top_token ||
            is->top_logprob != must->top_logprob)
            WRONG("score %u is %g, must be %g", at, (double)is->logprob, (double)must->logprob);
    }
}

static void check_rows(const struct order *order, struct scene *scene, uint32_t hidden,
                       const struct order_seq *seq, const struct message_result *result)
{
    const struct question *question = seq->question;
    uint32_t rows = order->pooling == POOLING_ALL ? question->prompt_len : 1;
    if (result->width != hidden || result->first != seq->got || seq->got + result->count > rows) {
        WRONG("rows %u and %u more of %u, width %u", result->first, result->count, rows,
              result->width);
        return;
    }
    for (uint32_t r = 0; r < result->count; r++) {
        const float *must = order->pooling == POOLING_ALL ? question->all + (seq->got + r) * hidden
                            : order->pooling == POOLING_MEAN ? question->mean
                                                             : question->last;
        float squares = 0;
        for (uint32_t e = 0; e < hidden; e++)
            squares += must[e] * must[e];
        float scale = order->normalize && squares > 0 ? 1 / sqrtf(squares) : 1;
        for (uint32_t e = 0; e < hidden; e++) {
            float is = result->rows[r * hidden + e];
            if (!(fabsf(is - must[e] * scale) <= EMBED_ERROR))
                WRONG("element %u of row %u is %g, must be %g", e, seq->got + r, (double)is,
                      (double)(must[e] * scale));
        }
    }
}

static void take_result(struct order *order, struct scene *scene, uint32_t hidden,
                        const struct frame *frame)
{
    struct message_result result;
    struct error error;
    if (message_decode_result(frame, &result, &error)) {
        WRONG("%s", error.text);
        return;
    }
    struct order_seq *seq = speaker(order, scene, result.sequence);
    if (!seq)
        return;
    if ((result.kind == RESULT_SCORE) != (order->job == JOB_SCORE) || order->job == JOB_GENERATE)
        WRONG("a result of kind %u for the job %s", result.kind, job_name(order->job));
    else if (order->job == JOB_SCORE)
        check_scores(scene, seq, &result);
    else
        check_rows(order, scene, hidden, seq, &result);
    seq->got += result.count;
}

static uint32_t whole(const struct order *order, const struct order_seq *seq)
{
    return order->job == JOB_SCORE         ? seq->question->prompt_len - 1
           : order->pooling == POOLING_ALL ? seq->question->prompt_len
                                           : 1;
}

static void check_complete(const struct order *order, struct scene *scene,
                           const struct order_seq *seq, enum finish finish,
                           const struct order_mood *mood)
{
    const struct question *question = seq->question;
    if (order->job != JOB_GENERATE) {
        if (finish != FINISH_STOP || seq->got != whole(order, seq))
            WRONG("%s ended as %s with %u of %u values", job_name(order->job), finish_name(finish),
                  seq->got, whole(order, seq));
        return;
    }
    uint32_t max = max_of(seq, mood);
    bool stops = question->stops && question->count <= max;
    uint32_t must = stops ? question->count : max;
    if (seq->got != must || finish != (stops ? FINISH_STOP : FINISH_LENGTH))
        WRONG("ended as %s with %u tokens, must be %s with %u", finish_name(finish), seq->got,
              stops ? "stop" : "length", must);
}

static void take_done(struct order *order, struct scene *scene, const struct frame *frame,
                      const struct order_mood *mood)
{
    struct message_done done;
    struct error error;
    if (message_decode_done(frame, &done, &error)) {
        WRONG("%s", error.text);
        return;
    }
    struct order_seq *seq = speaker(order, scene, done.sequence);
    if (!seq)
        return;
    seq->ended = true;
    if (done.prompt_tokens != seq->question->prompt_len ||
        done.completion_tokens != (order->job == JOB_GENERATE ? seq->got : 0))
        WRONG("usage of %u and %u tokens, must be %u and %u", done.prompt_tokens,
              done.completion_tokens, seq->question->prompt_len, seq->got);
    bool finds =
        order->job == JOB_GENERATE || (order->job == JOB_EMBED && order->pooling == POOLING_LAST);
    if (done.cached_tokens >= done.prompt_tokens ||
        (done.cached_tokens > 0 && (order->no_cache || !finds)))
        WRONG("%u of %u tokens were cached", done.cached_tokens, done.prompt_tokens);
    if (done.total_us < done.first_token_us || done.total_us > scene->now_us - order->sent_us)
        WRONG("%" PRIu64 " us in all, %" PRIu64 " to the first token", done.total_us,
              done.first_token_us);
    switch (done.finish) {
    case FINISH_CANCELLED:
        if (!order->cancelled && !mood->ending)
            WRONG("cancelled, and nobody asked for it");
        break;
    case FINISH_DEADLINE:
        if (!order->deadline_ms || scene->now_us < order->sent_us + order->deadline_ms * 1000)
            WRONG("ended for a deadline of %" PRIu64 " ms before it", order->deadline_ms);
        break;
    case FINISH_ERROR:
        WRONG("DONE tells of an error");
        break;
    case FINISH_STOP:
    case FINISH_LENGTH:
        check_complete(order, scene, seq, done.finish, mood);
    }
}

/* Bytes of results of its largest sequence; those of the daemon's own are a little less. */
static uint64_t largest_result(const struct order *order, const struct order_mood *mood)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < order->seq_count; i++) {
        const struct order_seq *seq = &order->seqs[i];
        uint64_t tops = order->logprobs > 0 ? (uint64_t)order->logprobs : 0;
        uint64_t bytes = order->job == JOB_GENERATE
                             ? max_of(seq, mood) * (8 + 8 * tops)
                             : seq->question->prompt_len *
                                   (order->job == JOB_SCORE ? 16ull : 4ull * mood->hidden);
        most = bytes > most ? bytes : most;
    }
    return most + 1024;
}

/* Refusals that are right for what was asked. */
static bool may_refuse(const struct order *order, const struct error *error,
                       const struct order_mood *mood, time_us now_us)
{
    bool late = now_us >= order->sent_us + order->deadline_ms * 1000;
    switch (error->code) {
    case ERR_BUSY:
        return error->retry_after_ms > 0 && error->limit > 0;
    case ERR_DRAINING:
        return true;
    case ERR_CANCELLED: /* before it was accepted */
        return order->cancelled;
    case ERR_DEADLINE:
        return order->deadline_ms && late;
    case ERR_NO_MEMORY: /* no thread */
        return order->texts || order->chats || constrained(order);
    case ERR_DENIED:
        return order->priority > order->priority_max;
    case ERR_TOO_LARGE:
        if (error->limit == mood->results_max / 4)
            return largest_result(order, mood) > mood->results_max / 4;
        for (uint32_t i = 0; i < order->seq_count; i++) {
            const struct order_seq *seq = &order->seqs[i];
            uint32_t out = order->job == JOB_GENERATE ? max_of(seq, mood) : 0;
            if (seq->question->prompt_len + out > mood->room)
                return true;
        }
        return order->seq_count > mood->sequences_max / 2 || order->tokens > mood->tokens_max / 2 ||
               order->seq_count > mood->batch_max;
    default:
        return mood->device_failed && error_retry(error->code) == RETRY_LATER;
    }
}

static void take_error(struct order *order, struct scene *scene, const struct frame *frame,
                       const struct order_mood *mood)
{
    struct message_error message;
    struct error error;
    if (message_decode_error(frame, &message, &error)) {
        WRONG("%s", error.text);
        return;
    }
    const struct error *told = &message.error;
    if (message.sequence == MESSAGE_NO_SEQUENCE) {
        if (order->request || !(frame->flags & FRAME_FLAG_LAST) ||
            !may_refuse(order, told, mood, scene->now_us))
            WRONG("refused: %s: %s", error_name(told->code), told->text);
        order->refused = (uint32_t)told->code;
        order->retry_ms = told->retry_after_ms;
        return;
    }
    struct order_seq *seq = speaker(order, scene, message.sequence);
    if (!seq)
        return;
    seq->ended = true;
    order->failed++;
    bool allowed = (mood->device_failed && error_retry(told->code) == RETRY_LATER) ||
                   (mood->short_of_memory && told->code == ERR_DEVICE_MEMORY) ||
                   (told->code < 64 && mood->refusals >> told->code & 1);
    if (!allowed)
        WRONG("sequence %u failed: %s: %s", message.sequence, error_name(told->code), told->text);
}

static void take_accept(struct order *order, struct scene *scene, const struct frame *frame)
{
    struct error error;
    if (order->priority > order->priority_max)
        WRONG("accepted at priority %d, at most %d are allowed", order->priority,
              order->priority_max);
    else if (order->request)
        WRONG("accepted twice");
    else if (message_decode_accept(frame, &order->request, &error))
        WRONG("%s", error.text);
}

void order_take(struct order *order, struct scene *scene, const struct questions *questions,
                const struct frame *frame, const struct order_mood *mood)
{
    if (order->over)
        WRONG("a frame of type %u after the last", frame->type);
    switch (frame->type) {
    case FRAME_ACCEPT:
        take_accept(order, scene, frame);
        break;
    case FRAME_TOKENS:
        take_tokens(order, scene, frame);
        break;
    case FRAME_RESULT:
        take_result(order, scene, questions->hidden, frame);
        break;
    case FRAME_DONE:
        take_done(order, scene, frame, mood);
        break;
    case FRAME_ERROR:
        take_error(order, scene, frame, mood);
        break;
    default:
        WRONG("a frame of type %u", frame->type);
    }
    bool all = true;
    for (uint32_t i = 0; i < order->seq_count; i++)
        all = all && order->seqs[i].ended;
    order->over = frame->flags & FRAME_FLAG_LAST;
    if (!scene->failed && order->over != (all || order->refused))
        WRONG("LAST is %s, and %s have ended", order->over ? "there" : "missing",
              all ? "all" : "not all");
}
