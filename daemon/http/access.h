/* Access: under which Host, from which web page, and for whom a request is made. What is looked at is
 * the head alone; keys are route.c's. loop thread
 */
#pragma once

#include <stdbool.h>

#include "daemon/http/exchange.h"

/* A page of some site, opened in a browser on this machine, can be made to speak to us under that
 * site's name. Under the names that are ours it cannot: addresses, localhost, this machine's name, and
 * http-names. */
bool access_host(const struct exchange *exchange, const char *host);

/* Notes the origin where it is one of cors-origins: the answer, also an error, says so. */
bool access_origin(struct exchange *exchange, const struct exchange_head *head);
/* A browser asks whether a page may send a request: answered here. False when it is not that, or no
 * origins are configured. */
bool access_preflight(struct exchange *exchange, const struct exchange_head *head);
/* The headers of the answer that come of it, each with its line's end; what was used of `size`. */
size_t access_fields(const struct exchange *exchange, char *text, size_t size);

/* Who called by a key of trusted-keys and names whom it calls for becomes that user: KEY/USER. False
 * when the exchange was refused: nobody else may name anybody. */
bool access_user(struct exchange *exchange, const struct exchange_head *head);
