/* /v2: programs by KServe's inference protocol, with the extensions of it that Triton's client
 * speaks: binary tensors, the model's configuration and statistics, the index. */
#include <stdio.h>
#include <string.h>

#include "daemon/api/status.h"
#include "daemon/http/api/api.h"
#include "daemon/http/tensors.h"
#include "daemon/request/server.h"

/* What is answered: of one program, or of all. */
struct told {
    const struct server *server;
    const struct job_program *program; /* NULL: all */
    bool ready;
};

static void put_refusal(struct json_writer *writer, const void *context)
{
    const struct refusal *refusal = context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "error", refusal->error->text);
    json_close(writer, '}');
}

const struct api api_kserve = {.refusal = put_refusal, .news = tensors_news};

static void give(struct exchange *exchange, unsigned status, out_writer write,
                 const struct told *told)
{
    exchange_status(exchange, status, "application/json");
    out_json(&exchange->out, write, told);
    exchange_finish(exchange);
}

/* What the path names is told. */
static void tell(struct exchange *exchange, time_us now_us, out_writer write)
{
    const struct server *server = exchange->http->server;
    struct error error;
    const struct job_program *program = tensors_program(exchange, &error);
    if (!program) {
        exchange_refuse(exchange, &error, "model");
        return;
    }
    const struct told told = {server, program, !program->off && status_ready(server, now_us)};
    give(exchange, 200, write, &told);
}

/* ---- the server --------------------------------------------------------------------------------
 */

static void put_server(struct json_writer *writer, const void *context)
{
    (void)context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", "sluice");
    json_put_text(writer, "version", SLUICE_VERSION);
    json_open(writer, "extensions", '[');
    json_put_text(writer, NULL, "binary_tensor_data");
    json_put_text(writer, NULL, "model_configuration");
    json_put_text(writer, NULL, "statistics");
    json_put_text(writer, NULL, "model_repository(index)");
    json_close(writer, ']');
    json_close(writer, '}');
}

void kserve_server(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    give(exchange, 200, put_server, NULL);
}

static void put_index(struct json_writer *writer, const void *context)
{
    const struct told *told = context;
    const struct job_programs *programs = told->server->jobs.programs;
    json_open(writer, NULL, '[');
    for (unsigned i = 0; programs && i < programs->count; i++) {
        const struct job_program *program = &programs->list[i];
        json_open(writer, NULL, '{');
        json_put_text(writer, "name", program->program.name);
        json_put_text(writer, "version", "1");
        json_put_text(writer, "state", program->off ? "UNAVAILABLE" : "READY");
        json_put_text(writer, "reason", program->off ? program->reason : "");
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

void kserve_index(struct exchange *exchange, time_us now_us)
{
    const struct told told = {.server = exchange->http->server};
    (void)now_us;
    give(exchange, 200, put_index, &told);
}

void kserve_refused(struct exchange *exchange, time_us now_us)
{
    struct error error;
    (void)now_us;
    error_set(&error, ERR_UNSUPPORTED, "%s: %s", exchange->route->path, exchange->route->says);
    exchange_refuse(exchange, &error, "");
}

/* ---- a program ---------------------------------------------------------------------------------
 */

/* A dimension that varies, and the one of items, is -1. */
static void put_shape(struct json_writer *writer, const char *key, const struct program_tensor *of,
                      bool items)
{
    json_open(writer, key, '[');
    if (items)
        json_put_int(writer, NULL, -1);
    for (uint32_t i = 0; i < of->rank; i++)
        json_put_int(writer, NULL, of->shape[i] > 0 ? of->shape[i] : -1);
    json_close(writer, ']');
}

static void put_tensors(struct json_writer *writer, const char *key,
                        const struct program_tensor *tensors, uint32_t count, bool items)
{
    json_open(writer, key, '[');
    for (uint32_t i = 0; i < count; i++) {
        json_open(writer, NULL, '{');
        json_put_text(writer, "name", tensors[i].name);
        json_put_text(writer, "datatype", query_datatype_name(tensors[i].dtype));
        put_shape(writer, "shape", &tensors[i], items);
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

static void put_model(struct json_writer *writer, const void *context)
{
    const struct told *told = context;
    const struct program *program = &told->program->program;
    const bool items = program->size_count == 0;
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", program->name);
    json_open(writer, "versions", '[');
    json_put_text(writer, NULL, "1");
    json_close(writer, ']');
    json_put_text(writer, "platform", "sluice");
    put_tensors(writer, "inputs", program->inputs, program->input_count, items);
    put_tensors(writer, "outputs", program->outputs, program->output_count, items);
    json_close(writer, '}');
}

void kserve_model(struct exchange *exchange, time_us now_us)
{
    tell(exchange, now_us, put_model);
}

static void put_ready(struct json_writer *writer, const void *context)
{
    const struct told *told = context;
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", told->program->program.name);
    json_put_bool(writer, "ready", told->ready);
    json_close(writer, '}');
}

void kserve_health(struct exchange *exchange, time_us now_us)
{
    const struct server *server = exchange->http->server;
    struct error error;
    if (status_ready(server, now_us)) {
        lookup_health(exchange, now_us);
        return;
    }
    error_set(&error, server->draining ? ERR_DRAINING : ERR_LOADING, "no requests are served now");
    exchange_refuse(exchange, &error, "");
    exchange->retry_after_ms = 1000;
}

void kserve_ready(struct exchange *exchange, time_us now_us)
{
    const struct server *server = exchange->http->server;
    struct error error;
    const struct job_program *program = tensors_program(exchange, &error);
    bool ready = program && !program->off && status_ready(server, now_us);
    const struct told told = {server, program, ready};
    if (!program)
        exchange_refuse(exchange, &error, "model");
    else
        give(exchange, ready ? 200 : 503, put_ready, &told);
}

/* ---- as Triton's configuration and statistics have it ------------------------------------------
 */

static void put_config_tensors(struct json_writer *writer, const char *key,
                               const struct program_tensor *tensors, uint32_t count)
{
    char type[16];
    json_open(writer, key, '[');
    for (uint32_t i = 0; i < count; i++) {
        snprintf(type, sizeof(type), "TYPE_%s", query_datatype_name(tensors[i].dtype));
        json_open(writer, NULL, '{');
        json_put_text(writer, "name", tensors[i].name);
        json_put_text(writer, "data_type", type);
        put_shape(writer, "dims", &tensors[i], false);
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

static void put_config(struct json_writer *writer, const void *context)
{
    const struct told *told = context;
    const struct program *program = &told->program->program;
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", program->name);
    json_put_text(writer, "platform", "sluice");
    json_put_text(writer, "backend", "sluice");
    /* 0: requests have no dimension for items. */
    json_put_uint(writer, "max_batch_size",
                  program->size_count == 0 ? told->server->limits.batch_max : 0);
    put_config_tensors(writer, "input", program->inputs, program->input_count);
    put_config_tensors(writer, "output", program->outputs, program->output_count);
    json_open(writer, "parameters", '{');
    for (uint32_t i = 0; i < program->parameter_count; i++) {
        json_open(writer, program->parameters[i].name, '{');
        json_put_text(writer, "string_value", program->parameters[i].help);
        json_close(writer, '}');
    }
    json_close(writer, '}');
    json_close(writer, '}');
}

void kserve_config(struct exchange *exchange, time_us now_us)
{
    tell(exchange, now_us, put_config);
}

static void put_duration(struct json_writer *writer, const char *key, uint64_t count, uint64_t us)
{
    json_open(writer, key, '{');
    json_put_uint(writer, "count", count);
    json_put_uint(writer, "ns", us * 1000);
    json_close(writer, '}');
}

static void put_stats_of(struct json_writer *writer, const struct job_program *program)
{
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", program->program.name);
    json_put_text(writer, "version", "1");
    json_put_uint(writer, "inference_count", program->done_total);
    json_open(writer, "inference_stats", '{');
    put_duration(writer, "success", program->done_total, program->done_us_total);
    json_open(writer, "fail", '{');
    json_put_uint(writer, "count", program->failed_total);
    json_close(writer, '}');
    put_duration(writer, "queue", program->done_total, program->queue_us_total);
    json_close(writer, '}');
    json_close(writer, '}');
}

static void put_stats(struct json_writer *writer, const void *context)
{
    const struct told *told = context;
    const struct job_programs *programs = told->server->jobs.programs;
    json_open(writer, NULL, '{');
    json_open(writer, "model_stats", '[');
    if (told->program)
        put_stats_of(writer, told->program);
    for (unsigned i = 0; !told->program && programs && i < programs->count; i++)
        put_stats_of(writer, &programs->list[i]);
    json_close(writer, ']');
    json_close(writer, '}');
}

void kserve_stats(struct exchange *exchange, time_us now_us)
{
    const struct told all = {.server = exchange->http->server};
    if (exchange->route->prefix)
        tell(exchange, now_us, put_stats);
    else
        give(exchange, 200, put_stats, &all);
}
