#include "daemon/http/exchange.h"

#include <assert.h>
#include <ctype.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/http/tensors.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"

#define CROWD 64u /* exchanges at a time */

/* ---- http --------------------------------------------------------------------------------------
 */

void http_init(struct http *http, struct server *server, const struct routes *routes, uint64_t salt,
               void (*wake)(struct http *http, struct exchange *exchange))
{
    *http = (struct http){.server = server,
                          .routes = routes,
                          .salt = salt,
                          .created_s = (uint64_t)time(NULL),
                          .wake = wake};
    list_init(&http->dirty);
}

void http_free(struct http *http)
{
    assert(http->exchanges == 0);
    keys_free(&http->keys);
}

bool http_turn(struct http *http, time_us now_us)
{
    struct list *link;
    struct list round;
    bool any = false;
    list_init(&round);
    while ((link = list_take(&http->dirty)))
        list_append(&round, link);
    for (; (link = list_take(&round)); any = true) {
        struct exchange *exchange = container_of(link, struct exchange, dirty_link);
        if (exchange->route && exchange->route->api && exchange->route->api->news)
            exchange->route->api->news(exchange, now_us);
        else
            generate_news(exchange, now_us);
        http->wake(http, exchange);
    }
    return any;
}

/* ---- life --------------------------------------------------------------------------------------
 */

static void on_news(struct response_sink *sink, struct seq *seq)
{
    struct exchange *exchange = container_of(sink, struct exchange, sink);
    if (!list_linked(&seq->wait_link))
        list_append(&exchange->ready, &seq->wait_link);
    if (exchange->streaming || seq->request->seq_unended == 0)
        exchange_touch(exchange);
}

struct exchange *exchange_open(struct http *http, const struct exchange_peer *peer, time_us now_us)
{
    struct server *server = http->server;
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return NULL;
    exchange->http = http;
    exchange->model = &server->models[0];
    exchange->peer = *peer;
    exchange->arrived_us = now_us;
    exchange->created_s = (uint64_t)time(NULL);
    exchange->sink.news = on_news;
    exchange->sink.admin = peer->admin;
    exchange->sink.number = server->conns.next_number++;
    list_init(&exchange->sink.requests);
    list_init(&exchange->ready);
    snprintf(exchange->answer_id, sizeof(exchange->answer_id), "%016llx%08llx",
             (unsigned long long)http->salt, (unsigned long long)exchange->sink.number);
    http->exchanges++;
    http->trim |= http->exchanges >= CROWD;
    return exchange;
}

void exchange_keep(struct exchange *exchange, size_t bytes)
{
    request_table_keep(exchange->http->server, &exchange->sink, bytes);
    exchange->kept += bytes;
}

static void bury(struct exchange *exchange)
{
    struct http *http = exchange->http;
    body_drop(exchange);
    tensors_free(exchange->tensors);
    encoder_free(&exchange->encoding);
    query_free(&exchange->query);
    for (uint32_t i = 0; exchange->choices && i < exchange->choice_count; i++) {
        answer_reader_free(&exchange->choices[i].reader);
        answer_message_free(&exchange->choices[i].message);
        answer_items_free(&exchange->choices[i].items);
    }
    free(exchange->choices);
    free(exchange->loading);
    free(exchange->cors);
    echo_free(exchange);
    out_clear(&exchange->out);
    if (exchange->kept > 0)
        request_table_drop(http->server, &exchange->sink, exchange->kept);
    response_sink_free(&exchange->sink);
    if (exchange->sink.user)
        users_put(&http->server->users, exchange->sink.user);
    http->exchanges--;
    http->trim |= exchange->large;
    free(exchange);
    /* What crowds and large bodies leave with the allocator is of no use to anybody. */
    if (http->trim && http->exchanges == 0) {
        http->trim = false;
        malloc_trim(0);
    }
}

void exchange_close(struct exchange *exchange, time_us now_us)
{
    struct list *link;
    exchange->closed = true;
    exchange->request = NULL;
    while ((link = list_take(&exchange->sink.requests)))
        request_table_orphan(exchange->http->server, container_of(link, struct request, sink_link),
                             now_us);
    if (list_linked(&exchange->dirty_link))
        list_remove(&exchange->dirty_link);
    if (list_linked(&exchange->stats.link))
        list_remove(&exchange->stats.link);
    /* What was off the loop comes back and closes again, at once or later. */
    if (exchange->elsewhere)
        errand_drop(&exchange->reading.errand);
    else if (exchange->encoding_on)
        encoder_drop(&exchange->encoding);
    else
        bury(exchange);
}

void exchange_touch(struct exchange *exchange)
{
    if (!exchange->closed && !list_linked(&exchange->dirty_link))
        list_append(&exchange->http->dirty, &exchange->dirty_link);
}

/* ---- in ----------------------------------------------------------------------------------------
 */

/* What a client may call its request: printable, and not long. */
static bool is_name(const char *text)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if (!isgraph((unsigned char)text[i]))
            return false;
    return length > 0 && length <= EXCHANGE_ID_MAX;
}

static int find_user(struct exchange *exchange, struct error *error)
{
    struct server *server = exchange->http->server;
    exchange->sink.user = users_get(&server->users, exchange->peer.user, exchange->peer.key);
    if (exchange->sink.user && exchange->peer.key_user)
        exchange->sink.user->grant_id = exchange->peer.key_user;
    return exchange->sink.user ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for a user");
}

bool exchange_head(struct exchange *exchange, const struct exchange_head *head)
{
    struct error error;
    bool named = head->request_id && is_name(head->request_id);
    snprintf(exchange->request_id, sizeof(exchange->request_id), "%s",
             named ? head->request_id : exchange->answer_id);
    route_find(exchange, head);
    if (!exchange_ready(exchange) && find_user(exchange, &error))
        exchange_refuse(exchange, &error, "");
    exchange->peer.key = NULL; /* keys may be read again */
    return !exchange_ready(exchange);
}

/* ---- out ---------------------------------------------------------------------------------------
 */

void exchange_status(struct exchange *exchange, unsigned status, const char *content_type)
{
    exchange->status = status;
    exchange->content_type = content_type;
}

void exchange_finish(struct exchange *exchange)
{
    exchange->finished = true;
    if (!exchange->out.failed)
        return;
    /* What is not whole is not sent; of a stream, the end is missing and tells. */
    if (!exchange->streaming)
        exchange->status = 500;
    out_clear(&exchange->out);
}

static unsigned status_of(const struct exchange *exchange, int code)
{
    switch (code) {
    case ERR_BUSY:
        return exchange->http->server->options->busy_status ? 503 : 429;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_DENIED:
        return 403;
    case ERR_DEADLINE:
        return 504;
    case ERR_DRAINING:
    case ERR_LOADING:
    case ERR_DEVICE:
    case ERR_DEVICE_MEMORY:
    case ERR_PROGRAM_OFF:
        return 503;
    case ERR_INTERNAL:
    case ERR_NO_MEMORY:
    case ERR_IO:
    case ERR_NOT_FINITE:
    case ERR_PROGRAM:
        return 500;
    default:
        return 400;
    }
}

static void put_refusal(struct json_writer *writer, const void *context)
{
    const struct refusal *refusal = context;
    unsigned status = refusal->status;
    json_open(writer, NULL, '{');
    json_open(writer, "error", '{');
    json_put_text(writer, "message", refusal->error->text);
    json_put_text(writer, "type",
                  status == 429   ? "rate_limit_error"
                  : status == 401 ? "authentication_error"
                  : status == 403 ? "permission_error"
                  : status == 404 ? "not_found_error"
                  : status >= 500 ? "server_error"
                                  : "invalid_request_error");
    if (refusal->param[0])
        json_put_text(writer, "param", refusal->param);
    else
        json_put_null(writer, "param");
    bool model = status == 404 && strcmp(refusal->param, "model") == 0;
    json_put_text(writer, "code", model ? "model_not_found" : error_name(refusal->error->code));
    json_close(writer, '}');
    json_close(writer, '}');
}

/* What is known of who asks, by the time the head is read: the key that was given, or the peer's
 * uid. NULL: nothing, as of one who gave no key, or none that is known. */
static const char *asker(const struct exchange *exchange, char name[USER_NAME_MAX + 1])
{
    const struct exchange_peer *peer = &exchange->peer;
    if (exchange->sink.user)
        return exchange->sink.user->name;
    if (peer->tcp && !peer->key)
        return NULL;
    users_name(peer->user, peer->key, name);
    return name;
}

/* Counts are of requests for the device. Who is late was not refused, but is not heard of
 * otherwise. */
static void note(const struct exchange *exchange, unsigned status, const struct error *error)
{
    struct server *server = exchange->http->server;
    char name[USER_NAME_MAX + 1];
    const struct route *route = exchange->route;
    if (exchange->request || exchange->streaming) /* it was accepted, and has a line of its own */
        return;
    if (route && route->body && error->code != ERR_DEADLINE)
        request_builder_count_refusal(server, exchange->sink.user, error);
    request_builder_log_refusal(server, asker(exchange, name), status, error);
}

void exchange_refuse_as(struct exchange *exchange, unsigned status, const struct error *error,
                        const char *param)
{
    bool late = exchange->streaming; /* the status has gone: the error is the last event */
    struct refusal refusal = {error, param, status};
    const struct api *api = exchange->api;
    note(exchange, status, error);
    if (late && api && api->broken) {
        api->broken(exchange, &refusal);
    } else if (late) {
        out_event(&exchange->out, put_refusal, &refusal);
    } else {
        exchange_status(exchange, refusal.status, "application/json");
        exchange->retry_after_ms = error->retry_after_ms;
        out_json(&exchange->out, api && api->refusal ? api->refusal : put_refusal, &refusal);
    }
    exchange_finish(exchange);
}

void exchange_refuse(struct exchange *exchange, const struct error *error, const char *param)
{
    exchange_refuse_as(exchange, status_of(exchange, error->code), error, param);
}

void exchange_fail(struct exchange *exchange, unsigned status, const struct error *error)
{
    if (!exchange->request_id[0])
        snprintf(exchange->request_id, sizeof(exchange->request_id), "%s", exchange->answer_id);
    body_drop(exchange);
    exchange_refuse_as(exchange, status, error, "");
}

void exchange_end(struct exchange *exchange, const struct error *error)
{
    if (exchange->closed || exchange_ready(exchange))
        return;
    if (error->code == ERR_DEADLINE)
        exchange->http->server->counts.texts_deadline_total++;
    exchange_refuse(exchange, error, "");
    exchange->http->wake(exchange->http, exchange);
}

size_t exchange_read(struct exchange *exchange, char *bytes, size_t max)
{
    size_t taken = out_take(&exchange->out, bytes, max);
    exchange->http->server->counts.bytes_out_total += taken;
    if (taken == 0 && exchange->finished)
        return EXCHANGE_READ_END;
    if (!list_empty(&exchange->ready) && exchange->streaming)
        exchange_touch(exchange); /* there is room again */
    return taken;
}
