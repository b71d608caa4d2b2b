/* What an exchange can be told without the device: models, health, version, and tokens of texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/metrics.h"
#include "daemon/api/status.h"
#include "daemon/http/exchange.h"
#include "daemon/request/server.h"
#include "daemon/text/template/chat.h"
#include "daemon/text/tokenizer.h"

int lookup_model(const struct exchange *exchange, const char *name, struct served_model **ret_model,
                 uint32_t *ret_adapter, struct error *error)
{
    struct server *server = exchange->http->server;
    struct served_model *model = server_find_model(server, name);
    *ret_adapter = model ? 0 : served_adapters_find(&server->adapters, name);
    if (*ret_adapter)
        model = &server->models[0];
    if (model) {
        *ret_model = model;
        return 0;
    }
    if (!server_has_model(server))
        return error_set(error, ERR_NOT_FOUND, "this daemon serves programs and no model");
    char others[32] = "";
    if (server->model_count > 1)
        snprintf(others, sizeof(others), " and %u more", server->model_count - 1);
    return error_set(error, ERR_NOT_FOUND, "there is no model %.64s here, but %s%s", name,
                     server->models[0].info.id, others);
}

const char *lookup_called(const struct exchange *exchange)
{
    return exchange->adapter[0] ? exchange->adapter : exchange->model->info.id;
}

static void put_named(struct json_writer *writer, const struct exchange *exchange,
                      const struct served_model *model, const char *name)
{
    bool adapter = !model_names_has(&model->names, name);
    json_open(writer, NULL, '{');
    json_put_text(writer, "id", name);
    json_put_text(writer, "object", "model");
    json_put_uint(writer, "created", exchange->http->created_s);
    json_put_text(writer, "owned_by", "sluice");
    if (adapter)
        json_put_text(writer, "parent", model->info.id);
    json_put_uint(writer, "max_model_len", model->context_max);
    json_close(writer, '}');
}

static void put_model(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    put_named(writer, exchange, exchange->model, exchange->object);
}

static void put_models(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct server *server = exchange->http->server;
    json_open(writer, NULL, '{');
    json_put_text(writer, "object", "list");
    json_open(writer, "data", '[');
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct served_model *model = &server->models[i];
        for (uint32_t j = 0; j < model->names.count; j++)
            put_named(writer, exchange, model, model->names.names[j]);
    }
    const struct served_adapters *adapters = &server->adapters;
    for (uint32_t i = 0; i < adapters->count; i++)
        if (adapters->at[i].state == ADAPTER_SERVED)
            put_named(writer, exchange, &server->models[0], adapters->at[i].name);
    json_close(writer, ']');
    json_close(writer, '}');
}

static void give(struct exchange *exchange, unsigned status, out_writer write, const void *context)
{
    exchange_status(exchange, status, "application/json");
    out_json(&exchange->out, write, context);
    exchange_finish(exchange);
}

void lookup_models(struct exchange *exchange, time_us now_us)
{
    struct error error;
    uint32_t adapter;
    (void)now_us;
    if (!exchange->route->prefix)
        give(exchange, 200, put_models, exchange);
    else if (lookup_model(exchange, exchange->object, &exchange->model, &adapter, &error))
        exchange_refuse(exchange, &error, "model");
    else
        give(exchange, 200, put_model, exchange);
}

/* ---- health and version ------------------------------------------------------------------------
 */

struct health {
    const struct server *server;
    time_us now_us;
};

static void put_health(struct json_writer *writer, const void *context)
{
    const struct health *health = context;
    status_health(health->server, writer, health->now_us);
}

void lookup_health(struct exchange *exchange, time_us now_us)
{
    const struct server *server = exchange->http->server;
    const struct health health = {server, now_us};
    bool ready = status_ready(server, now_us);
    give(exchange, ready ? 200 : 503, put_health, &health);
    if (!ready)
        exchange->retry_after_ms = 1000;
}

/* Fails where a new process may help; not while one loads, drains or is busy. */
void lookup_live(struct exchange *exchange, time_us now_us)
{
    const struct server *server = exchange->http->server;
    const struct health health = {server, now_us};
    give(exchange, status_alive(server, now_us) ? 200 : 503, put_health, &health);
}

static void put_version(struct json_writer *writer, const void *context)
{
    (void)context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "version", SLUICE_VERSION);
    json_close(writer, '}');
}

void lookup_version(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    give(exchange, 200, put_version, NULL);
}

/* ---- what SGLang's router asks a worker when it meets it ---------------------------------------
 */

static void put_model_info(struct json_writer *writer, const void *context)
{
    const struct served_model *model = context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "model_path", model->info.id);
    json_put_text(writer, "tokenizer_path", model->info.id);
    json_put_bool(writer, "is_generation", true);
    json_open(writer, "architectures", '[');
    json_put_text(writer, NULL, model->info.arch);
    json_close(writer, ']');
    json_close(writer, '}');
}

void lookup_model_info(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    give(exchange, 200, put_model_info, exchange->model);
}

/* One worker by its one address: what replicas it has is its own business. */
static void put_server_info(struct json_writer *writer, const void *context)
{
    const struct served_model *model = context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "model_path", model->info.id);
    json_put_text(writer, "served_model_name", model->info.id);
    json_put_text(writer, "version", SLUICE_VERSION);
    json_put_uint(writer, "dp_size", 1);
    json_put_uint(writer, "max_model_len", model->context_max);
    json_close(writer, '}');
}

void lookup_server_info(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    give(exchange, 200, put_server_info, exchange->model);
}

/* ---- tokens ------------------------------------------------------------------------------------
 */

/* As the tokenizer's file writes them. */
static void put_token_strs(struct json_writer *writer, const struct exchange *exchange)
{
    const struct encoder_text *text = &exchange->encoding.texts[0];
    const struct tokenizer *tokenizer = exchange->model->text->tokenizer;
    if (!exchange->query.token_strs) {
        json_put_null(writer, "token_strs");
        return;
    }
    json_open(writer, "token_strs", '[');
    for (uint32_t i = 0; i < text->count; i++) {
        size_t length = 0;
        const char *token = tokenizer_token_text(tokenizer, text->ids[i], &length);
        json_put_string(writer, NULL, token ? token : "", token ? length : 0);
    }
    json_close(writer, ']');
}

static void put_tokens(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct encoder_text *text = &exchange->encoding.texts[0];
    json_open(writer, NULL, '{');
    json_put_uint(writer, "count", text->count);
    json_put_uint(writer, "max_model_len", exchange->model->context_max);
    json_open(writer, "tokens", '[');
    for (uint32_t i = 0; i < text->count; i++)
        json_put_int(writer, NULL, text->ids[i]);
    json_close(writer, ']');
    put_token_strs(writer, exchange);
    json_close(writer, '}');
}

static void tokenized(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    give(exchange, 200, put_tokens, exchange);
}

void lookup_tokenize(struct exchange *exchange, time_us now_us)
{
    const struct query *query = &exchange->query;
    struct error error;
    if (!query->chat.messages && (query->prompt_count != 1 || !query->prompts[0].text)) {
        error_set(&error, ERR_BAD_VALUE, "prompt must be one string");
        exchange_refuse(exchange, &error, "prompt");
        return;
    }
    encode_begin(exchange, tokenized, now_us);
}

/* Of a special token, by its text or by its number among the model's own end tokens. */
static void put_special(struct json_writer *writer, const char *key, const char *text)
{
    if (text[0])
        json_put_text(writer, key, text);
    else
        json_put_null(writer, key);
}

static const char *end_token(const struct served_model *model)
{
    const struct model_text *text = model->text;
    size_t length;
    const char *token = NULL;
    if (!text->eos_token[0] && model->info.eos_count > 0)
        token = tokenizer_token_text(text->tokenizer, model->info.eos[0], &length);
    return token && strlen(token) == length ? token : text->eos_token;
}

/* What a client needs beside /tokenize and /detokenize to do without the model's files. */
static void put_tokenizer(struct json_writer *writer, const void *context)
{
    const struct served_model *model = context;
    const struct model_text *text = model->text;
    json_open(writer, NULL, '{');
    put_special(writer, "bos_token", text->bos_token);
    put_special(writer, "eos_token", end_token(model));
    put_special(writer, "pad_token", text->pad_token);
    json_put_uint(writer, "vocab_size", model->info.vocab);
    json_put_uint(writer, "model_max_length", model->context_max);
    if (text->chat)
        json_put_text(writer, "chat_template", chat_template_source(text->chat));
    else
        json_put_null(writer, "chat_template");
    json_close(writer, '}');
}

void lookup_tokenizer(struct exchange *exchange, time_us now_us)
{
    struct error error;
    (void)now_us;
    if (model_text_texts(exchange->model->text, &error))
        exchange_refuse(exchange, &error, "");
    else
        give(exchange, 200, put_tokenizer, exchange->model);
}

struct decoded {
    const char *text;
    size_t length;
};

static void put_decoded(struct json_writer *writer, const void *context)
{
    const struct decoded *decoded = context;
    json_open(writer, NULL, '{');
    json_put_string(writer, "prompt", decoded->text, decoded->length);
    json_close(writer, '}');
}

void lookup_detokenize(struct exchange *exchange, time_us now_us)
{
    const struct query_prompt *prompt = &exchange->query.prompts[0];
    struct error error;
    char *text = NULL;
    struct decoded decoded = {0};
    (void)now_us;
    if (model_text_decode(exchange->model->text, prompt->tokens, prompt->count,
                          exchange->model->context_max, true, &text, &decoded.length, &error)) {
        exchange_refuse(exchange, &error, "tokens");
        return;
    }
    decoded.text = text;
    give(exchange, 200, put_decoded, &decoded);
    free(text);
}

/* ---- /metrics ----------------------------------------------------------------------------------
 */

static void figures(struct stats_waiter *waiter, time_us now_us)
{
    struct exchange *exchange = container_of(waiter, struct exchange, stats);
    metrics_write(&exchange->out, exchange->http->server, now_us);
    exchange_status(exchange, 200, "text/plain; version=0.0.4; charset=utf-8");
    exchange_finish(exchange);
    exchange_touch(exchange); /* whoever carries it is woken after the turn */
}

void metrics_begin(struct exchange *exchange, time_us now_us)
{
    exchange->stats.done = figures;
    server_ask_stats(exchange->http->server, &exchange->stats, now_us);
}
