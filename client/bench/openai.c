#include "client/bench/openai.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/bench/api_key.h"
#include "client/bench/driver.h"
#include "client/bench/event.h"
#include "protocol/base/json.h"
#include "protocol/base/list.h"

#define URL_MAX 1024
#define ERROR_BODY_MAX 160
#define CONNECTIONS_KEPT 4096L
#define MODELS_TIMEOUT_MS 10000L
#define MODELS_MAX (1u << 20)

struct openai {
    struct transport transport;
    CURLM *multi;
    struct curl_slist *headers;
    int timer; /* curl's own waits are in milliseconds: too coarse for arrivals */
    char url[URL_MAX], path[URL_MAX]; /* path: of a Unix socket, or empty */
    char model[128];
    bool keyed; /* the headers have a key */
    int32_t *prompt;
    uint32_t prompt_room;
    struct list busy, spare, doomed;
};

struct call {
    struct list link;
    struct openai *openai;
    struct driver *driver;
    uint32_t index;
    CURL *easy;
    char *body;
    struct event_reader reader;
    uint32_t completion_tokens; /* UINT32_MAX until the server says */
    uint32_t cached_tokens;
    bool done, doomed, broken;
    char refusal[ERROR_BODY_MAX]; /* the beginning of an answer that is no stream */
};

/* ---- answers -----------------------------------------------------------------------------------
 */

static void take_event(struct call *call, const struct event *event, time_us now_us)
{
    if (event->choices)
        driver_tokens(call->driver, call->index, 1, now_us);
    if (event->usage) {
        call->completion_tokens = event->completion_tokens;
        call->cached_tokens = event->cached_tokens;
    }
    call->done = call->done || event->done;
    call->broken = call->broken || event->error;
}

static void keep_refusal(struct call *call, const char *text, size_t length)
{
    size_t used = strlen(call->refusal);
    for (size_t i = 0; i < length && used + 1 < sizeof(call->refusal); i++)
        call->refusal[used++] = text[i] >= ' ' && text[i] < 127 ? text[i] : ' ';
    call->refusal[used] = 0;
}

static size_t take_bytes(char *text, size_t size, size_t count, void *context)
{
    struct call *call = context;
    const char *at = text;
    size_t length = size * count;
    time_us now_us = clock_now_us();
    struct event event;
    long status = 0;
    int rc;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        keep_refusal(call, text, length);
        return length;
    }
    while ((rc = event_read(&call->reader, &at, &length, &event)) > 0)
        take_event(call, &event, now_us);
    return rc < 0 ? 0 : size * count;
}

/* What an answer other than 200 means. */
static int refused(const struct openai *openai, long status, const char *text, struct error *error)
{
    if (status == 401)
        return error_set(error, ERR_DENIED, "HTTP 401: the server %s",
                         openai->keyed
                             ? "does not know the key that was sent (--api-key-file, "
                               "OPENAI_API_KEY)"
                             : "wants a key: give --api-key-file FILE, or set OPENAI_API_KEY");
    return error_set(error, status == 429 || status == 503 ? ERR_BUSY : ERR_BAD_VALUE,
                     "HTTP %ld: %s", status, text);
}

static void end_call(struct call *call, CURLcode code)
{
    struct openai *openai = call->openai;
    struct error error = {0};
    struct driver_end end = {.cancelled = call->doomed,
                             .output_tokens = call->completion_tokens,
                             .cached_tokens = call->cached_tokens};
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        error_set(&error, ERR_IO, "%s", curl_easy_strerror(code));
    else if (status != 200)
        refused(openai, status, call->refusal, &error);
    else if (!call->done || call->broken)
        error_set(&error, ERR_INTERNAL, "the stream ended %s",
                  call->broken ? "with an error" : "before its [DONE]");
    if (error.code && !call->doomed)
        end.error = &error;
    curl_multi_remove_handle(openai->multi, call->easy);
    list_remove(&call->link);
    list_append(&openai->spare, &call->link);
    free(call->body);
    call->body = NULL;
    driver_end(call->driver, call->index, &end, clock_now_us());
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static void put_body(struct json_writer *writer, const struct openai *openai,
                     const struct workload *workload, const struct item *item)
{
    json_open(writer, NULL, '{');
    json_put_text(writer, "model", openai->model);
    json_open(writer, "prompt", '[');
    for (uint32_t i = 0; i < item->prompt_tokens; i++)
        json_put_int(writer, NULL, openai->prompt[i]);
    json_close(writer, ']');
    json_put_uint(writer, "max_tokens", item->output_tokens);
    json_put_int(writer, "temperature", 0);
    json_put_bool(writer, "stream", true);
    json_open(writer, "stream_options", '{');
    json_put_bool(writer, "include_usage", true);
    json_close(writer, '}');
    if (workload->ignore_eos)
        json_put_bool(writer, "ignore_eos", true);
    if (workload->no_cache)
        json_put_bool(writer, "cache", false);
    if (workload->cache_salt)
        json_put_text(writer, "cache_salt", workload->cache_salt);
    if (item->priority)
        json_put_int(writer, "priority", item->priority);
    json_close(writer, '}');
}

static char *make_body(struct openai *openai, const struct workload *workload, uint32_t index)
{
    const struct item *item = &workload->items[index];
    struct json_writer writer;
    if (item->prompt_tokens > openai->prompt_room) {
        int32_t *more = realloc(openai->prompt, item->prompt_tokens * sizeof(*more));
        if (!more)
            return NULL;
        openai->prompt = more;
        openai->prompt_room = item->prompt_tokens;
    }
    workload_prompt(workload, index, openai->prompt);
    json_writer_init(&writer, NULL, 0);
    put_body(&writer, openai, workload, item);
    size_t length = writer.used;
    char *body = malloc(length + 1);
    if (!body)
        return NULL;
    json_writer_init(&writer, body, length);
    put_body(&writer, openai, workload, item);
    body[length] = 0;
    return body;
}

static void set_place(const struct openai *openai, CURL *easy, const char *what)
{
    char url[URL_MAX + 32];
    snprintf(url, sizeof(url), "%s%s", openai->url, what);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (*openai->path)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, openai->path);
}

static struct call *new_call(struct openai *openai)
{
    struct list *link = list_take(&openai->spare);
    struct call *call = link ? container_of(link, struct call, link) : calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    if (!call->easy && (call->easy = curl_easy_init())) {
        set_place(openai, call->easy, "/v1/completions");
        curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, openai->headers);
        curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, take_bytes);
        curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
        curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
    }
    if (!call->easy) {
        free(call);
        return NULL;
    }
    call->reader.used = 0;
    call->completion_tokens = UINT32_MAX;
    call->cached_tokens = 0;
    call->done = call->doomed = call->broken = false;
    *call->refusal = 0;
    return call;
}

static void advance(struct openai *openai)
{
    struct list *link;
    CURLMsg *message;
    int running, left;
    curl_multi_perform(openai->multi, &running);
    while ((message = curl_multi_info_read(openai->multi, &left))) {
        struct call *call;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        end_call(call, code);
    }
    while (!list_empty(&openai->doomed)) {
        link = openai->doomed.next;
        end_call(container_of(link, struct call, link), CURLE_OK);
    }
}

static int openai_submit(struct transport *transport, struct driver *driver, uint32_t index,
                         void **ret_call, struct error *error)
{
    struct openai *openai = container_of(transport, struct openai, transport);
    struct call *call = new_call(openai);
    if (call)
        call->body = make_body(openai, driver->workload, index);
    if (!call || !call->body) {
        if (call)
            list_append(&openai->spare, &call->link);
        return error_set(error, ERR_NO_MEMORY, "no memory for a request");
    }
    call->openai = openai;
    call->driver = driver;
    call->index = index;
    curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, call->body);
    curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
    list_append(&openai->busy, &call->link);
    curl_multi_add_handle(openai->multi, call->easy);
    *ret_call = call;
    return 0;
}

/* Within curl's own callbacks a transfer cannot be taken away: advance() does. */
static void openai_cancel(struct transport *transport, void *of)
{
    struct openai *openai = container_of(transport, struct openai, transport);
    struct call *call = of;
    if (call->doomed)
        return;
    call->doomed = true;
    list_remove(&call->link);
    list_append(&openai->doomed, &call->link);
}

static void openai_wait(struct transport *transport, time_us until_us)
{
    struct openai *openai = container_of(transport, struct openai, transport);
    struct curl_waitfd timer = {openai->timer, CURL_WAIT_POLLIN, 0};
    struct itimerspec until = {
        .it_value = {(time_t)(until_us / 1000000), (long)(until_us % 1000000) * 1000}};
    advance(openai);
    bool idle = list_empty(&openai->doomed) && (!until_us || until_us > clock_now_us());
    if (!idle)
        return;
    timerfd_settime(openai->timer, TFD_TIMER_ABSTIME, &until, NULL);
    curl_multi_poll(openai->multi, &timer, 1, 1000, NULL);
    advance(openai);
}

static void free_calls(struct openai *openai, struct list *calls)
{
    struct list *link;
    while ((link = list_take(calls))) {
        struct call *call = container_of(link, struct call, link);
        curl_multi_remove_handle(openai->multi, call->easy);
        curl_easy_cleanup(call->easy);
        event_free(&call->reader);
        free(call->body);
        free(call);
    }
}

static void openai_close(struct transport *transport)
{
    struct openai *openai = container_of(transport, struct openai, transport);
    free_calls(openai, &openai->busy);
    free_calls(openai, &openai->doomed);
    free_calls(openai, &openai->spare);
    curl_multi_cleanup(openai->multi);
    curl_slist_free_all(openai->headers);
    if (openai->timer >= 0)
        close(openai->timer);
    free(openai->prompt);
    free(openai);
}

/* ---- the server --------------------------------------------------------------------------------
 */

struct answer {
    char text[MODELS_MAX];
    size_t used;
};

static size_t keep_answer(char *text, size_t size, size_t count, void *context)
{
    struct answer *answer = context;
    if (size * count > sizeof(answer->text) - answer->used)
        return 0;
    memcpy(answer->text + answer->used, text, size * count);
    answer->used += size * count;
    return size * count;
}

static int read_model(const struct answer *answer, char *model, size_t size, struct error *error)
{
    static const struct json_bounds bounds = {.bytes_max = MODELS_MAX, .depth_max = 16};
    json *document = NULL;
    int rc = json_parse(answer->text, answer->used, bounds, &document, error);
    const char *name = json_string(json_get(json_child(json_get(document, "data")), "id"));
    if (!rc && !*name)
        rc = error_set(error, ERR_BAD_VALUE, "the server lists no model: give --model");
    else if (!rc)
        snprintf(model, size, "%s", name);
    json_free(document);
    return rc;
}

static int ask_model(struct openai *openai, struct error *error)
{
    struct answer *answer = calloc(1, sizeof(*answer));
    CURL *easy = curl_easy_init();
    int rc;
    if (!answer || !easy) {
        rc = error_set(error, ERR_NO_MEMORY, "out of memory");
    } else {
        set_place(openai, easy, "/v1/models");
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, openai->headers);
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, keep_answer);
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
        curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, MODELS_TIMEOUT_MS);
        CURLcode code = curl_easy_perform(easy);
        long status = 0;
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        if (code)
            rc = error_set(error, ERR_CONNECT, "%s%s%s/v1/models: %s", openai->path,
                           *openai->path ? ": " : "", openai->url, curl_easy_strerror(code));
        else if (status != 200)
            rc = refused(openai, status, "the server lists no models under /v1/models", error);
        else
            rc = read_model(answer, openai->model, sizeof(openai->model), error);
    }
    if (easy)
        curl_easy_cleanup(easy);
    free(answer);
    return rc;
}

static int set_url(struct openai *openai, const char *url, struct error *error)
{
    bool socket = !strncmp(url, "unix:", 5);
    size_t length = strlen(url);
    if (length >= URL_MAX || (!socket && strncmp(url, "http://", 7) && strncmp(url, "https://", 8)))
        return error_set(error, ERR_USAGE, "openai: give http://HOST:PORT or unix:PATH");
    if (socket)
        strcpy(openai->path, url + 5);
    strcpy(openai->url, socket ? "http://localhost" : url);
    length = strlen(openai->url);
    while (length > 0 && openai->url[length - 1] == '/')
        openai->url[--length] = 0;
    /* As other clients' base URLs are written. */
    if (length > 3 && strcmp(openai->url + length - 3, "/v1") == 0)
        openai->url[length - 3] = 0;
    return 0;
}

static int add_header(struct openai *openai, const char *header)
{
    struct curl_slist *more = curl_slist_append(openai->headers, header);
    if (more)
        openai->headers = more;
    return more ? 0 : -ERR_NO_MEMORY;
}

static int set_headers(struct openai *openai, const char *key)
{
    char header[API_KEY_MAX + 32];
    openai->keyed = *key;
    snprintf(header, sizeof(header), "Authorization: Bearer %s", key);
    int rc = add_header(openai, "Content-Type: application/json");
    return rc || !*key ? rc : add_header(openai, header);
}

static int prepare(struct openai *openai, const char *url, const char *model, const char *key,
                   struct error *error)
{
    openai->multi = curl_multi_init();
    openai->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (!openai->multi || set_headers(openai, key) || openai->timer < 0)
        return error_set(error, ERR_NO_MEMORY, "no memory for HTTP");
    curl_multi_setopt(openai->multi, CURLMOPT_MAXCONNECTS, CONNECTIONS_KEPT);
    int rc = set_url(openai, url, error);
    if (rc)
        return rc;
    if (!model)
        return ask_model(openai, error);
    snprintf(openai->model, sizeof(openai->model), "%s", model);
    return 0;
}

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

int openai_open(const char *url, const char *model, const char *key,
                struct transport **ret_transport, struct transport_info *ret_info,
                struct error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct openai *openai = calloc(1, sizeof(*openai));
    pthread_once(&once, start_curl);
    if (!openai)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    openai->transport = (struct transport){openai_submit, openai_cancel, openai_wait, openai_close};
    openai->timer = -1;
    list_init(&openai->busy);
    list_init(&openai->spare);
    list_init(&openai->doomed);
    int rc = prepare(openai, url, model, key, error);
    if (rc) {
        openai_close(&openai->transport);
        return rc;
    }
    *ret_info = (struct transport_info){0};
    snprintf(ret_info->model, sizeof(ret_info->model), "%s", openai->model);
    *ret_transport = &openai->transport;
    return 0;
}
