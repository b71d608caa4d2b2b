/* Which of the routes a path leads to, and who may go there. */
#include <stdio.h>
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

static bool matches(const struct route *route, const struct exchange_peer *peer, const char *path)
{
    bool hidden = peer->metrics_only ? !route->metrics && !route->open
                                     : route->metrics && peer->metrics_apart;
    size_t length = strlen(route->path);
    if (hidden)
        return false;
    return route->prefix ? strncmp(path, route->path, length) == 0 && path[length]
                         : strcmp(path, route->path) == 0;
}

/* The listener of the figures alone asks for no key: they are everyone's. */
static bool may(struct exchange *exchange, const struct exchange_head *head)
{
    const struct http *http = exchange->http;
    if (!exchange->peer.tcp || exchange->route->open || exchange->peer.metrics_only ||
        (http->free_loopback && exchange->peer.loopback))
        return true;
    exchange->peer.user =
        keys_user(&http->keys, head->authorization, head->api_key, &exchange->peer.key);
    return exchange->peer.user != 0;
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
    } else if (exchange->route->body && !is_json(head->content_type)) {
        refuse(exchange, 415, ERR_BAD_HEAD, "the header Content-Type must be application/json");
    } else if (head->content_length > max) {
        error_limit(&error, ERR_TOO_LARGE, max, head->content_length,
                    "the body has %llu bytes, at most %zu are accepted (frame-max)",
                    (unsigned long long)head->content_length, max);
        exchange_refuse_as(exchange, 413, &error, "");
    }
}

void route_find(struct exchange *exchange, const struct exchange_head *head)
{
    const char *allow = NULL;
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
            snprintf(exchange->object, sizeof(exchange->object), "%s",
                     route->prefix ? head->path + strlen(route->path) : "");
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
