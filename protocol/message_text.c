/* TOKENIZE and DETOKENIZE: questions and answers. What they are about lies in the payload, so that
 * it may be larger than a head. */
#include <assert.h>
#include <string.h>

#include "protocol/base/utf8.h"
#include "protocol/head.h"
#include "protocol/message.h"

/* The payload has `count` things of `unit` bytes, and then zeros. */
static int check_payload(const struct frame *frame, uint64_t count, size_t unit, const char *name,
                         struct error *error)
{
    if (frame_pad(count * unit) != frame->payload_length)
        return error_set(error, ERR_BAD_FRAME, "%s is %llu, the payload has %u bytes", name,
                         (unsigned long long)count, frame->payload_length);
    return head_padding(frame, count * unit, error);
}

static int check_text(const char *text, size_t length, struct error *error)
{
    size_t valid = utf8_valid(text, length);
    return valid == length ? 0
                           : error_set(error, ERR_BAD_VALUE,
                                       "the text is not UTF-8, or has a NUL, at byte %zu", valid);
}

static int check_tokens(const int32_t *tokens, uint32_t count, uint32_t vocabulary,
                        struct error *error)
{
    for (uint32_t i = 0; i < count; i++)
        if ((uint32_t)tokens[i] >= vocabulary)
            return error_limit(error, ERR_BAD_TOKEN, vocabulary, 0,
                               "token %u is outside the vocabulary of %u", i, vocabulary);
    return 0;
}

/* A head with a number that measures the payload, and perhaps flags. */
static int open_head(const struct frame *frame, const char *const *names, size_t unit,
                     uint64_t least, json **ret_head, uint32_t *ret_count, struct error *error)
{
    json *head;
    uint64_t count;
    int rc = head_open(frame, HEAD_DEPTH_MAX, &head, error);
    if (rc)
        return rc;
    rc = head_fields(head, names, error);
    if (!rc)
        rc = head_uint64(head, names[0], 0, UINT32_MAX / unit, &count, error);
    if (!rc && count < least)
        rc = error_set(error, ERR_EMPTY, "the text is empty");
    if (!rc)
        rc = check_payload(frame, count, unit, names[0], error);
    if (rc) {
        json_free(head);
        return rc;
    }
    *ret_head = head;
    *ret_count = (uint32_t)count;
    return 0;
}

/* ---- writing -----------------------------------------------------------------------------------
 */

static size_t end(struct json_writer *writer, void *buffer, size_t size, uint8_t type,
                  uint16_t flags, uint64_t id, const void *payload, size_t length)
{
    json_close(writer, '}');
    size_t padded = frame_pad(length);
    size_t before = head_end(writer, buffer, size, type, flags, id, padded);
    if (before == 0)
        return 0;
    unsigned char *at = (unsigned char *)buffer + before;
    memset(at + length, 0, padded - length);
    if (length > 0)
        memcpy(at, payload, length);
    return before + padded;
}

size_t message_encode_tokenize(void *buffer, size_t size, uint64_t id,
                               const struct message_tokenize *question)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_uint(&writer, "bytes", question->length);
    if (question->chat)
        json_put_bool(&writer, "chat", true);
    else
        json_put_bool(&writer, "special", question->special);
    if (question->model[0])
        json_put_text(&writer, "model", question->model);
    return end(&writer, buffer, size, FRAME_TOKENIZE, 0, id, question->text, question->length);
}

size_t message_encode_detokenize(void *buffer, size_t size, uint64_t id,
                                 const struct message_detokenize *question)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_uint(&writer, "count", question->count);
    json_put_bool(&writer, "special", question->special);
    if (question->model[0])
        json_put_text(&writer, "model", question->model);
    return end(&writer, buffer, size, FRAME_DETOKENIZE, 0, id, question->tokens,
               (size_t)question->count * sizeof(int32_t));
}

size_t message_encode_tokenized(void *buffer, size_t size, uint64_t id, const int32_t *tokens,
                                uint32_t count)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_uint(&writer, "count", count);
    return end(&writer, buffer, size, FRAME_TOKENIZE, FRAME_FLAG_ANSWER | FRAME_FLAG_LAST, id,
               tokens, (size_t)count * sizeof(int32_t));
}

size_t message_encode_detokenized(void *buffer, size_t size, uint64_t id, const char *text,
                                  uint32_t length)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_uint(&writer, "bytes", length);
    return end(&writer, buffer, size, FRAME_DETOKENIZE, FRAME_FLAG_ANSWER | FRAME_FLAG_LAST, id,
               text, length);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

int message_decode_tokenize(const struct frame *frame, struct message_tokenize *ret_question,
                            struct error *error)
{
    static const char *const names[] = {"bytes", "chat", "special", "model", NULL};
    struct message_tokenize question = {.text = (const char *)frame->payload};
    json *head;
    assert(frame->type == FRAME_TOKENIZE);
    int rc = open_head(frame, names, 1, 1, &head, &question.length, error);
    if (rc)
        return rc;
    rc = head_flag(head, "chat", &question.chat, error);
    if (!rc && question.chat && json_get(head, "special"))
        rc = error_set(error, ERR_BAD_VALUE, "special does not belong to chats");
    question.special = !question.chat;
    if (!rc)
        rc = head_flag(head, "special", &question.special, error);
    if (!rc)
        rc = head_name(head, "model", question.model, sizeof(question.model), error);
    json_free(head);
    if (!rc)
        rc = check_text(question.text, question.length, error);
    if (rc)
        return rc;
    *ret_question = question;
    return 0;
}

int message_decode_detokenize(const struct frame *frame, uint32_t vocabulary,
                              struct message_detokenize *ret_question, struct error *error)
{
    static const char *const names[] = {"count", "special", "model", NULL};
    struct message_detokenize question = {.special = true};
    json *head;
    assert(frame->type == FRAME_DETOKENIZE);
    question.tokens = (const int32_t *)(const void *)frame->payload;
    int rc = open_head(frame, names, sizeof(int32_t), 0, &head, &question.count, error);
    if (rc)
        return rc;
    rc = head_flag(head, "special", &question.special, error);
    if (!rc)
        rc = head_name(head, "model", question.model, sizeof(question.model), error);
    json_free(head);
    if (!rc)
        rc = check_tokens(question.tokens, question.count, vocabulary, error);
    if (rc)
        return rc;
    *ret_question = question;
    return 0;
}

/* An answer: a number that measures the payload, and nothing else. */
static int read_answer(const struct frame *frame, const char *name, size_t unit,
                       uint32_t *ret_count, struct error *error)
{
    const char *const names[] = {name, NULL};
    json *head;
    int rc = open_head(frame, names, unit, 0, &head, ret_count, error);
    if (!rc)
        json_free(head);
    return rc;
}

int message_decode_tokenized(const struct frame *frame, const int32_t **ret_tokens,
                             uint32_t *ret_count, struct error *error)
{
    assert(frame->type == FRAME_TOKENIZE);
    int rc = read_answer(frame, "count", sizeof(int32_t), ret_count, error);
    if (!rc)
        *ret_tokens = (const int32_t *)(const void *)frame->payload;
    return rc;
}

int message_decode_detokenized(const struct frame *frame, const char **ret_text,
                               uint32_t *ret_length, struct error *error)
{
    assert(frame->type == FRAME_DETOKENIZE);
    int rc = read_answer(frame, "bytes", 1, ret_length, error);
    if (!rc)
        *ret_text = (const char *)frame->payload;
    return rc;
}
