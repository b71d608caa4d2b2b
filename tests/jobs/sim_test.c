/* Jobs through the whole of the daemon's logic, on one thread, in virtual time and from a seed:
 * sessions, queue, dispatcher, worker and lanes are the product's, clients are memory, the device
 * is stepped. Clients submit, cancel, leave, stop reading and let deadlines pass; then all is
 * quiet, and every job that was accepted has ended once, with the bytes that plain arithmetic
 * gives, and every count is zero.
 *
 * SLUICE_JOB_SEEDS says how many seeds; a failing one is run alone by SLUICE_JOB_SEED. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/session.h"
#include "daemon/jobs/job_worker.h"
#include "gpu/jobs/module.h"
#include "protocol/message_job.h"
#include "tests/daemon/rig/world.h"
#include "tests/jobs/bench.h"
#include "tests/jobs/daemon_suites.h"

#define CLIENTS 6
#define OPEN_MAX 4
#define ITEMS_MAX 5
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TURNS 1000 /* a share */
#define SEEDS_USUAL 3
#else
#define TURNS 3000
#define SEEDS_USUAL 12
#endif
#define QUIET_TURNS 200000
#define TIMELINE_ID (UINT64_C(1) << 40)

struct asked {
    uint64_t id; /* 0: none */
    uint32_t count, ended;
    bool accepted, cancelled, dated;
    uint32_t lengths[ITEMS_MAX], ends[ITEMS_MAX];
    uint64_t got[ITEMS_MAX]; /* bytes that came */
};

struct mind {
    struct client client;
    uint64_t next_id;
    struct asked requests[OPEN_MAX];
};

static struct {
    struct world world;
    struct job_programs programs;
    struct job_worker *worker;
    struct mind minds[CLIENTS];
    uint64_t seed, state;
    uint64_t accepted, done, cancelled, late, refused, chunks_told;
} sim;

/* Names the seed, whatever fails. */
#define HOLDS(condition)                                                                           \
    ck_assert_msg(condition, "seed %" PRIu64 ": %s (run it alone: SLUICE_JOB_SEED=%" PRIu64 ")",   \
                  sim.seed, #condition, sim.seed)

static uint32_t draw(uint32_t below)
{
    return bench_draw(&sim.state, below);
}

/* ---- what a job is -----------------------------------------------------------------------------
 */

static float value_at(uint64_t id, uint32_t item, uint64_t i)
{
    return (float)((id * 7919 + item * 104729 + i * 31) % 4001) / 7 - 250;
}

static float result_at(uint64_t id, uint32_t item, uint64_t i)
{
    volatile float product = 3 * value_at(id, item, i);
    volatile float sum = product + (float)item;
    return sum;
}

static size_t encode(const struct asked *request, int32_t priority, unsigned char *buffer,
                     size_t size)
{
    static char head[4096];
    int length = snprintf(head, sizeof(head),
                          "{\"program\":\"affine\",\"priority\":%d,\"deadline_ms\":%d,\"items\":[",
                          priority, request->dated ? 1 : 0);
    size_t payload = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        length += snprintf(head + length, sizeof(head) - (size_t)length,
                           "%s{\"inputs\":{\"x\":{\"dtype\":\"f32\",\"shape\":[%u]}},"
                           "\"parameters\":{\"a\":3,\"b\":%u}}",
                           i ? "," : "", request->lengths[i], i);
        payload += (size_t)tensor_pad(request->lengths[i] * sizeof(float));
    }
    length += snprintf(head + length, sizeof(head) - (size_t)length, "]}");
    size_t padded = frame_pad((size_t)length), at = FRAME_HEADER_SIZE + padded;
    HOLDS(at + payload <= size);
    frame_encode_header(buffer, FRAME_JOB, 0, request->id, (uint32_t)padded, (uint32_t)payload);
    memset(buffer + FRAME_HEADER_SIZE, ' ', padded);
    memcpy(buffer + FRAME_HEADER_SIZE, head, (size_t)length);
    memset(buffer + at, 0, payload);
    for (uint32_t i = 0; i < request->count; i++) {
        for (uint64_t j = 0; j < request->lengths[i]; j++) {
            float value = value_at(request->id, i, j);
            memcpy(buffer + at + j * sizeof(value), &value, sizeof(value));
        }
        at += (size_t)tensor_pad(request->lengths[i] * sizeof(float));
    }
    return at;
}

/* ---- clients -----------------------------------------------------------------------------------
 */

static struct asked *find(struct mind *mind, uint64_t id)
{
    for (int i = 0; i < OPEN_MAX; i++)
        if (mind->requests[i].id == id)
            return &mind->requests[i];
    return NULL;
}

static void submit(struct mind *mind)
{
    static _Alignas(8) unsigned char buffer[1u << 20];
    struct asked *request = find(mind, 0);
    if (!request || !mind->client.conn || !mind->client.reading)
        return;
    *request =
        (struct asked){.id = ++mind->next_id, .count = 1 + draw(ITEMS_MAX), .dated = draw(6) == 0};
    for (uint32_t i = 0; i < request->count; i++)
        request->lengths[i] = 1 + draw(draw(8) == 0 ? 30000 : 900);
    client_put(&mind->client, buffer, encode(request, (int32_t)draw(3) - 2, buffer, sizeof(buffer)),
               0);
}

static void cancel(struct mind *mind)
{
    struct asked *request = &mind->requests[draw(OPEN_MAX)];
    unsigned char buffer[64];
    if (!request->id || request->cancelled || !mind->client.conn || !mind->client.reading)
        return;
    request->cancelled = true;
    client_put(&mind->client, buffer, message_encode_cancel(buffer, sizeof(buffer), request->id, 0),
               0);
}

/* When chunks ran, from any number on; the first client alone may know. */
static void ask_timeline(struct mind *mind)
{
    _Alignas(8) unsigned char buffer[FRAME_HEADER_SIZE + 32];
    char head[32] = "";
    if (!mind->client.conn || !mind->client.reading)
        return;
    if (draw(3) > 0)
        snprintf(head, sizeof(head), "{\"from\":%u}", draw(500));
    client_put(&mind->client, buffer,
               message_encode_control(buffer, sizeof(buffer), FRAME_TIMELINE, 0, TIMELINE_ID, head,
                                      strlen(head)),
               0);
}

static double end_of(const json *span)
{
    const json *begin = json_child(span), *end = json_next(begin);
    HOLDS(begin && end && json_number(begin) <= json_number(end));
    return json_number(end);
}

static void take_timeline(const struct mind *mind, const struct frame *frame)
{
    const struct json_bounds bounds = {.bytes_max = 1u << 20, .depth_max = 8};
    json *answer = NULL;
    HOLDS(mind == sim.minds ? frame->type == FRAME_TIMELINE : frame->type == FRAME_ERROR);
    if (frame->type == FRAME_ERROR)
        return;
    HOLDS(json_parse(frame->head, frame->head_length, bounds, &answer, NULL) == 0);
    const json *at = json_child(json_get(answer, "chunks"));
    for (; at; at = json_next(at), sim.chunks_told++) {
        HOLDS(end_of(json_get(at, "in")) <= end_of(json_get(at, "kernels")));
        HOLDS(end_of(json_get(at, "kernels")) <= end_of(json_get(at, "out")));
        HOLDS(strcmp(json_string(json_get(at, "program")), "affine") == 0);
    }
    json_free(answer);
}

static void open_mind(struct mind *mind)
{
    /* The first is an admin; of the others two are of one user each. */
    uint32_t uid = mind == sim.minds ? 0 : 1000 + (uint32_t)(mind - sim.minds) / 2;
    memset(mind->requests, 0, sizeof(mind->requests));
    client_open(&sim.world, &mind->client, uid);
}

static void leave(struct mind *mind)
{
    client_free(&mind->client);
    memset(&mind->client, 0, sizeof(mind->client));
    memset(mind->requests, 0, sizeof(mind->requests));
}

static void take_tensors(struct mind *mind, const struct frame *frame)
{
    struct message_tensors tensors;
    struct error error;
    struct asked *request = find(mind, frame->id);
    HOLDS(message_decode_tensors(frame, &tensors, &error) == 0);
    HOLDS(request && request->accepted && tensors.sequence < request->count && tensors.output == 0);
    HOLDS(tensors.at == request->got[tensors.sequence] && request->ends[tensors.sequence] == 0);
    bool right = true;
    for (uint64_t i = 0; i < tensors.bytes / sizeof(float); i++) {
        float expected = result_at(frame->id, tensors.sequence, tensors.at / sizeof(float) + i);
        right &= memcmp(&expected, tensors.data + i * sizeof(float), sizeof(float)) == 0;
    }
    HOLDS(right);
    request->got[tensors.sequence] += tensors.bytes;
}

static void end_one(struct asked *request, uint32_t item, enum finish finish)
{
    HOLDS(item < request->count && request->accepted && ++request->ends[item] == 1);
    HOLDS(finish != FINISH_STOP || request->got[item] == request->lengths[item] * sizeof(float));
    HOLDS(finish != FINISH_CANCELLED || request->cancelled);
    HOLDS(finish != FINISH_DEADLINE || request->dated);
    sim.done += finish == FINISH_STOP;
    sim.cancelled += finish == FINISH_CANCELLED;
    sim.late += finish == FINISH_DEADLINE;
    if (++request->ended == request->count)
        request->id = 0;
}

static void take_frame(struct mind *mind, const struct frame *frame)
{
    struct asked *request = find(mind, frame->id);
    struct message_done done;
    struct message_error failure;
    struct error error;
    if (frame->id == TIMELINE_ID) {
        take_timeline(mind, frame);
    } else if (frame->type == FRAME_TENSORS) {
        take_tensors(mind, frame);
    } else if (frame->type == FRAME_ACCEPT) {
        HOLDS(request && !request->accepted);
        request->accepted = true;
        sim.accepted += request->count;
    } else if (frame->type == FRAME_DONE) {
        HOLDS(request && message_decode_done(frame, &done, &error) == 0);
        bool last = request->ended + 1 == request->count;
        HOLDS(last == ((frame->flags & FRAME_FLAG_LAST) != 0));
        end_one(request, done.sequence, done.finish);
    } else if (frame->type == FRAME_ERROR && frame->id) {
        HOLDS(request && message_decode_error(frame, &failure, &error) == 0);
        HOLDS(!request->accepted && failure.sequence == MESSAGE_NO_SEQUENCE);
        HOLDS(failure.error.code == ERR_BUSY || failure.error.code == ERR_TOO_LARGE ||
              failure.error.code == ERR_DRAINING);
        sim.refused++;
        request->id = 0;
    }
}

static void read_all(struct mind *mind)
{
    struct client *client = &mind->client;
    struct frame frame;
    while (client->got && client_next(client, &frame))
        take_frame(mind, &frame);
    if (client->read_at == client->got_length)
        client->read_at = client->got_length = 0;
    if (client->world && !client->conn) /* it was closed: too slow */
        leave(mind);
}

/* ---- turns -------------------------------------------------------------------------------------
 */

static void turn(uint32_t steps)
{
    while (steps-- > 0 && emu_step())
        continue;
    if (draw(3) > 0)
        HOLDS(job_worker_turn(sim.worker, sim.world.now_us));
    world_pass(&sim.world, 1 + draw(300));
    for (int i = 0; i < CLIENTS; i++)
        read_all(&sim.minds[i]);
}

static void resume_reading(struct mind *mind)
{
    mind->client.takes = SIZE_MAX;
    if (mind->client.conn && mind->client.writing)
        conn_writable(mind->client.conn, sim.world.now_us);
}

static void act(void)
{
    struct mind *mind = &sim.minds[draw(CLIENTS)];
    if (!mind->client.world) {
        open_mind(mind);
        return;
    }
    switch (draw(40)) {
    case 0:
        leave(mind);
        break;
    case 1:
        mind->client.takes = draw(20000); /* then it reads no more for a while */
        break;
    case 2:
    case 3:
        resume_reading(mind);
        break;
    case 4:
    case 5:
    case 6:
        cancel(mind);
        break;
    case 7:
        server_drain(&sim.world.server);
        break;
    case 8:
    case 9:
    case 10:
        server_resume(&sim.world.server);
        break;
    case 11:
    case 12:
        ask_timeline(mind);
        break;
    default:
        submit(mind);
    }
}

static void make(void)
{
    const struct job_worker_options options = {
        .lanes = {.lanes = 2, .ring = 2, .chunk_bytes = 64 << 10, .stream_count = 1},
        .timeout_us = 3600000000,
        .idle_release_us = 100000};
    const struct chunk_limits limits = job_worker_limits(&options.lanes);
    struct error error;
    bench_setup(EMU_STEPPER, sim.seed);
    world_make(&sim.world);
    world_set(&sim.world, "tensors-max", "2MiB");
    world_set(&sim.world, "results-max", "1MiB");
    ck_assert_msg(!module_load(AFFINE_CPU, "cpu", &sim.programs.list[0].program, &error), "%s",
                  error.text);
    sim.programs.count = 1;
    ck_assert_int_eq(job_worker_make(&gpu_jobs, &sim.programs, &options, &sim.world.completions,
                                     &sim.worker, &error),
                     0);
    ck_assert_int_eq(job_worker_open(sim.worker), 0);
    server_serve_jobs(&sim.world.server, &sim.programs, job_worker_replica(sim.worker), &limits, 4);
    sim.world.server.jobs.worker = sim.worker;
    world_ready(&sim.world);
}

static bool all_told(void)
{
    for (int i = 0; i < CLIENTS; i++)
        for (int j = 0; j < OPEN_MAX; j++)
            if (sim.minds[i].requests[j].id)
                return false;
    return sim.world.server.live_requests == 0;
}

/* Nobody asks any more and everybody reads. */
static void finish(void)
{
    const struct server *server = &sim.world.server;
    server_resume(&sim.world.server);
    for (int i = 0; i < CLIENTS; i++)
        if (sim.minds[i].client.world)
            resume_reading(&sim.minds[i]);
    for (int i = 0; i < QUIET_TURNS && !all_told(); i++)
        turn(50);
    HOLDS(all_told());
    HOLDS(server->load.tensors == 0 && server->load.results == 0 && server->load.sequences == 0);
    HOLDS(server->jobs.running == 0 && server->jobs.running_bytes == 0 &&
          server->jobs.waiting.count == 0);
    HOLDS(server->live_sequences == 0 && sim.programs.list[0].live == 0);
    HOLDS(atomic_load(&sim.programs.list[0].under_way) == 0);
}

static void run(uint64_t seed)
{
    memset(&sim, 0, sizeof(sim));
    sim.seed = sim.state = seed;
    make();
    for (int i = 0; i < TURNS; i++) {
        act();
        turn(draw(12));
    }
    finish();
    for (int i = 0; i < CLIENTS; i++)
        if (sim.minds[i].client.world)
            leave(&sim.minds[i]);
    world_turn(&sim.world);
    HOLDS(sim.world.server.load.connections == 0);
    job_worker_stop(sim.worker);
    HOLDS(!job_worker_turn(sim.worker, sim.world.now_us));
    world_free(&sim.world);
    job_worker_free(sim.worker);
    struct emu_live live = emu_live();
    HOLDS(live.streams + live.events + live.pools + live.host_ranges == 0);
}

START_TEST(jobs_of_clients_that_err_and_leave_end_once_each_with_the_right_bytes)
{
    const char *alone = getenv("SLUICE_JOB_SEED"), *asked = getenv("SLUICE_JOB_SEEDS");
    uint64_t first = alone ? strtoull(alone, NULL, 10) : 1;
    uint64_t seeds = alone ? 1 : asked ? strtoull(asked, NULL, 10) : SEEDS_USUAL;
    uint64_t accepted = 0, done = 0, cancelled = 0, late = 0, refused = 0, told = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        run(seed);
        accepted += sim.accepted;
        done += sim.done;
        cancelled += sim.cancelled;
        late += sim.late;
        refused += sim.refused;
        told += sim.chunks_told;
    }
    printf("%" PRIu64 " seeds: %" PRIu64 " jobs accepted, %" PRIu64 " done, %" PRIu64
           " cancelled, %" PRIu64 " late; %" PRIu64 " requests refused, %" PRIu64 " chunks told\n",
           seeds, accepted, done, cancelled, late, refused, told);
    ck_assert(alone || (done > 1000 && cancelled > 10 && late > 10 && refused > 10 && told > 10));
}
END_TEST

/* ---- turns -------------------------------------------------------------------------------------
 */

/* Of items so long, one behind the other. */
static void ask_items(struct mind *mind, uint32_t count, uint32_t length)
{
    static _Alignas(8) unsigned char buffer[1u << 20];
    for (uint32_t i = 0; i < count; i++) {
        struct asked one = {.id = ++mind->next_id, .count = 1, .lengths = {length}};
        client_put(&mind->client, buffer, encode(&one, 0, buffer, sizeof(buffer)), 0);
    }
}

/* The replica of the test's own holds one at a time, and this ends it. */
static void end_held(void)
{
    struct seq *seq = sim.world.replica.held[0];
    seq->cancel_reason = FINISH_CANCELLED;
    sim.world.replica.base.api->cancel(&sim.world.replica.base, seq);
    world_turn(&sim.world);
}

START_TEST(users_take_turns_by_the_bytes_of_their_jobs)
{
    static const uint64_t expected[] = {1000, 1001, 1000, 1001, 1001, 1001, 1001, 1001, 1000};
    const struct chunk_limits limits = {.bytes = 1 << 20, .all = UINT64_MAX};
    struct error error;
    memset(&sim, 0, sizeof(sim));
    bench_setup(EMU_STEPPER, 1);
    world_make(&sim.world);
    ck_assert_msg(!module_load(AFFINE_CPU, "cpu", &sim.programs.list[0].program, &error), "%s",
                  error.text);
    sim.programs.count = 1;
    server_serve_jobs(&sim.world.server, &sim.programs, &sim.world.replica.base, &limits, 0);
    world_ready(&sim.world);
    client_open(&sim.world, &sim.minds[0].client, 1000);
    client_open(&sim.world, &sim.minds[1].client, 1001);
    ask_items(&sim.minds[0], 3,
              20000); /* each as much as ten of the others, who begin beside this one, before it */
    world_turn(&sim.world);
    ask_items(&sim.minds[1], 6, 2000);
    world_turn(&sim.world);
    for (uint32_t i = 0; i < 9; i++) {
        ck_assert_uint_eq(sim.world.replica.sent_total, i + 1);
        ck_assert_uint_eq(sim.world.replica.first_user[i], expected[i]);
        end_held();
    }
    for (int i = 0; i < 2; i++)
        client_free(&sim.minds[i].client);
    world_turn(&sim.world);
    ck_assert_uint_eq(sim.world.server.load.tensors, 0);
    world_free(&sim.world);
}
END_TEST

Suite *sim_suite(void)
{
    Suite *suite = suite_create("sim");
    TCase *tests = tcase_create("sim");
    tcase_set_timeout(tests, 280);
    tcase_add_test(tests, jobs_of_clients_that_err_and_leave_end_once_each_with_the_right_bytes);
    tcase_add_test(tests, users_take_turns_by_the_bytes_of_their_jobs);
    suite_add_tcase(suite, tests);
    return suite;
}
