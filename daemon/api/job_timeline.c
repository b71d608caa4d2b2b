#include "daemon/api/job_timeline.h"

#include <stdlib.h>

#include "daemon/api/control.h"
#include "daemon/api/session.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/server.h"
#include "protocol/message_job.h"

/* Of one answer: some 60 KiB. */
#define TOLD_MAX 256u

struct told {
    uint64_t next, lost;
    uint32_t count;
    struct timeline_chunk chunks[TOLD_MAX];
};

static void put_span(struct json_writer *writer, const char *name, const struct gpu_span *span)
{
    json_open(writer, name, '[');
    json_put_uint(writer, NULL, span->begin_ns);
    json_put_uint(writer, NULL, span->end_ns);
    json_close(writer, ']');
}

static void put_chunk(struct json_writer *writer, const struct timeline_chunk *chunk)
{
    const struct gpu_chunk_times *times = &chunk->times;
    json_open(writer, NULL, '{');
    json_put_text(writer, "program", chunk->program->program.name);
    json_put_uint(writer, "lane", times->lane);
    json_put_uint(writer, "items", chunk->pieces);
    json_put_uint(writer, "bytes_in", times->bytes_in);
    json_put_uint(writer, "bytes_out", times->bytes_out);
    put_span(writer, "in", &times->in);
    put_span(writer, "kernels", &times->kernels);
    put_span(writer, "out", &times->out);
    json_close(writer, '}');
}

static void put_told(struct json_writer *writer, const void *context)
{
    const struct told *told = context;
    json_open(writer, NULL, '{');
    json_put_uint(writer, "next", told->next);
    json_put_uint(writer, "lost", told->lost);
    json_open(writer, "chunks", '[');
    for (uint32_t i = 0; i < told->count; i++)
        put_chunk(writer, &told->chunks[i]);
    json_close(writer, ']');
    json_close(writer, '}');
}

/* from: MESSAGE_TIMELINE_FROM_NOW, or the number of the first chunk that is wanted. */
static void read(struct timeline *timeline, uint64_t from, struct told *told)
{
    uint64_t first;
    if (from == MESSAGE_TIMELINE_FROM_NOW)
        from = timeline_next(timeline);
    told->count = timeline_read(timeline, from, TOLD_MAX, told->chunks, &first);
    told->next = first + told->count;
    told->lost = first > from ? first - from : 0;
}

static int check(const struct session *session, struct error *error)
{
    if (!session->conn.peer.admin)
        return error_set(error, ERR_DENIED,
                         "the timeline is for root, the daemon's user and members of admin-group");
    if (!session->server->jobs.worker)
        return error_set(error, ERR_NOT_FOUND, "this daemon serves no programs");
    return 0;
}

static int tell(struct session *session, const struct frame *frame, uint64_t from, time_us now_us,
                struct error *error)
{
    struct timeline *timeline = job_worker_timeline(session->server->jobs.worker);
    struct told *told = malloc(sizeof(*told));
    if (!told)
        return error_set(error, ERR_NO_MEMORY, "no memory for the answer");
    read(timeline, from, told);
    timeline_ask(timeline, now_us);
    control_answer(session, FRAME_TIMELINE, frame->id, put_told, told, now_us);
    free(told);
    return 0;
}

void job_timeline_frame(struct session *session, const struct frame *frame, time_us now_us)
{
    uint64_t from;
    struct error error;
    int rc = message_decode_timeline(frame, &from, &error);
    if (!rc)
        rc = check(session, &error);
    if (!rc)
        rc = tell(session, frame, from, now_us, &error);
    if (!rc)
        return;
    request_builder_log_refusal(session->server, session->sink.user->name, 0, &error);
    conn_error(&session->conn, frame->id, MESSAGE_NO_SEQUENCE, true, &error, now_us);
}
