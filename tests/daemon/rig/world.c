#include "tests/daemon/rig/world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/session.h"
#include "daemon/base/option_table.h"

/* ---- replica -----------------------------------------------------------------------------------
 */

static struct world_replica *of(const struct replica *replica)
{
    return (struct world_replica *)(uintptr_t)replica;
}

static struct world *world_of(struct world_replica *replica)
{
    return replica->world;
}

static struct replica_room room(const struct replica *replica)
{
    const struct world_replica *self = of(replica);
    return (struct replica_room){
        .ready = true,
        .sequences = self->room > self->count ? self->room - self->count : 0,
        .kv_tokens = UINT32_MAX,
        .prefill_tokens = UINT32_MAX,
        .waiting =
            self->gives_way && self->count >= self->room ? self->count - self->room : UINT32_MAX,
        .empty = self->count == 0,
        .starves = self->starves};
}

static void send(struct replica *replica, struct seq *seq)
{
    struct world_replica *self = of(replica);
    ck_assert_uint_lt(self->count, WORLD_HELD_MAX);
    self->held[self->count++] = seq;
    if (self->sent_total < 64)
        self->first_user[self->sent_total] = seq->user_id;
    self->sent_total++;
}

static void end(struct world_replica *self, uint32_t index, enum finish finish, unsigned flags)
{
    struct seq *seq = self->held[index];
    memmove(&self->held[index], &self->held[index + 1],
            (--self->count - index) * sizeof(self->held[0]));
    seq->finish = finish;
    seq->stamps.ended_us = world_of(self)->now_us;
    completion_visit(&world_of(self)->completions, seq, COMPLETION_ENDED | flags);
}

static void cancel(struct replica *replica, struct seq *seq)
{
    struct world_replica *self = of(replica);
    for (uint32_t i = 0; i < self->count; i++)
        if (self->held[i] == seq) {
            end(self, i, seq->cancel_reason, COMPLETION_CANCEL_SEEN);
            return;
        }
    completion_visit(&world_of(self)->completions, seq, COMPLETION_CANCEL_SEEN);
}

static uint32_t cached(const struct replica *replica, const struct prefix_key *keys, uint32_t count,
                       bool expected, uint32_t *ret_host)
{
    (void)replica;
    (void)keys;
    (void)expected;
    *ret_host = 0;
    return count < of(replica)->cached ? count : of(replica)->cached;
}

static void expect(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    (void)keys;
    of(replica)->expected += count;
}

static bool want(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    (void)keys;
    if (of(replica)->wants_none)
        return false;
    of(replica)->wanted += count;
    return true;
}

static void unwant(struct replica *replica, const struct prefix_key *keys, uint32_t count)
{
    (void)keys;
    ck_assert_uint_ge(of(replica)->wanted, count);
    of(replica)->wanted -= count;
}

static void wake(struct replica *replica)
{
    of(replica)->wakes++;
}

static void ask_stats(struct replica *replica)
{
    of(replica)->asked = of(replica)->silent_stats;
    if (!of(replica)->silent_stats)
        completion_control(&world_of(of(replica))->completions, COMPLETION_STATS);
}

static bool stats_there(struct replica *replica)
{
    return !of(replica)->asked;
}

static const struct stats_worker *stats(struct replica *replica)
{
    return &of(replica)->figures;
}

static bool lacks(struct replica *replica)
{
    bool lack = of(replica)->lack;
    of(replica)->lack = false;
    return lack;
}

static void yield(struct replica *replica)
{
    of(replica)->yields++;
}

static void hand_back(struct replica *replica)
{
    struct world_replica *self = of(replica);
    self->hand_backs++;
    while (self->starves && self->count > 0) {
        self->held[self->count - 1]->handed_back = true;
        self->handed_back++;
        end(self, self->count - 1, FINISH_CANCELLED, 0);
    }
}

static void memory(const struct replica *replica, uint32_t rank, struct gpu_memory *ret_memory)
{
    (void)rank;
    (void)replica;
    *ret_memory = (struct gpu_memory){.weights = 7};
}

static void counters(const struct replica *replica, struct gpu_counters *ret_counters)
{
    (void)replica;
    *ret_counters = (struct gpu_counters){.steps = 9};
}

static int adapter_load(struct replica *replica, uint32_t number, const struct gpu_adapter *adapter,
                        struct error *error)
{
    of(replica)->adapter_loads++;
    of(replica)->adapter = number;
    snprintf(of(replica)->directory, sizeof(of(replica)->directory), "%s", adapter->directory);
    return of(replica)->adapter_fails
               ? error_set(error, ERR_BAD_MODEL, "adapter %s: it is no good", adapter->name)
               : 0;
}

static uint32_t progress(const struct replica *replica)
{
    return of(replica)->progress;
}

static bool healthy(const struct replica *replica, time_us now_us)
{
    (void)now_us;
    return !of(replica)->stuck;
}

static const struct replica_api replica_api = {.room = room,
                                               .send = send,
                                               .cancel = cancel,
                                               .cached = cached,
                                               .expect = expect,
                                               .want = want,
                                               .unwant = unwant,
                                               .wake = wake,
                                               .ask_stats = ask_stats,
                                               .stats_there = stats_there,
                                               .lacks = lacks,
                                               .yield = yield,
                                               .hand_back = hand_back,
                                               .stats = stats,
                                               .memory = memory,
                                               .counters = counters,
                                               .adapter_load = adapter_load,
                                               .progress = progress,
                                               .healthy = healthy};

/* Of the second of two so much less than of the first as the prompt's last letter is behind "A". */
static float next_logprob(const struct seq *seq, uint32_t i)
{
    return -(float)i * (float)(seq->prompt[seq->prompt_len - 1] - 'A');
}

static void give(struct seq *seq, uint32_t i, const char *script)
{
    if (seq->out_tokens)
        seq->out_tokens[i] = script ? (unsigned char)script[i] : seq->prompt[0] + (int32_t)i + 1;
    if (seq->out_logprobs)
        seq->out_logprobs[i] = -(float)i;
    for (int32_t j = 0; seq->out_tops && j < seq->sampling.logprobs; j++)
        seq->out_tops[(int32_t)i * seq->sampling.logprobs + j] =
            (struct gpu_top){.token = j, .logprob = -(float)j};
    if (seq->out_scores)
        seq->out_scores[i] = (struct message_score){
            .logprob = seq->next_count > 0 ? next_logprob(seq, i) : -(float)i,
            .top_token = (int32_t)i};
    for (uint32_t j = 0; seq->out_rows && j < WORLD_HIDDEN; j++)
        seq->out_rows[i * WORLD_HIDDEN + j] = (float)(seq->prompt[0] + (int32_t)j);
}

static void step(struct world *world, struct world_replica *self, uint32_t tokens)
{
    for (uint32_t at = 0; at < self->count;) {
        struct seq *seq = self->held[at];
        uint32_t have = seq->out_count, max = seq_out_max(seq);
        const char *script = seq->params.job == JOB_GENERATE ? self->script : NULL;
        bool stops = script && strlen(script) < max;
        max = stops ? (uint32_t)strlen(script) : max;
        uint32_t next = max - have < tokens ? max : have + tokens;
        if (!seq->stamps.scheduled_us)
            seq->stamps.scheduled_us = world->now_us;
        if (have == 0 && next > 0)
            seq->stamps.first_token_us = world->now_us;
        for (uint32_t i = have; i < next; i++)
            give(seq, i, script);
        seq->out_count = next;
        if (next == max) {
            end(self, at, seq->params.job == JOB_GENERATE && !stops ? FINISH_LENGTH : FINISH_STOP,
                0);
        } else {
            completion_visit(&world->completions, seq, 0);
            at++;
        }
    }
}

void world_step(struct world *world, uint32_t tokens)
{
    world_turn(world); /* what waits is sent */
    if (!world->replica.starves)
        step(world, &world->replica, tokens);
    for (uint32_t i = 0; i < WORLD_BESIDE; i++)
        if (!world->beside[i].starves)
            step(world, &world->beside[i], tokens);
    world_turn(world);
}

void world_fail(struct world *world, const struct error *failure)
{
    struct world_replica *self = &world->replica;
    while (self->count > 0) {
        ck_assert_ptr_nonnull(self->held[0]->failure);
        *self->held[0]->failure = *failure;
        end(self, 0, FINISH_ERROR, 0);
    }
}

/* ---- world -------------------------------------------------------------------------------------
 */

static void wake_loop(void *context)
{
    (void)context; /* the tests take turns by themselves */
}

static void make_replica(struct world *world, struct world_replica *replica)
{
    replica->base.api = &replica_api;
    replica->base.rank_count = 1;
    replica->room = WORLD_HELD_MAX;
    replica->progress = 250;
    replica->world = world;
}

void world_serve_beside(struct world *world, const char *names, uint32_t vocabulary)
{
    struct error error;
    struct gpu_model model = world->server.models[0].info;
    struct replica *replica = &world->beside[world->server.model_count - 1].base;
    model.vocab = vocabulary;
    ck_assert_msg(server_serve_beside(&world->server, &model, names, model.context_max / 2,
                                      UINT64_MAX, &replica, 1, &error) == 0,
                  "%s", error.text);
}

void world_make(struct world *world)
{
    struct error error;
    static const struct gpu_model model = {.id = "rule",
                                           .arch = "none",
                                           .vocab = 1000,
                                           .context_max = 4096,
                                           .hidden = WORLD_HIDDEN,
                                           .sampler.top_p = 1,
                                           .sampler.repetition_penalty = 1};
    memset(world, 0, sizeof(*world));
    world->now_us = 1000000;
    ck_assert_int_eq(options_defaults(&world->options, &error), 0);
    world_set(world, "log-requests", "no");
    completion_init(&world->completions, wake_loop, NULL);
    ck_assert_int_eq(
        server_init(&world->server, world->options, &world->completions, 1, world->now_us, &error),
        0);
    make_replica(world, &world->replica);
    for (uint32_t i = 0; i < WORLD_BESIDE; i++)
        make_replica(world, &world->beside[i]);
    struct replica *replica = &world->replica.base;
    server_serve(&world->server, &model, model.context_max, UINT64_MAX, "memory", &replica, 1);
}

void world_set(struct world *world, const char *name, const char *value)
{
    struct error error;
    const struct option *option = option_find(name, strlen(name));
    ck_assert_ptr_nonnull(option);
    ck_assert_msg(option_set(world->options, option, value, strlen(value), &error) == 0, "%s",
                  error.text);
    if (world->server.options)
        server_reload(&world->server, world->options);
}

void world_ready(struct world *world)
{
    server_ready(&world->server, world->now_us);
    world_turn(world);
}

/* As the loop does it: again, as long as something is due now. */
void world_turn(struct world *world)
{
    world->now_us++;
    for (int i = 0; i < 10000; i++) {
        server_turn(&world->server, world->now_us);
        time_us due_us = server_due(&world->server);
        if (!due_us || due_us > world->now_us)
            return;
    }
    ck_abort_msg("the server never comes to rest");
}

void world_pass(struct world *world, time_us us)
{
    world->now_us += us;
    world_turn(world);
}

void world_finish(struct world *world)
{
    for (int i = 0; i < 10000 && world->server.live_sequences > 0; i++)
        world_step(world, 64);
    ck_assert_uint_eq(world->server.live_sequences, 0);
}

void world_free(struct world *world)
{
    world_finish(world);
    server_destroy(&world->server, world->now_us);
    ck_assert_uint_eq(world->server.load.sequences, 0);
    ck_assert_uint_eq(world->server.load.tokens, 0);
    ck_assert_uint_eq(world->server.load.input, 0);
    ck_assert_uint_eq(world->server.load.results, 0);
    ck_assert_uint_eq(world->server.load.running, 0);
    for (uint32_t i = 0; i < MODEL_LIST_MAX; i++) {
        ck_assert_uint_eq(world->server.models[i].owed, 0);
        ck_assert_uint_eq(world->server.models[i].running, 0);
        ck_assert_uint_eq(world->server.models[i].waiting.count, 0);
    }
    ck_assert_uint_eq(world->server.load.connections, 0);
    ck_assert_uint_eq(world->server.users.count, 0);
    completion_destroy(&world->completions);
    options_free(world->options);
}

/* ---- clients -----------------------------------------------------------------------------------
 */

static struct client *client_of(struct transport *transport)
{
    return container_of(transport, struct client, transport);
}

static ssize_t take(struct transport *transport, const void *bytes, size_t length)
{
    struct client *client = client_of(transport);
    size_t taken = length < client->takes ? length : client->takes;
    while (client->got_size - client->got_length < taken) {
        client->got_size = client->got_size ? 2 * client->got_size : 4096;
        client->got = realloc(client->got, client->got_size);
        ck_assert_ptr_nonnull(client->got);
    }
    memcpy(client->got + client->got_length, bytes, taken);
    client->got_length += taken;
    if (client->takes != SIZE_MAX)
        client->takes -= taken;
    client->writes += taken > 0;
    return (ssize_t)taken;
}

static void watch(struct transport *transport, bool reading, bool writing)
{
    client_of(transport)->reading = reading;
    client_of(transport)->writing = writing;
}

static void closed(struct transport *transport)
{
    ck_assert(!client_of(transport)->closed);
    client_of(transport)->closed = true;
    client_of(transport)->conn = NULL;
}

static const struct transport_api client_api = {.send = take, .watch = watch, .close = closed};

void client_connect(struct world *world, struct client *client, uint32_t uid, bool admin)
{
    const struct peer peer = {.uid = uid, .gid = uid, .admin = admin, .via = "test"};
    memset(client, 0, sizeof(*client));
    client->transport.api = &client_api;
    client->world = world;
    client->takes = SIZE_MAX;
    struct conn *conn = session_accept(&world->server, &client->transport, &peer, world->now_us);
    client->conn = conn;
}

void client_open(struct world *world, struct client *client, uint32_t uid)
{
    const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "test"};
    unsigned char buffer[512];
    struct frame frame;
    client_connect(world, client, uid, uid == 0);
    client_put(client, buffer, message_encode_hello(buffer, sizeof(buffer), &hello), 0);
    world_turn(world);
    ck_assert(client_next(client, &frame));
    ck_assert_uint_eq(frame.type, FRAME_WELCOME);
}

void client_free(struct client *client)
{
    if (client->conn)
        conn_lost(client->conn, client->world->now_us);
    free(client->got);
}

void client_put(struct client *client, const void *bytes, size_t length, size_t chunk)
{
    const unsigned char *from = bytes;
    while (length > 0 && client->conn && !client->conn->closed) {
        size_t room_size, part = chunk > 0 && chunk < length ? chunk : length;
        void *to = conn_room(client->conn, &room_size);
        if (!to)
            return; /* the server does not read: the rest would stay in the socket */
        part = part < room_size ? part : room_size;
        memcpy(to, from, part);
        conn_received(client->conn, part, client->world->now_us);
        from += part;
        length -= part;
    }
}

bool client_next(struct client *client, struct frame *ret_frame)
{
    struct error error;
    size_t used;
    /* A frame's start is a multiple of 8 in `got`, which malloc aligned. */
    switch (frame_decode(client->got + client->read_at, client->got_length - client->read_at,
                         64u << 20, ret_frame, &used, &error)) {
    case FRAME_OK:
        client->read_at += used;
        return true;
    case FRAME_MORE:
        return false;
    case FRAME_BAD:
        break;
    }
    ck_abort_msg("the server sent a bad frame: %s", error.text);
}

bool client_find(struct client *client, uint8_t type, struct frame *ret_frame)
{
    while (client_next(client, ret_frame))
        if (ret_frame->type == type)
            return true;
    return false;
}

int client_error(struct client *client)
{
    struct frame frame;
    struct message_error message;
    struct error error;
    if (!client_find(client, FRAME_ERROR, &frame))
        return 0;
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    return message.error.code;
}

size_t ask_encode(const struct ask *ask, void *buffer, size_t size)
{
    static struct message_prompt prompts[4096];
    static int32_t tokens[65536];
    uint32_t length = ask->length ? ask->length : 1;
    for (uint32_t i = 0; i < length; i++)
        tokens[i] = (ask->first + (int32_t)i) % 1000;
    for (uint32_t i = 0; i < ask->count; i++) {
        prompts[i] = (struct message_prompt){
            .sampling = sampling_unset(), .tokens = tokens, .token_count = ask->length};
        if (ask->job == JOB_GENERATE) {
            prompts[i].sampling.max_tokens = ask->max_tokens;
            if (ask->logprobs)
                prompts[i].sampling.logprobs = ask->logprobs - 1;
            if (ask->n)
                prompts[i].sampling.n = ask->n;
        }
    }
    const struct message_submit_out submit = {.params.job = ask->job,
                                              .params.priority = ask->priority,
                                              .params.deadline_ms = ask->deadline_ms,
                                              .params.stream = !ask->whole,
                                              .params.normalize = true,
                                              .params.pooling = ask->pooling,
                                              .params.no_cache = ask->no_cache,
                                              .params.cache_salt = ask->salt,
                                              .params.adapter = ask->adapter,
                                              .params.model = ask->model,
                                              .prompt_count = ask->count,
                                              .prompts = prompts};
    size_t used = message_encode_submit(buffer, size, ask->id, &submit);
    ck_assert_uint_gt(used, 0);
    return used;
}

void client_ask(struct client *client, const struct ask *ask)
{
    static _Alignas(8) unsigned char buffer[4u << 20];
    client_put(client, buffer, ask_encode(ask, buffer, sizeof(buffer)), 0);
}

void client_control(struct client *client, uint8_t type, uint64_t id, const char *head)
{
    unsigned char buffer[1024];
    size_t used = message_encode_control(buffer, sizeof(buffer), type, 0, id, head, strlen(head));
    ck_assert_uint_gt(used, 0);
    client_put(client, buffer, used, 0);
}
