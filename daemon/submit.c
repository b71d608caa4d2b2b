/* SUBMIT: from a frame to a request in the waiting queue, or to an ERROR that says why not.
 *
 * Nothing is kept before every prompt was read and admitted, so a refused batch leaves no trace.
 */
#include <string.h>

#include "daemon/ledger.h"
#include "daemon/server.h"
#include "protocol/frame.h"
#include "protocol/message.h"

#define JSON_DEPTH 8
#define ACCEPT_FRAME_MAX 128u

/* A batch under construction. */
struct batch {
    struct server *server;
    struct request *request;
    int32_t *tokens; /* where the next prompt's go */
    uint64_t total;  /* what it counts in queue-tokens */
};

static int check_phase(const struct server *server, struct error *error)
{
    int rc = 0;
    if (server->phase == SERVER_FAILED)
        rc = error_set(error, server->failure.code, "%s", error_text(server->failure.code));
    else if (server->draining)
        rc = error_set(error, ERR_DRAINING, "the daemon is draining and accepts no new work");
    else if (server->phase == SERVER_LOADING && server->options->fail_if_loading)
        rc = error_set(error, ERR_LOADING, "the model is still loading (fail-if-loading is set)");
    if (rc)
        error->retry_after_ms = 1000;
    return rc;
}

static struct sampling defaults(const struct server *server)
{
    const struct gpu_model *model = &server->model;
    struct sampling sampling = {
        .temperature = model->temperature,
        .top_k = model->top_k,
        .top_p = model->top_p > 0 ? model->top_p : 1,
        .min_p = model->min_p,
        .repetition_penalty = model->repetition > 0 ? model->repetition : 1,
        .logprobs = -1,
        .n = 1,
    };
    return sampling;
}

/* Copies what a prompt borrows from the document. */
static int keep_ids(struct batch *batch, const struct message_prompt *prompt,
                    const int32_t **ret_ids, struct error *error)
{
    size_t size = prompt->stop_id_count * sizeof(int32_t);
    int32_t *ids = size > 0 ? request_keep(batch->request, size) : NULL;
    if (size > 0 && !ids)
        return error_set(error, ERR_NO_MEMORY, "no memory for stop tokens");
    if (size > 0)
        memcpy(ids, prompt->stop_ids, size);
    *ret_ids = ids;
    return 0;
}

static int keep_bias(struct batch *batch, const struct message_prompt *prompt,
                     const struct gpu_bias **ret_bias, uint32_t *ret_count, struct error *error)
{
    struct message_bias entries[MESSAGE_BIAS_MAX];
    uint32_t count = 0;
    struct gpu_bias *bias = NULL;
    int rc = prompt->bias ? message_bias(prompt->bias, batch->server->model.vocab, entries,
                                         MESSAGE_BIAS_MAX, &count, error)
                          : 0;
    if (!rc && count > 0) {
        bias = request_keep(batch->request, count * sizeof(*bias));
        if (!bias)
            rc = error_set(error, ERR_NO_MEMORY, "no memory for a logit bias");
    }
    for (uint32_t i = 0; !rc && i < count; i++)
        bias[i] = (struct gpu_bias){.token = entries[i].token, .value = entries[i].value};
    if (!rc) {
        *ret_bias = bias;
        *ret_count = count;
    }
    return rc;
}

static int add_prompt(struct batch *batch, struct message_prompt *prompt, struct error *error)
{
    struct server *server = batch->server;
    struct request *request = batch->request;
    const int32_t *stop_ids = NULL;
    const struct gpu_bias *bias = NULL;
    uint32_t bias_count = 0;
    if (!prompt->tokens)
        return error_set(error, ERR_UNSUPPORTED, "this daemon has no tokenizer: send tokens");
    if (prompt->stop_count > 0)
        return error_set(error, ERR_UNSUPPORTED,
                         "this daemon has no tokenizer: "
                         "use stop_token_ids instead of stop");
    int rc = admit_prompt(&server->limits, request->job, prompt->token_count,
                          server->model.max_tokens, &prompt->sampling, error);
    if (!rc)
        rc = keep_ids(batch, prompt, &stop_ids, error);
    if (!rc)
        rc = keep_bias(batch, prompt, &bias, &bias_count, error);
    if (rc)
        return rc;
    if (!prompt->sampling.seed_given)
        prompt->sampling.seed = server_draw(server);
    memcpy(batch->tokens, prompt->tokens, prompt->token_count * sizeof(int32_t));
    uint32_t first = request->seq_count;
    rc = request_add(request, prompt, batch->tokens, prompt->token_count, stop_ids, bias,
                     bias_count, error);
    batch->tokens += prompt->token_count;
    for (uint32_t i = first; !rc && i < request->seq_count; i++) {
        request->seqs[i].job = request->job; /* seq_tokens() asks for it */
        batch->total += seq_tokens(&request->seqs[i]);
    }
    return rc;
}

static int add_prompts(struct batch *batch, struct message_submit *submit, size_t payload,
                       struct error *error)
{
    struct request *request = batch->request;
    request->job = submit->job;
    request->priority = submit->priority;
    request->stream = submit->stream;
    request->want_text = submit->want_text;
    request->normalize = submit->normalize;
    request->pooling = submit->pooling;
    batch->tokens = request_keep(request, payload);
    if (!batch->tokens)
        return error_set(error, ERR_NO_MEMORY, "no memory for a batch of %zu bytes", payload);
    for (uint32_t i = 0; i < submit->prompt_count; i++) {
        struct message_prompt prompt;
        struct error found;
        int rc = message_submit_prompt(submit, i, &prompt, error);
        if (rc)
            return rc;
        rc = add_prompt(batch, &prompt, &found);
        if (rc)
            return error_limit(error, found.code, found.limit, found.value, "prompt %u: %s", i,
                               found.text);
    }
    return 0;
}

/* Reads the batch into a request that is not known to anybody yet. */
static int read_batch(struct batch *batch, const struct frame *frame, struct message_submit *submit,
                      struct error *error)
{
    const struct server *server = batch->server;
    uint64_t results = (uint64_t)submit->prompt_count * submit->common->sampling.n;
    uint32_t room =
        results < server->limits.batch_max ? (uint32_t)results : server->limits.batch_max;
    int rc = request_make(room, &batch->request, error);
    if (rc)
        return rc;
    rc = add_prompts(batch, submit, frame->payload_length, error);
    if (rc) {
        request_free(batch->request);
        batch->request = NULL;
    }
    return rc;
}

static int decode(struct batch *batch, const struct frame *frame, time_us now_us,
                  struct error *error)
{
    const struct server *server = batch->server;
    const struct message_limits limits = {
        .batch_max = server->limits.batch_max,
        .n_max = server->limits.n_max,
        .logprobs_max = server->limits.logprobs_max,
        .stop_max = server->limits.stop_max,
        .json_depth_max = JSON_DEPTH,
        .vocabulary = server->model.vocab,
    };
    const struct sampling sampling = defaults(server);
    struct message_submit submit;
    int rc = message_decode_submit(frame, &limits, &sampling, &submit, error);
    if (rc)
        return rc;
    if (submit.want_text)
        rc = error_set(error, ERR_UNSUPPORTED, "this daemon has no tokenizer: text is not given");
    else
        rc = read_batch(batch, frame, &submit, error);
    if (!rc) {
        batch->request->arrived_us = now_us;
        if (submit.deadline_ms > 0)
            batch->request->deadline_us = now_us + submit.deadline_ms * 1000;
    }
    message_submit_free(&submit);
    return rc;
}

static int make_request(struct conn *conn, const struct frame *frame, struct batch *batch,
                        time_us now_us, struct error *error)
{
    struct server *server = conn->server;
    int rc = check_phase(server, error);
    if (!rc && frame->id == 0)
        rc = error_set(error, ERR_BAD_FRAME, "a request needs an id other than 0");
    if (!rc && ledger_find_client(server, conn, frame->id))
        rc = error_set(error, ERR_BAD_STATE, "a request with this id is still running");
    if (!rc)
        rc = decode(batch, frame, now_us, error);
    if (rc)
        return rc;
    rc = admit_batch(&server->limits, &server->load, &conn->user->load, batch->request->seq_count,
                     batch->total, server_retry_ms(server), error);
    if (!rc && batch->request->deadline_us)
        rc = deadlines_reserve(&server->deadlines, batch->request->seq_count, error);
    if (rc)
        request_free(batch->request);
    return rc;
}

void submit_frame(struct conn *conn, const struct frame *frame, time_us now_us)
{
    struct server *server = conn->server;
    struct batch batch = {.server = server};
    struct error error;
    if (make_request(conn, frame, &batch, now_us, &error)) {
        if (error_retry(error.code) == RETRY_LATER)
            server->counts.refused_busy_total++;
        else
            server->counts.refused_final_total++;
        conn_error(conn, frame->id, MESSAGE_NO_SEQUENCE, true, &error, now_us);
        return;
    }
    struct request *request = batch.request;
    void *room = conn_output(conn, ACCEPT_FRAME_MAX);
    if (!room) {
        request_free(request);
        return;
    }
    request->id = server->next_request++;
    request->client_id = frame->id;
    request_seal(request, server->next_seq, conn->user->id);
    server->next_seq += request->seq_count;
    conn->tokens_request = 0;
    conn_output_done(conn, message_encode_accept(room, ACCEPT_FRAME_MAX, frame->id, request->id),
                     false, now_us);
    ledger_enter(server, request, conn);
}
