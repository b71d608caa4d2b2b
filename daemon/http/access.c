#include "daemon/http/access.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "daemon/base/web_access.h"
#include "daemon/request/server.h"

static const struct options *options_of(const struct exchange *exchange)
{
    return exchange->http->server->options;
}

/* ---- host --------------------------------------------------------------------------------------
 */

/* The name without its port, in `name`. */
static bool cut_port(const char *host, char *name, size_t size)
{
    size_t length = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
    size_t skip = host[0] == '[';
    if (length - skip >= size)
        return false;
    memcpy(name, host + skip, length - skip);
    name[length - skip] = '\0';
    return true;
}

bool access_host(const struct exchange *exchange, const char *host)
{
    char name[256], own[256];
    unsigned char address[16];
    if (!host || !cut_port(host, name, sizeof(name)))
        return false;
    if (strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1 ||
        inet_pton(AF_INET6, name, address) == 1 || web_access_name(options_of(exchange), name))
        return true;
    return gethostname(own, sizeof(own)) == 0 && strcasecmp(name, own) == 0;
}

/* ---- origin ------------------------------------------------------------------------------------
 */

bool access_origin(struct exchange *exchange, const struct exchange_head *head)
{
    /* A listener of the figures alone asks for no key, so what it tells is for no page. */
    if (exchange->peer.metrics_only || !head->origin || strlen(head->origin) > WEB_ORIGIN_MAX ||
        !web_access_origin(options_of(exchange), head->origin))
        return false;
    if (!exchange->cors)
        exchange->cors = calloc(1, sizeof(*exchange->cors));
    if (exchange->cors) /* without memory the page does not see the answer */
        snprintf(exchange->cors->origin, sizeof(exchange->cors->origin), "%s", head->origin);
    return exchange->cors != NULL;
}

/* Names of headers with commas between. */
static bool are_names(const char *list)
{
    for (const char *c = list; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_, ", *c))
            return false;
    return strlen(list) < EXCHANGE_CORS_HEADERS_MAX;
}

static void refuse(struct exchange *exchange, unsigned status, int code, const char *text)
{
    struct error error;
    error_set(&error, code, "%s", text);
    exchange_refuse_as(exchange, status, &error, "");
}

bool access_preflight(struct exchange *exchange, const struct exchange_head *head)
{
    const char *headers = head->cors_headers ? head->cors_headers : "";
    if (strcmp(head->method, "OPTIONS") != 0 || !head->origin || !head->cors_method ||
        !options_of(exchange)->cors_origins[0])
        return false;
    if (!exchange->cors) {
        refuse(exchange, 403, ERR_DENIED, "the header Origin is none of cors-origins");
    } else if (!are_names(headers)) {
        refuse(exchange, 400, ERR_BAD_HEAD, "Access-Control-Request-Headers is no list of names");
    } else {
        exchange->cors->preflight = true;
        snprintf(exchange->cors->headers, sizeof(exchange->cors->headers), "%s", headers);
        exchange_status(exchange, 204, NULL);
        exchange_finish(exchange);
    }
    return true;
}

static size_t put(char *text, size_t size, size_t used, const char *name, const char *value)
{
    int length = snprintf(text + used, size - used, "%s: %s\r\n", name, value);
    assert(length > 0 && (size_t)length < size - used); /* the caller has room for all */
    return used + (size_t)length;
}

size_t access_fields(const struct exchange *exchange, char *text, size_t size)
{
    const struct exchange_cors *cors = exchange->cors;
    size_t used = 0;
    if (options_of(exchange)->cors_origins[0])
        used = put(text, size, used, "Vary", "Origin");
    if (!cors)
        return used;
    used = put(text, size, used, "Access-Control-Allow-Origin", cors->origin);
    if (!cors->preflight)
        return put(text, size, used, "Access-Control-Expose-Headers",
                   "x-request-id, Retry-After, retry-after-ms, Inference-Header-Content-Length");
    used = put(text, size, used, "Access-Control-Allow-Methods", "GET, POST");
    used = put(text, size, used, "Access-Control-Max-Age", "600");
    if (cors->headers[0])
        used = put(text, size, used, "Access-Control-Allow-Headers", cors->headers);
    return used;
}

/* ---- for whom ----------------------------------------------------------------------------------
 */

bool access_user(struct exchange *exchange, const struct exchange_head *head)
{
    struct exchange_peer *peer = &exchange->peer;
    const char *name = head->user;
    peer->key_user = peer->user;
    if (!name || exchange->route->open || peer->metrics_only) {
        exchange->sink.many = peer->key && web_access_trusts(options_of(exchange), peer->key);
        return true;
    }
    if (!peer->key || !web_access_trusts(options_of(exchange), peer->key)) {
        refuse(exchange, 403, ERR_DENIED,
               "x-sluice-user: only who calls by a key of trusted-keys may name a user");
        return false;
    }
    if (!keys_is_name(name, strlen(name))) {
        refuse(exchange, 400, ERR_BAD_VALUE,
               "x-sluice-user: a name of 1 to 64 bytes without spaces is expected");
        return false;
    }
    int length = snprintf(exchange->named, sizeof(exchange->named), "%s/%s", peer->key, name);
    assert(length > 0 && (size_t)length < sizeof(exchange->named));
    peer->key = exchange->named;
    peer->user = keys_user_of(exchange->named, (size_t)length);
    return true;
}
