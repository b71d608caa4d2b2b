/* Constrained sequences on the CPU device: whatever was sampled is what the constraint allows, and
 * the bits are those of a request of its own, however late masks are, beside whomever, preempted,
 * with ranks and stages; others' bits are what they are without constraints. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "daemon/constrain/constraint.h"
#include "daemon/worker/constraint_held.h"
#include "daemon/worker/worker_inner.h"
#include "gpu/emu/emu.h"
#include "tests/daemon/rig/fake_device.h"
#include "tests/runner.h"

#define DATA "tests/model/data/"
#define SEQS 8u
#define PROMPT 60u
#define OUT 40u

static const struct {
    const char *model;
    uint32_t tp, pp, depth, chunk;
    bool tight, penalty;
} cases[] = {
    {DATA "llama-llama3-f32", 1, 1, 2, 0, false, false},
    {DATA "llama-llama3-f32", 1, 1, 1, 0, false, true},
    {DATA "llama-llama3-f32", 2, 1, 2, 0, false, false},
    {DATA "llama-llama3-f32", 1, 2, 2, 0, false, true},
    {DATA "llama-llama3-f32", 2, 2, 2, 40, false, false},
    {DATA "gemma2-default-bf16", 1, 1, 2, 32, false, true},
    {DATA "qwen2-window-bf16", 1, 3, 1, 0, false, false},
    {DATA "llama-llama3-f32", 1, 1, 2, 0, true, true},
    {"synthetic:null", 1, 1, 2, 0, false, false},
    {"synthetic:null", 1, 1, 2, 0, true, false},
};
#define CASES ((int)(sizeof cases / sizeof cases[0]))

static const struct {
    enum constraint_kind kind;
    const char *text;
} wanted[] = {
    {CONSTRAINT_PATTERN, "(ab|c){1,30}"},
    {CONSTRAINT_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":"
                        "{\"type\":\"string\",\"maxLength\":6}},\"required\":[\"a\",\"b\"],"
                        "\"additionalProperties\":false}"},
    {CONSTRAINT_JSON, NULL},
    {CONSTRAINT_CHOICE, "[\"yes\",\"no\",\"perhaps\"]"},
    {CONSTRAINT_SCHEMA, "{\"type\":\"array\",\"items\":{\"enum\":[1,\"\\u00e9\",null]}}"},
    {CONSTRAINT_OBJECT, NULL},
};
#define WANTED ((uint32_t)(sizeof wanted / sizeof wanted[0]))

static struct worker *worker;
static struct gpu_model model;
static struct completion_queue completions;
static struct vocabulary *vocabulary;
static struct constraint_held *held[WANTED];
static time_us now_us;
static uint64_t drawn;
static uint32_t late; /* a mask is made in one of so many turns */

static void woken(void *context)
{
    (void)context;
}

static void open_vocabulary(void)
{
    static const char *const longer[] = {"ab", "abab", "{\"", "\": ", "\":", "no", "yes", "12", "\","};
    static char bytes[256];
    struct vocabulary_token *tokens = calloc(model.vocab, sizeof *tokens);
    struct error error;
    for (uint32_t id = 0; id < model.vocab; id++) {
        const char *text = longer[id % (sizeof longer / sizeof longer[0])];
        if (id < 256)
            bytes[id] = (char)id;
        tokens[id].bytes = id < 256 ? &bytes[id] : text;
        tokens[id].length = id < 256 ? 1 : strlen(text);
    }
    for (uint32_t i = 0; i < model.eos_count; i++)
        tokens[model.eos[i]].length = 0;
    ck_assert_int_eq(vocabulary_new(tokens, model.vocab, model.eos, model.eos_count, &vocabulary,
                                    &error),
                     0);
    free(tokens);
    for (uint32_t i = 0; i < WANTED; i++) {
        struct constraint *constraint;
        const char *text = wanted[i].text;
        int rc = constraint_new(wanted[i].kind, text, text ? strlen(text) : 0, vocabulary,
                                &constraint, &error);
        ck_assert_msg(rc == 0, "%s", error.text);
        ck_assert_int_eq(constraint_held_make(constraint, vocabulary->words, NULL, 0, &held[i],
                                              &error), 0);
    }
}

static uint64_t kv_of(const struct gpu_options *gpu)
{
    uint64_t bytes = 0;
    struct gpu_model of;
    struct error error;
    ck_assert_int_eq(gpu_module.check(gpu, &of, &error), 0);
    uint32_t blocks = 2 * ((PROMPT + OUT) / of.block_tokens + 1);
    for (uint32_t g = 0; g < of.group_count; g++)
        bytes += blocks * of.groups[g].block_bytes;
    return bytes;
}

static void open_worker(int number)
{
    static const int devices[] = {0, 1, 2, 3};
    struct emu_options emu = {.engine = EMU_THREADS,
                              .memory_bytes = 512u << 20,
                              .devices = 4,
                              .team_threads = 1,
                              .poison = true,
                              .strict = true};
    struct gpu_options gpu = {.model = cases[number].model,
                              .devices = devices,
                              .cpu_devices = 4,
                              .tp = cases[number].tp,
                              .pp = cases[number].pp,
                              .depth = cases[number].depth,
                              .slots_max = 2 * SEQS,
                              .tokens_max = cases[number].chunk,
                              .slab_bytes = 4096};
    struct worker_options options = {.sched = {.itl_target_us = 50000,
                                               .ttft_target_us = 300000,
                                               .chunk_every = 4,
                                               .kv_idle_release_us = 2000,
                                               .stall_us = UINT64_MAX},
                                     .step_timeout_us = 60000000};
    struct gpu_limits limits;
    struct gpu_engine *engine;
    struct error error = {.code = 0};
    ck_assert_int_eq(emu_setup(&emu), cudaSuccess);
    if (cases[number].tight)
        gpu.kv_max = kv_of(&gpu);
    int rc = gpu_module.open(&gpu, &engine, &model, &limits, &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    options.ranks = model.ranks;
    completion_init(&completions, woken, NULL);
    rc = worker_create(&gpu_module, engine, &model, &limits, &options, &completions, &worker,
                       &error);
    ck_assert_msg(rc == 0, "%s", error.text);
    ck_assert_int_eq(worker_open(worker), 0);
    open_vocabulary();
    now_us = 1000000;
    drawn = 11;
}

static void close_worker(void)
{
    worker_destroy(worker);
    completion_destroy(&completions);
    for (uint32_t i = 0; i < WANTED; i++) {
        ck_assert(constraint_held_put(held[i]));
        constraint_held_free(held[i]);
    }
    vocabulary_free(vocabulary);
}

/* A turn, and a mask in one of `late`. Returns how many sequences ended. */
static uint32_t turn(void)
{
    uint32_t ended = 0;
    uint64_t drained;
    unsigned control, flags;
    struct pollfd poll_fd = {.fd = worker_fd(worker), .events = POLLIN};
    if (poll(&poll_fd, 1, 1) > 0)
        ck_assert_int_eq(read(worker_fd(worker), &drained, sizeof drained), sizeof drained);
    now_us += 100;
    worker_turn(worker, now_us);
    ck_assert_str_eq(sched_check(&worker->sched), "");
    if (fake_below(&drawn, late) == 0)
        while (worker_mask(worker) && late == 1)
            continue;
    struct mailbox_link *chain = completion_drain(&completions, &control);
    for (struct seq *seq; (seq = completion_next(&chain, &flags)) != NULL;) {
        ended += (flags & COMPLETION_ENDED) && !seq->released;
        seq->released = seq->released || (flags & COMPLETION_ENDED);
    }
    return ended;
}

static void run(uint32_t count)
{
    for (uint32_t ended = 0; ended < count;)
        ended += turn();
}

/* The first of them are constrained. Log-probabilities have to be computed, so nothing is forced. */
static struct seq *make_logprobs(int number, uint32_t which, int32_t logprobs)
{
    struct fake_options options = {.job = JOB_GENERATE,
                                   .prompt_len = PROMPT - 3 * which,
                                   .max_tokens = which == 5 ? 1 : OUT,
                                   .logprobs = logprobs,
                                   .penalty = cases[number].penalty,
                                   .seed = 7 + which};
    struct seq *seq = fake_seq(&options, now_us);
    struct error error;
    for (uint32_t i = 0; i < seq->prompt_len; i++)
        ((int32_t *)(uintptr_t)seq->prompt)[i] %= (int32_t)model.vocab;
    seq->sampling.sampler.temperature = (float)(which % 5) / 2;
    seq->sampling.sampler.top_k = which % 3 ? 0 : 5; /* less than what a mask takes away */
    if (which < WANTED)
        ck_assert_int_eq(seq_mask_make(held[which], &seq->mask, &error), 0);
    return seq;
}

static struct seq *make(int number, uint32_t which)
{
    return make_logprobs(number, which, 2);
}

static void send(struct seq *seq)
{
    worker_send(worker, seq);
    worker_wake(worker);
}

/* Read again from the beginning by a constraint of its own. */
static void check_valid(const struct seq *seq, uint32_t which)
{
    struct constraint_place place;
    struct error error = {.code = 0};
    const char *text = wanted[which].text;
    struct constraint *own;
    uint32_t count = atomic_load(&seq->out_count);
    ck_assert_int_eq(constraint_new(wanted[which].kind, text, text ? strlen(text) : 0, vocabulary,
                                    &own, &error),
                     0);
    ck_assert_msg(seq->finish != FINISH_ERROR, "%s", seq->failure->text);
    constraint_start(own, &place);
    for (uint32_t i = 0; i < count; i++) {
        bool end = false;
        for (uint32_t e = 0; e < model.eos_count; e++)
            end = end || model.eos[e] == seq->out_tokens[i];
        ck_assert_msg(!end || i + 1 == count, "an end amid an output");
        ck_assert_msg(constraint_advance(own, &place, seq->out_tokens[i], &error) == 0,
                      "sequence %u, token %u of %u: %s", which, i, count, error.text);
    }
    if (seq->finish == FINISH_STOP)
        ck_assert_msg(constraint_may_end(&place), "sequence %u ends too early", which);
    else
        ck_assert_uint_eq(count, seq->sampling.max_tokens);
    constraint_drop(own, &place);
    constraint_free(own);
}

static void check_same(const struct seq *a, const struct seq *b, uint32_t which)
{
    uint32_t count = atomic_load(&a->out_count);
    ck_assert_uint_eq(count, atomic_load(&b->out_count));
    ck_assert_int_eq(a->finish, b->finish);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_msg(a->out_tokens[i] == b->out_tokens[i] &&
                          a->out_logprobs[i] == b->out_logprobs[i],
                      "sequence %u, token %u of %u", which, i, count);
    ck_assert_mem_eq(a->out_tops, b->out_tops, 2 * count * sizeof *a->out_tops);
}

START_TEST(outputs_are_valid_and_have_the_bits_of_requests_of_their_own)
{
    struct seq *together[SEQS], *alone[SEQS];
    uint32_t stopped = 0;
    open_worker(_i);
    late = 1;
    for (uint32_t i = 0; i < SEQS; i++) {
        alone[i] = make(_i, i);
        send(alone[i]);
        run(1);
        if (i < WANTED)
            check_valid(alone[i], i);
        stopped += alone[i]->finish == FINISH_STOP;
    }
    ck_assert_uint_gt(stopped, 0);
    uint64_t preempted = worker->stats.preemptions_total;
    for (uint32_t way = 0; way < 3; way++) {
        late = 1 + 2 * way;
        for (uint32_t i = 0; i < SEQS; i++) {
            together[i] = make(_i, i);
            send(together[i]);
        }
        run(SEQS);
        for (uint32_t i = 0; i < SEQS; i++) {
            check_same(together[i], alone[i], i);
            fake_seq_free(together[i]);
        }
    }
    ck_assert_uint_gt(worker->stats.masks_late_total, 0);
    ck_assert_uint_eq(worker->stats.preemptions_total > preempted, cases[_i].tight);
    for (uint32_t i = 0; i < SEQS; i++)
        fake_seq_free(alone[i]);
    close_worker();
}
END_TEST

/* Where one token may come it is taken without being computed: nothing else changes. */
START_TEST(what_is_forced_is_what_would_be_sampled)
{
    struct seq *sampled[SEQS], *forced[SEQS];
    open_worker(_i);
    late = 1;
    for (uint32_t i = 0; i < SEQS; i++) {
        sampled[i] = make(_i, i);
        send(sampled[i]);
        run(1);
    }
    ck_assert_uint_eq(worker->stats.tokens_forced_total, 0);
    for (uint32_t way = 0; way < 4; way++) {
        uint64_t rows = worker->stats.samplings_total;
        late = 1 + way;
        for (uint32_t i = 0; i < SEQS; i++) {
            forced[i] = make_logprobs(_i, i, -1);
            send(forced[i]);
            if (way == 0)
                run(1);
        }
        if (way > 0)
            run(SEQS);
        ck_assert_uint_gt(worker->stats.samplings_total, rows);
        for (uint32_t i = 0; i < SEQS; i++) {
            uint32_t count = atomic_load(&sampled[i]->out_count);
            if (i < WANTED)
                check_valid(forced[i], i);
            ck_assert_int_eq(forced[i]->finish, sampled[i]->finish);
            ck_assert_uint_eq(atomic_load(&forced[i]->out_count), count);
            ck_assert_mem_eq(forced[i]->out_tokens, sampled[i]->out_tokens,
                             count * sizeof *sampled[i]->out_tokens);
            fake_seq_free(forced[i]);
        }
        ck_assert_uint_gt(worker->stats.tokens_forced_total, 0);
    }
    for (uint32_t i = 0; i < SEQS; i++)
        fake_seq_free(sampled[i]);
    close_worker();
}
END_TEST

static bool all_seen(struct seq *const *gone)
{
    bool all = true;
    for (uint32_t i = 0; i < WANTED; i++)
        all = all && (atomic_load(&gone[i]->out_flags) & COMPLETION_CANCEL_SEEN) &&
              !(atomic_load(&gone[i]->out_flags) & COMPLETION_QUEUED);
    return all;
}

/* In every state that a sequence can be in: nothing of it is left, and others go on. */
START_TEST(who_is_cancelled_leaves_nothing)
{
    struct seq *other, *alone;
    open_worker(_i);
    late = 1;
    alone = make(_i, SEQS - 1);
    send(alone);
    run(1);
    for (uint32_t turns = 0; turns < 40; turns++) {
        struct seq *gone[WANTED];
        enum finish reason = turns % 3 ? FINISH_CANCELLED : FINISH_DEADLINE;
        uint32_t ended = 0, cancelled = 0;
        late = 1 + turns % 4;
        for (uint32_t i = 0; i < WANTED; i++) {
            gone[i] = make_logprobs(_i, i, turns % 2 ? 2 : -1);
            send(gone[i]);
        }
        other = make(_i, SEQS - 1);
        send(other);
        for (uint32_t i = 0; i < turns; i++)
            ended += turn();
        for (uint32_t i = 0; i < WANTED; i++) {
            gone[i]->cancel_reason = reason;
            worker_cancel(worker, gone[i]);
        }
        worker_wake(worker);
        while (ended < WANTED + 1 || !all_seen(gone))
            ended += turn();
        for (uint32_t i = 0; i < WANTED; i++) {
            cancelled += gone[i]->finish == reason;
            ck_assert_ptr_null(gone[i]->mask);
        }
        ck_assert(turns > 0 || cancelled == WANTED);
        check_same(other, alone, SEQS - 1);
        for (uint32_t i = 0; i < WANTED; i++)
            fake_seq_free(gone[i]);
        fake_seq_free(other);
    }
    fake_seq_free(alone);
    while (worker_mask(worker))
        continue;
    close_worker();
}
END_TEST

/* With the crew's threads: the worker as it is in the daemon. */
START_TEST(masks_are_made_by_threads)
{
    struct seq *together[SEQS], *alone[SEQS];
    open_worker(_i);
    mask_crew_threads(worker->masks, MASK_CREW_THREADS);
    late = 1;
    for (uint32_t i = 0; i < SEQS; i++) {
        alone[i] = make(_i, i);
        send(alone[i]);
        run(1);
    }
    for (uint32_t i = 0; i < SEQS; i++) {
        together[i] = make(_i, i);
        send(together[i]);
    }
    run(SEQS);
    for (uint32_t i = 0; i < SEQS; i++) {
        if (i < WANTED)
            check_valid(together[i], i);
        check_same(together[i], alone[i], i);
        fake_seq_free(together[i]);
        fake_seq_free(alone[i]);
    }
    struct seq *left = make(_i, 0);
    send(left);
    for (uint32_t i = 0; i < 5; i++)
        (void)turn();
    worker_stop(worker); /* amid the making of a mask, maybe */
    (void)worker_turn(worker, now_us);
    fake_seq_free(left);
    mask_crew_stop(worker->masks);
    close_worker();
}
END_TEST

static Suite *constrained_suite(void)
{
    Suite *suite = suite_create("constrained");
    TCase *tcase = tcase_create("constrained");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, outputs_are_valid_and_have_the_bits_of_requests_of_their_own, 0,
                        CASES);
    tcase_add_loop_test(tcase, what_is_forced_is_what_would_be_sampled, 0, CASES);
    tcase_add_loop_test(tcase, who_is_cancelled_leaves_nothing, 0, 4);
    tcase_add_loop_test(tcase, masks_are_made_by_threads, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(srunner_create(constrained_suite()));
}
