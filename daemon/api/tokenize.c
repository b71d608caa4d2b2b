#include "daemon/api/tokenize.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/control.h"
#include "daemon/api/session.h"
#include "daemon/request/encoder.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/server.h"
#include "protocol/frame.h"
#include "protocol/message.h"

/* Questions that one connection may have waiting. */
#define WAITING_MAX 16u

struct question {
    struct list link; /* session.texts */
    struct server *server;
    struct session *session; /* NULL once it is gone */
    uint64_t client_id;
    time_us arrived_us;
    struct encoder encoding;
    uint32_t length;
    char text[]; /* of encoding.texts[0] */
};

static void refuse(struct session *session, uint64_t client_id, const struct error *error,
                   time_us now_us)
{
    request_builder_log_refusal(session->server, session->sink.user->name, 0, error);
    conn_error(&session->conn, client_id, MESSAGE_NO_SEQUENCE, true, error, now_us);
}

/* Room for an answer with so many bytes of payload. An answer that the connection can never hold is
 * refused; NULL also when it had to be closed. */
static void *answer_room(struct session *session, uint64_t client_id, size_t payload,
                         time_us now_us)
{
    size_t size = message_text_size(payload), max = session->server->options->output_max;
    struct error error;
    if (size <= max)
        return conn_output(&session->conn, size);
    error_limit(&error, ERR_TOO_LARGE, max, size, "the answer has %zu bytes (output-max)", size);
    refuse(session, client_id, &error, now_us);
    return NULL;
}

/* ---- to tokens ---------------------------------------------------------------------------------
 */

static void answer_tokens(struct question *question, time_us now_us)
{
    struct session *session = question->session;
    const struct encoder_text *text = &question->encoding.texts[0];
    size_t payload = text->count * sizeof(int32_t);
    void *room = answer_room(session, question->client_id, payload, now_us);
    if (!room)
        return;
    session->conn.tokens_request = 0;
    conn_output_done(&session->conn,
                     message_encode_tokenized(room, message_text_size(payload), question->client_id,
                                              text->ids, text->count),
                     true, now_us);
}

static void question_free(struct question *question)
{
    if (list_linked(&question->link)) {
        list_remove(&question->link);
        question->session->text_count--;
    }
    encoder_free(&question->encoding);
    free(question);
}

static void encoded(struct encoder *encoding, time_us now_us)
{
    struct question *question = container_of(encoding, struct question, encoding);
    if (question->session && encoding->error.code)
        refuse(question->session, question->client_id, &encoding->error, now_us);
    else if (question->session)
        answer_tokens(question, now_us);
    question_free(question);
}

/* Any thread. */
static int render(struct encoder *encoding, uint32_t index, struct error *error)
{
    const struct question *question = container_of(encoding, struct question, encoding);
    return encoder_render(encoding, index, question->text, question->length, error);
}

static void ended(struct encoder *encoding, const struct error *error, time_us now_us)
{
    struct question *question = container_of(encoding, struct question, encoding);
    struct session *session = question->session;
    if (!session)
        return;
    list_remove(&question->link);
    session->text_count--;
    question->session = NULL;
    refuse(session, question->client_id, error, now_us);
}

static int start(struct question *question, struct served_model *model,
                 const struct message_tokenize *message, struct error *error)
{
    struct encoder *encoding = &question->encoding;
    int rc = encoder_make(encoding, question->server, model, 1, error);
    if (rc)
        return rc;
    if (message->chat) {
        encoding->prepare = render;
        encoding->bytes = message->length;
    } else {
        encoding->texts[0].text = question->text;
        encoding->texts[0].length = message->length;
        encoding->texts[0].add_special = message->special;
    }
    encoding->end = ended;
    encoding->sequences = 1;
    return encoder_start(encoding, &question->session->sink, encoded, question->arrived_us, error);
}

static int tokenize(struct session *session, const struct frame *frame, time_us now_us,
                    struct error *error)
{
    struct message_tokenize message;
    int rc = message_decode_tokenize(frame, &message, error);
    struct served_model *model = rc ? NULL : control_model(session->server, message.model, error);
    if (!rc && !model)
        rc = -ERR_NOT_FOUND;
    if (!rc && message.chat)
        rc = model_text_chats(model->text, error);
    if (!rc && session->text_count >= WAITING_MAX)
        rc = error_limit(error, ERR_BUSY, WAITING_MAX, session->text_count,
                         "%u texts wait for the tokenizer already", WAITING_MAX);
    if (rc)
        return rc;
    struct question *question = calloc(1, sizeof(*question) + message.length);
    if (!question)
        return error_set(error, ERR_NO_MEMORY, "no memory for a text");
    question->server = session->server;
    question->session = session;
    question->client_id = frame->id;
    question->arrived_us = now_us;
    question->length = message.length;
    memcpy(question->text, message.text, message.length);
    list_append(&session->texts, &question->link);
    session->text_count++;
    rc = start(question, model, &message, error);
    if (rc)
        question_free(question); /* else encoded() has it, or had it */
    return rc;
}

void tokenize_forget(struct session *session)
{
    struct list *link;
    session->text_count = 0;
    while ((link = list_take(&session->texts))) {
        struct question *question = container_of(link, struct question, link);
        question->session = NULL;
        encoder_drop(&question->encoding);
    }
}

/* ---- to text -----------------------------------------------------------------------------------
 */

static int detokenize(struct session *session, const struct frame *frame, time_us now_us,
                      struct error *error)
{
    struct server *server = session->server;
    struct message_detokenize message;
    char *text;
    size_t length;
    const struct served_model *model = NULL;
    int rc = message_decode_detokenize(frame, INT32_MAX, &message, error);
    if (!rc && !(model = control_model(server, message.model, error)))
        rc = -ERR_NOT_FOUND;
    if (!rc)
        rc = message_decode_detokenize(frame, model->info.vocab, &message, error);
    if (!rc)
        rc = model_text_decode(model->text, message.tokens, message.count, model->context_max,
                               message.special, &text, &length, error);
    if (rc)
        return rc;
    void *room = answer_room(session, frame->id, length, now_us);
    if (room) {
        session->conn.tokens_request = 0;
        conn_output_done(&session->conn,
                         message_encode_detokenized(room, message_text_size(length), frame->id,
                                                    text, (uint32_t)length),
                         true, now_us);
    }
    free(text);
    return 0;
}

void tokenize_frame(struct session *session, const struct frame *frame, time_us now_us)
{
    struct error error;
    int rc = 0;
    if (frame->id == 0)
        rc = error_set(&error, ERR_BAD_FRAME, "a question needs an id other than 0");
    else if (frame->type == FRAME_TOKENIZE)
        rc = tokenize(session, frame, now_us, &error);
    else
        rc = detokenize(session, frame, now_us, &error);
    if (rc)
        refuse(session, frame->id, &error, now_us);
}
