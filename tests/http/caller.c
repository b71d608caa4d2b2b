#include "tests/http/caller.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/api/api.h"
#include "daemon/text/template/chat.h"

static void woken(struct http *http, struct exchange *exchange)
{
    (void)http;
    (void)exchange; /* the tests read when they like */
}

static int run(struct background *background, struct task *task)
{
    struct site *site = container_of(background, struct site, background);
    ck_assert_uint_lt(site->held_count, 16);
    site->held[site->held_count++] = task;
    return 0;
}

void site_make(struct site *site)
{
    memset(site, 0, sizeof(*site));
    world_make(&site->world);
    ck_assert_int_eq(model_text_load(&site->model_text, "synthetic:null", NULL), 0);
    ck_assert_ptr_nonnull(site->model_text.tokenizer);
    chat_template_free(site->model_text.chat); /* tests bring their own, or none */
    site->model_text.chat = NULL;
    site->background.run = run;
    site->world.server.background = &site->background;
    site->world.server.models[0].text = &site->model_text;
    http_init(&site->http, &site->world.server, &api_routes, 7, woken);
    world_ready(&site->world);
}

void site_work(struct site *site)
{
    for (uint32_t i = 0; i < site->held_count; i++) {
        site->held[i]->work(site->held[i]);
        site->held[i]->done(site->held[i], site->world.now_us);
    }
    site->held_count = 0;
}

void site_turn(struct site *site)
{
    if (!site->hold)
        site_work(site);
    do
        world_turn(&site->world);
    while (http_turn(&site->http, site->world.now_us));
}

void site_finish(struct site *site)
{
    for (int i = 0; i < 10000 && site->world.server.live_sequences > 0; i++) {
        world_step(&site->world, 3);
        site_turn(site);
    }
    ck_assert_uint_eq(site->world.server.live_sequences, 0);
}

void site_free(struct site *site)
{
    site_work(site);
    site_turn(site);
    http_free(&site->http);
    world_free(&site->world);
    model_text_free(&site->model_text);
}

void site_template(struct site *site, const char *source)
{
    struct error error;
    chat_template_free(site->model_text.chat);
    ck_assert_msg(chat_template_load(source, strlen(source), &site->model_text.chat, &error) == 0,
                  "%s", error.text);
    answer_form_find(&site->model_text.answer, source, site->model_text.tokenizer);
}

void call_as(struct site *site, struct caller *caller, const struct exchange_peer *peer,
             const struct exchange_head *head, const char *body)
{
    memset(caller, 0, sizeof(*caller));
    caller->site = site;
    caller->exchange = exchange_open(&site->http, peer, site->world.now_us);
    ck_assert_ptr_nonnull(caller->exchange);
    if (exchange_head(caller->exchange, head)) {
        size_t length = body ? strlen(body) : 0, cut = length / 3;
        if (length > 0) {
            exchange_body(caller->exchange, body, cut);
            exchange_body(caller->exchange, body + cut, length - cut);
        }
        exchange_begin(caller->exchange, site->world.now_us);
    }
    site_turn(site);
}

void call(struct site *site, struct caller *caller, const char *path, const char *body)
{
    const struct exchange_peer peer = {.user = 1000};
    const struct exchange_head head = {.method = body ? "POST" : "GET",
                                       .path = path,
                                       .content_type = "application/json; charset=utf-8",
                                       .content_length = body ? strlen(body) : 0};
    call_as(site, caller, &peer, &head, body);
}

const char *caller_read(struct caller *caller)
{
    size_t count;
    do {
        if (caller->size - caller->length < 100) {
            caller->size = caller->size ? 2 * caller->size : 1024;
            caller->answer = realloc(caller->answer, caller->size);
            ck_assert_ptr_nonnull(caller->answer);
        }
        count = exchange_read(caller->exchange, caller->answer + caller->length, 99);
        site_turn(caller->site);
        if (count == EXCHANGE_READ_END)
            caller->ended = true;
        else
            caller->length += count;
    } while (count > 0 && !caller->ended);
    caller->answer[caller->length] = '\0';
    return caller->answer;
}

unsigned fetch(struct site *site, const char *path, const char *body, char *answer, size_t size)
{
    struct caller caller;
    call(site, &caller, path, body);
    site_finish(site);
    ck_assert(exchange_ready(caller.exchange));
    unsigned status = caller.exchange->status;
    snprintf(answer, size, "%s", caller_read(&caller));
    ck_assert(caller.ended);
    caller_free(&caller);
    return status;
}

void caller_free(struct caller *caller)
{
    exchange_close(caller->exchange, caller->site->world.now_us);
    caller->exchange = NULL;
    free(caller->answer);
    site_turn(caller->site);
}
