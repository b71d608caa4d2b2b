#include "daemon/request/dispatcher.h"

#include "daemon/request/request_table.h"
#include "daemon/request/server.h"

/* ---- results -----------------------------------------------------------------------------------
 */

/* Bytes that are to be kept once the sequence is sent. */
static uint64_t result_bytes(const struct seq *seq)
{
    const struct request *request = seq->request;
    if (seq->again)
        return 0;
    if (!request->together)
        return seq_result_bytes(seq, request->model ? request->model->info.hidden : 0);
    return request->result_bytes ? 0 : request->answer_bytes;
}

static bool can_keep(const struct server *server, const struct seq *seq)
{
    const struct request *request = seq->request;
    return admission_keep(&server->limits, server->load.results, request->user->load.results,
                          request->sink->results, result_bytes(seq));
}

/* Whose turn it is of those whose results can be kept now; the others are parked. And whose adapter
 * is there; the others are aside. */
static struct seq *next(struct server *server, struct waiting *waiting)
{
    struct seq *seq;
    while ((seq = waiting_first(waiting))) {
        if (!can_keep(server, seq)) {
            waiting_park(waiting, seq);
            server->counts.results_waited_total++;
        } else if (adapter_tiers_ready(server, seq)) {
            return seq;
        }
    }
    return NULL;
}

/* What of its prompt it need not read on a replica: other results of it were sent there, or it is
 * cached; *ret_host: of that, what comes from host memory. */
static uint32_t had(struct replica *const *replicas, uint32_t replica, const struct seq *seq,
                    bool expected, uint32_t *ret_host)
{
    uint32_t host = 0;
    *ret_host = 0;
    const struct replica *of = replicas[replica];
    const struct seq *first = seq - seq->result;
    uint32_t block = seq->request->model->info.block_tokens;
    uint32_t blocks = block > 0 ? (seq->prompt_len - 1) / block : 0;
    if (seq->params.job == JOB_GENERATE && first->homes >> replica & 1)
        return blocks * block;
    if (!seq_finds(seq) || blocks == 0)
        return 0;
    blocks = of->api->cached(of, seq->keys, blocks, expected, &host);
    *ret_host = host * block;
    return blocks * block;
}

static struct replica_common common_of(struct replica *const *replicas, const struct seq *seq)
{
    struct replica_common common = {.had = {0}};
    for (uint32_t i = 0; i < seq->request->model->replica_count; i++)
        common.had[i] = had(replicas, i, seq, true, &common.host[i]);
    return common;
}

/* Where there is no memory for its results it ends here, and its user is charged nothing. */
static bool make_room(struct server *server, struct waiting *waiting, struct seq *seq,
                      time_us now_us)
{
    const uint32_t hidden = seq->request->model ? seq->request->model->info.hidden : 0;
    if (!seq_make_room(seq, hidden, &server->failure))
        return true;
    waiting_remove(waiting, seq);
    seq->finish = FINISH_ERROR;
    seq->failure = &server->failure;
    request_table_end(server, seq, now_us);
    return false;
}

static void send(struct server *server, struct replica *replica, struct seq *seq, uint64_t loss,
                 time_us now_us)
{
    struct served_model *model = seq->request->model;
    struct replica *const *replicas = model_reload_replicas(server, seq->request);
    uint32_t host;
    if (!make_room(server, &model->waiting, seq, now_us))
        return;
    for (uint32_t i = 0; i < model->replica_count; i++)
        if (replicas[i] == replica) {
            seq->had = had(replicas, i, seq, false, &host);
            (seq - seq->result)->homes |= 1u << i;
        }
    waiting_take(&model->waiting, seq,
                 seq->prompt_len - seq->had + seq->had / DISPATCH_HAD_SHARE + loss);
    seq->turn = seq->share->turn.used;
    seq->replica = replica;
    request_table_send(server, seq, result_bytes(seq));
    replica->api->send(replica, seq);
    /* Behind it: what is expected may stand where something that is there did. */
    if (model->replica_count > 1 && seq->caches && seq->result == 0)
        replica->api->expect(replica, seq->keys, seq->key_count);
    replica->mailed = true;
}

/* ---- ahead of their turn -----------------------------------------------------------------------
 */

/* What it has on the model's replicas. */
static uint32_t running_of(const struct user *user, const struct served_model *model)
{
    const struct waiting_user *waiting =
        model->number == 0 ? &user->waiting : user->more[model->number - 1];
    return waiting ? waiting->running : 0;
}

static struct user *most_running(struct server *server, const struct served_model *model)
{
    struct user *most = NULL;
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_each(link, &server->users.buckets[i])
        {
            struct user *user = container_of(link, struct user, bucket_link);
            if (!most || running_of(user, model) > running_of(most, model))
                most = user;
        }
    return most;
}

/* Whether they are for the same replicas. */
static bool of_one_version(const struct request *a, const struct request *b)
{
    return a->model == b->model && a->version == b->version;
}

/* Of the user's connections the one that has most on the model's replicas, and at least `least`:
 * its youngest sequence there that can give way, which one that is owed its slot itself or is
 * cancelled cannot, on replicas that this one goes to. NULL: there is none. Over HTTP each exchange
 * is a connection of its own, so of equal ones it is the youngest of all. */
static const struct seq *busiest(const struct user *user, const struct request *to, uint32_t least)
{
    const struct seq *best = NULL;
    list_each(link, &user->requests)
    {
        const struct request *request = container_of(link, struct request, user_link);
        if (!request->sink || !of_one_version(request, to) || request->waiting->running < least ||
            (best && request->waiting->running < best->request->waiting->running))
            continue;
        for (uint32_t i = 0; i < request->seq_count; i++) {
            const struct seq *seq = &request->seqs[i];
            if (seq->state == SEQ_SENT && !seq->owed && !seq->cancel_sent)
                best = seq;
        }
    }
    return best;
}

/* Who is to give a slot up for this one; NULL: nobody. */
static const struct seq *gives_way(struct server *server, const struct seq *seq)
{
    const struct served_model *model = seq->request->model;
    const struct user *user = seq->request->user;
    const uint32_t running = running_of(user, model);
    uint64_t part = (uint64_t)model->running * model->waiting.share / 100;
    if (model->waiting.share == 0 || model->running < 2)
        return NULL;
    bool few = running < part && model->owed < part;
    const struct seq *from = NULL;
    if (running == 0 || few) {
        const struct user *most = most_running(server, model);
        if (running_of(most, model) >= running + 2)
            from = busiest(most, seq->request, 1);
    }
    /* The same between the connections of one user, where one has much of it. Among many with few
     * each, slots come free soon. */
    if (!from && seq->request->waiting->running == 0 && (model->owed == 0 || model->owed < part))
        from = busiest(user, seq->request, running / 4 > 2 ? running / 4 : 2);
    return from;
}

static bool send_owed(struct server *server, struct seq *seq, time_us now_us)
{
    const struct seq *victim = gives_way(server, seq);
    if (!victim)
        return false;
    seq->owed = true;
    seq->way_sink = victim->sink;
    seq->way_user = victim->user_id;
    server->counts.owed_total++;
    /* Its tokens will be computed once more. */
    uint64_t loss = (uint64_t)victim->prompt_len + seq_out_count(victim);
    send(server, victim->replica, seq, loss, now_us);
    return true;
}

static bool send_to(struct server *server, struct replica_room *rooms, uint32_t pick,
                    struct seq *seq, time_us now_us)
{
    if (pick == REPLICA_NONE)
        return false;
    struct replica *replica = model_reload_replicas(server, seq->request)[pick];
    send(server, replica, seq, 0, now_us);
    rooms[pick] = replica->api->room(replica);
    return true;
}

/* ---- above others ------------------------------------------------------------------------------
 */

/* More of those below it are there than wait for a place already, as it would: somebody gives way
 * (daemon/sched/sched_preempt.c). */
static bool goes_above(const struct replica *replica, const struct replica_room *room,
                       const struct seq *seq)
{
    uint64_t below = 0;
    for (int32_t i = WAITING_PRIORITY_MIN; i < seq->priority; i++)
        below += replica->below[i - WAITING_PRIORITY_MIN];
    return below > (uint64_t)room->waiting + room->gave_way;
}

static bool send_above(struct server *server, struct replica_room *rooms, struct seq *seq,
                       time_us now_us)
{
    struct replica_room above[SERVER_REPLICAS_MAX];
    const struct served_model *model = seq->request->model;
    struct replica *const *replicas = model_reload_replicas(server, seq->request);
    struct replica_common common = common_of(replicas, seq);
    for (uint32_t i = 0; i < model->replica_count; i++) {
        above[i] = rooms[i];
        above[i].sequences = goes_above(replicas[i], &rooms[i], seq);
        above[i].kv_tokens = UINT64_MAX;
        above[i].prefill_tokens = UINT64_MAX;
    }
    return send_to(server, rooms,
                   replica_select(above, model->replica_count, seq->prompt_len, &common), seq,
                   now_us);
}

/* ---- the turn ----------------------------------------------------------------------------------
 */

static void note_pace(double *wait_us, time_us *left_us, uint32_t sent, time_us now_us)
{
    if (sent == 0)
        return;
    if (*left_us) {
        double each = (double)(now_us - *left_us) / sent;
        *wait_us += (each - *wait_us) / 8;
    }
    *left_us = now_us;
}

/* ---- jobs --------------------------------------------------------------------------------------
 */

#define JOB_CHARGE_SHIFT 8 /* bytes of a job that count as a token would, and one at least */

static bool has_room(const struct server_jobs *jobs)
{
    return jobs->running == 0 ||
           (jobs->running < jobs->ahead_jobs && jobs->running_bytes < jobs->ahead_bytes);
}

static void send_job(struct server *server, struct seq *seq, time_us now_us)
{
    struct server_jobs *jobs = &server->jobs;
    const uint64_t bytes = seq->job->in_bytes + seq->job->out_bytes;
    if (!make_room(server, &jobs->waiting, seq, now_us))
        return;
    waiting_take(&jobs->waiting, seq, (bytes >> JOB_CHARGE_SHIFT) + 1);
    seq->replica = jobs->replica;
    request_table_send(server, seq, result_bytes(seq));
    jobs->replica->api->send(jobs->replica, seq);
    jobs->replica->mailed = true;
}

static void dispatch_jobs(struct server *server, time_us now_us)
{
    struct server_jobs *jobs = &server->jobs;
    struct seq *seq;
    uint32_t sent = 0;
    if (!jobs->replica)
        return;
    for (; has_room(jobs) && (seq = next(server, &jobs->waiting)); sent++)
        send_job(server, seq, now_us);
    note_pace(&jobs->wait_us, &jobs->left_us, sent, now_us);
}

static bool send_where_room(struct server *server, struct replica_room *rooms, struct seq *seq,
                            time_us now_us)
{
    struct replica_common common = common_of(model_reload_replicas(server, seq->request), seq);
    uint32_t pick =
        replica_select(rooms, seq->request->model->replica_count, seq->prompt_len, &common);
    return send_to(server, rooms, pick, seq, now_us);
}

/* What the replicas of a model's two versions can take; the second is there while one takes over
 * from the other. */
struct version_rooms {
    struct replica_room served[SERVER_REPLICAS_MAX], others[SERVER_REPLICAS_MAX];
};

static struct replica_room *rooms_of(struct version_rooms *rooms, const struct seq *seq)
{
    const struct request *request = seq->request;
    return request->version == request->model->version.number ? rooms->served : rooms->others;
}

static void look(const struct server *server, const struct served_model *model,
                 struct version_rooms *ret_rooms)
{
    uint32_t count;
    struct replica *const *others = model_reload_others(server, &count);
    for (uint32_t i = 0; i < model->replica_count; i++)
        ret_rooms->served[i] = model->replicas[i]->api->room(model->replicas[i]);
    for (uint32_t i = 0; model_reload_on(server, model) && i < count; i++)
        ret_rooms->others[i] = others[i]->api->room(others[i]);
}

/* Where the share of lower priorities is due and nothing has room for it, it waits; who is above
 * them need not wait with it, since it takes the place of others, or goes to another version. */
static bool send_highest(struct server *server, const struct seq *first,
                         struct version_rooms *rooms, time_us now_us)
{
    struct seq *seq = waiting_highest(&first->request->model->waiting);
    if (!can_keep(server, seq) || !adapter_tiers_ready(server, seq))
        return false;
    return (!of_one_version(seq->request, first->request) &&
            send_where_room(server, rooms_of(rooms, seq), seq, now_us)) ||
           send_above(server, rooms_of(rooms, seq), seq, now_us);
}

static void dispatch_sequences(struct server *server, struct served_model *model, time_us now_us)
{
    struct version_rooms rooms;
    struct seq *seq = model->sleep.state == MODEL_AWAKE ? next(server, &model->waiting) : NULL;
    uint32_t sent = 0;
    if (!seq)
        return;
    look(server, model, &rooms);
    while (seq && (send_where_room(server, rooms_of(&rooms, seq), seq, now_us) ||
                   send_highest(server, seq, &rooms, now_us))) {
        seq = next(server, &model->waiting);
        sent++;
    }
    for (; seq && send_owed(server, seq, now_us); sent++)
        seq = next(server, &model->waiting);
    note_pace(&model->wait_us, &model->left_us, sent, now_us);
}

void dispatch(struct server *server, time_us now_us)
{
    if (server->results_freed) {
        for (uint32_t i = 0; i < server->model_count; i++)
            waiting_unpark(&server->models[i].waiting);
        waiting_unpark(&server->jobs.waiting);
    }
    server->results_freed = false;
    if (server->phase == SERVER_LOADING || server->phase == SERVER_FAILED)
        return;
    for (uint32_t i = 0; i < server->model_count; i++)
        dispatch_sequences(server, &server->models[i], now_us);
    while (adapter_tiers_turn(server, now_us))
        dispatch_sequences(server, &server->models[0], now_us);
    dispatch_jobs(server, now_us);
}
