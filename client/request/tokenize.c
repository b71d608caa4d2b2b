/* Texts and conversations to tokens, and back: questions whose answers are payloads. */
#include <stdlib.h>
#include <string.h>

#include "client/net/connection.h"
#include "client/request/ask.h"
#include "protocol/message.h"

struct question {
    bool answered;
    char *bytes; /* terminated; the caller's once answered */
    size_t count;
    struct error error;
};

static int keep(struct question *question, const void *bytes, size_t size, size_t count)
{
    question->answered = true;
    question->bytes = malloc(size + 1);
    if (!question->bytes)
        return error_set(&question->error, ERR_NO_MEMORY, "no memory for the answer");
    if (size > 0)
        memcpy(question->bytes, bytes, size);
    question->bytes[size] = '\0';
    question->count = count;
    return 0;
}

static void fail(struct question *question, const struct error *error)
{
    question->answered = true;
    question->error = *error;
}

static int take_tokens(void *context, const struct frame *frame, struct error *error)
{
    const int32_t *tokens;
    uint32_t count;
    if (!frame) {
        fail(context, error);
        return 0;
    }
    int rc = message_decode_tokenized(frame, &tokens, &count, error);
    if (!rc)
        keep(context, tokens, count * sizeof(*tokens), count);
    return rc;
}

static int take_text(void *context, const struct frame *frame, struct error *error)
{
    const char *text;
    uint32_t length;
    if (!frame) {
        fail(context, error);
        return 0;
    }
    int rc = message_decode_detokenized(frame, &text, &length, error);
    if (!rc)
        keep(context, text, length, length);
    return rc;
}

/* Room for the question, which is open then. */
static int open_question(sluice_client *client, uint8_t type, size_t payload, ask_frame take,
                         struct question *question, void **ret_room)
{
    struct error error;
    int rc = connection_check_blocking(client);
    if (!rc && connection_check_room(client, message_text_size(payload), &error))
        rc = connection_fail(client, &error);
    if (!rc)
        rc = ask_open(client, type, take, question);
    if (rc)
        return rc;
    *ret_room = connection_room(client, message_text_size(payload));
    return *ret_room ? 0 : ask_take_back(client, ERR_NO_MEMORY, "no memory for a question");
}

/* Until it was answered; the client keeps the answer. */
static int finish(sluice_client *client, struct question *question, uint64_t id, int timeout_ms)
{
    int rc = ask_await(client, id, &question->answered, timeout_ms);
    if (rc)
        return rc;
    if (!question->bytes)
        return connection_fail(client, &question->error);
    free(client->answer);
    client->answer = question->bytes;
    return 0;
}

int sluice_tokenize(sluice_client *client, const sluice_prompt *prompt, int special, int timeout_ms,
                    const int32_t **ret_tokens, size_t *ret_count)
{
    struct question question = {0};
    struct error error;
    bool chat = !prompt->text;
    size_t length = chat ? prompt->chat_length : prompt->text_length;
    void *room;
    if (prompt->tokens || (chat && !prompt->chat)) {
        error_set(&error, ERR_USAGE, "neither a text nor a conversation");
        return connection_fail(client, &error);
    }
    int rc = open_question(client, FRAME_TOKENIZE, length, take_tokens, &question, &room);
    if (rc)
        return rc;
    uint64_t id = client->next_id - 1;
    const struct message_tokenize message = {.text = chat ? prompt->chat : prompt->text,
                                             .length = (uint32_t)length,
                                             .chat = chat,
                                             .special = special != 0};
    connection_wrote(client,
                     message_encode_tokenize(room, message_text_size(length), id, &message));
    rc = finish(client, &question, id, timeout_ms);
    if (rc)
        return rc;
    *ret_tokens = (const int32_t *)(const void *)client->answer;
    *ret_count = question.count;
    return 0;
}

int sluice_detokenize(sluice_client *client, const int32_t *tokens, size_t count, int special,
                      int timeout_ms, const char **ret_text, size_t *ret_length)
{
    struct question question = {0};
    struct error error;
    void *room;
    if (count > UINT32_MAX / sizeof(*tokens)) {
        error_set(&error, ERR_TOO_LARGE, "%zu tokens are too many", count);
        return connection_fail(client, &error);
    }
    size_t size = count * sizeof(*tokens);
    int rc = open_question(client, FRAME_DETOKENIZE, size, take_text, &question, &room);
    if (rc)
        return rc;
    uint64_t id = client->next_id - 1;
    const struct message_detokenize message = {
        .tokens = tokens, .count = (uint32_t)count, .special = special != 0};
    connection_wrote(client,
                     message_encode_detokenize(room, message_text_size(size), id, &message));
    rc = finish(client, &question, id, timeout_ms);
    if (rc)
        return rc;
    *ret_text = client->answer;
    *ret_length = question.count;
    return 0;
}
