/* The texts of a query on their way to tokens: prompts as they are, conversations by the model's
 * template. */
#include "daemon/http/exchange.h"
#include "daemon/server.h"

/* Any thread: the loop looks at nothing of this meanwhile. */
static int render(struct encoding *encoding, uint32_t index, struct error *error)
{
    struct exchange *exchange = container_of(encoding, struct exchange, encoding);
    return encoding_render(encoding, index, &exchange->query.chat, error);
}

static void encoded(struct encoding *encoding)
{
    struct exchange *exchange = container_of(encoding, struct exchange, encoding);
    time_us turn_us = exchange->http->server->turn_us;
    time_us now_us = turn_us > exchange->arrived_us ? turn_us : exchange->arrived_us;
    bool before = exchange->encoding_on;
    exchange->encoding_on = false;
    if (exchange->closed) {
        exchange_close(exchange, now_us);
        return;
    }
    query_rendered(&exchange->query);
    if (encoding->error.code)
        exchange_refuse(exchange, &encoding->error, encoding->prepare ? "messages" : "prompt");
    else
        exchange->encoded(exchange, now_us);
    if (before)
        exchange->http->wake(exchange->http, exchange);
}

static int start(struct exchange *exchange, struct error *error)
{
    struct server *server = exchange->http->server;
    struct encoding *encoding = &exchange->encoding;
    const struct query *query = &exchange->query;
    bool chat = query->chat.messages != NULL;
    int rc = chat ? language_chats(server->language, error) : 0;
    if (!rc)
        rc = encoding_make(encoding, server, chat ? 1 : query->prompt_count, error);
    if (rc)
        return rc;
    for (uint32_t i = 0; !chat && i < query->prompt_count; i++) {
        encoding->texts[i].text = query->prompts[i].text;
        encoding->texts[i].length = query->prompts[i].length;
        encoding->texts[i].add_special = query->add_special;
    }
    encoding->prepare = chat ? render : NULL;
    encoding->bytes = chat ? exchange->body_length : 0;
    exchange->encoding_on = true;
    rc = encoding_start(encoding, exchange->audience.user, encoded, error);
    if (rc)
        exchange->encoding_on = false;
    return rc;
}

void encode_begin(struct exchange *exchange,
                  void (*done)(struct exchange *exchange, time_us now_us), time_us now_us)
{
    struct error error;
    const struct query *query = &exchange->query;
    exchange->encoded = done;
    if (!query->chat.messages && !query->prompts[0].text)
        done(exchange, now_us);
    else if (start(exchange, &error))
        exchange_refuse(exchange, &error, "");
}
