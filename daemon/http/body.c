/* The body of a request: from its bytes to a query, on another thread where it is long or may be a
 * conversation. What is read of it may take 40 times its bytes, which are what counts while it
 * waits: so it waits as bytes, and what was read is made small before the thread lets go of it. */
#include <stdio.h>
#include <string.h>

#include "daemon/http/exchange.h"
#include "daemon/http/tensors.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/server.h"

#define BODY_FREE ((size_t)4096)      /* counts against nothing */
#define INLINE_MAX ((size_t)32 << 10) /* read where it came: some 100 us */
#define LARGE ((size_t)1 << 20)       /* what is read of it leaves holes in the heap */

void body_drop(struct exchange *exchange)
{
    struct server *server = exchange->http->server;
    if (exchange->body_counted > 0) {
        server->load.input -= exchange->body_counted;
        exchange->sink.user->load.input -= exchange->body_counted;
        exchange->body_counted = 0;
        server->conns.input_freed = true;
    }
    buffer_free(&exchange->body);
}

/* ---- in ----------------------------------------------------------------------------------------
 */

/* False when there is no room now. */
static bool count(struct exchange *exchange, size_t length)
{
    struct server *server = exchange->http->server;
    struct user *user = exchange->sink.user;
    uint64_t max = server->options->input_max;
    size_t counted = length > BODY_FREE ? length : 0, more = counted - exchange->body_counted;
    if (counted <= exchange->body_counted)
        return true;
    if (server->load.input + more > max || user->load.input + more > max / 2)
        return false;
    server->load.input += more;
    user->load.input += more;
    exchange->body_counted = counted;
    return true;
}

void exchange_body(struct exchange *exchange, const char *bytes, size_t length)
{
    struct error error;
    size_t max = exchange->http->server->options->frame_max;
    exchange->http->server->counts.bytes_in_total += length;
    if (exchange_ready(exchange) || exchange->body_over)
        return;
    if (!exchange->route->tensors)
        hint_read(&exchange->body_deadline, bytes, length);
    if (exchange->body.length + length > max) {
        exchange->body_over = true;
        error_limit(&error, ERR_TOO_LARGE, max, exchange->body.length + length,
                    "the body has more than %zu bytes (frame-max)", max);
        exchange_refuse_as(exchange, 413, &error, "");
    } else if (!count(exchange, exchange->body.length + length)) {
        exchange->body_over = true;
        error_set(&error, ERR_BUSY, "half received messages take all there is (input-max)");
        error.retry_after_ms = server_retry_ms(exchange->http->server);
        exchange_refuse(exchange, &error, "");
    } else if (!buffer_append(&exchange->body, bytes, length, max)) {
        exchange->body_over = true;
        error_set(&error, ERR_NO_MEMORY, "no memory for a body of %zu bytes", length);
        exchange_refuse(exchange, &error, "");
    }
    if (exchange->body_over)
        body_drop(exchange);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

/* What the rest of it is read by. Adapters are the first model's, and what names nothing is refused
 * later (name_model). Any thread. */
static int choose_model(void *context, const char *name, struct message_limits *limits,
                        struct sampling *defaults, struct error *error)
{
    struct body_reading *reading = context;
    struct exchange *exchange = container_of(reading, struct exchange, reading);
    struct served_model *model = server_find_model(exchange->http->server, name);
    (void)error;
    if (!model)
        return 0;
    reading->model = model;
    limits->vocabulary = model->info.vocab;
    *defaults = request_builder_defaults(model);
    return 0;
}

static void read_query(struct body_reading *reading)
{
    struct exchange *exchange = container_of(reading, struct exchange, reading);
    const struct buffer *body = &exchange->body;
    struct query *query = &exchange->query;
    if (exchange->route->tensors) {
        reading->failed = tensors_read(exchange, reading->bytes_max, &reading->error) != 0;
        return;
    }
    int rc = query_read(query, exchange->route->kind, body->length > 0 ? body->data : "",
                        body->length, &reading->limits, &reading->defaults, &reading->error);
    if (!rc && query->chat.messages && model_text_chats(reading->model->text, NULL) == 0)
        rc = query_render(query, reading->model->text, &reading->errand.task.halt, &reading->error);
    reading->failed = rc != 0;
}

/* Any thread: the loop looks at nothing of this meanwhile. */
static void work(struct errand *errand)
{
    read_query(container_of(errand, struct body_reading, errand));
}

/* What is told again waits as long as the answer. */
static void go_on(struct exchange *exchange, time_us now_us)
{
    if (exchange->query.told)
        exchange_keep(exchange, strlen(exchange->query.told));
    exchange->route->begin(exchange, now_us);
}

/* An adapter's name is kept for as long as answers tell it. */
static bool name_model(struct exchange *exchange, struct error *error)
{
    struct query *query = &exchange->query;
    uint32_t adapter = 0;
    if (query->model && lookup_model(exchange, query->model, &exchange->model, &adapter, error))
        return false;
    if (adapter) {
        snprintf(exchange->adapter, sizeof(exchange->adapter), "%s", query->model);
        query->params.adapter = exchange->adapter;
    }
    return true;
}

static void begin(struct exchange *exchange, time_us now_us)
{
    struct body_reading *reading = &exchange->reading;
    struct query *query = &exchange->query;
    bool met_limit = reading->failed && reading->error.code == ERR_TOO_LARGE;
    exchange->large |= exchange->body.length >= LARGE || met_limit;
    body_drop(exchange);
    if (!name_model(exchange, &reading->error)) {
        strcpy(query->param, "model");
        reading->failed = true;
    }
    if (reading->failed)
        exchange_refuse(exchange, &reading->error, query->param);
    else
        go_on(exchange, now_us);
}

static struct exchange *exchange_of(struct errand *errand)
{
    return container_of(container_of(errand, struct body_reading, errand), struct exchange,
                        reading);
}

static void end(struct errand *errand, const struct error *error, time_us now_us)
{
    (void)now_us;
    exchange_end(exchange_of(errand), error);
}

static void over(struct errand *errand, time_us now_us)
{
    struct exchange *exchange = exchange_of(errand);
    struct server *server = exchange->http->server;
    request_builder_unhold(server, exchange->sink.user, 1);
    exchange->elsewhere = false;
    if (exchange->closed) {
        exchange_close(exchange, now_us);
    } else if (exchange_ready(exchange)) {
        body_drop(exchange); /* what came of it is too late */
    } else {
        begin(exchange, now_us);
        exchange->http->wake(exchange->http, exchange);
    }
}

static const struct errand_api api = {.work = work, .end = end, .over = over};

/* Waits for a thread that reads it. */
static int leave(struct exchange *exchange, time_us now_us, struct error *error)
{
    struct server *server = exchange->http->server;
    struct user *user = exchange->sink.user;
    struct errand *errand = &exchange->reading.errand;
    enum query_kind kind = exchange->route->kind;
    uint64_t ms = exchange->body_deadline.ms;
    errand->admits = !query_looks_up(kind);
    int rc = errand->admits ? request_builder_phase(server, error) : 0;
    /* How many results it asks for is not known yet. */
    if (!rc)
        rc = request_builder_room(server, user, 1, error);
    if (rc)
        return rc;
    request_builder_hold(server, user, 1);
    exchange->elsewhere = true;
    rc = errand_start(errand, &api, server, &exchange->sink, exchange->body.length,
                      ms ? exchange->arrived_us + ms * 1000 : 0, now_us, error);
    if (rc) {
        request_builder_unhold(server, user, 1);
        exchange->elsewhere = false;
    }
    return rc;
}

void exchange_begin(struct exchange *exchange, time_us now_us)
{
    struct server *server = exchange->http->server;
    struct body_reading *reading = &exchange->reading;
    struct error error;
    if (exchange_ready(exchange))
        return;
    exchange->arrived_us = now_us;
    if (!exchange->route->body) {
        exchange->route->begin(exchange, now_us);
        return;
    }
    struct served_model *first = &server->models[0];
    *reading = (struct body_reading){.limits = request_builder_limits(server, first),
                                     .defaults = request_builder_defaults(first),
                                     .model = first,
                                     .bytes_max = server->options->frame_max};
    reading->limits.choose = choose_model;
    reading->limits.context = reading;
    enum query_kind kind = exchange->route->kind;
    bool chat = query_talks(kind) || kind == QUERY_TOKENIZE;
    bool small = exchange->body.length <= INLINE_MAX && exchange->coding == CODING_NONE;
    if (!server->background || (!chat && small)) {
        read_query(reading);
        begin(exchange, now_us);
    } else if (leave(exchange, now_us, &error)) {
        body_drop(exchange);
        exchange_refuse(exchange, &error, "");
    }
}
