#include "daemon/service/sockets.h"

#include <string.h>

#include "daemon/base/api_key.h"
#include "daemon/base/option.h"
#include "daemon/http/http_address.h"
#include "daemon/net/listen.h"
#include "daemon/service/event_loop.h"

/* ---- which socket is what ----------------------------------------------------------------------
 */

static bool is_called(const char *path, const char *name)
{
    size_t all = strlen(path), length = strlen(name);
    return all > length && strcmp(path + all - length, name) == 0 &&
           strchr("/-", path[all - length - 1]);
}

int sockets_tell(const struct listener *passed, enum socket_kind *ret_kind, struct error *error)
{
    static const char *const names[] = {[SOCKET_NATIVE] = "native",
                                        [SOCKET_HTTP] = "http",
                                        [SOCKET_METRICS] = "metrics",
                                        [SOCKET_AGENT] = "agent"};
    enum socket_kind kind = SOCKET_NATIVE;
    bool named = false;
    for (int i = SOCKET_NATIVE; i <= SOCKET_AGENT; i++)
        if (strcmp(passed->given, names[i]) == 0) {
            kind = (enum socket_kind)i;
            named = true;
        }
    if (passed->tcp && (!named || kind == SOCKET_NATIVE))
        return error_set(error, ERR_BAD_CONFIG,
                         "the passed socket \"%s\" (%s) is no Unix socket, and named neither http, "
                         "metrics nor agent",
                         passed->given, passed->name);
    if (!named && is_called(passed->path, "http.sock"))
        kind = SOCKET_HTTP;
    if (!named && is_called(passed->path, "metrics.sock"))
        kind = SOCKET_METRICS;
    if (!named && is_called(passed->path, "agent.sock"))
        kind = SOCKET_AGENT;
    *ret_kind = kind;
    return 0;
}

const char *sockets_unit(const char *option)
{
    return strcmp(option, "http") == 0 ? "tcp" : strcmp(option, "metrics") == 0 ? option : "agent";
}

/* What the option for such sockets holds, and its name. */
static const char *asked_for(const struct options *options, enum socket_kind kind,
                             const char **ret_option)
{
    *ret_option = kind == SOCKET_HTTP ? "http" : kind == SOCKET_METRICS ? "metrics" : "agent-check";
    return kind == SOCKET_HTTP      ? options->http
           : kind == SOCKET_METRICS ? options->metrics
                                    : options->agent_check;
}

/* ---- who may call ------------------------------------------------------------------------------
 */

static int check_keys(const struct options *options, const struct listener *listener,
                      enum socket_kind kind, struct error *error)
{
    if (!listener->tcp || kind != SOCKET_HTTP || options->api_key_file[0] ||
        (options->insecure_loopback && listener->loopback))
        return 0;
    return error_set(
        error, ERR_BAD_CONFIG,
        "http: %s%s needs an api-key-file (or, on the loopback, insecure-loopback = yes)",
        listener->name, listener->passed ? ", which was passed," : "");
}

/* ---- opening -----------------------------------------------------------------------------------
 */

static int serve(struct event_loop *loop, const struct listener *listener, enum socket_kind kind,
                 uint64_t salt, struct error *error)
{
    if (kind == SOCKET_NATIVE)
        return event_loop_listen(loop, listener, error);
    if (kind == SOCKET_AGENT)
        return event_loop_listen_agent(loop, listener, error);
    int rc = event_loop_serve_http(loop, salt, error);
    return rc ? rc
              : event_loop_listen_http(
                    loop, listener, kind == SOCKET_METRICS ? HTTP_SERVER_METRICS : HTTP_SERVER_API,
                    error);
}

static int open_own(struct event_loop *loop, const struct options *options, struct error *error)
{
    char path[LISTEN_PATH_MAX];
    struct listener listener;
    const char *given = options->socket;
    int rc = *given ? 0 : listen_default_path(path, error);
    if (!rc)
        rc = listen_open(*given ? given : path, &listener, error);
    if (rc) {
        const struct error why = *error;
        return error_set(error, why.code, "socket: %.480s", why.text);
    }
    rc = event_loop_listen(loop, &listener, error);
    if (rc)
        listen_close(&listener);
    return rc;
}

struct passed {
    struct listener listeners[LISTEN_MAX];
    uint32_t count;
};

/* In a network of its own nobody would ever call. */
static int check_network(const struct passed *passed, const char *option, const char *list,
                         struct error *error)
{
    struct listener listener;
    if (passed->count == 0 || !listen_is_apart(&passed->listeners[0]))
        return 0;
    while (*list) {
        int rc = address_read(&list, option, &listener, error);
        if (rc)
            return rc;
        if (listener.tcp)
            return error_set(error, ERR_BAD_CONFIG,
                             "%s: nobody would reach %s, since the service has a network of its "
                             "own (PrivateNetwork=): systemctl enable sluiced-%s.socket passes a "
                             "socket to it",
                             option, listener.name, sockets_unit(option));
    }
    return 0;
}

static int open_list(struct event_loop *loop, const struct options *options,
                     const struct passed *passed, enum socket_kind kind, uint64_t salt,
                     struct error *error)
{
    const char *option, *list = asked_for(options, kind, &option);
    int rc = check_network(passed, option, list, error);
    while (!rc && *list) {
        struct listener listener;
        rc = address_open(&list, option, &listener, error);
        if (rc)
            return rc;
        rc = check_keys(options, &listener, kind, error);
        if (!rc)
            rc = serve(loop, &listener, kind, salt, error);
        if (rc)
            listen_close(&listener);
    }
    return rc;
}

int sockets_open(struct event_loop *loop, const struct options *options, uint64_t salt,
                 struct error *error)
{
    struct passed passed;
    int rc = listen_passed(passed.listeners, &passed.count, error);
    for (uint32_t i = 0; !rc && i < passed.count; i++) {
        enum socket_kind kind = SOCKET_NATIVE;
        rc = sockets_tell(&passed.listeners[i], &kind, error);
        if (!rc)
            rc = check_keys(options, &passed.listeners[i], kind, error);
        if (!rc)
            rc = serve(loop, &passed.listeners[i], kind, salt, error);
    }
    if (!rc && (passed.count == 0 || options->socket[0]))
        rc = open_own(loop, options, error);
    for (int i = SOCKET_HTTP; !rc && i <= SOCKET_AGENT; i++)
        rc = open_list(loop, options, &passed, (enum socket_kind)i, salt, error);
    return rc;
}

/* ---- checking ----------------------------------------------------------------------------------
 */

static int check_list(const struct options *options, enum socket_kind kind, struct error *error)
{
    const char *option, *list = asked_for(options, kind, &option);
    int rc = 0;
    while (!rc && *list) {
        struct listener listener;
        rc = address_read(&list, option, &listener, error);
        if (!rc)
            rc = check_keys(options, &listener, kind, error);
    }
    return rc;
}

int sockets_check(const struct options *options, struct error *error)
{
    struct keys keys = {0};
    int rc = 0;
    for (int i = SOCKET_HTTP; !rc && i <= SOCKET_AGENT; i++)
        rc = check_list(options, (enum socket_kind)i, error);
    if (!rc && options->api_key_file[0])
        rc = keys_load(&keys, options->api_key_file, error);
    keys_free(&keys);
    return rc;
}
