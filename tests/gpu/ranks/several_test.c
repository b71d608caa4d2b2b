/* One model on several devices, on whatever device this is built for: layers shared by heads, or
 * shared out, or both. It scores as one device and as transformers does, every run of a layout
 * gives the same bits, and mistakes in sharing and in handing on are seen; on GPUs, in waiting,
 * too.
 *
 * A thread for each rank, as in the daemon. Of a wait that is left out nothing would be seen by
 * chance, so what it waits for is held up.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "gpu/engine/engine.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/flow.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/skip_wait.h"
#include "tests/runner.h"

#define CHECKPOINT "llama-default-bf16"
#define EACH 2 /* checkpoints of a family; ranks_test.c and pipeline_test.c have them all */
#define HOLD_US 100000

static struct reference reference;
static struct flow_answers one, answers;
static struct error error;
static char names[REFERENCES_MAX][REFERENCE_NAME];
static uint32_t name_count;

/* Heads or layers of the small checkpoints do not go so far for four. */
static const struct {
    uint32_t tp, pp;
    const char *model;
} layouts[] = {{2, 1, "synthetic:tiny"},
               {1, 2, "synthetic:tiny"},
               {2, 2, "synthetic:tiny"},
               {1, 4, "synthetic:tiny"},
               {4, 1, "synthetic:tiny-wide"}};
#define LAYOUTS (int)(sizeof layouts / sizeof layouts[0])
#define SCORED 3 /* of them, beside transformers */

static struct flow_options flow_of(const char *model, uint32_t tp, uint32_t pp)
{
    return (struct flow_options){.gpu = {.model = model,
                                         .dtype = rig_dtype,
                                         .tp = tp,
                                         .pp = pp,
                                         .tokens_max = 512,
                                         .slots_max = FLOW_SEQS},
                                 .groups = 2,
                                 .chunk = 60};
}

static int run(const struct flow_options *options, struct flow_answers *ret)
{
    ck_assert(reference_read(CHECKPOINT, &reference));
    return flow_run(options, &reference, ret, &error);
}

static void must_run(const struct flow_options *options, struct flow_answers *ret)
{
    ck_assert_msg(run(options, ret) == 0, "%s", error.text);
}

/* Where sums go peer to peer, or all by the communicator. */
static void posts_close(struct gpu_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++)
        engine_rank(engine, i)->comm.p2p.sum_bytes = 0;
}

static struct rig_error distance(const struct flow_answers *a, const struct flow_answers *b)
{
    struct rig_error off = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < FLOW_SEQS; i++) {
        for (uint32_t j = 0; j + 1 < reference.prompts[i].count; j++, count++) {
            double by = fabs((double)a->scores[i][j].logprob - (double)b->scores[i][j].logprob);
            off.mean += isnan(by) ? INFINITY : by;
            off.max = fmax(off.max, isnan(by) ? INFINITY : by);
        }
    }
    off.mean /= count;
    return off;
}

/* Those that share sums have a second way to make them. */
static const struct {
    uint32_t layout;
    bool posts_closed;
} ways[] = {{0, false}, {0, true},  {1, false}, {2, false},
            {2, true},  {3, false}, {4, false}, {4, true}};
#define WAYS (int)(sizeof ways / sizeof ways[0])

START_TEST(a_layout_scores_as_one_device_does)
{
    uint32_t layout = ways[_i].layout, tp = layouts[layout].tp, pp = layouts[layout].pp;
    if (!rig_several(tp * pp))
        RUNNER_SKIP("fewer than %u devices", tp * pp);
    struct flow_options options = flow_of(layouts[layout].model, 1, 1);
    options.score = true;
    must_run(&options, &one);
    ck_assert(rig_several(tp * pp));
    options.gpu.tp = tp;
    options.gpu.pp = pp;
    options.after_start = ways[_i].posts_closed ? posts_close : NULL;
    must_run(&options, &answers);
    struct rig_error off = distance(&one, &answers);
    ck_assert_msg(rig_near(off), "tp %u, pp %u: off by %g, at most %g", tp, pp, off.mean, off.max);
    ck_assert(tp > 1 || memcmp(&one, &answers, sizeof one) == 0); /* a pipeline gives its bits */
    const struct gpu_score *last = one.scores[FLOW_SEQS - 1];
    ck_assert(last[0].logprob < -1 && last[0].logprob != last[1].logprob);
}
END_TEST

/* What nobody waited for may still read and write memory that goes when the engine does. */
static void let_all_end(struct gpu_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        struct rank *rank = engine_rank(engine, i);
        ck_assert_int_eq(cudaSetDevice(rank->device), cudaSuccess);
        if (rank->comm.stream)
            ck_assert_int_eq(cudaStreamSynchronize(rank->comm.stream), cudaSuccess);
        if (rank->link.stream)
            ck_assert_int_eq(cudaStreamSynchronize(rank->link.stream), cudaSuccess);
    }
}

/* False where heads or layers do not go so far. */
static bool score(const char *name, uint32_t tp, uint32_t pp, void (*mistake)(struct gpu_engine *))
{
    ck_assert(reference_read(name, &reference));
    struct flow_options options = flow_of(reference.directory, tp, pp);
    options.score = true;
    options.after_start = mistake;
    options.before_stop = mistake ? let_all_end : NULL;
    int status = flow_run(&options, &reference, &answers, &error);
    ck_assert_msg(status == 0 || status == -ERR_BAD_CONFIG, "%s", error.text);
    return status == 0;
}

START_TEST(a_layout_scores_as_transformers_does)
{
    const char *name = names[_i / SCORED];
    uint32_t tp = layouts[_i % SCORED].tp, pp = layouts[_i % SCORED].pp;
    if (!rig_several(tp * pp))
        RUNNER_SKIP("fewer than %u devices", tp * pp);
    if (!score(name, tp, pp, NULL))
        RUNNER_SKIP("%s does not go into tp %u, pp %u", name, tp, pp);
    struct rig_error off = rig_compare_scores(answers.scores, &reference);
    ck_assert_msg(rig_right(off, &reference), "%s, tp %u, pp %u: off by %g, at most %g", name, tp,
                  pp, off.mean, off.max);
}
END_TEST

START_TEST(runs_of_a_layout_give_the_same_bits)
{
    uint32_t tp = layouts[_i].tp, pp = layouts[_i].pp;
    struct flow_options options = flow_of(layouts[_i].model, tp, pp);
    for (int i = 0; i < 4; i++) {
        if (!rig_several(tp * pp))
            RUNNER_SKIP("fewer than %u devices", tp * pp);
        must_run(&options, i ? &answers : &one);
        ck_assert(!i || memcmp(&one, &answers, sizeof one) == 0);
    }
    ck_assert(one.samples[0][0].logprob < 0);
}
END_TEST

/* ---- mistakes ---- */

static void hold(void *context)
{
    (void)context;
    usleep(HOLD_US);
}

/* What comes behind this in the stream comes late. */
static void held_up(const struct rank *rank, cudaStream_t stream)
{
    ck_assert_int_eq(cudaSetDevice(rank->device), cudaSuccess);
    ck_assert_int_eq(cudaLaunchHostFunc(stream, hold, NULL), cudaSuccess);
    ck_assert_int_eq(cudaSetDevice(rank->engine->rank.device), cudaSuccess);
}

static void a_shard_swapped(struct gpu_engine *engine)
{
    struct weight *first =
        rig_weight(engine_rank(engine, 0), "model.layers.0.mlp.down_proj.weight");
    struct weight *second =
        rig_weight(engine_rank(engine, 1), "model.layers.0.mlp.down_proj.weight");
    struct weight kept = *first;
    *first = *second;
    *second = kept;
}

static void stages_swapped(struct gpu_engine *engine)
{
    rig_stages_swap(engine_rank(engine, 0), engine_rank(engine, 1));
}

/* The one of the first layer's attention. */
static void one_sum_skipped(struct gpu_engine *engine)
{
    posts_close(engine);
    skip_sum(1);
}

static void all_sums_skipped(struct gpu_engine *engine)
{
    rig_without(engine_rank(engine, 0), OP_ALL_REDUCE);
    rig_without(engine_rank(engine, 1), OP_ALL_REDUCE);
}

/* The waits that comm.h and pipeline_link.h draw. */
static void sum_of_what_is_not_there(struct gpu_engine *engine)
{
    struct rank *rank = engine_rank(engine, 0);
    posts_close(engine);
    held_up(rank, rank->lane.compute);
    skip_wait(rank->comm.stream, rank->comm.there);
}

static void sum_not_waited_for(struct gpu_engine *engine)
{
    struct rank *rank = engine_rank(engine, 0), *late = engine_rank(engine, 1);
    posts_close(engine);
    held_up(late, late->lane.compute);
    skip_wait(rank->lane.compute, rank->comm.summed);
}

static void state_not_waited_for(struct gpu_engine *engine)
{
    struct rank *first = engine_rank(engine, 0), *second = engine_rank(engine, 1);
    held_up(first, first->lane.compute);
    skip_wait(second->lane.compute, first->link.arrived);
}

static void outbox_sent_before_it_is_filled(struct gpu_engine *engine)
{
    struct rank *first = engine_rank(engine, 0);
    held_up(first, first->lane.compute);
    skip_wait(first->link.stream, first->link.made);
}

static void outbox_filled_before_it_is_sent(struct gpu_engine *engine)
{
    struct rank *first = engine_rank(engine, 0);
    held_up(first, first->link.stream);
    skip_wait(first->lane.compute, first->link.arrived);
}

static void inbox_filled_before_it_is_taken(struct gpu_engine *engine)
{
    struct rank *first = engine_rank(engine, 0), *second = engine_rank(engine, 1);
    held_up(second, second->lane.compute);
    skip_wait(first->link.stream, second->link.taken);
}

static const struct {
    const char *what;
    uint32_t tp, pp;
    void (*make)(struct gpu_engine *engine);
} mistakes[] = {
    {"a shard swapped", 2, 1, a_shard_swapped},
    {"stages swapped", 1, 2, stages_swapped},
    {"one sum skipped", 2, 1, one_sum_skipped},
    {"all sums skipped", 2, 1, all_sums_skipped},
    /* From RACES_FROM on: races, which ThreadSanitizer would report. */
    {"the sum does not wait for what it sums", 2, 1, sum_of_what_is_not_there},
    {"compute does not wait for the sum", 2, 1, sum_not_waited_for},
    {"a stage does not wait for the state", 1, 2, state_not_waited_for},
    {"the outbox is sent before it is filled", 1, 2, outbox_sent_before_it_is_filled},
    {"the outbox is filled before it is sent", 1, 2, outbox_filled_before_it_is_sent},
    {"the inbox is filled before it is taken", 1, 2, inbox_filled_before_it_is_taken},
};
#define MISTAKES (int)(sizeof mistakes / sizeof mistakes[0])
#define RACES_FROM 4

START_TEST(a_mistake_between_devices_is_seen)
{
    if (!rig_several(2))
        RUNNER_SKIP("fewer than 2 devices");
    ck_assert(score(CHECKPOINT, mistakes[_i].tp, mistakes[_i].pp, mistakes[_i].make));
    skip_nothing();
    struct rig_error off = rig_compare_scores(answers.scores, &reference);
    ck_assert_msg(rig_wrong(off, &reference), "%s: off by %g only, at most %g", mistakes[_i].what,
                  off.mean, off.max);
}
END_TEST

static void tokens_not_waited_for(struct gpu_engine *engine)
{
    struct rank *first = engine_rank(engine, 0), *last = engine_rank(engine, 1);
    held_up(last, last->lane.compute);
    for (uint32_t i = 0; i < last->link.places; i++)
        skip_wait(first->lane.compute, last->link.returned[i]);
}

START_TEST(tokens_that_are_not_waited_for_are_seen)
{
    struct flow_options options = flow_of("synthetic:tiny", 1, 2);
    options.chunk = REFERENCE_TOKENS; /* decode rows soon, while the last stage is held up */
    if (!rig_several(2))
        RUNNER_SKIP("fewer than 2 devices");
    must_run(&options, &one);
    ck_assert(rig_several(2));
    options.after_start = tokens_not_waited_for;
    must_run(&options, &answers);
    skip_nothing();
    ck_assert(memcmp(&one, &answers, sizeof one) != 0);
}
END_TEST

Suite *several_suite(void)
{
    Suite *suite = suite_create("several");
    TCase *tcase = tcase_create("several");
    name_count = reference_families(names, EACH);
    tcase_set_timeout(tcase, 120);
    /* Sanitizers see more of shards and stages in the suites of ranks and of pipelines. */
    int layouts_seen = ENGINE_CLIENT_THIN > 1 ? 2 : LAYOUTS;
    int names_seen = ENGINE_CLIENT_THIN > 1 ? 1 : (int)name_count;
    tcase_add_loop_test(tcase, a_layout_scores_as_one_device_does, 0,
                        ENGINE_CLIENT_THIN > 1 ? 3 : WAYS);
    tcase_add_loop_test(tcase, a_layout_scores_as_transformers_does, 0, SCORED * names_seen);
    tcase_add_loop_test(tcase, runs_of_a_layout_give_the_same_bits, 0, layouts_seen);
    tcase_add_loop_test(tcase, a_mistake_between_devices_is_seen, 0,
                        ENGINE_CLIENT_THIN > 1 ? 1 : RACES_FROM);
    suite_add_tcase(suite, tcase);
    return suite;
}

/* Races: how they end depends on how long a stream is held up. On the CPU device the suites of
 * ranks and of pipelines leave waits out where the order of work is theirs to choose. */
Suite *waits_suite(void)
{
    Suite *suite = suite_create("waits");
    TCase *tcase = tcase_create("waits");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_mistake_between_devices_is_seen, RACES_FROM, MISTAKES);
    tcase_add_test(tcase, tokens_that_are_not_waited_for_are_seen);
    suite_add_tcase(suite, tcase);
    return suite;
}
