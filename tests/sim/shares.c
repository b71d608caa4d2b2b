#include "tests/sim/shares.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/api/session.h"
#define WRONG(...) scene_fail(shares->scene, "shares: " __VA_ARGS__)

void shares_init(struct shares *shares, struct scene *scene)
{
    memset(shares, 0, sizeof(*shares));
    shares->scene = scene;
}

/* ---- turns -------------------------------------------------------------------------------------
 */

/* Tokens that others may use before its turn must have come: in each priority each rival may have a
 * sequence before it; where there are lower priorities, that is their share of all. Some more,
 * since tokens are charged after they came. What others run gives way to a user; between
 * connections only where one has several. */
static uint64_t bound(const struct shares *shares, const struct server *server,
                      const struct shares_watch *watch, uint64_t rivals)
{
    uint64_t levels = (uint64_t)__builtin_popcount(watch->levels);
    uint64_t turns = levels * rivals * shares->most;
    uint64_t running = watch->who % 2 ? watch->running : 1;
    return (levels > 1 ? turns * 100 / server->waiting.share : turns) +
           shares->most * (running + 2) + 8 * levels;
}

static void look(struct shares *shares, const struct server *server, uint64_t who, uint64_t served,
                 bool waits, uint64_t rivals)
{
    struct shares_watch *watch = NULL;
    for (uint32_t i = 0; i < SHARES_WATCHED; i++)
        if (shares->watch[i].who == who || (!watch && !shares->watch[i].who))
            watch = &shares->watch[i];
    if (!watch) {
        WRONG("too many to watch");
        return;
    }
    if (watch->who != who || !waits || watch->served != served)
        *watch = (struct shares_watch){.who = who, .served = served, .since = server->waiting.used};
    watch->seen = true;
    watch->levels |= server->waiting.level_bits;
    if (watch->running < server->load.running)
        watch->running = server->load.running;
    uint64_t passed = server->waiting.used - watch->since;
    uint64_t right = bound(shares, server, watch, rivals);
    if (passed > right)
        WRONG("somebody waits while others use %" PRIu64 " tokens, at most %" PRIu64 " are right",
              passed, right);
}

static void look_at_user(struct shares *shares, const struct server *server,
                         const struct user *user)
{
    uint64_t served = 0;
    bool waits = false;
    for (uint32_t i = 0; i < WAITING_LEVELS; i++) {
        served += user->waiting.shares[i].turn.used;
        waits |= user->waiting.shares[i].turn.waits;
    }
    look(shares, server, 2 * user->id + 2, served, waits, server->users.count);
}

static void look_at_session(struct shares *shares, const struct server *server,
                            const struct session *session)
{
    uint64_t served = 0;
    bool waits = false;
    for (uint32_t i = 0; i < WAITING_LEVELS; i++) {
        served += session->sink.waiting.lanes[i].turn.used;
        waits |= session->sink.waiting.lanes[i].turn.waits;
    }
    look(shares, server, 2 * session->sink.number + 1, served, waits,
         (uint64_t)server->users.count * server->load.connections);
}

/* Who was not seen has gone. */
static void forget(struct shares *shares)
{
    for (uint32_t i = 0; i < SHARES_WATCHED; i++) {
        if (!shares->watch[i].seen)
            shares->watch[i].who = 0;
        shares->watch[i].seen = false;
    }
}

/* ---- results -----------------------------------------------------------------------------------
 */

static void check_request(struct shares *shares, const struct server *server,
                          const struct request *request, uint64_t *results, uint32_t *running)
{
    const struct response_sink *sink = request->sink; /* NULL once its client is gone */
    if (sink && sink->results > server->limits.results_max / 4)
        WRONG("a connection holds %" PRIu64 " bytes of results of %" PRIu64, sink->results,
              server->limits.results_max);
    *results += request->result_bytes;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct seq *seq = &request->seqs[i];
        *results += seq->released ? 0 : seq->result_bytes;
        *running += seq->state == SEQ_SENT;
        if (seq->state != SEQ_WAITING && shares->most < seq->prompt_len + seq->charged)
            shares->most = seq->prompt_len + seq->charged;
    }
}

static void check_results(struct shares *shares, const struct server *server)
{
    uint64_t all = 0;
    uint32_t all_running = 0;
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_each(link, &server->users.buckets[i])
        {
            const struct user *user = container_of(link, struct user, bucket_link);
            uint64_t results = 0;
            uint32_t running = 0;
            list_each(request, &user->requests) check_request(
                shares, server, container_of(request, struct request, user_link), &results,
                &running);
            if (results != user->load.results || running != user->load.running)
                WRONG("user %" PRIu64 " is charged for %" PRIu64 " bytes and %u sequences, and "
                      "holds %" PRIu64 " and %u",
                      user->id, user->load.results, user->load.running, results, running);
            if (results > server->limits.results_max / 2)
                WRONG("user %" PRIu64 " holds %" PRIu64 " bytes of results of %" PRIu64, user->id,
                      results, server->limits.results_max);
            all += results;
            all_running += running;
        }
    if (all != server->load.results || all_running != server->load.running)
        WRONG("all are charged for %" PRIu64 " bytes and %u sequences, and hold %" PRIu64 " and %u",
              server->load.results, server->load.running, all, all_running);
    if (all > server->limits.results_max)
        WRONG("%" PRIu64 " bytes of results, at most %" PRIu64, all, server->limits.results_max);
}

void shares_check(struct shares *shares, const struct server *server)
{
    check_results(shares, server);
    shares->parked += !list_empty(&server->waiting.parked);
    shares->owed += server->owed > 0;
    if (server->phase != SERVER_READY && server->phase != SERVER_DRAINING)
        return;
    for (uint32_t i = 0; i < USER_BUCKETS && server->waiting.share > 0; i++)
        list_each(link, &server->users.buckets[i])
            look_at_user(shares, server, container_of(link, struct user, bucket_link));
    list_each(link, &server->conns.conns) if (server->waiting.share > 0)
        look_at_session(shares, server, container_of(link, struct session, conn.conn_link));
    forget(shares);
}
