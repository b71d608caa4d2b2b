/* Adapters that come and go while the daemon runs, as vLLM's API has it; for admins. One is read on
 * another thread, by one replica after the other, beside their steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/exchange.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"

struct adapter_loading {
    uint32_t number, place;
    char name[MODEL_NAME_SIZE], directory[ADAPTER_DIRECTORY_SIZE];
    uint32_t replica_count;
    struct replica *replicas[SERVER_REPLICAS_MAX];
    bool failed;
    struct error error;
};

static int may(const struct exchange *exchange, struct error *error)
{
    if (!exchange->peer.admin)
        return error_set(error, ERR_DENIED,
                         "adapters come and go by the word of root, the daemon's user and members of "
                         "admin-group, over a Unix socket");
    return request_builder_phase(exchange->http->server, error);
}

static void tell(struct exchange *exchange, const char *what, const char *name)
{
    exchange_status(exchange, 200, "text/plain; charset=utf-8");
    out_format(&exchange->out, "Success: LoRA adapter '%s' %s successfully.\n", name, what);
    exchange_finish(exchange);
    log_line(LOG_NOTICE, "adapter", "%s %s user=%s", name, what, exchange->sink.user->name);
}

/* ---- load --------------------------------------------------------------------------------------
 */

static int check_names(const struct exchange *exchange, const char **ret_param, struct error *error)
{
    const struct query *query = &exchange->query;
    size_t name = strlen(query->lora_name), path = query->lora_path ? strlen(query->lora_path) : 0;
    *ret_param = "lora_name";
    bool plain = true; /* as words of the option are */
    for (const char *at = query->lora_name; *at; at++)
        plain = plain && (unsigned char)*at > ' ' && *at != 0x7f;
    if (!plain || name == 0 || name >= MODEL_NAME_SIZE)
        return error_set(error, ERR_BAD_VALUE,
                         "lora_name must have 1 to %d bytes, and no space among them",
                         MODEL_NAME_SIZE - 1);
    if (server_find_model(exchange->http->server, query->lora_name))
        return error_set(error, ERR_BAD_VALUE, "lora_name: %s is a name of the model",
                         query->lora_name);
    *ret_param = "lora_path";
    if (!query->lora_path)
        return error_set(error, ERR_BAD_VALUE, "lora_path is missing");
    if (query->lora_path[0] != '/' || path >= ADAPTER_DIRECTORY_SIZE)
        return error_set(error, ERR_BAD_VALUE, "lora_path must begin with / and have at most %d bytes",
                         ADAPTER_DIRECTORY_SIZE - 1);
    return 0;
}

/* Any thread: the loop looks at nothing of this meanwhile. */
static void work(struct errand *errand)
{
    struct body_reading *reading = container_of(errand, struct body_reading, errand);
    struct adapter_loading *loading =
        container_of(reading, struct exchange, reading)->loading;
    const struct gpu_adapter adapter = {loading->name, loading->directory};
    for (uint32_t i = 0; !loading->failed && i < loading->replica_count; i++) {
        struct replica *replica = loading->replicas[i];
        loading->failed =
            replica->api->adapter_load(replica, loading->place, &adapter, &loading->error) != 0;
    }
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

/* Nobody waits for it any more: then it is not served either. */
static void settle(struct exchange *exchange, time_us now_us)
{
    struct adapter_loading *loading = exchange->loading;
    bool wanted = !exchange->closed && !exchange_ready(exchange);
    served_adapters_loaded(&exchange->http->server->adapters, loading->number, loading->place,
                           wanted && !loading->failed, now_us);
    if (!wanted)
        return;
    if (loading->failed)
        exchange_refuse(exchange, &loading->error, "lora_path");
    else
        tell(exchange, "added", loading->name);
}

static void over(struct errand *errand, time_us now_us)
{
    struct exchange *exchange = exchange_of(errand);
    exchange->elsewhere = false;
    settle(exchange, now_us);
    if (exchange->closed)
        exchange_close(exchange, now_us);
    else
        exchange->http->wake(exchange->http, exchange);
}

static const struct errand_api api = {.work = work, .end = end, .over = over};

/* It has engines to read into. One that sleeps is woken, for who asks again. */
static int check_awake(struct server *server, time_us now_us, struct error *error)
{
    struct served_model *model = &server->models[0];
    if (model->sleep.state == MODEL_AWAKE)
        return 0;
    error_set(error, ERR_BUSY, "%s is %s: adapters are loaded while it is awake", model->info.id,
              model_sleep_word(model));
    model_wake_ask(server, model, now_us);
    error->retry_after_ms = 1000;
    return -ERR_BUSY;
}

static int begin(struct exchange *exchange, time_us now_us, struct error *error)
{
    struct server *server = exchange->http->server;
    const struct query *query = &exchange->query;
    struct adapter_loading *loading = calloc(1, sizeof(*loading));
    if (!loading)
        return error_set(error, ERR_NO_MEMORY, "no memory for an adapter");
    const struct gpu_adapter adapter = {query->lora_name, query->lora_path};
    int rc = served_adapters_begin(&server->adapters, &adapter, &loading->number, &loading->place,
                                   now_us, error);
    if (rc) {
        error->retry_after_ms = server_retry_ms(server);
        free(loading);
        return rc;
    }
    snprintf(loading->name, sizeof(loading->name), "%s", query->lora_name);
    snprintf(loading->directory, sizeof(loading->directory), "%s", query->lora_path);
    const struct served_model *model = &server->models[0];
    loading->replica_count = model->replica_count;
    memcpy(loading->replicas, model->replicas, model->replica_count * sizeof(struct replica *));
    exchange->loading = loading;
    return 0;
}

void adapters_load(struct exchange *exchange, time_us now_us)
{
    struct server *server = exchange->http->server;
    struct errand *errand = &exchange->reading.errand;
    const char *param = "";
    struct error error;
    int rc = may(exchange, &error);
    if (!rc)
        rc = check_names(exchange, &param, &error);
    if (!rc)
        rc = check_awake(server, now_us, &error);
    if (!rc)
        rc = begin(exchange, now_us, &error);
    if (rc) {
        exchange_refuse(exchange, &error, param);
        return;
    }
    if (!server->background) {
        work(errand);
        settle(exchange, now_us);
        return;
    }
    errand->admits = true;
    exchange->elsewhere = true;
    if (errand_start(errand, &api, server, &exchange->sink, 0, 0, now_us, &error)) {
        exchange->elsewhere = false;
        served_adapters_loaded(&server->adapters, exchange->loading->number,
                               exchange->loading->place, false, now_us);
        exchange_refuse(exchange, &error, "");
    }
}

/* ---- unload ------------------------------------------------------------------------------------
 */

void adapters_unload(struct exchange *exchange, time_us now_us)
{
    const struct query *query = &exchange->query;
    struct error error;
    (void)now_us;
    int rc = may(exchange, &error);
    if (!rc)
        rc = served_adapters_unload(&exchange->http->server->adapters, query->lora_name, &error);
    if (rc)
        exchange_refuse(exchange, &error, rc == -ERR_NOT_FOUND ? "lora_name" : "");
    else
        tell(exchange, "removed", query->lora_name);
}
