#include "daemon/api/job.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/api/control.h"
#include "daemon/api/session.h"
#include "daemon/api/submit.h"
#include "daemon/request/job_builder.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "gpu/jobs/shape.h"
#include "protocol/base/log.h"
#include "protocol/message_job.h"

#define ACCEPT_FRAME_MAX 128u
/* Payload of one TENSORS frame: large enough to be cheap, small beside output-high. */
#define REPLY_BYTES_MAX (64u << 10)

static void refuse(struct session *session, uint64_t client_id, const struct error *error,
                   time_us now_us)
{
    request_builder_refused(session->server, session->sink.user, error);
    conn_error(&session->conn, client_id, MESSAGE_NO_SEQUENCE, true, error, now_us);
}

/* ---- from a frame to a request -----------------------------------------------------------------
 */

static int check_frame(struct session *session, const struct frame *frame, struct error *error)
{
    int rc = request_builder_phase(session->server, error);
    if (!rc && frame->id == 0)
        rc = error_set(error, ERR_BAD_FRAME, "a request needs an id other than 0");
    if (!rc && (request_table_find_client(session->server, &session->sink, frame->id) ||
                submit_pending(session, frame->id)))
        rc = error_set(error, ERR_BAD_STATE, "a request with this id is still running");
    return rc;
}

/* The descriptors that the message names, in this order: inputs, outputs. */
static int take_descriptors(struct session *session, const struct message_job *message,
                            struct job_source *source, struct error *error)
{
    *source = (struct job_source){.payload = message->input_memory ? NULL : message->payload,
                                  .inputs_fd = -1,
                                  .inputs_bytes = message->input_memory ? message->input_memory
                                                                        : message->payload_length,
                                  .outputs_fd = -1,
                                  .outputs_bytes = message->output_memory};
    if (message->input_memory)
        source->inputs_fd = conn_take_descriptor(&session->conn);
    if (message->output_memory)
        source->outputs_fd = conn_take_descriptor(&session->conn);
    if ((message->input_memory && source->inputs_fd < 0) ||
        (message->output_memory && source->outputs_fd < 0))
        return error_set(error, ERR_BAD_VALUE,
                         "memory: its descriptor did not come with the message");
    return 0;
}

static void close_descriptors(const struct job_source *source)
{
    if (source->inputs_fd >= 0)
        close(source->inputs_fd);
    if (source->outputs_fd >= 0)
        close(source->outputs_fd);
}

static int build(struct session *session, struct message_job *message,
                 const struct job_source *source, struct job_builder *builder, time_us now_us,
                 struct error *error)
{
    struct message_item item;
    int rc = job_builder_open(builder, session->server, &session->sink, message->program,
                              message->item_count, &message->params, now_us, error);
    for (uint32_t i = 0; !rc && i < message->item_count; i++) {
        rc = message_job_item(message, &item, error);
        if (!rc)
            rc = job_builder_item(builder, &item, error);
    }
    if (!rc)
        rc = message_job_end(message, error);
    if (!rc)
        rc = job_builder_admit(builder, &session->sink, source, error);
    return rc ? rc : job_builder_place(builder, source, error);
}

static void enter(struct session *session, struct job_builder *builder, uint64_t client_id,
                  time_us now_us)
{
    void *room = conn_output(&session->conn, ACCEPT_FRAME_MAX);
    if (!room) {
        job_builder_drop(builder);
        return;
    }
    request_builder_name(&builder->base, client_id, session->sink.user);
    session->conn.tokens_request = 0;
    size_t used =
        message_encode_accept(room, ACCEPT_FRAME_MAX, client_id, builder->base.request->id);
    conn_output_done(&session->conn, used, false, now_us);
    request_builder_enter(&builder->base, &session->sink);
}

/* What cannot be read does not say how many of the descriptors that wait are its own. */
static void refuse_frame(struct session *session, uint64_t client_id, const struct error *error,
                         time_us now_us)
{
    if (session->conn.descriptor_count > 0)
        conn_refuse(&session->conn, error, now_us);
    else
        refuse(session, client_id, error, now_us);
}

void job_frame(struct session *session, const struct frame *frame, time_us now_us)
{
    struct message_job message;
    struct job_source source = {.inputs_fd = -1, .outputs_fd = -1};
    struct job_builder builder = {.program = NULL};
    struct error error;
    int rc = message_decode_job(frame, session->server->limits.batch_max, &message, &error);
    if (rc) {
        refuse_frame(session, frame->id, &error, now_us);
        return;
    }
    rc = take_descriptors(session, &message, &source, &error);
    if (!rc)
        rc = check_frame(session, frame, &error);
    if (!rc)
        rc = build(session, &message, &source, &builder, now_us, &error);
    if (rc) {
        job_builder_drop(&builder);
        refuse(session, frame->id, &error, now_us);
    } else {
        enter(session, &builder, frame->id, now_us);
    }
    close_descriptors(&source);
    message_job_free(&message);
}

/* ---- results -----------------------------------------------------------------------------------
 */

bool job_reply_left(const struct seq *seq)
{
    const struct tensor_job *job = seq->job;
    return seq->finish == FINISH_STOP && !job->shared &&
           job->told_outputs < job->program->program.output_count;
}

void job_reply(struct session *session, struct seq *seq, time_us now_us)
{
    struct tensor_job *job = seq->job;
    const struct program *program = &job->program->program;
    uint64_t bytes = 0;
    struct error ignored;
    (void)shape_bytes(&program->outputs[job->told_outputs], job->sizes, &bytes, &ignored);
    uint64_t left = bytes - job->told_bytes;
    struct message_tensors tensors = {
        .sequence = seq->number,
        .output = job->told_outputs,
        .at = job->told_bytes,
        .bytes = left < REPLY_BYTES_MAX ? left : REPLY_BYTES_MAX,
        .data = (const unsigned char *)job->outputs[job->told_outputs] + job->told_bytes,
    };
    size_t size = FRAME_HEADER_SIZE + TENSORS_HEADER_SIZE + (size_t)tensor_pad(tensors.bytes);
    void *room = conn_output(&session->conn, size);
    if (!room)
        return;
    session->conn.tokens_request = 0;
    conn_output_done(&session->conn,
                     message_encode_tensors(room, size, seq->request->client_id, &tensors), true,
                     now_us);
    job->told_bytes += tensors.bytes;
    if (job->told_bytes == bytes) {
        job->told_outputs++;
        job->told_bytes = 0;
    }
}

/* ---- programs ----------------------------------------------------------------------------------
 */

static void write_list(struct json_writer *writer, const void *context)
{
    const struct job_programs *programs = context;
    json_open(writer, NULL, '{');
    json_open(writer, "programs", '[');
    for (unsigned i = 0; programs && i < programs->count; i++)
        programs_describe(&programs->list[i], writer);
    json_close(writer, ']');
    json_close(writer, '}');
}

static int enable(struct session *session, const char *name, struct error *error)
{
    struct job_program *program = programs_find(session->server->jobs.programs, name);
    if (!session->conn.peer.admin)
        return error_set(
            error, ERR_DENIED,
            "enabling a program is for root, the daemon's user and members of admin-group");
    if (!program)
        return error_set(error, ERR_NOT_FOUND, "there is no program %s", name);
    int rc = programs_enable(program, error);
    if (!rc)
        log_line(LOG_NOTICE, "jobs", "uid %u enabled program %s", session->conn.peer.uid, name);
    return rc;
}

void job_programs(struct session *session, const struct frame *frame, time_us now_us)
{
    char name[TENSOR_NAME_MAX + 1];
    struct error error;
    int rc = message_decode_programs(frame, name, &error);
    if (!rc && name[0])
        rc = enable(session, name, &error);
    if (rc)
        refuse(session, frame->id, &error, now_us);
    else
        control_answer(session, FRAME_PROGRAMS, frame->id, write_list,
                       session->server->jobs.programs, now_us);
}
