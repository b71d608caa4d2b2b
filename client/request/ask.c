#include "client/request/ask.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/net/connection.h"
#include "client/net/failure.h"
#include "protocol/base/json.h"
#include "protocol/message.h"

#define ASKS_MAX 1024u
#define REQUEST_MAX ((uint64_t)1 << 53)

static struct ask *find(const sluice_client *client, uint64_t id)
{
    list_each(link, &client->asks)
    {
        struct ask *ask = container_of(link, struct ask, link);
        if (ask->id == id)
            return ask;
    }
    return NULL;
}

void ask_free(struct ask *ask)
{
    free(ask);
}

static int add(sluice_client *client, uint8_t type, sluice_answer answer, ask_frame take,
               void *context)
{
    struct error error;
    size_t count = 0;
    if (connection_check_speaking(client))
        return -client->error.code;
    list_each(link, &client->asks) count++;
    if (count >= ASKS_MAX) {
        error_limit(&error, ERR_BUSY, ASKS_MAX, count, "%zu questions wait for an answer", count);
        return connection_fail(client, &error);
    }
    struct ask *ask = malloc(sizeof(*ask));
    if (!ask) {
        error_set(&error, ERR_NO_MEMORY, "no memory for a question");
        return connection_fail(client, &error);
    }
    *ask = (struct ask){
        .id = client->next_id++, .type = type, .answer = answer, .take = take, .context = context};
    list_append(&client->asks, &ask->link);
    return 0;
}

int ask_open(sluice_client *client, uint8_t type, ask_frame take, void *context)
{
    return add(client, type, NULL, take, context);
}

/* The question that was added last could not be sent. */
int ask_take_back(sluice_client *client, int code, const char *why)
{
    struct error error;
    struct ask *ask = container_of(client->asks.prev, struct ask, link);
    list_remove(&ask->link);
    free(ask);
    error_set(&error, code, "%s", why);
    return connection_fail(client, &error);
}

int sluice_ask(sluice_client *client, int what, const char *head, sluice_answer answer,
               void *context)
{
    struct error error;
    size_t length = head ? strlen(head) : 0, size = FRAME_HEADER_SIZE + frame_pad(length);
    bool known = (what >= (int)FRAME_STATS && what <= (int)FRAME_RESUME) ||
                 what == FRAME_PROGRAMS || what == FRAME_TIMELINE;
    if (!known || !answer) {
        error_set(&error, ERR_USAGE, "%d is nothing to ask for", what);
        return connection_fail(client, &error);
    }
    int rc = add(client, (uint8_t)what, answer, NULL, context);
    if (rc)
        return rc;
    if (length > FRAME_HEAD_MAX)
        return ask_take_back(client, ERR_TOO_LARGE, "the question is too long");
    void *room = connection_room(client, size);
    if (!room)
        return ask_take_back(client, ERR_NO_MEMORY, "no memory for a question");
    connection_wrote(client, message_encode_control(room, size, (uint8_t)what, 0,
                                                    client->next_id - 1, head, length));
    return 0;
}

int ask_cancel(sluice_client *client, uint64_t request, sluice_answer answer, void *context)
{
    struct error error;
    const size_t size = FRAME_HEADER_SIZE + 64;
    if (request == 0 || request > REQUEST_MAX) {
        error_set(&error, ERR_NOT_FOUND, "there is no request %" PRIu64, request);
        return connection_fail(client, &error);
    }
    int rc = add(client, FRAME_CANCEL, answer, NULL, context);
    if (rc)
        return rc;
    void *room = connection_room(client, size);
    if (!room)
        return ask_take_back(client, ERR_NO_MEMORY, "no memory for a question");
    connection_wrote(client, message_encode_cancel(room, size, client->next_id - 1, request));
    return 0;
}

bool ask_owns(const sluice_client *client, const struct frame *frame)
{
    return frame->id && !list_empty(&client->asks) && find(client, frame->id);
}

/* Takes the question off the list and tells its answer. */
static void tell(struct ask *ask, const char *text, struct error *error)
{
    sluice_error published;
    list_remove(&ask->link);
    if (error)
        failure_publish(error, &published);
    if (ask->answer)
        ask->answer(ask->context, text, error ? &published : NULL);
    else if (ask->take && error)
        ask->take(ask->context, NULL, error);
    ask_free(ask);
}

/* The head, checked and terminated; CANCEL's may be empty. */
static int read_answer(const struct frame *frame, char **ret_text, struct error *error)
{
    static const struct json_bounds bounds = {.bytes_max = FRAME_HEAD_MAX, .depth_max = 16};
    size_t length = frame->head_length;
    if (length > 0) {
        json *document;
        int rc = json_parse(frame->head, length, bounds, &document, error);
        if (rc)
            return rc;
        json_free(document);
    }
    while (length > 0 && frame->head[length - 1] == ' ')
        length--;
    char *text = malloc(length + 1);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for an answer");
    if (length > 0)
        memcpy(text, frame->head, length);
    text[length] = '\0';
    *ret_text = text;
    return 0;
}

int ask_take(sluice_client *client, const struct frame *frame, struct error *error)
{
    struct ask *ask = find(client, frame->id);
    struct message_error refusal;
    char *text = NULL;
    int rc;
    if (frame->type == FRAME_ERROR) {
        rc = message_decode_error(frame, &refusal, error);
        if (!rc)
            tell(ask, NULL, &refusal.error);
        return rc;
    }
    if (frame->type != ask->type || !(frame->flags & FRAME_FLAG_ANSWER))
        return error_set(error, ERR_BAD_STATE, "a message of type %u answers one of type %u",
                         frame->type, ask->type);
    if (ask->take) {
        rc = ask->take(ask->context, frame, error);
        if (rc)
            return rc; /* it is told once the connection is lost */
        list_remove(&ask->link);
        ask_free(ask);
        return 0;
    }
    rc = read_answer(frame, &text, error);
    if (rc)
        return rc;
    tell(ask, text, NULL);
    free(text);
    return 0;
}

void ask_forget(sluice_client *client, uint64_t id)
{
    struct ask *ask = find(client, id);
    if (ask) {
        ask->answer = NULL;
        ask->take = NULL;
    }
}

int ask_await(sluice_client *client, uint64_t id, const bool *answered, int timeout_ms)
{
    struct error error;
    time_us until_us = connection_until(timeout_ms);
    int rc = 0;
    while (!rc && !*answered)
        rc = connection_wait(client, until_us);
    if (*answered) /* and lost, perhaps, by what came behind the answer */
        return 0;
    if (rc == 1) {
        ask_forget(client, id);
        error_set(&error, ERR_TIMEOUT, "no answer within %d ms", timeout_ms);
        return connection_fail(client, &error);
    }
    return rc;
}

void ask_fail_all(sluice_client *client, const struct error *error)
{
    struct error own = *error;
    while (!list_empty(&client->asks))
        tell(container_of(client->asks.next, struct ask, link), NULL, &own);
}
