/* Which of the routes a path leads to, and who may go there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/http/access.h"
#include "daemon/http/exchange.h"
#include "daemon/request/server.h"

static void refuse(struct exchange *exchange, unsigned status, int code, const char *text)
{
    struct error error;
    error_set(&error, code, "%s", text);
    exchange_refuse_as(exchange, status, &error, "");
}

/* ---- checks ------------------------------------------------------------------------------------
 */

static bool is_json(const char *type)
{
    static const char wanted[] = "application/json";
    size_t length = sizeof(wanted) - 1;
    return type && strncasecmp(type, wanted, length) == 0 &&
           (type[length] == '\0' || type[length] == ';' || type[length] == ' ');
}

/* Over the loopback without a key a page of any site could send what has no type, and a browser
 * asks nobody first; nor is a page to do that with the reader's own key. Of all others Triton's
 * client sends none. */
static bool type_fits(const struct exchange *exchange, const struct exchange_head *head)
{
    const struct exchange_peer *peer = &exchange->peer;
    const char *type = head->content_type;
    if (is_json(type) || !exchange->route->tensors)
        return is_json(type);
    if (type)
        return strcasecmp(type, "application/octet-stream") == 0;
    return !head->origin && !(peer->tcp && exchange->http->free_loopback);
}

/* Behind the prefix: a name, maybe with a version, and then the route's tail; the name's length,
 * with its version. 0: it is none. */
static size_t name_length(const struct route *route, const char *rest)
{
    static const char versions[] = "/versions/";
    size_t length = strcspn(rest, "/");
    if (length > 0 && strncmp(rest + length, versions, sizeof(versions) - 1) == 0) {
        length += sizeof(versions) - 1;
        length += strcspn(rest + length, "/");
    }
    return strcmp(rest + length, route->tail) == 0 ? length : 0;
}

static bool matches(const struct route *route, const struct exchange_peer *peer, const char *path)
{
    bool hidden = peer->metrics_only ? !route->metrics && !route->open
                                     : route->metrics && peer->metrics_apart;
    size_t length = strlen(route->path);
    if (hidden)
        return false;
    if (!route->prefix)
        return strcmp(path, route->path) == 0;
    return strncmp(path, route->path, length) == 0 &&
           (route->tail ? name_length(route, path + length) > 0 : path[length] != 0);
}

/* What the path names behind a prefix. */
static void take_object(struct exchange *exchange, const char *path)
{
    const struct route *route = exchange->route;
    const char *rest = route->prefix ? path + strlen(route->path) : "";
    size_t length = route->tail ? name_length(route, rest) : strlen(rest);
    snprintf(exchange->object, sizeof(exchange->object), "%.*s", (int)length, rest);
}

/* How a body is written; false: it was refused. */
static bool take_coding(struct exchange *exchange, const struct exchange_head *head)
{
    const char *length = head->json_length;
    exchange->coding = coding_find(head->content_encoding);
    exchange->body_json = SIZE_MAX;
    if (exchange->coding != CODING_NONE &&
        (exchange->coding == CODING_UNKNOWN || !exchange->route->tensors)) {
        refuse(exchange, 415, ERR_UNSUPPORTED,
               exchange->route->tensors ? "Content-Encoding must be gzip, deflate or identity"
                                        : "Content-Encoding: this body must come as it is");
        return false;
    }
    if (!length || !exchange->route->tensors)
        return true;
    size_t digits = strspn(length, "0123456789");
    if (digits == 0 || digits > 18 || length[digits]) {
        refuse(exchange, 400, ERR_BAD_HEAD, "Inference-Header-Content-Length is no number");
        return false;
    }
    exchange->body_json = (size_t)strtoull(length, NULL, 10);
    return true;
}

/* The listener of the figures alone asks for no key: they are everyone's. */
static bool may(struct exchange *exchange, const struct exchange_head *head)
{
    const struct http *http = exchange->http;
    if (!exchange->peer.tcp || exchange->route->open || exchange->peer.metrics_only)
        return true;
    uint64_t user = keys_user(&http->keys, head->authorization, head->api_key, &exchange->peer.key);
    if (user == 0) /* where none is needed, one that is unknown is none: clients make some up */
        return http->free_loopback && exchange->peer.loopback;
    exchange->peer.user = user;
    return true;
}

static void check(struct exchange *exchange, const struct exchange_head *head)
{
    struct error error;
    size_t max = exchange->http->server->options->frame_max;
    if (!may(exchange, head)) {
        refuse(exchange, 401, ERR_DENIED,
               "a key of api-key-file is needed: Authorization: Bearer KEY, or X-Api-Key: KEY");
    } else if (!access_user(exchange, head)) {
        return; /* it says why */
    } else if (exchange->route->body && !type_fits(exchange, head)) {
        refuse(exchange, 415, ERR_BAD_HEAD, "the header Content-Type must be application/json");
    } else if (exchange->route->body && !take_coding(exchange, head)) {
        return;
    } else if (head->content_length > max) {
        error_limit(&error, ERR_TOO_LARGE, max, head->content_length,
                    "the body has %llu bytes, at most %zu are accepted (frame-max)",
                    (unsigned long long)head->content_length, max);
        exchange_refuse_as(exchange, 413, &error, "");
    }
}

/* Of a path or what is above it: whoever asks for something that there is not, or by another
 * method, is told so as that API tells it. NULL: OpenAI's. */
static const struct api *api_above(const struct routes *routes, const char *path)
{
    for (size_t i = 0; i < routes->count; i++) {
        const struct route *route = &routes->list[i];
        const size_t length = strlen(route->path);
        if (route->api && strncmp(path, route->path, length) == 0 &&
            (path[length] == '\0' || path[length] == '/'))
            return route->api;
    }
    return NULL;
}

void route_find(struct exchange *exchange, const struct exchange_head *head)
{
    const char *allow = NULL;
    exchange->api = api_above(exchange->http->routes, head->path);
    access_origin(exchange, head);
    if (exchange->peer.tcp && !access_host(exchange, head->host)) {
        refuse(exchange, 421, ERR_DENIED,
               "the header Host must be an address, localhost, this machine's name or one of "
               "http-names");
        return;
    }
    const struct routes *routes = exchange->http->routes;
    for (size_t i = 0; i < routes->count; i++) {
        const struct route *route = &routes->list[i];
        if (!matches(route, &exchange->peer, head->path))
            continue;
        if (access_preflight(exchange, head))
            return;
        bool head_only = strcmp(head->method, "HEAD") == 0 && strcmp(route->method, "GET") == 0;
        if (strcmp(head->method, route->method) == 0 || head_only) {
            exchange->route = route;
            exchange->api = route->api;
            take_object(exchange, head->path);
            check(exchange, head);
            return;
        }
        allow = route->method;
    }
    exchange->allow = allow;
    if (allow)
        refuse(exchange, 405, ERR_BAD_STATE, "another method is expected here");
    else
        refuse(exchange, 404, ERR_NOT_FOUND, "there is nothing under this path");
}
