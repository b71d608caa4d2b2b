#include "daemon/ledger.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "daemon/server.h"
#include "daemon/transcript.h"
#include "protocol/base/log.h"

static uint64_t client_key(const struct audience *audience, uint64_t client_id)
{
    return audience->number * 0x100000001b3u ^ client_id;
}

struct request *ledger_find(struct server *server, uint64_t id)
{
    list_each(link, index_bucket(&server->by_id, id))
    {
        struct request *request = container_of(link, struct request, id_link);
        if (request->id == id)
            return request;
    }
    return NULL;
}

struct request *ledger_find_client(struct server *server, const struct audience *audience,
                                   uint64_t client_id)
{
    list_each(link, index_bucket(&server->by_client, client_key(audience, client_id)))
    {
        struct request *request = container_of(link, struct request, client_link);
        if (request->audience == audience && request->client_id == client_id)
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

/* ---- results -----------------------------------------------------------------------------------
 */

static void drop_results(struct server *server, struct request *request, uint64_t bytes)
{
    server->load.results -= bytes;
    request->user->load.results -= bytes;
    if (request->audience)
        request->audience->results -= bytes;
    server->results_freed |= bytes > 0;
}

void ledger_keep(struct server *server, struct audience *audience, uint64_t bytes)
{
    server->load.results += bytes;
    audience->user->load.results += bytes;
    audience->results += bytes;
}

void ledger_drop(struct server *server, struct audience *audience, uint64_t bytes)
{
    server->load.results -= bytes;
    audience->user->load.results -= bytes;
    audience->results -= bytes;
    server->results_freed |= bytes > 0;
}

/* ---- on a device -------------------------------------------------------------------------------
 */

void ledger_send(struct server *server, struct seq *seq, uint64_t result_bytes)
{
    struct request *request = seq->request;
    unhold(server, seq);
    seq_state_set(seq, SEQ_SENT);
    server->load.running++;
    request->user->load.running++;
    request->audience->running++;
    *(request->together ? &request->result_bytes : &seq->result_bytes) += result_bytes;
    ledger_keep(server, request->audience, result_bytes);
}

/* What it has generated since. */
static void charge(struct server *server, struct seq *seq)
{
    uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
    if (seq->job == JOB_GENERATE && count > seq->charged)
        waiting_charge(&server->waiting, seq, count - seq->charged);
    seq->charged = count;
}

static void come_back(struct server *server, struct seq *seq)
{
    charge(server, seq);
    server->load.running--;
    seq->request->user->load.running--;
    if (seq->request->audience)
        seq->request->audience->running--;
    server->owed -= seq->owed;
}

void ledger_enter(struct server *server, struct request *request, struct audience *audience)
{
    struct user *user = audience->user;
    request->audience = audience;
    request->user = user;
    user->references++;
    list_append(&audience->requests, &request->audience_link);
    list_append(&user->requests, &request->user_link);
    list_append(index_bucket(&server->by_id, request->id), &request->id_link);
    list_append(index_bucket(&server->by_client, client_key(audience, request->client_id)),
                &request->client_link);
    audience->request_count++;
    server->live_requests++;
    server->live_sequences += request->seq_count;
    server->counts.requests_total++;
    server->counts.sequences_total += request->seq_count;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        seq->audience = audience->number;
        waiting_push(&server->waiting, &user->waiting, &audience->waiting, seq);
        hold(server, seq);
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
    uint32_t out = seq->job == JOB_GENERATE ? seq_out_count(seq) : 0;
    (*totals[seq->finish])++;
    request->finished[seq->finish]++;
    request->prompt_tokens += seq->prompt_len;
    request->out_tokens += out;
    request->user->sequences_done++;
    request->user->tokens_in += seq->prompt_len;
    request->user->tokens_out += out;
}

static void log_request(const struct server *server, const struct request *request, time_us now_us)
{
    static const char *const names[] = {"stop", "length", "cancelled", "deadline", "error"};
    char ends[96] = "";
    size_t used = 0;
    time_us scheduled = 0;
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
             "%" PRIu64 " uid=%" PRIu64 " job=%s priority=%d sequences=%u%s prompt_tokens=%" PRIu64
             " tokens=%" PRIu64 " queued_us=%" PRIu64 " total_us=%" PRIu64,
             request->id, request->user->id, job_name(request->job), request->priority,
             request->seq_count, ends, request->prompt_tokens, request->out_tokens,
             (scheduled ? scheduled : now_us) - request->arrived_us, now_us - request->arrived_us);
}

/* Where stop strings are looked for, they decide how it has ended. */
static void end_text(struct seq *seq)
{
    struct transcript *transcript = seq->transcript;
    if (transcript_stops(transcript) && transcript_finish(seq))
        seq->finish = FINISH_STOP;
    if (transcript && transcript->failed) {
        seq->finish = FINISH_ERROR;
        error_set(seq->failure, ERR_NO_MEMORY, "no memory for the text of a sequence");
    }
}

void ledger_end(struct server *server, struct seq *seq, time_us now_us)
{
    struct request *request = seq->request;
    bool queued = seq->state == SEQ_WAITING;
    seq_state_set(seq, SEQ_ENDED);
    if (!queued) {
        come_back(server, seq);
        end_text(seq);
    }
    if (!seq->stamps.ended_us)
        seq->stamps.ended_us = now_us;
    deadlines_remove(&server->deadlines, &seq->deadline);
    if (!queued)
        hold(server, seq);
    count_end(server, seq);
    server->live_sequences--;
    if (--request->seq_unended == 0)
        log_request(server, request, now_us);
    if (request->audience)
        request->audience->news(request->audience, seq);
    else
        ledger_release(server, seq);
}

static void retire(struct server *server, struct request *request)
{
    drop_results(server, request, request->result_bytes);
    if (request->audience) {
        list_remove(&request->audience_link);
        request->audience->request_count--;
        list_remove(&request->client_link);
    }
    list_remove(&request->user_link);
    list_remove(&request->id_link);
    server->live_requests--;
    users_put(&server->users, request->user);
    request_free(request);
}

void ledger_release(struct server *server, struct seq *seq)
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

void ledger_cancel(struct server *server, struct seq *seq, enum finish reason, time_us now_us)
{
    if (seq->state == SEQ_WAITING) {
        waiting_remove(&server->waiting, seq);
        seq->finish = reason;
        ledger_end(server, seq, now_us);
    } else if (seq->state == SEQ_SENT && !seq->cancel_sent) {
        seq->cancel_sent = true;
        seq->cancel_reason = reason;
        deadlines_remove(&server->deadlines, &seq->deadline);
        seq->replica->api->cancel(seq->replica, seq);
        seq->replica->mailed = true;
    }
}

void ledger_progress(struct server *server, struct seq *seq, time_us now_us)
{
    struct audience *audience = seq->request->audience;
    charge(server, seq);
    if (!audience)
        return;
    if (transcript_stops(seq->transcript) && transcript_read(seq, seq_out_count(seq)))
        ledger_cancel(server, seq, FINISH_STOP, now_us);
    if (seq->request->stream)
        audience->news(audience, seq);
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

void ledger_cancel_request(struct server *server, struct request *request, time_us now_us)
{
    walk_begin(request);
    for (uint32_t i = 0; i < request->seq_count; i++)
        ledger_cancel(server, &request->seqs[i], FINISH_CANCELLED, now_us);
    walk_end(server, request);
}

/* The request goes on without its audience, which is charged no more. */
static void leave_audience(struct request *request)
{
    struct audience *audience = request->audience;
    audience->request_count--;
    audience->results -= request->result_bytes;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct seq *seq = &request->seqs[i];
        audience->running -= seq->state == SEQ_SENT;
        audience->results -= seq->released ? 0 : seq->result_bytes;
    }
    request->audience = NULL;
    list_remove(&request->client_link);
}

void ledger_orphan(struct server *server, struct request *request, time_us now_us)
{
    leave_audience(request);
    walk_begin(request);
    for (uint32_t i = 0; i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        if (seq->state != SEQ_WAITING && list_linked(&seq->wait_link))
            list_remove(&seq->wait_link); /* from the connection's news */
        if (seq->state != SEQ_ENDED)
            ledger_cancel(server, seq, FINISH_CANCELLED, now_us);
        else if (!seq->released)
            ledger_release(server, seq);
        seq->lane = NULL; /* it is the audience's */
    }
    walk_end(server, request);
}
