#include "tests/sim/shares.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/api/session.h"
#include "daemon/request/dispatcher.h"
#include "daemon/worker/completion_queue.h"

#define WRONG(...) scene_fail(shares->scene, "shares: " __VA_ARGS__)

static struct shares *present; /* whose replicas these are */

/* ---- who ---------------------------------------------------------------------------------------
 */

static uint64_t user_name(uint64_t id)
{
    return 2 * id + 2;
}

static uint64_t sink_name(uint64_t number)
{
    return 2 * number + 1;
}

static struct shares_watch *find(struct shares *shares, uint64_t who)
{
    for (uint32_t i = 0; i < SHARES_WATCHED; i++)
        if (shares->watch[i].who == who)
            return &shares->watch[i];
    return NULL;
}

static uint32_t level_of(const struct seq *seq)
{
    return (uint32_t)(seq->share - seq->share->user->shares);
}

static const struct turn *turn_of(const struct user *user, const struct session *session,
                                  uint32_t level)
{
    return user ? &user->waiting.shares[level].turn : &session->sink.waiting.lanes[level].turn;
}

/* For each user, and each connection. */
static void each(struct shares *shares, void (*look)(struct shares *shares, const struct user *user,
                                                     const struct session *session))
{
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_each(link, &shares->server->users.buckets[i])
            look(shares, container_of(link, struct user, bucket_link), NULL);
    list_each(link, &shares->server->conns.conns)
        look(shares, NULL, container_of(link, struct session, conn.conn_link));
}

/* ---- the books against the server's counters ---------------------------------------------------
 *
 * A counter is what was charged, of a user without what it has credit for, but for one thing: who
 * begins to wait starts at the least counter of those that it waits among, or TURN_FRESH_TOKENS
 * below their floor, if that is more. The floor is never below the least counter and never falls, so a
 * counter that is ahead of the books lies between the lower bound of when they were last compared
 * and the present floor. And nobody begins below all those who waited then and wait now.
 */

static uint64_t floor_of(const struct shares *shares, const struct session *session, uint32_t level)
{
    if (!session)
        return shares->server->models[0].waiting.levels[level].floor;
    return session->sink.user->waiting.shares[level].lanes.floor;
}

static uint64_t last_floor(struct shares *shares, const struct session *session, uint32_t level)
{
    if (!session)
        return shares->floor[level];
    const struct shares_watch *user = find(shares, user_name(session->sink.user->id));
    return user ? user->floor[level] : 0;
}

static void look_at(struct shares *shares, const struct user *user, const struct session *session)
{
    uint64_t who = user ? user_name(user->id) : sink_name(session->sink.number);
    struct shares_watch *watch = find(shares, who);
    if (!watch && !(watch = find(shares, 0))) {
        WRONG("too many to watch");
        return;
    }
    bool fresh = watch->who != who;
    if (fresh)
        *watch = (struct shares_watch){.who = who,
                                       .user = session ? user_name(session->sink.user->id) : 0};
    watch->seen = true;
    for (uint32_t i = 0; i < WAITING_LEVELS; i++) {
        const struct turn *turn = turn_of(user, session, i);
        uint64_t used = turn->used;
        watch->credit[i] = user ? user->waiting.shares[i].credit : 0;
        uint64_t net = used - watch->credit[i];
        watch->stays[i] = watch->waits[i] && turn->waits && turn->number == watch->number[i];
        if (net == watch->used[i])
            continue;
        const uint64_t below = TURN_FRESH_TOKENS * TURN_TOKEN;
        bool raised = net > watch->used[i] &&
                      used + below >= last_floor(shares, session, i) &&
                      used <= floor_of(shares, session, i);
        if (!raised && !(fresh && user)) /* what a user owes is remembered while it is away */
            WRONG("%s %" PRIu64 " has used %" PRIu64
                  " tokens of priority %u by its counter, %" PRIu64 " by the books",
                  user ? "user" : "connection", who / 2, net, i, watch->used[i]);
        watch->used[i] = net;
    }
}

/* The least key of those who waited among these at the last look; 0 where none of them has stayed
 * all the time, since nobody may have been there when others came. */
static uint64_t least_waiting(const struct shares *shares, uint64_t user, uint32_t level)
{
    uint64_t least = UINT64_MAX;
    bool stays = false;
    for (uint32_t i = 0; i < SHARES_WATCHED; i++) {
        const struct shares_watch *watch = &shares->watch[i];
        if (!watch->who || watch->user != user || !watch->waits[level])
            continue;
        stays |= watch->stays[level];
        if (watch->key[level] < least)
            least = watch->key[level];
    }
    return stays ? least : 0;
}

static void look_at_newcomer(struct shares *shares, const struct user *user,
                             const struct session *session)
{
    uint64_t who = user ? user_name(user->id) : sink_name(session->sink.number);
    const struct shares_watch *watch = find(shares, who);
    for (uint32_t i = 0; i < WAITING_LEVELS; i++) {
        if (watch->waits[i] || !turn_of(user, session, i)->waits)
            continue;
        uint64_t least = least_waiting(shares, watch->user, i);
        uint64_t used = turn_of(user, session, i)->used;
        if (used < least)
            WRONG("somebody begins to wait at %" PRIu64 " where all others had used %" PRIu64,
                  used, least);
    }
}

static void note(struct shares *shares, const struct user *user, const struct session *session)
{
    uint64_t who = user ? user_name(user->id) : sink_name(session->sink.number);
    struct shares_watch *watch = find(shares, who);
    for (uint32_t i = 0; i < WAITING_LEVELS; i++) {
        const struct turn *turn = turn_of(user, session, i);
        watch->waits[i] = turn->waits;
        watch->key[i] = turn->key;
        watch->number[i] = turn->number;
        if (user)
            watch->floor[i] = user->waiting.shares[i].lanes.floor;
    }
}

static void look_at_levels(struct shares *shares)
{
    const struct waiting *waiting = &shares->server->models[0].waiting;
    for (uint32_t i = 0; i < WAITING_LEVELS; i++) {
        uint64_t used = waiting->level_used[i];
        bool raised = used > shares->level_used[i] && used >= shares->level_floor &&
                      used <= waiting->level_floor;
        if (used != shares->level_used[i] && !raised)
            WRONG("priority %u has used %" PRIu64 " tokens while others waited, by the books "
                  "%" PRIu64,
                  i, used, shares->level_used[i]);
        shares->level_used[i] = used;
        shares->floor[i] = waiting->levels[i].floor;
    }
    shares->level_floor = waiting->level_floor;
    if (waiting->used != shares->used || waiting->top_used != shares->top_used ||
        waiting->low_used != shares->low_used)
        WRONG("%" PRIu64 " tokens are used, weighted %" PRIu64 " before others and %" PRIu64
              " by the share, by the books %" PRIu64 ", %" PRIu64 " and %" PRIu64,
              waiting->used, waiting->top_used, waiting->low_used, shares->used, shares->top_used,
              shares->low_used);
}

static void compare(struct shares *shares)
{
    for (uint32_t i = 0; i < SHARES_WATCHED; i++) /* who has gone is not looked at */
        memset(shares->watch[i].stays, 0, sizeof(shares->watch[i].stays));
    each(shares, look_at);
    if (shares->scene->failed)
        return;
    each(shares, look_at_newcomer);
    each(shares, note);
    look_at_levels(shares);
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

/* ---- what is charged ---------------------------------------------------------------------------
 */

static void charge(struct shares *shares, const struct shares_due *due)
{
    const uint64_t names[] = {user_name(due->user), due->sink ? sink_name(due->sink) : 0};
    uint64_t share = shares->server->models[0].waiting.share;
    const uint64_t weights[] = {grants_weight(&shares->server->grants, due->user, TURN_WEIGHT),
                                TURN_WEIGHT};
    for (int i = 0; i < 2; i++) {
        struct shares_watch *watch = names[i] ? find(shares, names[i]) : NULL;
        uint64_t tokens = i == 0 ? due->counted : due->tokens;
        if (watch)
            watch->used[due->level] += tokens * TURN_TOKEN * TURN_WEIGHT / weights[i];
        if (watch && i == 0)
            watch->used[due->level] -= due->let_off * TURN_TOKEN * TURN_WEIGHT / weights[i];
    }
    shares->used += due->tokens;
    shares->low_used += due->low ? due->tokens * (100 - share) : 0;
    shares->top_used += due->top ? due->tokens * share : 0;
    shares->level_used[due->level] += due->low || due->top ? due->tokens : 0;
}

static struct shares_due due_of(const struct seq *seq, uint64_t tokens)
{
    return (struct shares_due){.user = seq->user_id,
                               .sink = seq->lane ? seq->sink : 0,
                               .level = level_of(seq),
                               .low = seq->low,
                               .top = seq->top,
                               .tokens = tokens,
                               .counted = tokens};
}

/* What the server will hear of in this turn: nothing else happens while it lasts. An end is heard
 * of once a cancel that is on its way was seen, too. */
static void foresee(struct shares *shares, const struct seq *seq)
{
    unsigned flags = atomic_load_explicit(&seq->out_flags, memory_order_acquire);
    bool crossed =
        flags & COMPLETION_ENDED && seq->cancel_sent && !(flags & COMPLETION_CANCEL_SEEN);
    if (seq->state != SEQ_SENT || seq->params.job != JOB_GENERATE || !(flags & COMPLETION_QUEUED) ||
        crossed)
        return;
    if (shares->due_count == SHARES_DUE) {
        WRONG("too many are running");
        return;
    }
    uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
    uint32_t came = count - seq->charged, expected = came < seq->expected ? came : seq->expected;
    struct shares_due due = due_of(seq, came);
    due.counted = came - expected; /* the rest was, when it was sent */
    due.let_off = flags & COMPLETION_ENDED ? seq->expected - expected : 0;
    shares->due[shares->due_count++] = due;
}

static void settle(struct shares *shares)
{
    for (uint32_t i = 0; i < shares->due_count; i++)
        charge(shares, &shares->due[i]);
    shares->due_count = 0;
}

/* All that has come is charged. */
static void check_charged(struct shares *shares, const struct seq *seq)
{
    unsigned flags = atomic_load_explicit(&seq->out_flags, memory_order_acquire);
    uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
    if (seq->state == SEQ_SENT && !(flags & COMPLETION_ENDED) && seq->charged != count)
        WRONG("%u tokens of a sequence are charged, it has %u", seq->charged, count);
}

static void each_seq(struct shares *shares,
                     void (*look)(struct shares *shares, const struct seq *seq))
{
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_each(at, &shares->server->users.buckets[i])
        {
            const struct user *user = container_of(at, struct user, bucket_link);
            list_each(link, &user->requests)
            {
                const struct request *request = container_of(link, struct request, user_link);
                for (uint32_t k = 0; k < request->seq_count; k++)
                    look(shares, &request->seqs[k]);
            }
        }
}

/* ---- whose turn it is --------------------------------------------------------------------------
 *
 * Where several priorities wait and the weighted use of lower ones is below that of those that went
 * before them, the priority goes that has used least meanwhile, else the highest; of it the user
 * that has used least; of the user the connection.
 *
 * The bound that follows. Somebody waits with counter c among rivals with counters v. While it
 * does, a rival is sent something only with v <= c. So what it is charged in that time is at most
 * (c - v), the prompt of the sequence that takes it past c, and what its sequences that run then
 * still generate. A rival that comes begins at most TURN_FRESH_TOKENS below the floor, which each
 * of these prompts raises by its part for each who waits; past c it finds nobody to overtake. So
 * newcomers are given at most (c - floor + TURN_FRESH_TOKENS) tokens of prompts for each who waits. The same holds between priorities for turns of
 * the share, of which there is one whenever top_used exceeds low_used; and what goes before a
 * priority that waits raises top_used, by `share` of 100 of its tokens: so it is at most
 * (low_used - top_used) / share, (100 - share) / share of what the share itself is charged
 * meanwhile, and one sequence more for each that runs. Where the share is due and who has it finds
 * no room, the highest may go to a replica on which more run that have not given way to a priority,
 * and may, than wait there: one for each of them, and each was sent while nobody above it waited.
 * There is no other term: a sequence that is sent by another rule fails here, whatever has been
 * used.
 */

static bool several(uint32_t bits)
{
    return bits & (bits - 1);
}

static bool is_below(const struct seq *one, const struct replica *replica, const struct seq *seq)
{
    bool sent = one->state != SEQ_WAITING && one->state != SEQ_ENDED;
    return sent && one->replica == replica && one->priority < seq->priority && !one->owed &&
           !one->low;
}

static bool goes_above(const struct shares *shares, const struct replica *replica,
                       const struct seq *seq)
{
    struct replica_room room = shares->replicas->room(replica);
    uint32_t below = 0;
    for (uint32_t i = 0; i < INDEX_BUCKETS; i++)
        list_each(link, &shares->server->by_id.buckets[i])
        {
            const struct request *request = container_of(link, struct request, id_link);
            for (uint32_t k = 0; k < request->seq_count; k++)
                below += is_below(&request->seqs[k], replica, seq);
        }
    return below > room.waiting + room.gave_way;
}

static void check_level(struct shares *shares, const struct replica *replica, const struct seq *seq)
{
    const struct waiting *waiting = &shares->server->models[0].waiting;
    uint32_t level = level_of(seq), bits = waiting->level_bits | 1u << level;
    bool due = waiting->share > 0 && several(bits) && shares->low_used < shares->top_used;
    if (due && bits >> level == 1 && goes_above(shares, replica, seq))
        due = false;
    for (uint32_t i = 0; i < WAITING_LEVELS; i++) {
        if (!(bits >> i & 1))
            continue;
        if (due && shares->level_used[i] < shares->level_used[level])
            WRONG("priority %u has its share, and %u has used less", level, i);
        if (!due && i > level)
            WRONG("priority %u goes before %u, and its share is not due", level, i);
    }
    if (seq->low != (bits >> level > 1) || seq->top != (!seq->low && several(bits)))
        WRONG("a sequence of priority %u is taken for another class than it is of", level);
}

/* Its counter, as it was at the last look. */
static uint64_t counter(const struct shares_watch *watch, uint32_t level)
{
    return watch->used[level] + watch->credit[level];
}

static void check_users(struct shares *shares, const struct seq *seq)
{
    const struct request *request = seq->request;
    uint32_t level = level_of(seq);
    uint64_t used = counter(find(shares, user_name(request->user->id)), level);
    uint64_t conn_used = counter(find(shares, sink_name(request->sink->number)), level);
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_each(link, &shares->server->users.buckets[i])
        {
            const struct user *user = container_of(link, struct user, bucket_link);
            if (turn_of(user, NULL, level)->waits &&
                counter(find(shares, user_name(user->id)), level) < used)
                WRONG("user %" PRIu64 " is passed over", user->id);
        }
    list_each(link, &shares->server->conns.conns)
    {
        const struct session *session = container_of(link, struct session, conn.conn_link);
        if (session->sink.user == request->user && turn_of(NULL, session, level)->waits &&
            counter(find(shares, sink_name(session->sink.number)), level) < conn_used)
            WRONG("connection %" PRIu64 " is passed over", session->sink.number);
    }
}

/* What the one that gives its slot up has to have computed once more. */
static uint64_t loss(struct shares *shares, const struct seq *owed)
{
    const struct seq *youngest = NULL;
    list_each(at, &shares->server->conns.conns)
    {
        const struct session *session = container_of(at, struct session, conn.conn_link);
        if (session->sink.number != owed->way_sink)
            continue;
        list_each(link, &session->sink.requests)
        {
            const struct request *request = container_of(link, struct request, sink_link);
            for (uint32_t i = 0; i < request->seq_count; i++)
                if (request->seqs[i].state == SEQ_SENT && !request->seqs[i].owed &&
                    !request->seqs[i].cancel_sent)
                    youngest = &request->seqs[i];
        }
    }
    if (!youngest)
        WRONG("a sequence is sent before its turn, and nobody gives way");
    return youngest ? (uint64_t)youngest->prompt_len + seq_out_count(youngest) : 0;
}

/* Of the prompt, what need not be read: another result of it was sent there, or the replica has it.
 */
static uint32_t had(struct shares *shares, const struct replica *replica, const struct seq *seq)
{
    const struct request *request = seq->request;
    uint32_t block = shares->server->models[0].info.block_tokens;
    uint32_t blocks = block > 0 ? (seq->prompt_len - 1) / block : 0;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct seq *other = &request->seqs[i];
        if (other != seq && other->prompt == seq->prompt && other->replica == replica &&
            seq->params.job == JOB_GENERATE)
            return blocks * block;
    }
    uint32_t host;
    return seq_finds(seq) && blocks > 0
               ? shares->replicas->cached(replica, seq->keys, blocks, false, &host) * block
               : 0;
}

static uint64_t to_charge(struct shares *shares, const struct replica *replica,
                          const struct seq *seq)
{
    uint32_t found = had(shares, replica, seq);
    return seq->prompt_len - found + found / DISPATCH_HAD_SHARE;
}

static bool are_several(const struct shares *shares)
{
    return shares->server->model_count > 1;
}

/* Whoever sleeps, or is about to, gets nothing. */
static void check_awake(struct shares *shares, const struct replica *replica)
{
    const struct server *server = shares->server;
    for (uint32_t i = 0; i < server->model_count; i++)
        for (uint32_t j = 0; j < server->models[i].replica_count; j++)
            if (server->models[i].replicas[j] == replica &&
                server->models[i].sleep.state != MODEL_AWAKE)
                WRONG("a sequence is sent to model %u, which is %s", i,
                      model_sleep_word(&server->models[i]));
}

static void send(struct replica *replica, struct seq *seq)
{
    struct shares *shares = present;
    check_awake(shares, replica);
    settle(shares);
    if (!shares->scene->failed && !are_several(shares)) {
        check_level(shares, replica, seq);
        check_users(shares, seq);
        struct shares_due due =
            due_of(seq, to_charge(shares, replica, seq) + (seq->owed ? loss(shares, seq) : 0));
        charge(shares, &due);
        due = (struct shares_due){.user = seq->user_id, .level = level_of(seq)};
        due.counted = seq->expected;
        charge(shares, &due);
        compare(shares);
    }
    shares->replicas->send(replica, seq);
}

/* Asked for once before anything is sent in a turn: who had been parked waits again. */
static struct replica_room room(const struct replica *replica)
{
    settle(present);
    if (!present->scene->failed && !are_several(present))
        compare(present);
    return present->replicas->room(replica);
}

/* ---- results -----------------------------------------------------------------------------------
 */

static void check_request(struct shares *shares, const struct request *request, uint64_t *results,
                          uint32_t *running)
{
    const struct response_sink *sink = request->sink; /* NULL once its client is gone */
    uint64_t most = shares->server->limits.results_max;
    if (sink && sink->results > most / 4)
        WRONG("a connection holds %" PRIu64 " bytes of results of %" PRIu64, sink->results, most);
    *results += request->result_bytes;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        const struct seq *seq = &request->seqs[i];
        *results += seq->released ? 0 : seq->result_bytes;
        *running += seq->state == SEQ_SENT;
    }
}

static void check_results(struct shares *shares)
{
    const struct server *server = shares->server;
    uint64_t all = 0;
    uint32_t all_running = 0;
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_each(link, &server->users.buckets[i])
        {
            const struct user *user = container_of(link, struct user, bucket_link);
            uint64_t results = 0;
            uint32_t running = 0;
            list_each(request, &user->requests) check_request(
                shares, container_of(request, struct request, user_link), &results, &running);
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

void shares_init(struct shares *shares, struct scene *scene, const struct server *server)
{
    memset(shares, 0, sizeof(*shares));
    shares->scene = scene;
    shares->server = server;
}

const struct replica_api *shares_api(struct shares *shares, const struct replica_api *real)
{
    static struct replica_api api;
    present = shares;
    shares->replicas = real;
    api = *real;
    api.send = send;
    api.room = room;
    return &api;
}

void shares_begin(struct shares *shares)
{
    if (are_several(shares))
        return;
    compare(shares);
    each_seq(shares, foresee);
}

void shares_check(struct shares *shares)
{
    const struct server *server = shares->server;
    settle(shares);
    if (!are_several(shares)) {
        compare(shares);
        forget(shares);
    }
    each_seq(shares, check_charged);
    check_results(shares);
    shares->parked += !list_empty(&server->models[0].waiting.parked);
    shares->owed += server->models[0].owed > 0;
}
