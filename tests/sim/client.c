#include "tests/sim/client.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/session.h"
#include "tests/sim/threads.h"

#define CALM_US 4000u /* between two looks of somebody who waits */
#define LONG_TEXT (20u << 10)
#define LONG_US 400000u /* longer than any patience of the daemon's */

#define WRONG(...) scene_fail(guest->scene, "client: " __VA_ARGS__)

/* ---- life --------------------------------------------------------------------------------------
 */

void guest_init(struct guest *guest, struct guests *all, uint32_t number, struct scene *scene,
                const struct questions *questions, const struct order_mood *mood, uint32_t models,
                uint32_t acts)
{
    memset(guest, 0, sizeof(*guest));
    guest->scene = scene;
    guest->questions = questions;
    guest->all = all;
    guest->mood = mood;
    guest->models = models;
    guest->number = number;
    guest->uid = scene_below(scene, THREADS_USERS);
    guest->admin = guest->uid == 0;
    guest->next_id = 1;
    guest->acts = acts;
    guest->pause_us = 500u << scene_below(scene, 6);
    guest->floods = mood->flood && guest->uid == 1;
    if (guest->floods) {
        guest->acts = 12 * acts;
        guest->pause_us = 1500;
    }
    guest->act_us = scene->now_us + scene_below(scene, guest->pause_us);
    line_init(&guest->line, scene, number, 1);
    guest->line.server_gone = true;
}

void guest_free(struct guest *guest)
{
    line_free(&guest->line);
    free(guest->in);
    free(guest->rest);
    guest->in = guest->rest = NULL;
}

static void lose_orders(struct guest *guest)
{
    for (uint32_t i = 0; i < GUEST_ORDERS; i++) {
        guest->lost += guest->orders[i].id != 0;
        guest->orders[i].id = 0;
    }
    memset(guest->asks, 0, sizeof(guest->asks));
    guest->in_length = guest->rest_length = 0;
    guest->connected = guest->greeted = false;
}

void guest_meet(struct guest *guest, struct server *server)
{
    lose_orders(guest);
    line_free(&guest->line);
    line_init(&guest->line, guest->scene, guest->number, 1);
    guest->line.server_gone = true;
    guest->server = server;
}

void client_settle(struct guest *guest, enum guest_manner manner)
{
    guest->manner = manner;
    guest->read_us = 0;
    guest->act_us = guest->scene->now_us + 1;
}

void guest_leave(struct guest *guest)
{
    guest->line.client_gone = true;
    guest->act_us = 0;
    lose_orders(guest);
}

static void hello(struct guest *guest)
{
    const struct message_hello message = {.version_min = 1, .version_max = 1, .client = "guest"};
    unsigned char buffer[256];
    line_put(&guest->line, buffer, message_encode_hello(buffer, sizeof(buffer), &message));
}

static void connect(struct guest *guest)
{
    struct scene *scene = guest->scene;
    const struct peer peer = {
        .uid = guest->uid, .gid = guest->uid, .admin = guest->admin, .via = "simulated"};
    line_free(&guest->line);
    line_init(&guest->line, scene, guest->number,
              guest->manner != GUEST_WILD || scene_one_in(scene, 2)
                  ? 65536
                  : scene_between(scene, 64, 4096));
    guest->connected = true;
    guest->excused = false;
    guest->close_code = 0;
    guest->read_us = 0;
    guest->line.conn = session_accept(guest->server, &guest->line.transport, &peer, scene->now_us);
    scene_note(scene, "connect", guest->number, guest->line.conn != NULL);
    if (guest->manner != GUEST_WILD || !scene_one_in(scene, 20)) {
        hello(guest);
        return;
    }
    guest->excused = true; /* says nothing, or something else first */
}

static bool idle(const struct guest *guest)
{
    for (uint32_t i = 0; i < GUEST_ORDERS; i++)
        if (guest->orders[i].id)
            return false;
    return true;
}

static bool answered(const struct guest *guest)
{
    for (uint32_t i = 0; i < GUEST_ASKS; i++)
        if (guest->asks[i].id)
            return false;
    return idle(guest);
}

/* The daemon has closed, and all of it was read. It may where the client says no more, once every
 * answer is there. */
static void at_end(struct guest *guest)
{
    bool over = guest->line.client_ended && answered(guest);
    if (!over && !guest->excused && !guest->mood->device_failed)
        WRONG("client %u was disconnected without a reason", guest->number);
    lose_orders(guest);
    guest->act_us = guest->scene->now_us + 1 + scene_below(guest->scene, guest->pause_us);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static struct guest_ask *find_ask(struct guest *guest, uint64_t id)
{
    for (uint32_t i = 0; i < GUEST_ASKS; i++)
        if (guest->asks[i].id == id)
            return &guest->asks[i];
    return NULL;
}

static struct order *find_order(struct guest *guest, uint64_t id)
{
    for (uint32_t i = 0; i < GUEST_ORDERS; i++)
        if (guest->orders[i].id == id)
            return &guest->orders[i];
    return NULL;
}

static void take_ask(struct guest *guest, struct guest_ask *ask, const struct frame *frame)
{
    struct message_error message;
    struct error error;
    ask->id = 0;
    if (frame->type == ask->type && frame->flags & FRAME_FLAG_ANSWER) {
        if (!ask->answer)
            WRONG("type %u was answered and must be refused", frame->type);
        return;
    }
    if (frame->type != FRAME_ERROR || message_decode_error(frame, &message, &error)) {
        WRONG("a frame of type %u answers type %u", frame->type, ask->type);
        return;
    }
    int code = message.error.code;
    bool failing = guest->mood->device_failed && error_retry(code) == RETRY_LATER;
    bool draining =
        code == ERR_DRAINING && (ask->type == FRAME_SUBMIT || ask->text || guest->mood->ending);
    bool unread = ask->text && (code == ERR_BUSY || code == ERR_NO_MEMORY);
    if (code != ask->code && code != ask->or_code && !failing && !draining && !unread)
        WRONG("type %u was refused with %s, must be %s: %s", ask->type, error_name(code),
              error_name(ask->code), message.error.text);
}

static void take_farewell(struct guest *guest, const struct frame *frame)
{
    struct message_error message;
    struct error error;
    if (frame->type == FRAME_WELCOME) {
        guest->greeted = true;
        return;
    }
    if (frame->type != FRAME_ERROR || message_decode_error(frame, &message, &error)) {
        WRONG("a frame of type %u with id 0", frame->type);
        return;
    }
    int code = message.error.code;
    bool right =
        guest->excused && (code == guest->close_code || code == ERR_TIMEOUT ||
                           code == ERR_SLOW_READER || (code == ERR_BAD_STATE && !guest->greeted));
    if (!right && code != ERR_BUSY)
        WRONG("disconnected with %s: %s", error_name(code), message.error.text);
    guest->excused = true;
}

static void finish(struct guest *guest, struct order *order)
{
    guest->accepted += order->request != 0;
    guest->refused += order->refused != 0;
    guest->completed += !order->refused && order->failed == 0;
    if (order->patient && order->failed == 0 && !order->refused)
        guest->done = true;
    if (guest->manner == GUEST_CALM && !guest->done && guest->rest_length == 0) {
        uint64_t wait_us = order->refused ? 1000ull * order->retry_ms : 1000;
        guest->act_us = guest->scene->now_us + wait_us + 1;
    }
    order->id = 0;
}

static void take_frame(struct guest *guest, const struct frame *frame)
{
    struct guest_ask *ask = frame->id ? find_ask(guest, frame->id) : NULL;
    struct order *order = frame->id && !ask ? find_order(guest, frame->id) : NULL;
    if (frame->id == 0) {
        take_farewell(guest, frame);
    } else if (ask) {
        take_ask(guest, ask, frame);
    } else if (order) {
        order_take(order, guest->scene, guest->questions + order->model, frame,
                   guest->mood + order->model);
        if (order->over)
            finish(guest, order);
    } else {
        WRONG("a frame of type %u for id %" PRIu64 ", which asks for nothing", frame->type,
              frame->id);
    }
}

static void take_frames(struct guest *guest)
{
    size_t at = 0;
    while (!guest->scene->failed && at < guest->in_length) {
        struct frame frame;
        struct error error;
        size_t used;
        enum frame_status status =
            frame_decode(guest->in + at, guest->in_length - at, 1u << 24, &frame, &used, &error);
        if (status == FRAME_BAD)
            WRONG("a frame of the daemon's: %s", error.text);
        if (status != FRAME_OK)
            break;
        take_frame(guest, &frame);
        at += used;
    }
    memmove(guest->in, guest->in + at, guest->in_length - at);
    guest->in_length -= at;
}

bool guest_read_due(const struct guest *guest)
{
    if (!guest->connected || guest->line.client_gone || guest->read_us > guest->scene->now_us)
        return false;
    return line_length(&guest->line.down) > 0 || guest->line.server_gone;
}

void guest_read(struct guest *guest)
{
    struct scene *scene = guest->scene;
    size_t there = line_length(&guest->line.down);
    if (there == 0) {
        at_end(guest);
        return;
    }
    size_t most = scene_one_in(scene, 3) ? scene_between(scene, 1, 64) : 65536;
    if (guest->in_size - guest->in_length < 65536) {
        guest->in_size += 65536;
        guest->in = realloc(guest->in, guest->in_size);
        if (!guest->in)
            abort();
    }
    guest->in_length += line_get(&guest->line, guest->in + guest->in_length, most);
    take_frames(guest);
}

/* ---- acting ------------------------------------------------------------------------------------
 */

static void submit(struct guest *guest, bool patient, bool chat)
{
    _Alignas(8) static unsigned char buffer[1u << 20];
    struct scene *scene = guest->scene;
    struct order *order = find_order(guest, 0);
    if (!order)
        return;
    order->id = guest->next_id++;
    order->patient = patient;
    uint32_t model = guest->models > 1 ? scene_below(scene, guest->models) : 0;
    for (int i = 0; i == 0 || (chat && !order->chats && i < 8); i++) /* where one is to be had */
        order_draw(order, scene, guest->questions + model, guest->mood + model,
                   guest->admin ? 7 : guest->mood->priority_max, guest->floods);
    size_t length = order_encode(order, buffer, sizeof(buffer));
    scene_note(scene, "submit", guest->number, order->seq_count);
    if (length == 0 || length > GUEST_FRAME_MAX) {
        order->id = 0;
    } else if (guest->manner == GUEST_WILD && scene_one_in(scene, 10)) {
        size_t part = scene_between(scene, 1, (uint32_t)length - 1);
        line_put(&guest->line, buffer, part);
        guest->rest_length = length - part;
        guest->rest = realloc(guest->rest, guest->rest_length);
        if (!guest->rest)
            abort();
        memcpy(guest->rest, buffer + part, guest->rest_length);
    } else {
        line_put(&guest->line, buffer, length);
    }
}

static struct guest_ask *new_ask(struct guest *guest, uint8_t type, bool answer, int code,
                                 int or_code)
{
    struct guest_ask *ask = find_ask(guest, 0);
    if (ask)
        *ask = (struct guest_ask){.id = guest->next_id++,
                                  .type = type,
                                  .answer = answer,
                                  .code = code,
                                  .or_code = or_code};
    return ask;
}

static void control(struct guest *guest, uint8_t type, bool answer, int code, int or_code,
                    const char *head)
{
    unsigned char buffer[512];
    const struct guest_ask *ask = new_ask(guest, type, answer, code, or_code);
    if (ask)
        line_put(
            &guest->line, buffer,
            message_encode_control(buffer, sizeof(buffer), type, 0, ask->id, head, strlen(head)));
}

static void cancel_own(struct guest *guest)
{
    unsigned char buffer[128];
    struct order *order = &guest->orders[scene_below(guest->scene, GUEST_ORDERS)];
    if (!order->id || order->patient)
        return;
    order->cancelled = true;
    line_put(&guest->line, buffer, message_encode_cancel(buffer, sizeof(buffer), order->id, 0));
}

static void cancel_any(struct guest *guest)
{
    char head[64];
    struct guest *other = &guest->all->guest[scene_below(guest->scene, guest->all->count)];
    struct order *order = &other->orders[scene_below(guest->scene, GUEST_ORDERS)];
    if (!order->id || !order->request || order->patient)
        return;
    bool allowed = guest->admin || guest->uid == other->uid;
    if (allowed)
        order->cancelled = true;
    snprintf(head, sizeof(head), "{\"request\":%" PRIu64 "}", order->request);
    /* Of what has ended meanwhile a cancel is answered, whoever asks. Another user's that lives is
     * not touched: order_take() would find it cancelled without a reason. */
    control(guest, FRAME_CANCEL, true, allowed ? 0 : ERR_DENIED, 0, head);
}

/* Of a conversation; a model without a template refuses it. */
static void ask_tokens(struct guest *guest)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"17+4=\"}]}";
    const struct message_tokenize question = {
        .text = chat, .length = sizeof(chat) - 1, .chat = true, .special = true};
    bool texts = guest->questions->texts;
    unsigned char buffer[256];
    struct guest_ask *ask = new_ask(guest, FRAME_TOKENIZE, texts, texts ? 0 : ERR_UNSUPPORTED, 0);
    if (!ask)
        return;
    ask->text = true;
    line_put(&guest->line, buffer,
             message_encode_tokenize(buffer, sizeof(buffer), ask->id, &question));
}

static void ask_something(struct guest *guest)
{
    static const uint8_t types[] = {FRAME_STATS, FRAME_HEALTH, FRAME_MODEL};
    uint32_t which = scene_below(guest->scene, 6);
    if (which > 3)
        ask_tokens(guest);
    else if (which == 3)
        control(guest, FRAME_STATS, true, 0, 0, "{\"requests\":true}");
    else
        control(guest, types[which], true, 0, 0, "");
}

static void drain_or_resume(struct guest *guest)
{
    bool drain = scene_one_in(guest->scene, 3);
    control(guest, drain ? FRAME_DRAIN : FRAME_RESUME, guest->admin, guest->admin ? 0 : ERR_DENIED,
            0, "");
}

/* Anybody asks how a model stands; an admin may let it sleep or wake. */
static void sleep_or_wake(struct guest *guest)
{
    char head[96];
    const struct questions *model = &guest->questions[scene_below(guest->scene, guest->models)];
    if (scene_one_in(guest->scene, 4)) {
        snprintf(head, sizeof(head), "{\"model\":\"%s\"}", model->name);
        control(guest, FRAME_MODEL, true, 0, 0, head);
        return;
    }
    snprintf(head, sizeof(head), "{\"model\":\"%s\",\"sleep\":%s}", model->name,
             scene_one_in(guest->scene, 3) ? "false" : "true");
    control(guest, FRAME_MODEL, guest->admin, guest->admin ? 0 : ERR_DENIED, 0, head);
}

static void send_bad(struct guest *guest)
{
    unsigned char buffer[BAD_SIZE_MAX];
    const struct bad *bad = &bad_table[scene_below(guest->scene, bad_count)];
    scene_note(guest->scene, "bad", guest->number, (uint64_t)bad->code);
    if (bad->closes && guest->close_code)
        return;
    if (bad->closes) {
        guest->excused = true;
        guest->close_code = bad->code;
        line_put(&guest->line, buffer, bad_encode(bad, guest->next_id++, buffer));
        guest->acts = guest->acts ? 1 : 0;
        return;
    }
    bool text = bad->chat && guest->questions->texts;
    struct guest_ask *ask =
        new_ask(guest, bad->type, false, bad->chat && !text ? ERR_UNSUPPORTED : bad->code, 0);
    if (ask)
        ask->text = text;
    if (ask)
        line_put(&guest->line, buffer, bad_encode(bad, ask->id, buffer));
}

/* A text that is too long for any context, and long enough to be tokenized off the loop. */
static void send_long_text(struct guest *guest)
{
    _Alignas(8) static unsigned char buffer[GUEST_FRAME_MAX];
    char *text = malloc(LONG_TEXT);
    struct guest_ask *ask = new_ask(guest, FRAME_SUBMIT, false, ERR_TOO_LARGE, 0);
    if (text && ask) {
        ask->text = true;
        memset(text, 'a', LONG_TEXT);
        const struct message_prompt prompt = {
            .sampling = sampling_unset(), .text = text, .text_length = LONG_TEXT};
        const struct message_submit_out submit = {.params.job = JOB_SCORE,
                                                  .params.normalize = true,
                                                  .prompt_count = 1,
                                                  .prompts = &prompt};
        line_put(&guest->line, buffer,
                 message_encode_submit(buffer, sizeof(buffer), ask->id, &submit));
    }
    free(text);
}

/* Keeps the rest of a frame to itself for longer than the daemon waits, or sends it. */
static void end_half(struct guest *guest)
{
    if (guest->manner == GUEST_WILD && !guest->excused && scene_one_in(guest->scene, 5)) {
        guest->excused = true;
        guest->act_us = guest->scene->now_us + LONG_US;
        return;
    }
    line_put(&guest->line, guest->rest, guest->rest_length);
    guest->rest_length = 0;
}

static void misbehave(struct guest *guest)
{
    struct scene *scene = guest->scene;
    uint32_t what = scene_below(scene, 100);
    if (guest->models > 1 && scene_one_in(scene, 8)) {
        sleep_or_wake(guest);
    } else if (what < 6) {
        for (uint32_t i = 0; i < GUEST_ORDERS && guest->rest_length == 0; i++)
            submit(guest, false, true);
    } else if (what < 52 || guest->floods) {
        submit(guest, false, false);
    } else if (what < 62) {
        cancel_own(guest);
    } else if (what < 70) {
        cancel_any(guest);
    } else if (what < 76) {
        ask_something(guest);
    } else if (what < 79) {
        drain_or_resume(guest);
    } else if (what < 81) {
        if (guest->questions->null)
            send_long_text(guest);
    } else if (what < 89) {
        send_bad(guest);
    } else if (what < 91) {
        scene_note(scene, "end side", guest->number, 0);
        guest->line.client_ended = true;
    } else if (what < 94) {
        scene_note(scene, "leave", guest->number, 0);
        guest->line.client_gone = true;
        lose_orders(guest);
    } else {
        bool very = scene_one_in(scene, 4);
        guest->read_us = scene->now_us + (very ? LONG_US : scene_below(scene, 50000));
        guest->excused = guest->excused || very;
    }
}

bool guest_act_due(const struct guest *guest)
{
    return guest->act_us && guest->act_us <= guest->scene->now_us;
}

void guest_act(struct guest *guest)
{
    struct scene *scene = guest->scene;
    bool wild = guest->manner == GUEST_WILD, calm = guest->manner == GUEST_CALM;
    guest->act_us = 0;
    if (wild && guest->acts == 0 && guest->rest_length == 0)
        return;
    if (wild && guest->acts > 0)
        guest->acts--;
    if (wild || (calm && !guest->done))
        guest->act_us = scene->now_us + 1 + scene_below(scene, wild ? guest->pause_us : CALM_US);
    if (!guest->connected && guest->line.server_gone) {
        if (wild || calm)
            connect(guest);
    } else if (!guest->connected || guest->line.client_gone) {
        return;
    } else if (guest->line.client_ended) {
        bool leaves = wild && scene_one_in(scene, 8);
        guest->line.client_gone = leaves;
        if (leaves)
            lose_orders(guest);
    } else if (guest->rest_length > 0) {
        end_half(guest);
    } else if (wild) {
        misbehave(guest);
    } else if (calm && idle(guest) && !guest->done) {
        submit(guest, true, false);
    }
}

static void earlier(time_us *due_us, time_us at_us)
{
    if (at_us && (!*due_us || at_us < *due_us))
        *due_us = at_us;
}

time_us guest_next(const struct guest *guest)
{
    time_us due_us = 0;
    earlier(&due_us, guest->act_us);
    if (guest->connected && guest->read_us > guest->scene->now_us &&
        (line_length(&guest->line.down) > 0 || guest->line.server_gone))
        earlier(&due_us, guest->read_us);
    return due_us;
}

bool guest_waits(const struct guest *guest)
{
    if (guest->manner == GUEST_CALM && !guest->done)
        return true;
    return guest->connected && !answered(guest);
}
