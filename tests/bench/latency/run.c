#include "tests/bench/latency/run.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/latency/machine.h"
#include "tests/bench/latency/texts.h"

#define TELL_US 40    /* from a step's end to the worker's turn, and that turn */
#define TIMER_US 60   /* that a wait with a timeout ends late */
#define CLIENT_US 500 /* a client's two ways through the socket and the loop */
#define PROMPT_MAX 8192

struct sent {
    struct seq seq;
    const struct arrival *arrival;
    double at_us; /* when it came, or will */
    bool texts;   /* it was given some */
    bool wanted;  /* while it waits to be handed over */
    struct error failure;
    double first_us, last_us;
    uint32_t tokens;
    bool ended;
};

struct flight {
    double end_us, start_us;
};

struct run {
    const struct load *load;
    struct gpu_model model;
    struct gpu_limits limits;
    struct sched sched;
    struct stats_worker stats;
    struct texts texts;
    struct sent *sent;
    uint32_t next, ended;           /* of the load's own times: the next; done */
    uint32_t *queue;                /* those that came, in order, */
    uint32_t queued, handed;        /* so many; of which so many were given to the scheduler */
    uint32_t *turns;                /* further turns of sessions, in order, */
    uint32_t turn_count, turn_next; /* so many; the next that comes */
    bool chunk_asked;
    struct machine_copies copies;
    uint64_t found_tokens, prompt_tokens;
    uint32_t slabs;
    double now_us, device_us; /* device_us: end of its last step */
    double busy_us, first_start_us;
    struct flight flight[GPU_DEPTH_MAX + 1];
    uint64_t random, tokens, steps;
    double from_us, until_us;
    double *ends, *gaps;
    size_t gap_count, gap_room;
};

static void *must(void *memory)
{
    if (memory)
        return memory;
    fprintf(stderr, "no memory\n");
    exit(2);
}

static int grow(void *context, uint32_t group, uint32_t *ret_slab)
{
    struct run *run = context;
    if (run->slabs == run->model.groups[group].slabs_max)
        return -ERR_DEVICE_MEMORY;
    *ret_slab = run->slabs++; /* none goes back while something runs */
    return 0;
}

static void shrink(void *context, uint32_t group, uint32_t slab)
{
    (void)context, (void)group, (void)slab;
}

static void ask_chunk(void *context, uint32_t group, uint32_t chunk, bool make)
{
    struct run *run = context;
    (void)group, (void)chunk, (void)make;
    run->chunk_asked = true;
}

static void count_gap(struct run *run, const struct sent *sent)
{
    if (!sent->arrival->gaps || run->now_us < run->from_us || run->now_us > run->until_us)
        return;
    if (run->gap_count == run->gap_room) {
        run->gap_room = 2 * run->gap_room + 4096;
        run->gaps = must(realloc(run->gaps, run->gap_room * sizeof(*run->gaps)));
    }
    run->gaps[run->gap_count++] = (run->now_us - sent->last_us) / 1000;
}

static void progressed(void *context, struct seq *seq)
{
    struct run *run = context;
    struct sent *sent = container_of(seq, struct sent, seq);
    if (sent->tokens++ == 0)
        sent->first_us = run->now_us;
    else
        count_gap(run, sent);
    sent->last_us = run->now_us;
}

static void ended(void *context, struct seq *seq)
{
    struct run *run = context;
    struct sent *sent = container_of(seq, struct sent, seq);
    uint32_t number = (uint32_t)(sent - run->sent), turns = run->load->turns;
    assert(seq->finish == FINISH_LENGTH);
    progressed(context, seq);
    sent->ended = true;
    run->ends[run->ended++] = run->now_us;
    run->found_tokens += seq->cached;
    run->prompt_tokens += seq->prompt_len;
    if (turns == 0 || (number + 1) % turns == 0)
        return;
    run->sent[number + 1].at_us = run->now_us + CLIENT_US;
    run->turns[run->turn_count++] = number + 1;
}

static void hand_over(struct run *run, uint32_t number)
{
    static int32_t prompt[PROMPT_MAX + 1], out[PROMPT_MAX];
    struct sent *sent = &run->sent[number];
    sent->seq = (struct seq){.params.job = JOB_GENERATE,
                             .arrived_us = (time_us)sent->at_us + 1,
                             .sampling = {.sampler = {.top_p = 1, .repetition_penalty = 1},
                                          .max_tokens = sent->arrival->output,
                                          .ignore_eos = true,
                                          .logprobs = -1,
                                          .n = 1},
                             .prompt = prompt,
                             .prompt_len = sent->arrival->prompt,
                             .out_tokens = out,
                             .failure = &sent->failure};
    sent->texts = texts_give(&run->texts, number, &sent->seq);
    sched_add(&run->sched, &sent->seq, (time_us)run->now_us + 1);
}

static void come(struct run *run, uint32_t number)
{
    struct prefix_wants *wants = &run->sched.wants[SCHED_WAITS_TO_COME];
    uint32_t count;
    const struct prefix_key *keys = texts_keys(&run->texts, number, &count);
    run->queue[run->queued++] = number;
    run->sent[number].wanted = prefix_wants_add(wants, keys, count);
}

/* Of its prompt, what the device's memory lacks. */
static uint32_t lacks(struct run *run, uint32_t number)
{
    uint32_t count, had = 0;
    const struct prefix_key *keys = texts_keys(&run->texts, number, &count);
    while (had < count && cache_find(&run->sched.cache, &keys[had]) != CACHE_NONE)
        had++;
    return run->load->arrivals[number].prompt - had * run->model.block_tokens;
}

static bool has_room(struct run *run, uint32_t number)
{
    struct replica_room room = sched_room(&run->sched, (time_us)run->now_us + 1);
    return room.sequences > 0 &&
           (room.empty || (room.prefill_tokens > 0 && room.kv_tokens >= lacks(run, number)));
}

/* As the loop's dispatcher does: in order, while there is room. */
static void dispatch(struct run *run)
{
    while (run->handed < run->queued && has_room(run, run->queue[run->handed])) {
        uint32_t count, number = run->queue[run->handed++];
        const struct prefix_key *keys = texts_keys(&run->texts, number, &count);
        if (run->sent[number].wanted)
            prefix_wants_drop(&run->sched.wants[SCHED_WAITS_TO_COME], keys, count);
        hand_over(run, number);
    }
}

static void take_arrivals(struct run *run)
{
    for (; run->next < run->load->count && (isinf(run->sent[run->next].arrival->at_us) ||
                                            run->sent[run->next].at_us <= run->now_us);
         run->next++)
        if (!isinf(run->sent[run->next].arrival->at_us))
            come(run, run->next);
    while (run->turn_next < run->turn_count &&
           run->sent[run->turns[run->turn_next]].at_us <= run->now_us)
        come(run, run->turns[run->turn_next++]);
    dispatch(run);
}

/* When the next call of the way has ended and is told. */
static double copied_us(const struct run *run, enum gpu_way way)
{
    uint64_t next = run->sched.copies_done[way] + 1;
    if (next > run->sched.copies_last[way])
        return INFINITY;
    return machine_copied_us(&run->copies, way, next) + TELL_US;
}

static void take_copies(struct run *run)
{
    for (enum gpu_way way = 0; way < GPU_WAYS; way++)
        while (copied_us(run, way) <= run->now_us)
            sched_copies_complete(&run->sched, way, (time_us)run->now_us + 1);
    if (run->chunk_asked) {
        run->chunk_asked = false;
        sched_chunk_told(&run->sched, true, (time_us)run->now_us + 1);
    }
}

static void copy(struct run *run)
{
    for (enum gpu_way way = 0; way < GPU_WAYS; way++) {
        const struct gpu_copies *plan = sched_copies(&run->sched, way, (time_us)run->now_us + 1);
        if (!plan)
            continue;
        machine_copy(&run->copies, plan, run->now_us);
        sched_copies_submitted(&run->sched, way, (time_us)run->now_us + 1);
    }
}

static void take_results(struct run *run)
{
    static struct gpu_sample samples[2048];
    static struct gpu_top tops[2048 * GPU_LOGPROBS_MAX];
    while (sched_in_flight(&run->sched) > 0) {
        uint64_t step = run->sched.step_done + 1;
        struct flight flight = run->flight[step % (GPU_DEPTH_MAX + 1)];
        if (flight.end_us + TELL_US > run->now_us)
            return;
        struct gpu_results results = {.step = step,
                                      .samples = samples,
                                      .tops = tops,
                                      .start_ns = (uint64_t)(flight.start_us * 1000),
                                      .end_ns = (uint64_t)(flight.end_us * 1000)};
        sched_complete(&run->sched, &results, (time_us)run->now_us + 1);
    }
}

static void submit(struct run *run, const struct gpu_plan *plan)
{
    double us = machine_step_us(plan, &run->random);
    struct flight *flight = &run->flight[plan->step % (GPU_DEPTH_MAX + 1)];
    flight->start_us = fmax(run->now_us, run->device_us);
    flight->end_us = flight->start_us + us;
    if (run->steps == 0)
        run->first_start_us = flight->start_us;
    run->device_us = flight->end_us;
    run->busy_us += us;
    run->steps++;
    run->tokens += plan->token_count;
    sched_submitted(&run->sched, (time_us)run->now_us + 1);
}

static void turn(struct run *run)
{
    take_arrivals(run);
    take_copies(run);
    take_results(run);
    take_arrivals(run);
    copy(run);
    while (sched_in_flight(&run->sched) < run->sched.limits.depth) {
        const struct gpu_plan *plan = sched_plan(&run->sched, (time_us)run->now_us + 1);
        if (!plan)
            break;
        submit(run, plan);
    }
    sched_housekeep(&run->sched, (time_us)run->now_us + 1);
}

/* False when nothing is left to happen. */
static bool advance(struct run *run)
{
    double next_us = INFINITY;
    if (sched_in_flight(&run->sched) > 0)
        next_us = run->flight[(run->sched.step_done + 1) % (GPU_DEPTH_MAX + 1)].end_us + TELL_US;
    time_us due = sched_due_us(&run->sched);
    if (due != SCHED_NEVER && run->ended < run->load->count)
        next_us = fmin(next_us, (double)due + TIMER_US);
    if (run->next < run->load->count)
        next_us = fmin(next_us, run->sent[run->next].at_us);
    if (run->turn_next < run->turn_count)
        next_us = fmin(next_us, run->sent[run->turns[run->turn_next]].at_us);
    for (enum gpu_way way = 0; way < GPU_WAYS; way++)
        next_us = fmin(next_us, copied_us(run, way));
    if (isinf(next_us))
        return false;
    run->now_us = fmax(run->now_us, next_us);
    return true;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(double *sorted, size_t count, double fraction)
{
    return count ? sorted[(size_t)(fraction * (double)(count - 1) + 0.5)] : NAN;
}

static struct figures figures_of(struct run *run)
{
    double steps = (double)run->steps;
    struct figures figures = {
        .step_tokens = (double)run->tokens / steps,
        .step_rows = (double)run->stats.generated_tokens_total / steps,
        .all_rate = run->load->count * 1e6 / (run->ends[run->load->count - 1] + CLIENT_US),
        .found_percent = 100 * (double)run->found_tokens / (double)run->prompt_tokens,
        .blocks_out = (double)run->stats.host_blocks_out_total,
        .blocks_in = (double)run->stats.host_blocks_in_total,
        .preemptions = (double)run->stats.preemptions_total};
    uint32_t count = 0, count_tpot = 0, all = run->load->count;
    double *ttft = must(calloc(all, sizeof(*ttft))), *tpot = must(calloc(all, sizeof(*tpot)));
    for (uint32_t i = 0; i < all; i++) {
        const struct sent *sent = &run->sent[i];
        if (!sent->arrival->counts)
            continue;
        ttft[count++] = (sent->first_us + CLIENT_US - sent->at_us) / 1000;
        if (sent->tokens > 1)
            tpot[count_tpot++] = (sent->last_us - sent->first_us) / 1000 / (sent->tokens - 1);
    }
    qsort(ttft, count, sizeof(*ttft), compare);
    qsort(tpot, count_tpot, sizeof(*tpot), compare);
    qsort(run->gaps, run->gap_count, sizeof(*run->gaps), compare);
    figures.ttft_p50 = at(ttft, count, 0.5);
    figures.ttft_p99 = at(ttft, count, 0.99);
    figures.ttft_max = at(ttft, count, 1);
    figures.tpot_p50 = at(tpot, count_tpot, 0.5);
    figures.tpot_p99 = at(tpot, count_tpot, 0.99);
    figures.itl_p50 = at(run->gaps, run->gap_count, 0.5);
    figures.itl_p99 = at(run->gaps, run->gap_count, 0.99);
    figures.itl_max = at(run->gaps, run->gap_count, 1);
    uint32_t first = all / 5, last = all - 1 - all / 5;
    double us = run->ends[last] - run->ends[first];
    figures.rate = last > first && us > 0 ? (last - first) * 1e6 / us : NAN;
    figures.idle_percent = 100 * (1 - run->busy_us / (run->device_us - run->first_start_us));
    free(ttft);
    free(tpot);
    return figures;
}

#define GIB (1ull << 30)

static struct run *run_make(const struct load *load, struct room room)
{
    struct run *run = must(calloc(1, sizeof(*run)));
    struct gpu_group *group = &run->model.groups[0];
    run->load = load;
    run->model = machine_model;
    run->limits = machine_limits;
    if (room.device_gib > 0)
        group->slabs_max =
            (uint32_t)(room.device_gib * GIB / group->block_bytes / group->slab_blocks);
    run->limits.chunks_max =
        (uint32_t)(room.host_gib * GIB / group->block_bytes / group->chunk_blocks);
    run->texts = texts_make(load, &machine_model);
    run->sent = must(calloc(load->count, sizeof(*run->sent)));
    run->ends = must(calloc(load->count, sizeof(*run->ends)));
    run->queue = must(calloc(load->count, sizeof(*run->queue)));
    run->turns = must(calloc(load->count, sizeof(*run->turns)));
    for (uint32_t i = 0; i < load->count; i++) {
        run->sent[i].arrival = &load->arrivals[i];
        run->sent[i].at_us = load->arrivals[i].at_us;
    }
    return run;
}

static void run_free(struct run *run)
{
    sched_destroy(&run->sched);
    for (uint32_t i = 0; i < run->load->count; i++)
        if (run->sent[i].texts)
            texts_take(&run->sent[i].seq);
    texts_free(&run->texts);
    free(run->sent);
    free(run->ends);
    free(run->gaps);
    free(run->queue);
    free(run->turns);
    free(run);
}

struct figures run_load(const struct load *load, const struct sched_options *options,
                        struct room room, double from_us, double until_us)
{
    struct run *run = run_make(load, room);
    struct error error;
    run->from_us = from_us;
    run->until_us = until_us;
    struct sched_calls calls = {.context = run,
                                .kv_grow = grow,
                                .kv_shrink = shrink,
                                .progressed = progressed,
                                .ended = ended,
                                .chunk = ask_chunk};
    if (sched_init(&run->sched, &run->model, &run->limits, options, &calls, &run->stats, &error) <
        0) {
        fprintf(stderr, "%s\n", error.text);
        exit(2);
    }
    do
        turn(run);
    while (advance(run));
    assert(run->ended == load->count);
    struct figures figures = figures_of(run);
    run_free(run);
    return figures;
}
