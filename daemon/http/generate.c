/* Completions, chats, embeddings and scores: from a query to a request of the daemon, and from its
 * results to the answer. */
#include <stdlib.h>
#include <string.h>

#include "daemon/http/answer.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "daemon/request/text_stream.h"

/* Bytes of a stream that wait for their reader, from which on nothing is formatted. */
#define OUT_HIGH ((size_t)64 << 10)
#define PIECE_TOKENS_MAX 256u
/* Bytes that one of the likeliest at a prompt's token takes in an answer, about. */
#define SCORE_TEXT 80u
/* Bytes that an element of an embedding takes in an answer, at most. */
#define ELEMENT_TEXT 16u
#define ELEMENT_BASE64 6u

/* ---- the request -------------------------------------------------------------------------------
 */

/* Whether a head of classes answers: of the prompt's last row. */
static bool by_head(const struct exchange *exchange)
{
    enum query_kind kind = exchange->query.kind;
    return kind == QUERY_CLASSIFY ||
           (query_pairs(kind) && exchange->model->text->head.labels > 0);
}

/* What a prompt is scored with, where not it is, but what the model would say behind it. */
static struct message_prompt pairing(const struct exchange *exchange)
{
    const struct pair_form *form = &exchange->model->text->pairs;
    struct message_prompt prompt = {.sampling = exchange->query.common.sampling,
                                    .next_count = PAIR_TOKENS};
    memcpy(prompt.next, form->tokens, sizeof(form->tokens));
    return prompt;
}

/* What a prompt is scored with: nothing is drawn. */
static struct message_prompt scoring(const struct query *query)
{
    struct message_prompt prompt = {.sampling = query->common.sampling};
    prompt.sampling.n = 1;
    prompt.sampling.logprobs = query_score_tops(query);
    return prompt;
}

static int add_prompts(struct exchange *exchange, struct request_builder *builder,
                       struct error *error)
{
    const struct query *query = &exchange->query;
    const struct encoder *encoding = &exchange->encoding;
    uint32_t count = encoding->texts ? encoding->text_count : query->prompt_count;
    bool pairs = query_pairs(query->kind), asks = pairs && !by_head(exchange);
    bool score = builder->request->params.job == JOB_SCORE && !pairs;
    for (uint32_t i = 0; i < count; i++) {
        struct message_prompt prompt = score  ? scoring(query)
                                       : asks ? pairing(exchange)
                                              : query->common;
        bool text = encoding->texts != NULL;
        const int32_t *tokens = text ? encoding->texts[i].ids : query->prompts[i].tokens;
        uint32_t length = text ? encoding->texts[i].count : query->prompts[i].count;
        int rc = request_builder_prompt(builder, &prompt, tokens, length, error);
        if (!rc && query->prompt_only) /* where the echoed prompt is put together */
            rc = text_stream_make(&builder->request->seqs[i], 1, &prompt, true,
                                  exchange->model->text->tokenizer, &exchange->model->info, error);
        if (rc)
            return rc;
        /* What will be told of it is much more than what it is: it must be within bounds, too. */
        if (score)
            builder->request->answer_bytes +=
                (uint64_t)length * (uint32_t)(query_score_tops(query) + 1) * SCORE_TEXT;
        if (pairs && !query->pairs.no_documents)
            builder->request->answer_bytes += query->prompts[i].length;
        exchange->prompt_tokens += score && !query->prompt_only ? 0 : length;
    }
    return 0;
}

static int make_request(struct exchange *exchange, struct request_builder *builder, enum job job,
                        struct error *error)
{
    struct server *server = exchange->http->server;
    struct query *query = &exchange->query;
    uint64_t results = job == JOB_SCORE ? query->prompt_count : query_results(query);
    struct request_params params = query->params;
    params.job = job;
    params.normalize = query->kind == QUERY_EMBEDDING;
    params.want_text = job == JOB_GENERATE;
    int rc = request_builder_phase(server, error);
    if (!rc)
        rc = request_builder_open(builder, server, exchange->model, &exchange->sink,
                                  results > 0 ? results : 1, &params, exchange->arrived_us, error);
    if (rc)
        return rc;
    struct request *request = builder->request;
    request->together = !params.stream || job == JOB_SCORE;
    uint64_t row = by_head(exchange) ? exchange->model->text->head.labels : exchange->model->info.hidden;
    if (job == JOB_EMBED)
        request->answer_bytes = results * row * (query->base64 ? ELEMENT_BASE64 : ELEMENT_TEXT);
    if (query->kind == QUERY_COMPLETION && !query->max_given &&
        exchange->model->info.max_tokens == 0)
        query->common.sampling.max_tokens = QUERY_COMPLETION_TOKENS;
    if (job == JOB_GENERATE)
        request_builder_constrain(builder, exchange->encoding.held);
    rc = add_prompts(exchange, builder, error);
    return rc ? rc : request_builder_admit(builder, &exchange->sink, error);
}

/* What is not generated has no choices. */
static int make_choices(struct exchange *exchange, struct request *request, struct error *error)
{
    if (request->params.job != JOB_GENERATE)
        return 0;
    exchange->choices = calloc(request->seq_count, sizeof(*exchange->choices));
    if (!exchange->choices)
        return error_set(error, ERR_NO_MEMORY, "no memory for an answer");
    exchange->choice_count = request->seq_count;
    for (uint32_t i = 0; answer_reads(exchange) && i < request->seq_count; i++) {
        answer_reader_make(exchange, &exchange->choices[i]);
        request->seqs[i].text_stream->shown = &exchange->model->text->answer;
    }
    return 0;
}

/* All prompts are tokens now. */
static void submit(struct exchange *exchange, time_us now_us)
{
    struct request_builder builder = {.server = exchange->http->server};
    struct error error;
    const struct query *query = &exchange->query;
    bool score = query->prompt_only || (query_scores(query) && !exchange->scores);
    (void)now_us;
    bool row = query->kind == QUERY_EMBEDDING || by_head(exchange);
    int rc = make_request(exchange, &builder,
                          row                                 ? JOB_EMBED
                          : score || query_pairs(query->kind) ? JOB_SCORE
                                                              : JOB_GENERATE,
                          &error);
    if (!rc && !score) {
        rc = make_choices(exchange, builder.request, &error);
    }
    if (!score || rc)
        encoder_free(&exchange->encoding);
    if (rc) {
        request_builder_drop(&builder);
        exchange_refuse(exchange, &error, "");
        return;
    }
    request_builder_name(&builder, 1, exchange->sink.user);
    exchange->request = builder.request;
    exchange->unended = builder.request->seq_count;
    if (exchange->query.params.stream) {
        exchange->streaming = true;
        exchange_status(exchange, 200, "text/event-stream");
    }
    request_builder_enter(&builder, &exchange->sink);
}

void generate_begin(struct exchange *exchange, time_us now_us)
{
    struct server *server = exchange->http->server;
    struct error error;
    int rc = request_builder_phase(server, &error);
    const struct query *query = &exchange->query;
    const char *param = "";
    bool numbers = query->kind == QUERY_EMBEDDING || query->kind == QUERY_CLASSIFY;
    if (!rc && !numbers)
        rc = model_text_texts(exchange->model->text, &error); /* answers are texts */
    if (!rc && !numbers && !query_pairs(query->kind))
        rc = model_text_generates(exchange->model->text, &error);
    uint32_t width = exchange->model->info.hidden;
    if (!rc && query->dimensions > 0 && query->dimensions != width &&
        (query->dimensions > width || !model_text_cuts(exchange->model->text, query->dimensions))) {
        param = "dimensions";
        rc = error_set(&error, ERR_UNSUPPORTED,
                       "dimensions must be %u, the model's width, or one that its config.json says "
                       "rows may be cut to",
                       width);
    }
    if (rc)
        exchange_refuse(exchange, &error, param);
    else
        encode_begin(exchange, submit, now_us);
}

/* ---- whole answers -----------------------------------------------------------------------------
 */

void generate_release(struct exchange *exchange)
{
    struct request *request = exchange->request;
    uint32_t count = request->seq_count;
    struct seq *seqs = request->seqs;
    exchange->request = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (list_linked(&seqs[i].wait_link))
            list_remove(&seqs[i].wait_link);
        request_table_release(exchange->http->server, &seqs[i]); /* the last one frees the array */
    }
}

static const struct error *failure_of(const struct request *request)
{
    for (uint32_t i = 0; i < request->seq_count; i++)
        if (request->seqs[i].finish == FINISH_ERROR)
            return request->seqs[i].failure;
    return NULL;
}

/* An embedding that did not come about has no row, and a prompt no scores. */
static const char *loss_of(const struct exchange *exchange)
{
    const struct request *request = exchange->request;
    for (uint32_t i = 0; request->params.job != JOB_GENERATE && i < request->seq_count; i++)
        if (request->seqs[i].finish != FINISH_STOP)
            return finish_name(request->seqs[i].finish);
    return NULL;
}

/* What is told of a sequence when it has ended; of a prompt, its results count what was cached
 * once.
 */
static void count_end(struct exchange *exchange, const struct seq *seq)
{
    exchange->cached_tokens += seq->result == 0 ? seq->cached : 0;
    exchange->drafted_tokens += seq->drafted;
    exchange->accepted_tokens += seq->accepted;
}

static void answer(struct exchange *exchange)
{
    struct request *request = exchange->request;
    bool texts = request->params.job == JOB_GENERATE || exchange->query.prompt_only;
    struct error error;
    for (uint32_t i = 0; i < request->seq_count; i++)
        count_end(exchange, &request->seqs[i]);
    for (uint32_t i = 0; texts && i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        if (!exchange->query.prompt_only) {
            text_stream_finish(seq);
            exchange->completion_tokens += seq_out_count(seq);
        }
        if (exchange->query.echo)
            echo_before(exchange, seq);
        if (answer_reads(exchange))
            answer_gather(exchange, seq);
        exchange->out.failed |= seq->text_stream->failed;
    }
    exchange_status(exchange, 200, "application/json");
    out_json(&exchange->out, exchange->route->api->whole, exchange);
    exchange_finish(exchange);
    exchange_keep(exchange, exchange->out.buffer.room);
    if (exchange->status == 200)
        return;
    error_set(&error, ERR_NO_MEMORY, "no memory for an answer");
    exchange_refuse(exchange, &error, "");
}

/* The prompts are scored: now for what follows them, if anything. */
static void go_on(struct exchange *exchange, time_us now_us)
{
    struct error error;
    bool only = exchange->query.prompt_only;
    int rc = only && !query_scores(&exchange->query) ? 0 : echo_keep_scores(exchange, &error);
    if (!rc && only)
        answer(exchange);
    generate_release(exchange);
    if (only && !rc)
        return;
    if (rc)
        exchange_refuse(exchange, &error, "");
    else
        submit(exchange, now_us);
}

int generate_lost(const struct exchange *exchange, struct error *error)
{
    const struct error *failure = failure_of(exchange->request);
    const char *loss = loss_of(exchange);
    if (failure) {
        *error = *failure;
        return -failure->code;
    }
    return loss ? error_set(error, strcmp(loss, "deadline") == 0 ? ERR_DEADLINE : ERR_DRAINING,
                            "the request ended early: %s", loss)
                : 0;
}

static void tell_whole(struct exchange *exchange, time_us now_us)
{
    struct error error;
    if (generate_lost(exchange, &error)) {
        exchange_refuse(exchange, &error, "");
    } else if (exchange->request->params.job == JOB_SCORE && !query_pairs(exchange->query.kind)) {
        go_on(exchange, now_us);
        return;
    } else {
        answer(exchange);
    }
    generate_release(exchange);
}

/* ---- streams -----------------------------------------------------------------------------------
 */

static void end_stream(struct exchange *exchange)
{
    exchange->route->api->end(exchange);
    exchange_finish(exchange);
}

/* One failed: the others' results are of no use to a client that was told so. */
static void break_stream(struct exchange *exchange, const struct seq *seq, time_us now_us)
{
    struct error error = *seq->failure;
    struct request *request = exchange->request;
    exchange->request = NULL;
    exchange_refuse(exchange, &error, "");
    list_remove(&request->sink_link);
    request_table_orphan(exchange->http->server, request, now_us);
}

static void finish_choice(struct exchange *exchange, struct seq *seq)
{
    if (--exchange->unended == 0)
        exchange->request = NULL;
    request_table_release(exchange->http->server, seq);
    if (exchange->unended == 0)
        end_stream(exchange);
}

/* The next piece of the first sequence with news. */
static void tell_piece(struct exchange *exchange, struct seq *seq, time_us now_us)
{
    struct choice *choice = &exchange->choices[seq->number];
    struct buffer *text = &seq->text_stream->text;
    bool ended = seq->state == SEQ_ENDED;
    if (ended && seq->finish == FINISH_ERROR) {
        break_stream(exchange, seq, now_us);
        return;
    }
    if (!choice->begun && exchange->query.echo)
        echo_text(exchange, seq, text);
    uint32_t count = seq_out_count(seq) - seq->sent_count;
    count = count < PIECE_TOKENS_MAX ? count : PIECE_TOKENS_MAX;
    text_stream_read(seq, seq->sent_count + count);
    bool all = seq->sent_count + count == seq_out_count(seq);
    if (ended && all)
        text_stream_finish(seq);
    uint32_t shown = count;
    if (ended && all && seq->sent_count + count > answer_tokens(exchange, seq))
        shown--;
    struct piece piece = {.exchange = exchange,
                          .seq = seq,
                          .text = text->length > 0 ? text->data : "",
                          .length = text->length,
                          .first = seq->sent_count,
                          .count = shown,
                          .ids = count,
                          .text_offset = choice->text_offset,
                          .begin = !choice->begun,
                          .end = ended && all};
    exchange->completion_tokens += count;
    if (piece.end)
        count_end(exchange, seq);
    bool logprobs = seq->out_logprobs && count > 0;
    bool counted = count > 0 && (exchange->query.continuous_usage || exchange->query.token_ids);
    if (piece.length > 0 || piece.end || logprobs || counted || piece.begin)
        exchange->route->api->piece(exchange, &piece);
    if (logprobs)
        choice->text_offset += answer_characters(exchange, seq, piece.first, piece.count);
    choice->begun = true;
    seq->sent_count += count;
    if (text->length > 0)
        text_stream_told(seq->text_stream, text->length);
    if (all)
        list_remove(&seq->wait_link);
    if (piece.end)
        finish_choice(exchange, seq);
}

void generate_news(struct exchange *exchange, time_us now_us)
{
    if (!exchange->request)
        return;
    if (!exchange->streaming) {
        if (exchange->request->seq_unended == 0)
            tell_whole(exchange, now_us);
        return;
    }
    while (exchange->request && !list_empty(&exchange->ready) &&
           out_left(&exchange->out) < OUT_HIGH)
        tell_piece(exchange, container_of(exchange->ready.next, struct seq, wait_link), now_us);
}
