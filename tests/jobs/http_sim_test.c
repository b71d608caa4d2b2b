/* Jobs by the inference protocol through the whole of the daemon's logic, on one thread, in virtual
 * time and from a seed: exchanges, queue, worker and lanes are the product's, the device is stepped.
 * Callers send tensors as numbers or bytes, some compressed, let timeouts pass, leave at any time
 * and read slowly; then all is quiet, every answer that was waited for is whole and right, and
 * every count is zero.
 *
 * SLUICE_JOB_SEEDS says how many seeds; a failing one is run alone by SLUICE_JOB_SEED. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "daemon/http/tensors.h"
#include "daemon/jobs/job_worker.h"
#include "gpu/jobs/module.h"
#include "tests/http/caller.h"
#include "tests/jobs/bench.h"
#include "tests/jobs/daemon_suites.h"

#define CALLERS 10
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TURNS 1500 /* a share */
#define SEEDS_USUAL 1
#else
#define TURNS 2000
#define SEEDS_USUAL 3
#endif
#define QUIET_TURNS 200000
#define BODY_MAX (1u << 20)

struct asker {
    struct exchange *exchange; /* NULL: it asks nothing */
    uint64_t number;
    uint32_t length;
    bool binary, dated;
    char *answer;
    size_t got, room;
};

static struct {
    struct site site;
    struct job_programs programs;
    struct job_worker *worker;
    struct asker askers[CALLERS];
    uint64_t seed, state, asked;
    uint64_t right, late, refused, left;
} sim;

/* Names the seed, whatever fails. */
#define HOLDS(condition)                                                                           \
    ck_assert_msg(condition, "seed %" PRIu64 ": %s (run it alone: SLUICE_JOB_SEED=%" PRIu64 ")",   \
                  sim.seed, #condition, sim.seed)

static uint32_t draw(uint32_t below)
{
    return bench_draw(&sim.state, below);
}

static float value_at(const struct asker *asker, uint32_t i)
{
    return (float)((asker->number * 7919 + i * UINT64_C(31)) % 4001) / 7 - 250;
}

static float result_at(const struct asker *asker, uint32_t i)
{
    volatile float product = 3 * value_at(asker, i);
    volatile float sum = product + (float)(asker->number % 1000);
    return sum;
}

/* ---- asking ------------------------------------------------------------------------------------
 */

/* The body; *ret_json: how much of it is JSON. */
static size_t write_body(const struct asker *asker, bool bytes, char *body, size_t *ret_json)
{
    int length = snprintf(body, BODY_MAX,
                          "{\"parameters\":{\"a\":3,\"b\":%u,\"timeout\":%u,"
                          "\"binary_data_output\":%s},\"inputs\":[{\"name\":\"x\",\"datatype\":"
                          "\"FP32\",\"shape\":[%" PRIu32 "],",
                          (unsigned)(asker->number % 1000), asker->dated ? 1000u : 0u,
                          asker->binary ? "true" : "false", asker->length);
    size_t used = (size_t)length;
    if (bytes) {
        used += (size_t)snprintf(body + used, BODY_MAX - used,
                                 "\"parameters\":{\"binary_data_size\":%zu}}]}",
                                 asker->length * sizeof(float));
        *ret_json = used;
        for (uint32_t i = 0; i < asker->length; i++, used += sizeof(float)) {
            float value = value_at(asker, i);
            memcpy(body + used, &value, sizeof(value));
        }
        return used;
    }
    used += (size_t)snprintf(body + used, BODY_MAX - used, "\"data\":[");
    for (uint32_t i = 0; i < asker->length; i++)
        used += (size_t)snprintf(body + used, BODY_MAX - used, "%s%.9g", i ? "," : "",
                                 (double)value_at(asker, i));
    used += (size_t)snprintf(body + used, BODY_MAX - used, "]}]}");
    *ret_json = SIZE_MAX;
    return used;
}

/* In pieces, as they come; a caller may leave between them. */
static void send_body(struct asker *asker, const char *body, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t piece = 1 + draw(50000);
        piece = piece < length - at ? piece : length - at;
        exchange_body(asker->exchange, body + at, piece);
        at += piece;
    }
    exchange_begin(asker->exchange, sim.site.world.now_us);
}

static void ask(struct asker *asker)
{
    static char plain[BODY_MAX], packed[BODY_MAX];
    char split[24];
    const struct exchange_peer peer = {.user = 1000 + draw(3)};
    const bool zipped = draw(4) == 0;
    size_t in_json;
    uLongf packed_length = sizeof(packed);
    *asker = (struct asker){.number = ++sim.asked,
                            .length = 1 + draw(draw(10) == 0 ? 30000 : 900),
                            .binary = draw(2),
                            .dated = draw(3) == 0};
    size_t length = write_body(asker, draw(2), plain, &in_json);
    snprintf(split, sizeof(split), "%zu", in_json);
    if (zipped)
        HOLDS(compress2((Bytef *)packed, &packed_length, (const Bytef *)plain, length, 1) == Z_OK);
    const struct exchange_head head = {.method = "POST",
                                       .path = "/v2/models/affine/infer",
                                       .json_length = in_json < SIZE_MAX ? split : NULL,
                                       .content_encoding = zipped ? "deflate" : NULL,
                                       .content_length = zipped ? packed_length : length};
    asker->exchange = exchange_open(&sim.site.http, &peer, sim.site.world.now_us);
    HOLDS(asker->exchange);
    if (exchange_head(asker->exchange, &head))
        send_body(asker, zipped ? packed : plain, head.content_length);
}

static void leave(struct asker *asker)
{
    exchange_close(asker->exchange, sim.site.world.now_us);
    free(asker->answer);
    memset(asker, 0, sizeof(*asker));
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static void check_bytes(const struct asker *asker, const char *bytes, size_t length)
{
    bool right = length == asker->length * sizeof(float);
    for (uint32_t i = 0; right && i < asker->length; i++) {
        float expected = result_at(asker, i);
        right = memcmp(&expected, bytes + i * sizeof(expected), sizeof(expected)) == 0;
    }
    HOLDS(right);
}

static void check_numbers(const struct asker *asker, const json *data)
{
    uint32_t i = 0;
    for (const json *at = json_child(data); at; at = json_next(at), i++)
        HOLDS((float)json_number(at) == result_at(asker, i));
    HOLDS(i == asker->length);
}

static void check_answer(const struct asker *asker)
{
    const struct json_bounds bounds = {.bytes_max = 4u << 20, .depth_max = 8};
    const size_t split = asker->exchange->json_bytes, length = split ? split : asker->got;
    json *answer = NULL;
    HOLDS((split > 0) == asker->binary && length <= asker->got);
    HOLDS(json_parse(asker->answer, length, bounds, &answer, NULL) == 0);
    const json *output = json_child(json_get(answer, "outputs"));
    HOLDS(strcmp(json_string(json_get(output, "name")), "y") == 0);
    HOLDS(json_number(json_child(json_get(output, "shape"))) == asker->length);
    if (asker->binary)
        check_bytes(asker, asker->answer + split, asker->got - split);
    else
        check_numbers(asker, json_get(output, "data"));
    json_free(answer);
}

static void finish_one(struct asker *asker)
{
    const unsigned status = asker->exchange->status;
    HOLDS(status == 200 || status == 429 || status == 503 || (status == 504 && asker->dated));
    if (status == 200)
        check_answer(asker);
    sim.right += status == 200;
    sim.late += status == 504;
    sim.refused += status == 429 || status == 503;
    leave(asker);
}

/* At most so much of what is there. */
static void read_some(struct asker *asker, size_t most)
{
    if (!asker->exchange || !exchange_ready(asker->exchange))
        return;
    if (asker->room - asker->got < most) {
        asker->room = 2 * asker->room + most;
        asker->answer = realloc(asker->answer, asker->room);
        HOLDS(asker->answer);
    }
    size_t count = exchange_read(asker->exchange, asker->answer + asker->got, most);
    if (count == EXCHANGE_READ_END)
        finish_one(asker);
    else
        asker->got += count;
}

/* ---- turns -------------------------------------------------------------------------------------
 */

static void turn(uint32_t steps)
{
    while (steps-- > 0 && emu_step())
        continue;
    if (draw(3) > 0)
        HOLDS(job_worker_turn(sim.worker, sim.site.world.now_us));
    sim.site.hold = draw(3) == 0; /* bodies that are read elsewhere take their time */
    sim.site.world.now_us += draw(300);
    site_turn(&sim.site);
}

static void act(void)
{
    struct asker *asker = &sim.askers[draw(CALLERS)];
    if (!asker->exchange) {
        ask(asker);
    } else if (draw(12) == 0) {
        leave(asker);
        sim.left++;
    } else if (draw(40) == 0) {
        server_drain(&sim.site.world.server);
    } else if (draw(8) == 0) {
        server_resume(&sim.site.world.server);
    } else {
        read_some(asker, 1 + draw(40000));
    }
}

static void make(void)
{
    const struct job_worker_options options = {
        .lanes = {.lanes = 2, .ring = 2, .chunk_bytes = 64 << 10, .stream_count = 1},
        .timeout_us = 3600000000,
        .idle_release_us = 100000};
    const struct chunk_limits limits = job_worker_limits(&options.lanes);
    struct world *world = &sim.site.world;
    struct error error;
    bench_setup(EMU_STEPPER, sim.seed);
    site_make(&sim.site);
    world_set(world, "tensors-max", "512KiB");
    world_set(world, "results-max", "4MiB");
    ck_assert_msg(!module_load(AFFINE_CPU, "cpu", &sim.programs.list[0].program, &error), "%s",
                  error.text);
    sim.programs.count = 1;
    ck_assert_int_eq(job_worker_make(&gpu_jobs, &sim.programs, &options, &world->completions,
                                     &sim.worker, &error),
                     0);
    ck_assert_int_eq(job_worker_open(sim.worker), 0);
    server_serve_jobs(&world->server, &sim.programs, job_worker_replica(sim.worker), &limits, 4);
}

static bool all_told(void)
{
    for (int i = 0; i < CALLERS; i++)
        if (sim.askers[i].exchange)
            return false;
    return sim.site.world.server.live_requests == 0 && sim.site.held_count == 0;
}

/* Nobody asks any more and everybody reads. */
static void finish(void)
{
    const struct server *server = &sim.site.world.server;
    server_resume(&sim.site.world.server);
    for (int i = 0; i < QUIET_TURNS && !all_told(); i++) {
        turn(50);
        for (int j = 0; j < CALLERS; j++)
            read_some(&sim.askers[j], 1u << 16);
    }
    HOLDS(all_told());
    HOLDS(server->load.tensors == 0 && server->load.results == 0 && server->load.sequences == 0);
    HOLDS(server->load.input == 0 && sim.site.http.exchanges == 0);
    HOLDS(server->jobs.running == 0 && server->jobs.running_bytes == 0 &&
          server->jobs.waiting.count == 0);
    HOLDS(server->live_sequences == 0 && sim.programs.list[0].live == 0);
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
    job_worker_stop(sim.worker);
    HOLDS(!job_worker_turn(sim.worker, sim.site.world.now_us));
    site_free(&sim.site);
    job_worker_free(sim.worker);
    struct emu_live live = emu_live();
    HOLDS(live.streams + live.events + live.pools + live.host_ranges == 0);
}

START_TEST(tensors_of_callers_that_leave_are_answered_once_and_right)
{
    const char *alone = getenv("SLUICE_JOB_SEED"), *asked = getenv("SLUICE_JOB_SEEDS");
    uint64_t first = alone ? strtoull(alone, NULL, 10) : 1;
    uint64_t seeds = alone ? 1 : asked ? strtoull(asked, NULL, 10) : SEEDS_USUAL;
    uint64_t right = 0, late = 0, refused = 0, left = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        run(seed);
        right += sim.right;
        late += sim.late;
        refused += sim.refused;
        left += sim.left;
    }
    printf("%" PRIu64 " seeds over HTTP: %" PRIu64 " right, %" PRIu64 " late, %" PRIu64
           " refused, %" PRIu64 " callers left\n",
           seeds, right, late, refused, left);
    ck_assert(alone || (right > 100 && late > 1 && refused > 10 && left > 50));
}
END_TEST

Suite *http_sim_suite(void)
{
    Suite *suite = suite_create("http sim");
    TCase *tests = tcase_create("http sim");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, tensors_of_callers_that_leave_are_answered_once_and_right);
    suite_add_tcase(suite, tests);
    return suite;
}
