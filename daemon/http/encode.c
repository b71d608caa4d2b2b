/* The texts of an query on their way to tokens: prompts as they are, conversations by the model's
 * template. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/http/exchange.h"
#include "daemon/server.h"
#include "daemon/text/chat.h"

/* Any thread: the loop looks at nothing of this meanwhile. */
static int render(struct encoding *encoding, struct error *error)
{
    struct exchange *exchange = container_of(encoding, struct exchange, encoding);
    const struct language *language = exchange->http->server->language;
    const struct query *query = &exchange->query;
    const struct chat_limits limits = CHAT_LIMITS;
    const struct chat_input input = {
        .messages = query->rewritten ? query->rewritten : query->messages,
        .tools = query->tools,
        .extra = query->extra,
        .bos_token = language->bos_token[0] ? language->bos_token : NULL,
        .eos_token = language->eos_token[0] ? language->eos_token : NULL,
        .add_generation_prompt = query->add_generation_prompt,
        .now = time(NULL),
    };
    struct encoding_text *text = &encoding->texts[0];
    int rc = chat_template_render(language->chat, &input, &limits, &exchange->rendered,
                                  &text->length, error);
    text->text = exchange->rendered;
    return rc;
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
    if (encoding->error.code)
        exchange_refuse(exchange, &encoding->error,
                        exchange->query.messages ? "messages" : "prompt");
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
    bool chat = query->messages != NULL;
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
    encoding->prepare = chat ? render : NULL; /* and no special tokens: templates write them */
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
    if (!query->messages && !query->prompts[0].text)
        done(exchange, now_us);
    else if (start(exchange, &error))
        exchange_refuse(exchange, &error, "");
}
