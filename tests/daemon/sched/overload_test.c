/* A flood of priority 0 that fills memory, and one in twenty above it, as they come: which step holds
 * the first tokens of its prompt, and how much later its answer is there than without the flood. The
 * scheduler on a model of a GPU's steps (tests/bench/latency/machine.h) and of its link to host
 * memory, in virtual time, with copies and without. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sched/sched_inner.h"
#include "tests/bench/latency/machine.h"
#include "tests/daemon/replica_suites.h"
#include "tests/daemon/rig/fake_device.h"

#define SEQS_MAX 8192u
#define PROMPT 256u
#define OUTPUT 128u
#define SLABS 128u /* 8 GiB */
#define SAMPLES 1024u
#define VOCABULARY 100000
#define LINK_BYTES_PER_US 50e3
#define COPY_US 20u /* beside the bytes */
#define CHUNK_US 20000u
#define CHUNKS 384u          /* of 64 MiB */
#define WAITED_US 10000000u  /* by each of the flood, before it is sent */
#define BEGIN_US 100000000u
#define FILLED_US 10000000u  /* from then on it counts */
#define LASTS_US 40000000u
#define ITL_US 45000u

struct flight {
    time_us start_us, end_us;
};

struct entry {
    struct seq *seq;
    uint64_t came_step; /* the last that had been submitted */
    bool began, told, ended;
};

/* What comes. */
struct load {
    bool host;   /* there is host memory */
    bool floods; /* as many of priority 0 as find room */
    double rate; /* of priority 1, a second; 0: none */
};

struct figures {
    uint32_t high, at_once;   /* so many came; started in the first step that was not sent by then */
    double first_ms;          /* until 99 of 100 had a token */
    double rate;              /* tokens a second */
};

struct overload {
    const struct load *load;
    struct sched sched;
    struct stats_worker stats;
    time_us now_us, device_us;
    struct flight flight[GPU_DEPTH_MAX + 1];
    time_us copies_us[GPU_WAYS][GPU_COPIES_MAX], link_us[GPU_WAYS];
    time_us chunk_us; /* 0: none is asked for */
    uint32_t slabs;
    uint64_t random;
    struct entry entries[SEQS_MAX];
    uint32_t count;
    time_us next_high_us;
    bool counts;
    uint64_t tokens;
    uint32_t high, at_once;
    double first_ms[SEQS_MAX];
    uint32_t first_count;
};

static int grow(void *context, uint32_t group, uint32_t *ret_slab)
{
    struct overload *self = context;
    (void)group;
    if (self->slabs == SLABS)
        return -ERR_DEVICE_MEMORY;
    *ret_slab = self->slabs++;
    return 0;
}

static void shrink(void *context, uint32_t group, uint32_t slab)
{
    (void)context, (void)group, (void)slab;
    ck_abort_msg("it is short of memory, and gives some back");
}

static void chunk(void *context, uint32_t group, uint32_t number, bool make)
{
    struct overload *self = context;
    (void)group, (void)number, (void)make;
    ck_assert_uint_eq(self->chunk_us, 0);
    self->chunk_us = self->now_us + CHUNK_US;
}

static struct entry *entry_of(struct overload *self, const struct seq *seq)
{
    return &self->entries[seq->user_id];
}

static void progressed(void *context, struct seq *seq)
{
    struct overload *self = context;
    struct entry *entry = entry_of(self, seq);
    self->tokens += self->counts;
    if (entry->told)
        return;
    entry->told = true;
    if (seq->priority > 0 && self->counts)
        self->first_ms[self->first_count++] = (double)(self->now_us - seq->arrived_us) / 1000;
}

static void ended(void *context, struct seq *seq)
{
    struct overload *self = context;
    progressed(context, seq);
    ck_assert_int_eq(seq->finish, FINISH_LENGTH);
    ck_assert(!entry_of(self, seq)->ended);
    entry_of(self, seq)->ended = true;
}

static void add(struct overload *self, int32_t priority)
{
    struct entry *entry = &self->entries[self->count];
    struct fake_options what = {.job = JOB_GENERATE,
                                .prompt_len = PROMPT,
                                .max_tokens = OUTPUT,
                                .ignore_eos = true,
                                .logprobs = -1,
                                .priority = priority,
                                .seed = self->count};
    ck_assert_uint_lt(self->count, SEQS_MAX);
    entry->seq = fake_seq(&what, priority > 0 ? self->now_us : self->now_us - WAITED_US);
    entry->seq->user_id = self->count++;
    fake_seq_cache(entry->seq, &self->sched.model, "salt");
    entry->came_step = self->sched.step_last;
    sched_add(&self->sched, entry->seq, self->now_us);
}

/* As the dispatcher does: those above at once, others where there is room. */
static void arrive(struct overload *self)
{
    while (self->load->rate > 0 && self->now_us >= self->next_high_us) {
        add(self, 1);
        self->next_high_us +=
            (time_us)(-log(1 - machine_random(&self->random)) * 1e6 / self->load->rate) + 1;
    }
    while (self->load->floods) {
        struct replica_room room = sched_room(&self->sched, self->now_us);
        if (room.sequences == 0 || (!room.empty && (room.kv_tokens < PROMPT ||
                                                    room.prefill_tokens == 0)))
            return;
        add(self, 0);
    }
}

static void note_begun(struct overload *self, const struct gpu_plan *plan)
{
    const struct sched_step *step = sched_step_of(&self->sched, plan->step);
    for (uint32_t i = 0; i < plan->row_count; i++) {
        struct entry *entry = entry_of(self, step->row_seq[i]);
        if (entry->began)
            continue;
        entry->began = true;
        if (entry->seq->priority == 0 || !self->counts)
            continue;
        self->high++;
        self->at_once += plan->step == entry->came_step + 1;
    }
}

static void submit_copies(struct overload *self)
{
    for (enum gpu_way way = 0; way < GPU_WAYS; way++) {
        const struct gpu_copies *copies = sched_copies(&self->sched, way, self->now_us);
        if (copies == NULL)
            continue;
        time_us start_us = self->now_us;
        if (way == GPU_TO_HOST && sched_in_flight(&self->sched) > 0 && self->device_us > start_us)
            start_us = self->device_us; /* steps that may write what is copied */
        if (self->link_us[way] > start_us)
            start_us = self->link_us[way];
        double bytes = (double)copies->count * (double)self->sched.model.groups[0].block_bytes;
        self->link_us[way] = start_us + (time_us)(bytes / LINK_BYTES_PER_US);
        self->copies_us[way][copies->number % GPU_COPIES_MAX] = self->link_us[way] + COPY_US;
        sched_copies_submitted(&self->sched, way, self->now_us);
    }
}

static void submit(struct overload *self)
{
    const struct gpu_plan *plan;
    submit_copies(self);
    while (sched_in_flight(&self->sched) < self->sched.limits.depth &&
           (plan = sched_plan(&self->sched, self->now_us)) != NULL) {
        time_us us = (time_us)machine_step_us(plan, &self->random);
        struct flight *flight = &self->flight[plan->step % (GPU_DEPTH_MAX + 1)];
        flight->start_us = self->now_us > self->device_us ? self->now_us : self->device_us;
        flight->end_us = self->device_us = flight->start_us + us;
        note_begun(self, plan);
        sched_submitted(&self->sched, self->now_us);
    }
    sched_housekeep(&self->sched, self->now_us);
}

static time_us step_end_us(const struct overload *self)
{
    return self->flight[(self->sched.step_done + 1) % (GPU_DEPTH_MAX + 1)].end_us;
}

static time_us copies_end_us(const struct overload *self, enum gpu_way way)
{
    return self->copies_us[way][(self->sched.copies_done[way] + 1) % GPU_COPIES_MAX];
}

static bool copies(const struct overload *self, enum gpu_way way)
{
    return self->sched.copies_last[way] > self->sched.copies_done[way];
}

static void earliest(time_us *next, time_us us)
{
    if (us < *next)
        *next = us;
}

/* To the next that happens. */
static void advance(struct overload *self)
{
    time_us next = self->now_us + 1000, due = sched_due_us(&self->sched);
    if (sched_in_flight(&self->sched) > 0)
        next = step_end_us(self);
    for (enum gpu_way way = 0; way < GPU_WAYS; way++)
        if (copies(self, way))
            earliest(&next, copies_end_us(self, way));
    if (self->chunk_us != 0)
        earliest(&next, self->chunk_us);
    if (self->load->rate > 0)
        earliest(&next, self->next_high_us);
    if (due > self->now_us)
        earliest(&next, due);
    if (next > self->now_us)
        self->now_us = next;
}

static void complete_step(struct overload *self)
{
    static struct gpu_sample samples[SAMPLES];
    const struct flight *flight =
        &self->flight[(self->sched.step_done + 1) % (GPU_DEPTH_MAX + 1)];
    struct gpu_results results = {.step = self->sched.step_done + 1,
                                  .samples = samples,
                                  .start_ns = flight->start_us * 1000,
                                  .end_ns = flight->end_us * 1000};
    for (uint32_t i = 0; i < SAMPLES; i++)
        samples[i] = (struct gpu_sample){
            .token = (int32_t)(machine_random(&self->random) * VOCABULARY)};
    sched_complete(&self->sched, &results, self->now_us);
}

static void complete(struct overload *self)
{
    for (enum gpu_way way = 0; way < GPU_WAYS; way++)
        while (copies(self, way) && copies_end_us(self, way) <= self->now_us)
            sched_copies_complete(&self->sched, way, self->now_us);
    while (sched_in_flight(&self->sched) > 0 && step_end_us(self) <= self->now_us)
        complete_step(self);
    if (self->chunk_us != 0 && self->chunk_us <= self->now_us) {
        self->chunk_us = 0;
        sched_chunk_told(&self->sched, true, self->now_us);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What 99 of 100 do not exceed. */
static double most(double *of, uint32_t count)
{
    qsort(of, count, sizeof(*of), compare);
    return count > 0 ? of[(uint64_t)(count - 1) * 99 / 100] : 0;
}

static void init(struct overload *self, const struct load *load)
{
    struct gpu_model model = machine_model;
    struct gpu_limits limits = machine_limits;
    struct error error;
    const struct sched_options options = {.ttft_target_us = 100000,
                                          .itl_target_us = ITL_US,
                                          .chunk_every = 8,
                                          .kv_idle_release_us = 5000000,
                                          .prefix_cache = true,
                                          .cache_idle_release_us = 300000000,
                                          .stall_us = UINT64_MAX};
    const struct sched_calls calls = {.context = self,
                                      .kv_grow = grow,
                                      .kv_shrink = shrink,
                                      .progressed = progressed,
                                      .ended = ended,
                                      .chunk = load->host ? chunk : NULL};
    memset(self, 0, sizeof(*self));
    self->load = load;
    self->now_us = self->next_high_us = BEGIN_US;
    model.groups[0].slabs_max = SLABS;
    model.groups[0].chunk_blocks = model.groups[0].slab_blocks;
    limits.chunks_max = load->host ? CHUNKS : 0;
    ck_assert_int_eq(
        sched_init(&self->sched, &model, &limits, &options, &calls, &self->stats, &error), 0);
}

static void destroy(struct overload *self)
{
    self->counts = false;
    sched_end_all(&self->sched, FINISH_LENGTH, NULL, self->now_us);
    sched_destroy(&self->sched);
    for (uint32_t i = 0; i < self->count; i++) {
        ck_assert(self->entries[i].ended);
        fake_seq_free(self->entries[i].seq);
    }
}

static struct figures play(const struct load *load)
{
    static struct overload self;
    init(&self, load);
    while (self.now_us < BEGIN_US + LASTS_US) {
        self.counts = self.now_us >= BEGIN_US + FILLED_US;
        arrive(&self); /* before the results are looked at, and behind them */
        complete(&self);
        submit(&self);
        arrive(&self);
        submit(&self);
        ck_assert_str_eq(sched_check(&self.sched), "");
        advance(&self);
    }
    struct figures figures = {.high = self.high,
                              .at_once = self.at_once,
                              .first_ms = most(self.first_ms, self.first_count),
                              .rate = (double)self.tokens * 1e6 / (LASTS_US - FILLED_US)};
    destroy(&self);
    return figures;
}

/* All but one in a hundred start in the first step that was not sent when they came: they wait for no
 * copy, and for nobody's prompt. What was sent by then is one step and seldom more, and lasts half
 * of the target for tokens; and all together get as much as without them. */
START_TEST(who_is_above_a_flood_is_in_the_next_step)
{
    struct load flood = {.host = _i > 0, .floods = true};
    struct figures without = play(&flood);
    struct load quiet = {.host = flood.host, .rate = without.rate / OUTPUT / 5};
    struct load both = {.host = flood.host, .floods = true, .rate = quiet.rate};
    struct figures alone = play(&quiet), beside = play(&both);
    ck_assert_uint_gt(beside.high, 400);
    ck_assert_uint_ge(beside.at_once * 100, beside.high * 99);
    ck_assert_msg(beside.first_ms <= alone.first_ms + ITL_US / 2 / 1000.0, "%.1f ms, alone %.1f",
                  beside.first_ms, alone.first_ms);
    ck_assert_msg(beside.rate >= 0.97 * without.rate, "%.0f tokens a second, %.0f without",
                  beside.rate, without.rate);
}
END_TEST

Suite *overload_suite(void)
{
    Suite *suite = suite_create("sched, overload");
    TCase *tcase = tcase_create("above");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, who_is_above_a_flood_is_in_the_next_step, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
