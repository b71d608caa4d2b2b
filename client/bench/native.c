#include "client/bench/native.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/bench/driver.h"
#include "client/sluice.h"
#include "protocol/base/json.h"
#include "protocol/base/list.h"

#define CONNECT_TIMEOUT_MS 10000
#define ANSWER_TIMEOUT_MS 10000

static const struct json_bounds bounds = {.bytes_max = 4u << 20, .depth_max = 16};

struct native {
    struct transport transport;
    sluice_client **clients;
    struct pollfd *ready;
    uint32_t count, turn;
    const char *model; /* NULL: the daemon's first */
    int32_t *prompt;
    uint32_t prompt_room;
    struct list busy, spare; /* calls without an end; those that ended, to be used again */
};

struct call {
    struct list link;
    struct native *native;
    struct driver *driver;
    sluice_client *client;
    uint64_t id;
    uint32_t index;
};

/* ---- answers -----------------------------------------------------------------------------------
 */

static void take_tokens(void *context, uint32_t sequence, const sluice_piece *piece)
{
    struct call *call = context;
    (void)sequence;
    driver_answer(call->driver, call->index, piece->tokens, (uint32_t)piece->count);
    driver_tokens(call->driver, call->index, (uint32_t)piece->count, clock_now_us());
}

static void take_end(void *context, uint32_t sequence, const sluice_end *end)
{
    struct call *call = context;
    struct error error = {0};
    struct driver_end told = {.cancelled = end->finish == SLUICE_FINISH_CANCELLED,
                              .output_tokens = end->completion_tokens,
                              .cached_tokens = end->cached_tokens};
    (void)sequence;
    if (end->finish == SLUICE_FINISH_ERROR) {
        error_set(&error, end->error.code, "%s", end->error.text);
        told.error = &error;
        told.output_tokens = UINT32_MAX;
    } else if (end->finish == SLUICE_FINISH_DEADLINE) {
        error_set(&error, ERR_DEADLINE, "deadline passed");
        told.error = &error;
    }
    driver_end(call->driver, call->index, &told, clock_now_us());
    list_remove(&call->link);
    list_append(&call->native->spare, &call->link);
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static struct call *new_call(struct native *native)
{
    struct list *link = list_take(&native->spare);
    return link ? container_of(link, struct call, link) : malloc(sizeof(struct call));
}

static int reserve_prompt(struct native *native, uint32_t tokens)
{
    if (tokens <= native->prompt_room)
        return 0;
    int32_t *more = realloc(native->prompt, tokens * sizeof(*more));
    if (!more)
        return -ERR_NO_MEMORY;
    native->prompt = more;
    native->prompt_room = tokens;
    return 0;
}

static int submit_call(struct native *native, struct call *call, const struct workload *workload)
{
    const struct item *item = &workload->items[call->index];
    sluice_params params;
    sluice_batch batch;
    workload_prompt(workload, call->index, native->prompt);
    const sluice_prompt prompt = {.tokens = native->prompt, .token_count = item->prompt_tokens};
    sluice_params_init(&params);
    params.temperature = 0;
    params.max_tokens = item->output_tokens;
    params.ignore_eos = workload->ignore_eos;
    sluice_batch_init(&batch);
    batch.prompts = &prompt;
    batch.prompt_count = 1;
    batch.params = &params;
    batch.priority = item->priority;
    batch.no_cache = workload->no_cache;
    batch.cache_salt = workload->cache_salt;
    batch.model = native->model;
    batch.callbacks = (sluice_callbacks){.tokens = take_tokens, .end = take_end};
    batch.context = call;
    return sluice_submit(call->client, &batch, &call->id);
}

static int native_submit(struct transport *transport, struct driver *driver, uint32_t index,
                         void **ret_call, struct error *error)
{
    struct native *native = container_of(transport, struct native, transport);
    struct call *call = new_call(native);
    if (!call || reserve_prompt(native, driver->workload->items[index].prompt_tokens)) {
        free(call);
        return error_set(error, ERR_NO_MEMORY, "no memory for a request");
    }
    *call = (struct call){.native = native,
                          .driver = driver,
                          .client = native->clients[native->turn++ % native->count],
                          .index = index};
    int rc = submit_call(native, call, driver->workload);
    if (rc) {
        error_set(error, -rc, "%s", sluice_client_error(call->client)->text);
        list_append(&native->spare, &call->link);
        return rc;
    }
    list_append(&native->busy, &call->link);
    *ret_call = call;
    return 0;
}

/* Failing, it has ended or the connection is lost: its end is on the way either way. */
static void native_cancel(struct transport *transport, void *call)
{
    const struct call *of = call;
    (void)transport;
    sluice_cancel(of->client, of->id);
}

static void native_wait(struct transport *transport, time_us until_us)
{
    struct native *native = container_of(transport, struct native, transport);
    struct timespec left = {0};
    time_us now_us = clock_now_us();
    if (until_us > now_us)
        left = (struct timespec){(time_t)((until_us - now_us) / 1000000),
                                 (long)((until_us - now_us) % 1000000) * 1000};
    for (uint32_t i = 0; i < native->count; i++) {
        short events = sluice_client_events(native->clients[i]);
        native->ready[i] =
            (struct pollfd){events ? sluice_client_fd(native->clients[i]) : -1, events, 0};
    }
    if (ppoll(native->ready, native->count, until_us ? &left : NULL, NULL) <= 0)
        return;
    for (uint32_t i = 0; i < native->count; i++)
        if (native->ready[i].revents)
            sluice_client_process(native->clients[i]); /* a loss comes as the end of its calls */
}

static void native_close(struct transport *transport)
{
    struct native *native = container_of(transport, struct native, transport);
    struct list *link;
    for (uint32_t i = 0; i < native->count; i++)
        sluice_close(native->clients[i]);
    while ((link = list_take(&native->busy)) || (link = list_take(&native->spare)))
        free(container_of(link, struct call, link));
    free(native->clients);
    free(native->ready);
    free(native->prompt);
    free(native);
}

/* NULL, and an error: the daemon's. */
static json *ask(sluice_client *client, int what, const char *head, struct error *error)
{
    const char *text;
    json *answer = NULL;
    if (sluice_control(client, what, head, ANSWER_TIMEOUT_MS, &text)) {
        const sluice_error *why = sluice_client_error(client);
        error_set(error, why->code, "%s", why->text);
        return NULL;
    }
    (void)json_parse(text, strlen(text), bounds, &answer, error);
    return answer;
}

static bool is_adapter(sluice_client *client, const char *name)
{
    json *stats = ask(client, SLUICE_STATS, NULL, NULL);
    bool found = false;
    const json *adapters = stats ? json_get(stats, "adapters") : NULL;
    for (const json *at = adapters ? json_child(adapters) : NULL; at; at = json_next(at))
        found = found || strcmp(json_string(json_get(at, "name")), name) == 0;
    json_free(stats);
    return found;
}

/* What a load for it has to know; that of an adapter is the first model's, as it stands there. */
static int ask_model(sluice_client *client, const char *name, struct transport_info *info,
                     struct error *error)
{
    char head[2 * sizeof info->model];
    struct json_writer writer;
    json_writer_init(&writer, head, sizeof(head) - 1);
    json_open(&writer, NULL, '{');
    json_put_text(&writer, "model", name);
    json_close(&writer, '}');
    if (writer.used >= sizeof(head))
        return error_set(error, ERR_USAGE, "model: the name is too long");
    head[writer.used] = '\0';
    json *answer = ask(client, SLUICE_MODEL, head, error);
    if (!answer && (error->code != ERR_NOT_FOUND || !is_adapter(client, name)))
        return -error->code;
    snprintf(info->model, sizeof(info->model), "%s", name);
    int64_t vocabulary = 0;
    int rc = answer ? json_integer(json_get(answer, "vocabulary"), "vocabulary", 0, INT32_MAX,
                                   &vocabulary, error)
                    : 0;
    if (answer && !rc)
        info->vocabulary = (uint32_t)vocabulary;
    json_free(answer);
    return rc;
}

int native_open(const char *path, const char *model, uint32_t connections,
                struct transport **ret_transport, struct transport_info *ret_info,
                struct error *error)
{
    struct native *native = calloc(1, sizeof(*native));
    if (!native)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    native->transport = (struct transport){native_submit, native_cancel, native_wait, native_close};
    list_init(&native->busy);
    list_init(&native->spare);
    native->clients = calloc(connections, sizeof(sluice_client *));
    native->ready = calloc(connections, sizeof(struct pollfd));
    if (!native->clients || !native->ready) {
        native_close(&native->transport);
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    }
    for (; native->count < connections; native->count++) {
        sluice_error why;
        int rc = sluice_connect(path, CONNECT_TIMEOUT_MS, &native->clients[native->count], &why);
        if (rc) {
            error_set(error, why.code, "%s", why.text);
            native_close(&native->transport);
            return rc;
        }
    }
    const sluice_info *info = sluice_client_info(native->clients[0]);
    *ret_info = (struct transport_info){.vocabulary = info->vocabulary};
    snprintf(ret_info->model, sizeof(ret_info->model), "%s", info->model);
    native->model = model;
    int rc = model ? ask_model(native->clients[0], model, ret_info, error) : 0;
    if (rc) {
        native_close(&native->transport);
        return rc;
    }
    *ret_transport = &native->transport;
    return 0;
}
