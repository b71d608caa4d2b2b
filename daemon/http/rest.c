/* Models that sleep and wake by an admin's word, as vLLM's API has it; here a path may name one.
 * And such as get a new version. */
#include "daemon/api/status.h"
#include "daemon/http/exchange.h"
#include "daemon/request/model_sleep.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"

static int may(const struct exchange *exchange, struct error *error)
{
    if (exchange->peer.admin)
        return 0;
    return error_set(error, ERR_DENIED,
                     "models sleep, wake and get new versions by the word of root, the daemon's "
                     "user and members of admin-group, over a Unix socket");
}

/* Of all, or of the one that the path names. */
static bool is_meant(const struct exchange *exchange, const struct served_model *model)
{
    return !exchange->route->prefix || model_names_has(&model->names, exchange->object);
}

static void put_states(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct server *server = exchange->http->server;
    json_open(writer, NULL, '{');
    for (uint32_t i = 0; i < server->model_count; i++)
        if (is_meant(exchange, &server->models[i]))
            json_put_text(writer, server->models[i].info.id, model_sleep_word(&server->models[i]));
    json_close(writer, '}');
}

static void put_is_sleeping(struct json_writer *writer, const void *context)
{
    const struct server *server = context;
    bool all = server->model_count > 0;
    for (uint32_t i = 0; i < server->model_count; i++)
        all &= server->models[i].sleep.state == MODEL_ASLEEP;
    json_open(writer, NULL, '{');
    json_put_bool(writer, "is_sleeping", all);
    json_close(writer, '}');
}

static void give(struct exchange *exchange, out_writer write, const void *context)
{
    exchange_status(exchange, 200, "application/json");
    out_json(&exchange->out, write, context);
    exchange_finish(exchange);
}

static void change(struct exchange *exchange, bool sleep, time_us now_us)
{
    struct server *server = exchange->http->server;
    struct error error;
    int rc = may(exchange, &error), any = 0;
    for (uint32_t i = 0; !rc && i < server->model_count; i++) {
        struct served_model *model = &server->models[i];
        if (!is_meant(exchange, model))
            continue;
        any++;
        if (sleep)
            rc = model_sleep_ask(server, model, &error);
        else
            model_wake_ask(server, model, now_us);
    }
    if (!rc && any == 0)
        rc = error_set(&error, ERR_NOT_FOUND, "there is no model %.64s here",
                       exchange->route->prefix ? exchange->object : "");
    if (rc) {
        exchange_refuse(exchange, &error, rc == -ERR_NOT_FOUND ? "model" : "");
        return;
    }
    log_line(LOG_NOTICE, "server", "%s lets %s %s", exchange->sink.user->name,
             exchange->route->prefix ? exchange->object : "all models", sleep ? "sleep" : "wake");
    give(exchange, put_states, exchange);
}

void rest_sleep(struct exchange *exchange, time_us now_us)
{
    change(exchange, true, now_us);
}

void rest_wake(struct exchange *exchange, time_us now_us)
{
    change(exchange, false, now_us);
}

/* ---- versions ----------------------------------------------------------------------------------
 */

static void put_reload(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "model", exchange->model->info.id);
    status_reload(exchange->http->server, exchange->model, writer);
    json_close(writer, '}');
}

static void reload(struct exchange *exchange, bool begins)
{
    struct server *server = exchange->http->server;
    struct error error;
    int rc = may(exchange, &error);
    struct served_model *model = rc ? NULL : server_find_model(server, exchange->object);
    if (!rc && !model)
        rc = error_set(&error, ERR_NOT_FOUND, "there is no model %.64s here", exchange->object);
    if (!rc && begins)
        rc = model_reload_ask(server, model, "", &error);
    if (rc) {
        exchange_refuse(exchange, &error, rc == -ERR_NOT_FOUND ? "model" : "");
        return;
    }
    if (begins)
        log_line(LOG_NOTICE, "server", "%s reloads %s", exchange->sink.user->name, model->info.id);
    exchange->model = model;
    give(exchange, put_reload, exchange);
}

void rest_reload(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    reload(exchange, true);
}

void rest_reload_state(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    reload(exchange, false);
}

void rest_is_sleeping(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    give(exchange, put_is_sleeping, exchange->http->server);
}
