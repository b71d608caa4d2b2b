/* The texts of a query on their way to tokens. */
#include "daemon/http/exchange.h"
#include "daemon/request/constraint_cache.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/server.h"

static const char *prompts_field(const struct query *query)
{
    return query->kind == QUERY_RERANK  ? "documents"
           : query->kind == QUERY_SCORE ? "text_2"
                                        : "prompt";
}

static void encoded(struct encoder *encoding, time_us now_us)
{
    struct exchange *exchange = container_of(encoding, struct exchange, encoding);
    bool before = exchange->encoding_on;
    exchange->encoding_on = false;
    if (exchange->closed) {
        exchange_close(exchange, now_us);
        return;
    }
    if (exchange_ready(exchange))
        return; /* it was answered before this was done */
    bool chat = exchange->query.rendered != NULL;
    query_encoded(&exchange->query);
    if (encoding->refused)
        exchange_refuse(exchange, &encoding->error, exchange->query.constraint_field);
    else if (encoding->error.code)
        exchange_refuse(exchange, &encoding->error,
                        chat ? "messages" : prompts_field(&exchange->query));
    else
        exchange->encoded(exchange, now_us);
    if (before)
        exchange->http->wake(exchange->http, exchange);
}

static void ended(struct encoder *encoding, const struct error *error, time_us now_us)
{
    (void)now_us;
    exchange_end(container_of(encoding, struct exchange, encoding), error);
}

/* What is a conversation still found no template. */
static bool has_texts(const struct query *query)
{
    return query->chat.messages || query->prompts[0].text;
}

/* A query and its document become what the model is asked. Any thread. */
static int ask_of_pair(struct encoder *encoding, uint32_t index, struct error *error)
{
    const struct query *query = &container_of(encoding, struct exchange, encoding)->query;
    const struct query_pairs *pairs = &query->pairs;
    struct encoder_text *text = &encoding->texts[index];
    const struct pair pair = {.instruction = pairs->instruction,
                              .query = pairs->queries[pairs->query_count > 1 ? index : 0].text,
                              .document = query->prompts[index].text};
    int rc = pair_form_render(encoding->model->text, &pair, &encoding->errand.task.halt,
                              &text->made, &text->length, error);
    text->text = text->made;
    return rc;
}

static void take_pairs(struct encoder *encoding, const struct query *query)
{
    const struct query_pairs *pairs = &query->pairs;
    encoding->prepare = ask_of_pair;
    for (uint32_t i = 0; i < query->prompt_count; i++)
        encoding->bytes +=
            query->prompts[i].length + pairs->queries[pairs->query_count > 1 ? i : 0].length;
}

/* Without a template: each pair is the one text and then the other. */
static void take_both(struct encoder *encoding, const struct query *query)
{
    const struct query_pairs *pairs = &query->pairs;
    for (uint32_t i = 0; i < encoding->text_count; i++) {
        const struct query_prompt *first = &pairs->queries[pairs->query_count > 1 ? i : 0];
        encoding->texts[i] = (struct encoder_text){.text = first->text,
                                                   .length = first->length,
                                                   .second = query->prompts[i].text,
                                                   .second_length = query->prompts[i].length,
                                                   .add_special = true};
    }
}

static int start(struct exchange *exchange, time_us now_us, struct error *error)
{
    struct server *server = exchange->http->server;
    struct encoder *encoding = &exchange->encoding;
    const struct query *query = &exchange->query;
    int rc = query->chat.messages ? model_text_chats(exchange->model->text, error) : 0;
    bool admits = !query_looks_up(query->kind);
    uint64_t sequences = admits ? query_results(query) : 1;
    if (!rc && admits)
        rc = request_builder_room(server, exchange->sink.user, sequences, error);
    if (!rc)
        rc = encoder_make(encoding, server, exchange->model,
                          has_texts(query) ? query->prompt_count : 0, error);
    if (rc)
        return rc;
    encoding->constraint = query->constraint;
    encoding->salt = constraint_salt(query->params.cache_salt);
    encoding->end = ended;
    encoding->sequences = (uint32_t)sequences;
    encoding->errand.admits = admits;
    encoding->deadline_us = request_deadline(&query->params, exchange->arrived_us);
    bool pairs = query_pairs(query->kind);
    if (pairs && pair_form_asks(exchange->model->text))
        take_pairs(encoding, query);
    else if (pairs)
        take_both(encoding, query);
    for (uint32_t i = 0; !pairs && i < encoding->text_count; i++) {
        encoding->texts[i].text = query->prompts[i].text;
        encoding->texts[i].length = query->prompts[i].length;
        encoding->texts[i].add_special = query->add_special;
    }
    exchange->encoding_on = true;
    rc = encoder_start(encoding, &exchange->sink, encoded, now_us, error);
    if (rc)
        exchange->encoding_on = false;
    return rc;
}

void encode_begin(struct exchange *exchange,
                  void (*done)(struct exchange *exchange, time_us now_us), time_us now_us)
{
    struct error error;
    const struct query *query = &exchange->query;
    exchange->encoded = done;
    if (!has_texts(query) && query->constraint.kind == MESSAGE_CONSTRAINT_NONE)
        done(exchange, now_us);
    else if (start(exchange, now_us, &error))
        exchange_refuse(exchange, &error, "");
}
