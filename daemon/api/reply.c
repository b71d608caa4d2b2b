#include "daemon/api/reply.h"

#include <string.h>

#include "daemon/api/job.h"
#include "daemon/api/session.h"
#include "daemon/request/request.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "daemon/request/text_stream.h"
#include "protocol/frame.h"

/* Payload of one frame of results: large enough to be cheap, small beside output-high. */
#define REPLY_BYTES_MAX (64u << 10)
#define DONE_FRAME_MAX 512u
/* What a token's text is reckoned with. */
#define TEXT_PER_TOKEN 8u

static uint32_t available(const struct seq *seq)
{
    return seq_out_count(seq) - seq->sent_count;
}

static bool has_text(const struct seq *seq)
{
    return seq->text_stream && seq->text_stream->wanted;
}

/* Whether something is left to tell before the end. */
static bool more(const struct seq *seq)
{
    return available(seq) > 0 || (has_text(seq) && seq->text_stream->text.length > 0);
}

/* How many of `count` results of this size go into one frame; at least one always does. */
static uint32_t portion(uint32_t count, size_t size)
{
    size_t fits = REPLY_BYTES_MAX / size;
    return count < fits ? count : fits > 0 ? (uint32_t)fits : 1;
}

/* ---- tokens ------------------------------------------------------------------------------------
 */

/* The header of the TOKENS frame at the end of the output, which this record joins; a new one when
 * the last frame is another, or is full. */
static int tokens_frame(struct session *session, const struct request *request, size_t record)
{
    size_t open = session->conn.tokens_request == request->id
                      ? session->conn.out.end - session->conn.tokens_at
                      : 0;
    if (open > 0 && open + record <= REPLY_BYTES_MAX)
        return conn_output(&session->conn, record) ? 0 : -ERR_CLOSED;
    session->conn.tokens_request = 0;
    unsigned char *room = conn_output(&session->conn, FRAME_HEADER_SIZE + record);
    if (!room)
        return -ERR_CLOSED;
    session->conn.tokens_at = session->conn.out.end;
    session->conn.tokens_request = request->id;
    session->conn.out.end += FRAME_HEADER_SIZE;
    return 0;
}

static size_t token_size(const struct seq *seq, uint32_t top)
{
    size_t size =
        sizeof(int32_t) + (seq->out_logprobs ? sizeof(float) : 0) + top * sizeof(struct gpu_top);
    return size + (has_text(seq) ? TEXT_PER_TOKEN : 0);
}

/* The text of the next `count` tokens, as much of it as goes into one frame, cut between
 * characters. */
static void read_text(struct seq *seq, uint32_t count, struct message_tokens *record)
{
    struct text_stream *stream = seq->text_stream;
    bool all = seq->state == SEQ_ENDED && seq->sent_count + count == seq_out_count(seq);
    text_stream_read(seq, seq->sent_count + count);
    if (all)
        text_stream_finish(seq);
    size_t length = stream->text.length;
    if (length > REPLY_BYTES_MAX / 2) {
        length = REPLY_BYTES_MAX / 2;
        while (((unsigned char)stream->text.data[length] & 0xc0) == 0x80)
            length--;
    }
    record->flags |= TOKENS_TEXT;
    record->text = stream->text.data;
    record->text_length = (uint32_t)length;
}

static void reply_tokens(struct session *session, struct seq *seq, uint32_t count, time_us now_us)
{
    uint32_t top = seq->sampling.logprobs > 0 ? (uint32_t)seq->sampling.logprobs : 0;
    _Static_assert(REPLY_BYTES_MAX / sizeof(int32_t) <= TOKENS_COUNT_MAX, "a count is 16 bits");
    _Static_assert(sizeof(struct gpu_top) == sizeof(struct message_top), "both are id and value");
    count = count > 0 ? portion(count, token_size(seq, top)) : 0;
    struct message_tokens record = {
        .sequence = seq->number,
        .count = (uint16_t)count,
        .flags = (uint16_t)((seq->out_logprobs ? TOKENS_LOGPROBS : 0) | (top ? TOKENS_TOP : 0)),
        .tokens = seq->out_tokens + seq->sent_count,
        .logprobs = seq->out_logprobs ? seq->out_logprobs + seq->sent_count : NULL,
        .top_count = top,
        .top = top ? (const struct message_top *)(const void *)(seq->out_tops +
                                                                (size_t)seq->sent_count * top)
                   : NULL,
    };
    if (has_text(seq))
        read_text(seq, count, &record);
    size_t length = message_tokens_size(&record);
    if (count + record.text_length == 0 || tokens_frame(session, seq->request, length))
        return;
    message_put_tokens(session->conn.out.bytes + session->conn.out.end, length, &record);
    seq->sent_count += count;
    if (record.text_length > 0)
        text_stream_told(seq->text_stream, record.text_length);
    size_t payload = session->conn.out.end + length - session->conn.tokens_at - FRAME_HEADER_SIZE;
    frame_encode_header(session->conn.out.bytes + session->conn.tokens_at, FRAME_TOKENS, 0,
                        seq->request->client_id, 0, (uint32_t)payload);
    conn_output_done(&session->conn, length, true, now_us);
}

/* ---- scores and embeddings ---------------------------------------------------------------------
 */

static void reply_result(struct session *session, struct seq *seq, uint32_t count, time_us now_us)
{
    bool score = seq->params.job == JOB_SCORE;
    uint32_t width = score ? 0 : seq->request->model->info.hidden;
    size_t size = score ? sizeof(*seq->out_scores) : width * sizeof(float);
    count = portion(count, size);
    struct message_result result = {
        .sequence = seq->number,
        .kind = score ? RESULT_SCORE : RESULT_EMBED,
        .first = seq->sent_count + (score ? 1 : 0),
        .count = count,
        .width = width,
        .scores = score ? seq->out_scores + seq->sent_count : NULL,
        .rows = score ? NULL : seq->out_rows + (size_t)seq->sent_count * width,
    };
    size_t room_size = FRAME_HEADER_SIZE + 24 + frame_pad(count * size);
    void *room = conn_output(&session->conn, room_size);
    if (!room)
        return;
    session->conn.tokens_request = 0;
    size_t used = message_encode_result(room, room_size, seq->request->client_id, &result);
    seq->sent_count += count;
    conn_output_done(&session->conn, used, true, now_us);
}

/* ---- the end -----------------------------------------------------------------------------------
 */

static uint64_t since(time_us from, time_us to)
{
    return to > from && from > 0 ? to - from : 0;
}

static void reply_done(struct session *session, struct seq *seq, uint16_t flags, time_us now_us)
{
    const struct seq_stamps *stamps = &seq->stamps;
    struct message_done done = {
        .sequence = seq->number,
        .finish = seq->finish,
        .prompt_tokens = seq->prompt_len,
        .cached_tokens = seq->cached,
        .completion_tokens = seq->params.job == JOB_GENERATE ? seq->sent_count : 0,
        .queued_us =
            since(seq->arrived_us, stamps->scheduled_us ? stamps->scheduled_us : stamps->ended_us),
        .first_token_us = since(seq->arrived_us, stamps->first_token_us),
        .total_us = since(seq->arrived_us, stamps->ended_us),
    };
    void *room = conn_output(&session->conn, DONE_FRAME_MAX);
    if (!room)
        return;
    session->conn.tokens_request = 0;
    size_t used = message_encode_done(room, DONE_FRAME_MAX, seq->request->client_id, flags, &done);
    conn_output_done(&session->conn, used, true, now_us);
}

void reply_seq(struct session *session, struct seq *seq, time_us now_us)
{
    bool ended = seq->state == SEQ_ENDED;
    /* Without streaming all is told at the end, tokens of a failed sequence never. */
    bool tell = ended ? seq->finish != FINISH_ERROR || seq->request->params.stream
                      : seq->request->params.stream;
    uint32_t count = tell ? available(seq) : 0;
    if (tell && seq->params.job == JOB_GENERATE && (count > 0 || (ended && has_text(seq))))
        reply_tokens(session, seq, count, now_us);
    else if (count > 0)
        reply_result(session, seq, count, now_us);
    if (ended && seq->job && job_reply_left(seq)) {
        job_reply(session, seq, now_us);
        return; /* and again, while there is room */
    }
    if (session->conn.closing || session->conn.closed || (tell && more(seq)))
        return;
    if (ended && tell && has_text(seq) && seq->text_stream->failed) {
        seq->finish = FINISH_ERROR;
        error_set(seq->failure, ERR_NO_MEMORY, "no memory for the text of a sequence");
    }
    if (ended) {
        bool last = seq->request->seq_unfreed == 1;
        if (seq->finish == FINISH_ERROR)
            conn_error(&session->conn, seq->request->client_id, seq->number, last, seq->failure,
                       now_us);
        else
            reply_done(session, seq, last ? FRAME_FLAG_LAST : 0, now_us);
        if (session->conn.closing || session->conn.closed)
            return;
    }
    list_remove(&seq->wait_link);
    if (ended)
        request_table_release(session->server, seq);
}
