#include "daemon/request/request_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "daemon/jobs/job.h"
#include "daemon/request/job_builder.h"
#include "daemon/request/server.h"
#include "daemon/request/text_stream.h"
#include "protocol/base/log.h"

static uint64_t client_key(const struct response_sink *sink, uint64_t client_id)
{
    return sink->number * 0x100000001b3u ^ client_id;
}

struct request *request_table_find(struct server *server, uint64_t id)
{
    list_each(link, index_bucket(&server->by_id, id))
    {
        struct request *request = container_of(link, struct request, id_link);
        if (request->id == id)
            return request;
    }
    return NULL;
}

struct request *request_table_find_client(struct server *server, const struct response_sink *sink,
                                          uint64_t client_id)
{
    list_each(link, index_bucket(&server->by_client, client_key(sink, client_id)))
    {
        struct request *request = container_of(link, struct request, client_link);
        if (request->sink == sink && request->client_id == client_id)
            return request;
    }
    return NULL;
}

/* Sequences that are not on a device hold a place in the queue: before, and until they are told. */
static void hold(struct server *server, const struct seq *seq)
{
    uint64_t tokens = seq_tokens(seq);
    server->load.sequences++;
    server->load.tokens += tokens;
    seq->request->user->load.sequences++;
    seq->request->user->load.tokens += tokens;
}

static void unhold(struct server *server, const struct seq *seq)
{
    uint64_t tokens = seq_tokens(seq);
    server->load.sequences--;
    server->load.tokens -= tokens;
    seq->request->user->load.sequences--;
    seq->request->user->load.tokens -= tokens;
}

/* While it waits, replicas that have its prompt's beginning keep that rather than what nobody waits
 * for: it was a turn of a conversation, say, and who waits long would find it pushed out by those
 * before it. Of results of one prompt the first does. */
static void want(const struct server *server, struct seq *seq)
{
    struct replica *const *replicas = NULL;
    if (!seq_finds(seq) || seq->result > 0)
        return;
    replicas = model_reload_replicas(server, seq->request);
    for (uint32_t i = 0; i < seq->request->model->replica_count; i++)
        if (replicas[i]->api->want(replicas[i], seq->keys, seq->key_count))
            seq->wanted |= 1u << i;
}

static void unwant(const struct server *server, struct seq *seq)
{
    struct replica *const *replicas = NULL;
    if (seq->wanted == 0)
        return;
    replicas = model_reload_replicas(server, seq->request);
    for (uint32_t i = 0; i < seq->request->model->replica_count; i++)
        if (seq->wanted >> i & 1)
            replicas[i]->api->unwant(replicas[i], seq->keys, seq->key_count);
    seq->wanted = 0;
}

/* ---- results -----------------------------------------------------------------------------------
 */

static void drop_results(struct server *server, struct request *request, uint64_t bytes)
{
    server->load.results -= bytes;
    request->user->load.results -= bytes;
    if (request->sink)
        request->sink->results -= bytes;
    server->results_freed |= bytes > 0;
}

void request_table_keep(struct server *server, struct response_sink *sink, uint64_t bytes)
{
    server->load.results += bytes;
    sink->user->load.results += bytes;
    sink->results += bytes;
}

void request_table_drop(struct server *server, struct response_sink *sink, uint64_t bytes)
{
    server->load.results -= bytes;
    sink->user->load.results -= bytes;
    sink->results -= bytes;
    server->results_freed |= bytes > 0;
}

static struct user_figures *figures_of(struct server *server, const struct request *request)
{
    return users_figures(&server->users, request->user, server->options->metrics_users);
}

static struct served_adapter *adapter_of(struct server *server, const struct request *request)
{
    return served_adapters_at(&server->adapters, request->adapter);
}

/* ---- jobs --------------------------------------------------------------------------------------
 */

/* Jobs wait in a queue of their own: lanes have room when replicas have none, and the other way. */
static struct waiting *queue_of(struct server *server, const struct seq *seq)
{
    return seq->job ? &server->jobs.waiting : &seq->request->model->waiting;
}

/* request_builder_open() has made it. */
static struct waiting_user *waiting_of(struct server *server, const struct request *request)
{
    return users_waiting(&server->users, request->user, request->model->number);
}

static void push(struct server *server, struct user *user, struct response_sink *sink,
                 struct seq *seq)
{
    if (seq->job)
        waiting_push(&server->jobs.waiting, &user->jobs_waiting, &sink->jobs_waiting, seq);
    else
        waiting_push(&seq->request->model->waiting, waiting_of(server, seq->request),
                     seq->request->waiting, seq);
}

static uint64_t tensor_bytes_of(const struct request *request)
{
    return request->tensors ? request->tensors->bytes : 0;
}

static void enter_jobs(struct server *server, struct request *request)
{
    server->load.tensors += tensor_bytes_of(request);
    request->user->load.tensors += tensor_bytes_of(request);
    for (uint32_t i = 0; i < request->seq_count && request->tensors; i++) {
        struct job_program *program = request->seqs[i].job->program;
        server->counts.jobs_total++;
        program->live++;
        program->jobs_total++;
        program->bytes_in_total += request->seqs[i].job->in_bytes;
    }
}

static void end_job(struct server *server, const struct seq *seq)
{
    struct job_program *program = seq->job->program;
    program->live--;
    program->failed_total += seq->finish == FINISH_ERROR;
    if (seq->finish != FINISH_STOP)
        return;
    program->bytes_out_total += seq->job->out_bytes;
    program->done_total++;
    program->done_us_total += seq->stamps.ended_us - seq->arrived_us;
    program->queue_us_total += seq->stamps.scheduled_us - seq->arrived_us;
    hist_add(&server->counts.job_time, seq->stamps.ended_us - seq->arrived_us);
    hist_add(&server->counts.job_queue_time, seq->stamps.scheduled_us - seq->arrived_us);
}

/* All have ended: what their tensors lay in goes, though results wait to be read. */
static void free_tensors(struct server *server, struct request *request)
{
    server->load.tensors -= tensor_bytes_of(request);
    request->user->load.tensors -= tensor_bytes_of(request);
    request_tensors_free(request->tensors);
}

/* ---- on a device -------------------------------------------------------------------------------
 */

/* To one of a higher priority. */
static bool can_give_way(const struct seq *seq)
{
    return !seq->owed && !seq->low;
}

static uint32_t *below_of(const struct seq *seq)
{
    return &seq->replica->below[seq->priority - WAITING_PRIORITY_MIN];
}

void request_table_send(struct server *server, struct seq *seq, uint64_t result_bytes)
{
    struct request *request = seq->request;
    unhold(server, seq);
    unwant(server, seq);
    seq_state_set(seq, SEQ_SENT);
    if (seq->job) {
        server_job_sent(server, seq);
    } else {
        server->load.running++;
        request->user->load.running++;
        request->model->running++;
        request->model->owed += seq->owed;
        request->waiting->running++;
        waiting_of(server, request)->running++;
        request->model->prompt_tokens += seq->again ? 0 : seq->prompt_len;
        *below_of(seq) += can_give_way(seq);
    }
    struct served_adapter *adapter = adapter_of(server, request);
    figures_of(server, request)->prompt_tokens += seq->again ? 0 : seq->prompt_len;
    if (adapter) {
        seq->adapter = adapter->place;
        adapter->used = ++server->adapters.uses;
        adapter->prompt_tokens += seq->again ? 0 : seq->prompt_len;
        adapter->waiting--;
        adapter->running++;
    }
    *(request->together ? &request->result_bytes : &seq->result_bytes) += result_bytes;
    request_table_keep(server, request->sink, result_bytes);
}

/* What it has generated since. */
static void charge(struct server *server, struct seq *seq)
{
    uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
    struct served_adapter *adapter = adapter_of(server, seq->request);
    if (seq->params.job == JOB_GENERATE && count > seq->charged) {
        waiting_charge(&seq->request->model->waiting, seq, count - seq->charged);
        seq->request->model->generated_tokens += count - seq->charged;
        figures_of(server, seq->request)->generated_tokens += count - seq->charged;
        if (adapter)
            adapter->generated_tokens += count - seq->charged;
    }
    seq->charged = count;
}

static void come_back(struct server *server, struct seq *seq)
{
    if (seq->job) {
        server_job_back(server, seq);
        return;
    }
    charge(server, seq);
    waiting_settle(seq, seq->charged);
    server->load.running--;
    seq->request->user->load.running--;
    seq->request->model->running--;
    waiting_of(server, seq->request)->running--;
    if (seq->request->waiting)
        seq->request->waiting->running--;
    seq->request->model->owed -= seq->owed;
    *below_of(seq) -= can_give_way(seq);
}

/* Its results count on. What it is to say of them is said with the next. */
void request_table_return(struct server *server, struct seq *seq)
{
    struct waiting *waiting = &seq->request->model->waiting;
    struct served_adapter *adapter = adapter_of(server, seq->request);
    struct list own;
    come_back(server, seq);
    hold(server, seq);
    if (adapter) {
        adapter->running--;
        adapter->waiting++;
    }
    seq_state_set(seq, SEQ_WAITING);
    seq_renew(seq);
    if (list_linked(&seq->wait_link))
        list_remove(&seq->wait_link); /* from its sink's news */
    list_init(&own);
    list_append(&own, &seq->wait_link);
    waiting->count++;
    waiting_bring_back(waiting, &own);
    want(server, seq);
}

void request_table_enter(struct server *server, struct request *request, struct response_sink *sink)
{
    struct user *user = sink->user;
    request->sink = sink;
    request->user = user;
    user->references++;
    list_append(&sink->requests, &request->sink_link);
    list_append(&user->requests, &request->user_link);
    list_append(index_bucket(&server->by_id, request->id), &request->id_link);
    list_append(index_bucket(&server->by_client, client_key(sink, request->client_id)),
                &request->client_link);
    sink->request_count++;
    server->live_requests++;
    server->live_sequences += request->seq_count;
    model_reload_count(request, request->seq_count);
    server->counts.requests_total++;
    figures_of(server, request)->requests++;
    if (request->model)
        request->model->requests++;
    if (request->adapter) {
        adapter_of(server, request)->requests++;
        adapter_of(server, request)->waiting += request->seq_count;
    }
    server->counts.sequences_total += request->seq_count;
    enter_jobs(server, request);
    for (uint32_t i = 0; i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        seq->sink = sink->number;
        if (seq->refused) {
            hold(server, seq);
            continue;
        }
        push(server, user, sink, seq);
        hold(server, seq);
        want(server, seq);
        if (seq->deadline_us)
            deadlines_add(&server->deadlines, &seq->deadline, seq->deadline_us);
    }
}

static void count_end(struct server *server, const struct seq *seq)
{
    uint64_t *const totals[] = {
        [FINISH_STOP] = &server->counts.finished_stop_total,
        [FINISH_LENGTH] = &server->counts.finished_length_total,
        [FINISH_CANCELLED] = &server->counts.finished_cancelled_total,
        [FINISH_DEADLINE] = &server->counts.finished_deadline_total,
        [FINISH_ERROR] = &server->counts.finished_error_total,
    };
    struct request *request = seq->request;
    (*totals[seq->finish])++;
    request->finished[seq->finish]++;
    request->prompt_tokens += seq->prompt_len;
    request->out_tokens += seq->params.job == JOB_GENERATE ? seq_out_count(seq) : 0;
}

static void log_request(struct server *server, const struct request *request, time_us now_us)
{
    const struct served_adapter *adapter = adapter_of(server, request);
    static const char *const names[] = {"stop", "length", "cancelled", "deadline", "error"};
    char ends[96] = "";
    size_t used = 0;
    time_us scheduled = 0;
    const bool several = server->model_count > 1 && request->model;
    if (!server->options->log_requests || !log_enabled(LOG_INFO))
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (request->finished[i] > 0)
            used += (size_t)snprintf(ends + used, sizeof(ends) - used, " %s=%u", names[i],
                                     request->finished[i]);
    for (uint32_t i = 0; i < request->seq_count; i++) {
        time_us at = request->seqs[i].stamps.scheduled_us;
        if (at && (!scheduled || at < scheduled))
            scheduled = at;
    }
    log_line(LOG_INFO, "request",
             "%" PRIu64 " user=%s job=%s%s%s%s%s priority=%d sequences=%u%s prompt_tokens=%" PRIu64
             " tokens=%" PRIu64 " queued_us=%" PRIu64 " total_us=%" PRIu64,
             request->id, request->user->name, job_name(request->params.job),
             several ? " model=" : "", several ? request->model->info.id : "",
             adapter ? " adapter=" : "", adapter ? adapter->name : "", request->params.priority,
             request->seq_count, ends, request->prompt_tokens, request->out_tokens,
             (scheduled ? scheduled : now_us) - request->arrived_us, now_us - request->arrived_us);
}

/* Where stop strings are looked for, they decide how it has ended. */
static void end_text(struct seq *seq)
{
    struct text_stream *stream = seq->text_stream;
    if (text_stream_stops(stream) && text_stream_finish(seq))
        seq->finish = FINISH_STOP;
    if (stream && stream->failed) {
        seq->finish = FINISH_ERROR;
        error_set(seq->failure, ERR_NO_MEMORY, "no memory for the text of a sequence");
    }
}

static void leave_adapter(struct server *server, const struct request *request, bool queued)
{
    struct served_adapter *adapter = adapter_of(server, request);
    if (adapter && queued)
        adapter->waiting--;
    else if (adapter)
        adapter->running--;
}

void request_table_end(struct server *server, struct seq *seq, time_us now_us)
{
    struct request *request = seq->request;
    bool queued = seq->state == SEQ_WAITING;
    unwant(server, seq);
    seq_state_set(seq, SEQ_ENDED);
    if (!queued) {
        come_back(server, seq);
        end_text(seq);
    }
    leave_adapter(server, request, queued);
    if (!seq->stamps.ended_us)
        seq->stamps.ended_us = now_us;
    deadlines_remove(&server->deadlines, &seq->deadline);
    if (!queued)
        hold(server, seq);
    count_end(server, seq);
    if (seq->job)
        end_job(server, seq);
    server->live_sequences--;
    model_reload_count(request, -1);
    if (--request->seq_unended == 0) {
        log_request(server, request, now_us);
        free_tensors(server, request);
    }
    if (request->sink)
        request->sink->news(request->sink, seq);
    else
        request_table_release(server, seq);
}

static void retire(struct server *server, struct request *request)
{
    drop_results(server, request, request->result_bytes);
    if (request->sink) {
        list_remove(&request->sink_link);
        request->sink->request_count--;
        list_remove(&request->client_link);
    }
    list_remove(&request->user_link);
    list_remove(&request->id_link);
    server->live_requests--;
    users_put(&server->users, request->user);
    served_adapters_leave(&server->adapters, request->adapter);
    request_free(request);
}

void request_table_release(struct server *server, struct seq *seq)
{
    struct request *request = seq->request;
    assert(seq->state == SEQ_ENDED && !seq->released);
    seq->released = true;
    unhold(server, seq);
    drop_results(server, request, seq->result_bytes);
    seq_free_room(seq);
    if (--request->seq_unfreed == 0)
        retire(server, request);
}

void request_table_cancel(struct server *server, struct seq *seq, enum finish reason,
                          time_us now_us)
{
    if (seq->state == SEQ_WAITING) {
        waiting_remove(queue_of(server, seq), seq);
        seq->finish = reason;
        request_table_end(server, seq, now_us);
    } else if (seq->state == SEQ_SENT && !seq->cancel_sent) {
        seq->cancel_sent = true;
        seq->cancel_reason = reason;
        deadlines_remove(&server->deadlines, &seq->deadline);
        seq->replica->api->cancel(seq->replica, seq);
        seq->replica->mailed = true;
    }
}

void request_table_progress(struct server *server, struct seq *seq, time_us now_us)
{
    struct response_sink *sink = seq->request->sink;
    charge(server, seq);
    if (!sink)
        return;
    if (text_stream_stops(seq->text_stream) && text_stream_read(seq, seq_out_count(seq)))
        request_table_cancel(server, seq, FINISH_STOP, now_us);
    if (seq->request->params.stream)
        sink->news(sink, seq);
}

/* A sequence's end may free the request: it stays until the walk is over. */
static void walk_begin(struct request *request)
{
    request->seq_unfreed++;
}

static void walk_end(struct server *server, struct request *request)
{
    if (--request->seq_unfreed == 0)
        retire(server, request);
}

void request_table_refuse(struct server *server, struct request *request, time_us now_us)
{
    walk_begin(request);
    for (uint32_t i = 0; i < request->seq_count; i++)
        if (request->seqs[i].refused)
            request_table_end(server, &request->seqs[i], now_us);
    walk_end(server, request);
}

void request_table_cancel_request(struct server *server, struct request *request, time_us now_us)
{
    walk_begin(request);
    for (uint32_t i = 0; i < request->seq_count; i++)
        request_table_cancel(server, &request->seqs[i], FINISH_CANCELLED, now_us);
    walk_end(server, request);
}

/* The request goes on without its sink, which is charged no more. */
static void leave_audience(struct request *request)
{
    struct response_sink *sink = request->sink;
    sink->request_count--;
    sink->results -= request->result_bytes;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct seq *seq = &request->seqs[i];
        if (request->waiting)
            request->waiting->running -= seq->state == SEQ_SENT && !seq->job;
        sink->results -= seq->released ? 0 : seq->result_bytes;
    }
    request->sink = NULL;
    request->waiting = NULL;
    list_remove(&request->client_link);
}

void request_table_orphan(struct server *server, struct request *request, time_us now_us)
{
    leave_audience(request);
    walk_begin(request);
    for (uint32_t i = 0; i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        if (seq->state != SEQ_WAITING && list_linked(&seq->wait_link))
            list_remove(&seq->wait_link); /* from the connection's news */
        if (seq->state != SEQ_ENDED)
            request_table_cancel(server, seq, FINISH_CANCELLED, now_us);
        else if (!seq->released)
            request_table_release(server, seq);
        seq->lane = NULL; /* it is the sink's */
    }
    walk_end(server, request);
}
