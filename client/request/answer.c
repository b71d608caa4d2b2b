#include "client/request/answer.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>

#include "client/net/connection.h"
#include "client/net/failure.h"
#include "client/request/batch.h"
#include "protocol/message_job.h"

static_assert(sizeof(sluice_top) == sizeof(struct message_top), "used where it was received");
static_assert(offsetof(sluice_top, logprob) == offsetof(struct message_top, logprob), "");
static_assert(sizeof(sluice_score) == sizeof(struct message_score), "used where it was received");
static_assert(offsetof(sluice_score, top_logprob) == offsetof(struct message_score, top_logprob),
              "");

static int check_open(const struct batch *batch, uint32_t sequence, struct error *error)
{
    if (batch_is_open(batch, sequence))
        return 0;
    return error_set(error, ERR_BAD_STATE,
                     "the daemon answers for sequence %u, which is unknown or has ended", sequence);
}

static int other_job(struct error *error)
{
    return error_set(error, ERR_BAD_STATE, "the daemon answers with results of another job");
}

static int take_tokens(struct batch *batch, const struct frame *frame, struct error *error)
{
    size_t offset = 0;
    if (batch->job != SLUICE_GENERATE)
        return other_job(error);
    for (;;) {
        struct message_tokens record;
        int rc = message_next_tokens(frame, &offset, &record, error);
        if (rc)
            return rc < 0 ? rc : 0;
        rc = check_open(batch, record.sequence, error);
        if (rc)
            return rc;
        const sluice_piece piece = {
            .tokens = record.tokens,
            .logprobs = record.logprobs,
            .count = record.count,
            .tops = (const sluice_top *)(const void *)record.top,
            .top_count = record.top_count,
            .text = record.text,
            .text_length = record.text_length,
        };
        if (batch->callbacks.tokens)
            batch->callbacks.tokens(batch->context, record.sequence, &piece);
    }
}

static int take_result(struct batch *batch, const struct frame *frame, struct error *error)
{
    struct message_result result;
    int rc = message_decode_result(frame, &result, error);
    if (!rc)
        rc = check_open(batch, result.sequence, error);
    if (rc)
        return rc;
    if (batch->job != (result.kind == RESULT_SCORE ? SLUICE_SCORE : SLUICE_EMBED))
        return other_job(error);
    if (result.kind == RESULT_SCORE) {
        if (batch->callbacks.scores)
            batch->callbacks.scores(batch->context, result.sequence, result.first,
                                    (const sluice_score *)(const void *)result.scores,
                                    result.count);
        return 0;
    }
    if (result.width == 0)
        return error_set(error, ERR_BAD_FRAME, "result: rows of no values");
    for (uint32_t i = 0; i < result.count && batch->callbacks.embedding; i++)
        batch->callbacks.embedding(batch->context, result.sequence, (size_t)result.first + i,
                                   result.rows + (size_t)i * result.width, result.width);
    return 0;
}

static int take_tensors(struct batch *batch, const struct frame *frame, struct error *error)
{
    struct message_tensors tensors;
    int rc = message_decode_tensors(frame, &tensors, error);
    if (!rc)
        rc = check_open(batch, tensors.sequence, error);
    if (rc)
        return rc;
    if (batch->job != BATCH_PROGRAM)
        return other_job(error);
    if (tensors.output >= MESSAGE_TENSORS_MAX)
        return error_set(error, ERR_BAD_FRAME, "tensors: there is no output %u", tensors.output);
    if (batch->output)
        batch->output(batch->context, tensors.sequence, tensors.output, tensors.at, tensors.data,
                      (size_t)tensors.bytes);
    return 0;
}

/* A batch cannot go on when the daemon has said its last word about it. */
static void finish_last(sluice_client *client, struct batch *batch, const struct frame *frame)
{
    struct error error;
    if (!(frame->flags & FRAME_FLAG_LAST))
        return;
    error_set(&error, ERR_INTERNAL, "the daemon ended the request without a word on this sequence");
    batch_fail(client, batch, &error);
}

static int take_done(sluice_client *client, struct batch *batch, const struct frame *frame,
                     struct error *error)
{
    struct message_done done;
    int rc = message_decode_done(frame, &done, error);
    if (!rc)
        rc = check_open(batch, done.sequence, error);
    if (rc)
        return rc;
    sluice_end end = {
        .finish = (int)done.finish,
        .prompt_tokens = done.prompt_tokens,
        .completion_tokens = done.completion_tokens,
        .cached_tokens = done.cached_tokens,
        .queued_us = done.queued_us,
        .first_token_us = done.first_token_us,
        .total_us = done.total_us,
    };
    if (done.finish == FINISH_ERROR) {
        struct error unknown;
        error_set(&unknown, ERR_INTERNAL, "the daemon gave no reason");
        failure_publish(&unknown, &end.error);
    }
    if (!batch_end(client, batch, done.sequence, &end))
        finish_last(client, batch, frame);
    return 0;
}

static int take_error(sluice_client *client, struct batch *batch, const struct frame *frame,
                      struct error *error)
{
    struct message_error message;
    int rc = message_decode_error(frame, &message, error);
    if (rc)
        return rc;
    if (message.sequence == MESSAGE_NO_SEQUENCE) {
        batch_fail(client, batch, &message.error);
        return 0;
    }
    rc = check_open(batch, message.sequence, error);
    if (rc)
        return rc;
    sluice_end end = {.finish = SLUICE_FINISH_ERROR};
    failure_publish(&message.error, &end.error);
    if (!batch_end(client, batch, message.sequence, &end))
        finish_last(client, batch, frame);
    return 0;
}

static int take_connection_error(const struct frame *frame, struct error *error)
{
    struct message_error message;
    int rc = message_decode_error(frame, &message, error);
    if (rc)
        return rc;
    *error = message.error;
    return -error->code;
}

int answer_take(sluice_client *client, const struct frame *frame, struct error *error)
{
    if (frame->type == FRAME_ERROR && frame->id == 0)
        return take_connection_error(frame, error);
    struct batch *batch = batch_find(client, frame->id);
    if (!batch)
        return error_set(error, ERR_BAD_STATE,
                         "the daemon answers request %" PRIu64 ", which is unknown or has ended",
                         frame->id);
    switch (frame->type) {
    case FRAME_ACCEPT:
        return message_decode_accept(frame, &batch->request, error);
    case FRAME_TOKENS:
        return take_tokens(batch, frame, error);
    case FRAME_RESULT:
        return take_result(batch, frame, error);
    case FRAME_TENSORS:
        return take_tensors(batch, frame, error);
    case FRAME_DONE:
        return take_done(client, batch, frame, error);
    case FRAME_ERROR:
        return take_error(client, batch, frame, error);
    default:
        return error_set(error, ERR_BAD_STATE, "a daemon does not send messages of type %u",
                         frame->type);
    }
}
