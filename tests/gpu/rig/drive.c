#include "tests/gpu/rig/drive.h"

#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/engine/engine.h"
#include "gpu/kernels/step/null_rule.h"
#include "tests/gpu/rig/rig.h"

#define APPENDS 256

struct draft {
    struct gpu_plan plan;
    uint32_t closes[DRIVE_SEQS];
    struct gpu_move moves[4];
    struct gpu_slab slabs[8];
    struct gpu_open opens[DRIVE_SEQS];
    struct gpu_append appends[APPENDS];
    struct gpu_row rows[DRIVE_SEQS];
    int32_t ids[DRIVE_SEQS * DRIVE_TOKENS];
};

static uint32_t below(struct drive *drive, uint32_t bound)
{
    drive->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = drive->random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((x ^ (x >> 31)) >> 33) % bound;
}

int drive_open(struct drive *drive, const struct drive_options *options)
{
    memset(drive, 0, sizeof *drive);
    drive->random = options->seed;
    drive->stepping = options->stepping;
    drive->graphs = options->graphs;
    drive->profiling = options->profile;
    drive->use_ids = true;
    drive->target_seqs = options->target_seqs ? options->target_seqs : DRIVE_SEQS;
    struct gpu_options open = {
        .model = "synthetic:null",
        .slots_max = options->slots_max ? options->slots_max : DRIVE_SEQS,
        .tokens_max = 1024,
        .context_max = DRIVE_TOKENS,
        .slab_bytes = 8 * NULL_BLOCK_TOKENS * sizeof(uint64_t),
        .kv_max = options->kv_max,
        .profile_steps = options->profile ? UINT32_MAX : 0,
    };
    drive->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int status =
        gpu_module.open(&open, &drive->engine, &drive->model, &drive->limits, &drive->error);
    if (status)
        return status;
    status = gpu_module.start(drive->engine, 0, drive->wake_fd, &drive->error);
    if (!status)
        drive->engine->rank.graphs.off = !drive->graphs;
    return status;
}

void drive_close(struct drive *drive)
{
    struct error ignored;
    bool failed = gpu_module.query(drive->engine, 0, &ignored) == GPU_FAILED;
    (void)gpu_module.stop(drive->engine, 0, NULL);
    gpu_module.close(drive->engine);
    if (!failed) /* else a host function may be writing to it still */
        close(drive->wake_fd);
}

static bool completed(const struct drive *drive, uint64_t step)
{
    return gpu_module.completed(drive->engine, 0) >= step;
}

static void step_await(struct drive *drive, uint64_t step)
{
    while (!completed(drive, step)) {
        if (drive->stepping) {
            drive->lost = !rig_step() && !completed(drive, step);
        } else {
            struct pollfd wait = {.fd = drive->wake_fd, .events = POLLIN};
            drive->lost = poll(&wait, 1, 20000) <= 0;
            uint64_t count;
            (void)!read(drive->wake_fd, &count, sizeof count);
        }
        if (drive->lost)
            return;
    }
}

static void samples_check(struct drive *drive, const struct drive_expected *expected,
                          const struct gpu_results *results)
{
    for (uint32_t i = 0; i < expected->samples; i++) {
        const struct gpu_sample *is = &results->samples[i], *should = &expected->sample[i];
        drive->wrong += is->token != should->token || is->finished != should->finished ||
                        is->logprob != should->logprob || is->top_count != should->top_count;
        for (uint32_t j = 0; j < should->top_count && is->top_count == should->top_count; j++) {
            const struct gpu_top *top = &results->tops[i * GPU_LOGPROBS_MAX + j];
            int32_t token = null_top(expected->sample_state[i], j);
            drive->wrong += top->token != token ||
                            top->logprob != null_logprob(expected->sample_state[i], token);
        }
        drive->ends += should->finished;
    }
}

/* The plan is there before the step's first kernel, the results leave after its last one, and the
 * host hears of the end after it gave the step away. */
static void profile_check(struct drive *drive, uint64_t step)
{
    struct gpu_profile profile;
    gpu_module.profile(drive->engine, 0, step, &profile);
    const struct gpu_span *compute = &profile.lanes[GPU_COMPUTE];
    const struct gpu_span *in = &profile.lanes[GPU_COPY_IN], *out = &profile.lanes[GPU_COPY_OUT];
    drive->profiled++;
    drive->wrong += in->begin_ns > in->end_ns || in->end_ns > compute->begin_ns ||
                    compute->begin_ns > compute->end_ns || compute->end_ns > out->begin_ns ||
                    out->begin_ns > out->end_ns || profile.lanes[GPU_BULK_IN].begin_ns > 0 ||
                    profile.lanes[GPU_BULK_OUT].end_ns > 0;
    drive->wrong += profile.enqueue.begin_ns >= profile.enqueue.end_ns ||
                    profile.told_ns <= profile.enqueue.begin_ns || profile.tokens < profile.rows;
}

static void score_tops_check(struct drive *drive, const struct drive_expected *expected,
                             const struct gpu_results *results)
{
    for (uint32_t i = 0; i < expected->scores; i++) {
        if (expected->score_tops[i] && !results->score_tops) {
            drive->wrong++;
            return;
        }
        for (uint32_t j = 0; j < expected->score_tops[i]; j++) {
            const struct gpu_top *top = &results->score_tops[i * GPU_LOGPROBS_MAX + j];
            int32_t token = null_top(expected->score_state[i], j);
            drive->wrong += top->token != token ||
                            top->logprob != null_logprob(expected->score_state[i], token);
        }
        drive->score_tops += expected->score_tops[i];
    }
}

static void results_check(struct drive *drive, uint64_t step)
{
    const struct drive_expected *expected = &drive->expected[step % 3];
    struct gpu_results results;
    gpu_module.results(drive->engine, step, &results);
    if (results.sample_count != expected->samples || results.score_count != expected->scores ||
        results.embed_count != expected->embeds || results.start_ns > results.end_ns) {
        drive->wrong++;
        return;
    }
    samples_check(drive, expected, &results);
    if (drive->profiling)
        profile_check(drive, step);
    drive->in_ns += results.in_ns;
    drive->out_ns += results.out_ns;
    for (uint32_t i = 0; i < expected->scores; i++) {
        const struct gpu_score *is = &results.scores[i], *should = &expected->score[i];
        drive->wrong += is->logprob != should->logprob || is->top_token != should->top_token ||
                        is->top_logprob != should->top_logprob;
    }
    score_tops_check(drive, expected, &results);
    for (uint32_t i = 0; i < expected->embeds; i++) {
        for (uint32_t e = 0; e < NULL_HIDDEN; e++) {
            float is = results.embeddings[i * NULL_HIDDEN + e];
            drive->wrong += !(fabsf(is - expected->embed[i][e]) <= 1e-6f);
        }
    }
    drive->samples += expected->samples;
    drive->scores += expected->scores;
    drive->embeds += expected->embeds;
}

static void checks_until(struct drive *drive, uint64_t step)
{
    while (drive->checked < step && !drive->lost) {
        step_await(drive, drive->checked + 1);
        if (!drive->lost)
            results_check(drive, ++drive->checked);
    }
}

int drive_finish(struct drive *drive)
{
    checks_until(drive, drive->step);
    return drive->lost ? -ERR_TIMEOUT : 0;
}

/* ---- blocks ---- */

static uint32_t slab_blocks(const struct drive *drive)
{
    return drive->model.groups[0].slab_blocks;
}

static bool block_free(const struct drive *drive, uint32_t block)
{
    return drive->slab_there[block / slab_blocks(drive)] && !drive->block_used[block] &&
           drive->block_free_at[block] <= drive->checked;
}

static bool grow(struct drive *drive, struct draft *draft)
{
    uint32_t slab;
    if (draft->plan.slab_count == 8 || gpu_module.kv_grow(drive->engine, 0, &slab, &drive->error)) {
        drive->refused++;
        return false;
    }
    drive->slab_there[slab] = true;
    drive->slabs++;
    drive->grown++;
    draft->slabs[draft->plan.slab_count++] = (struct gpu_slab){.group = 0, .slab = slab};
    return true;
}

static bool block_take(struct drive *drive, struct draft *draft, bool may_grow, uint32_t *ret)
{
    uint32_t count = 64 * slab_blocks(drive), first = below(drive, count);
    for (int attempt = 0; attempt < 2; attempt++) {
        for (uint32_t i = 0; i < count; i++) {
            uint32_t block = (first + i) % count;
            if (!block_free(drive, block))
                continue;
            drive->block_used[block] = 1;
            *ret = block;
            return true;
        }
        if (!may_grow || attempt || !grow(drive, draft))
            return false;
    }
    return false;
}

static void block_give(struct drive *drive, uint32_t block)
{
    drive->block_used[block] = 0;
    drive->block_free_at[block] = drive->step; /* the steps in flight may use it */
}

int drive_shrink(struct drive *drive)
{
    for (uint32_t slab = 0; slab < 64; slab++) {
        bool used = !drive->slab_there[slab];
        for (uint32_t i = 0; i < slab_blocks(drive); i++)
            used = used || drive->block_used[slab * slab_blocks(drive) + i];
        if (used)
            continue;
        int status = gpu_module.kv_shrink(drive->engine, 0, slab, &drive->error);
        if (status)
            return status;
        drive->slab_there[slab] = false;
        drive->slabs--;
        drive->shrunk++;
    }
    return 0;
}

/* ---- sequences ---- */

static void seq_make(struct drive *drive, struct drive_seq *seq)
{
    *seq = (struct drive_seq){.live = true, .stop_id = -1};
    static const uint32_t wants[] = {
        0, 0, 0, GPU_SCORE, GPU_POOL_ADD, GPU_EMBED_ALL, GPU_EMBED_ALL | GPU_NORMALIZE};
    seq->want = drive->graphs ? 0 : wants[below(drive, 7)];
    seq->flags = seq->want & GPU_POOL_ADD ? GPU_SLOT_POOL : 0;
    seq->flags |= below(drive, 4) ? 0 : GPU_SLOT_PENALTIES;
    seq->prompt_len = 1 + below(drive, drive->graphs ? 3 : 120);
    seq->total = seq->want ? seq->prompt_len : seq->prompt_len + 1 + below(drive, 150);
    seq->logprobs = below(drive, 3) ? 0 : below(drive, GPU_LOGPROBS_MAX + 1);
    seq->eos_from = below(drive, 3) ? 0 : UINT32_MAX;
    if (below(drive, 2))
        seq->stop_id = (int32_t)below(drive, 256);
    uint64_t state = NULL_START;
    for (uint32_t i = 0; i < seq->total; i++) {
        bool given = i < seq->prompt_len;
        seq->tokens[i] =
            given ? (int32_t)below(drive, NULL_VOCAB) : null_sample(state, i >= seq->eos_from);
        seq->states[i] = state = null_state(state, seq->tokens[i]);
    }
}

static uint32_t free_slot(struct drive *drive)
{
    for (;;) {
        uint32_t slot = below(drive, drive->limits.slots_max);
        bool taken = false;
        for (uint32_t i = 0; i < DRIVE_SEQS; i++)
            taken = taken || (drive->seqs[i].live && drive->seqs[i].slot == slot);
        if (!taken)
            return slot;
    }
}

static void seq_open(struct drive *drive, struct draft *draft, struct drive_seq *seq)
{
    seq_make(drive, seq);
    seq->live = false;
    seq->slot = free_slot(drive);
    seq->live = true;
    struct gpu_open *open = &draft->opens[draft->plan.open_count++];
    *open = (struct gpu_open){
        .slot = seq->slot,
        .flags = seq->flags,
        .sampler.repetition_penalty = 1,
        .prompt_len = seq->prompt_len,
        .eos_from = seq->eos_from,
        .logprobs = seq->logprobs,
    };
    if (seq->stop_id >= 0) {
        open->stop_ids_first = draft->plan.id_count;
        open->stop_ids_count = 1;
        draft->ids[draft->plan.id_count++] = seq->stop_id;
    }
}

static void seq_close(struct drive *drive, struct draft *draft, struct drive_seq *seq)
{
    draft->closes[draft->plan.close_count++] = seq->slot;
    for (uint32_t i = 0; i < seq->blocks; i++)
        block_give(drive, seq->block[i]);
    seq->live = false;
}

static void append(struct draft *draft, const struct drive_seq *seq, uint32_t index)
{
    draft->appends[draft->plan.append_count++] =
        (struct gpu_append){.slot = seq->slot, .index = index, .block = seq->block[index]};
}

/* A block of a sequence goes elsewhere, and its table follows. */
static void seq_move(struct drive *drive, struct draft *draft, struct drive_seq *seq)
{
    if (!seq->live || !seq->blocks || draft->plan.move_count == 4)
        return;
    uint32_t index = below(drive, seq->blocks), to;
    if (!block_take(drive, draft, false, &to))
        return;
    draft->moves[draft->plan.move_count++] = (struct gpu_move){.from = seq->block[index], .to = to};
    block_give(drive, seq->block[index]);
    drive->block_free_at[seq->block[index]]++; /* this very step reads it */
    seq->block[index] = to;
    append(draft, seq, index);
    drive->moves++;
}

/* ---- rows and what they must give ---- */

static void sample_expect(struct drive_expected *expected, const struct drive_seq *seq,
                          uint32_t position, bool logprobs)
{
    uint64_t state = seq->states[position];
    bool may_end = position + 1 >= seq->eos_from;
    int32_t token = null_sample(state, may_end);
    expected->sample_state[expected->samples] = state;
    expected->sample[expected->samples++] = (struct gpu_sample){
        .token = token,
        .finished = may_end && (token == NULL_END || token == seq->stop_id),
        .logprob = null_logprob(state, token),
        .top_count = logprobs ? seq->logprobs : 0,
    };
}

static void score_expect(struct drive_expected *expected, const struct drive_seq *seq,
                         uint32_t position, int32_t target, bool logprobs)
{
    uint64_t state = seq->states[position];
    expected->score_state[expected->scores] = state;
    expected->score_tops[expected->scores] = logprobs ? seq->logprobs : 0;
    expected->score[expected->scores++] = (struct gpu_score){
        .logprob = null_logprob(state, target),
        .top_token = null_top(state, 0),
        .top_logprob = null_logprob(state, null_top(state, 0)),
    };
}

static void embed_expect(struct drive_expected *expected, const struct drive_seq *seq,
                         uint32_t position, bool mean, bool normalize)
{
    float *to = expected->embed[expected->embeds++], squares = 0;
    for (uint32_t e = 0; e < NULL_HIDDEN; e++) {
        float sum = 0;
        for (uint32_t i = mean ? 0 : position; i <= position; i++)
            sum += null_hidden(seq->states[i], e);
        to[e] = mean ? sum / (float)(position + 1) : sum;
        squares += to[e] * to[e];
    }
    for (uint32_t e = 0; e < NULL_HIDDEN && normalize && squares > 0; e++)
        to[e] /= sqrtf(squares);
}

static void row_expect(struct drive *drive, const struct draft *draft, const struct drive_seq *seq,
                       const struct gpu_row *row)
{
    struct drive_expected *expected = &drive->expected[(drive->step + 1) % 3];
    uint32_t last = row->position + row->q_len - 1;
    if (row->want & GPU_SAMPLE)
        sample_expect(expected, seq, last, row->want & GPU_LOGPROBS);
    for (uint32_t i = 0; i < row->score_count; i++) {
        uint32_t position = row->position + row->score_from + i;
        score_expect(expected, seq, position < last ? position : last,
                     draft->ids[row->ids + row->score_from + 1 + i], row->want & GPU_LOGPROBS);
    }
    bool normalize = row->want & GPU_NORMALIZE;
    for (uint32_t i = 0; i < row->q_len && row->want & GPU_EMBED_ALL; i++)
        embed_expect(expected, seq, row->position + i, false, normalize);
    if (row->want & (GPU_POOL_OUT | GPU_EMBED_LAST))
        embed_expect(expected, seq, last, row->want & GPU_POOL_OUT, normalize);
}

/* Blocks for positions up to `end`; false when KV is full. */
static bool blocks_ensure(struct drive *drive, struct draft *draft, struct drive_seq *seq,
                          uint32_t end)
{
    while (seq->blocks * NULL_BLOCK_TOKENS < end) {
        if (!block_take(drive, draft, true, &seq->block[seq->blocks]))
            return false;
        append(draft, seq, seq->blocks++);
    }
    return true;
}

static uint32_t row_want(struct drive *drive, const struct drive_seq *seq, uint32_t end)
{
    uint32_t want = seq->want;
    if (want & GPU_SCORE)
        return want | (end % 2 ? GPU_LOGPROBS : 0);
    if (end < seq->prompt_len)
        return want;
    if (want & GPU_POOL_ADD)
        return want | GPU_POOL_OUT | (below(drive, 2) ? GPU_NORMALIZE : 0);
    return want ? want : (uint32_t)(GPU_SAMPLE | (below(drive, 4) ? GPU_LOGPROBS : 0));
}

static void row_ids(struct drive *drive, struct draft *draft, const struct drive_seq *seq,
                    struct gpu_row *row)
{
    uint32_t end = row->position + row->q_len;
    row->ids = draft->plan.id_count;
    uint32_t count = row->q_len;
    if (row->want & GPU_SCORE) {
        row->score_count = end < seq->total ? row->q_len : row->q_len - 1;
        if (row->score_count && !below(drive, 3))
            row->score_count--;
        count += row->score_count == row->q_len;
    }
    memcpy(draft->ids + draft->plan.id_count, seq->tokens + row->position,
           count * sizeof *draft->ids);
    draft->plan.id_count += count;
    if (row->want & GPU_SCORE && !below(drive, 4)) { /* what may come behind it, instead */
        row->score_from = row->q_len - 1;
        row->score_count = 1 + below(drive, 3);
        draft->plan.id_count = row->ids + row->q_len;
        for (uint32_t i = 0; i < row->score_count; i++)
            draft->ids[draft->plan.id_count++] = (int32_t)below(drive, NULL_VOCAB);
    }
}

static void row_add(struct drive *drive, struct draft *draft, struct drive_seq *seq)
{
    bool decoding = seq->planned >= seq->prompt_len;
    uint32_t left = decoding ? 1 : seq->prompt_len - seq->planned;
    uint32_t q_len = 1 + below(drive, left);
    if (seq->planned + q_len > seq->total ||
        !blocks_ensure(drive, draft, seq, seq->planned + q_len))
        return;
    struct gpu_row *row = &draft->rows[draft->plan.row_count++];
    *row = (struct gpu_row){.slot = seq->slot, .position = seq->planned, .q_len = q_len};
    row->want = (uint16_t)row_want(drive, seq, seq->planned + q_len);
    row->input = decoding && (!drive->use_ids || below(drive, 8)) ? GPU_LAST : GPU_IDS;
    if (row->input == GPU_IDS)
        row_ids(drive, draft, seq, row);
    row_expect(drive, draft, seq, row);
    seq->planned += q_len;
    draft->plan.token_count += q_len;
}

static void draft_make(struct drive *drive, struct draft *draft)
{
    draft->plan = (struct gpu_plan){
        .step = drive->step + 1,
        .closes = draft->closes,
        .moves = draft->moves,
        .slabs = draft->slabs,
        .opens = draft->opens,
        .appends = draft->appends,
        .rows = draft->rows,
        .ids = draft->ids,
    };
    struct drive_expected *expected = &drive->expected[draft->plan.step % 3];
    expected->step = draft->plan.step;
    expected->samples = expected->scores = expected->embeds = 0;
    uint32_t live = 0;
    for (uint32_t i = 0; i < DRIVE_SEQS; i++) {
        struct drive_seq *seq = &drive->seqs[i];
        if (seq->live && (seq->planned >= seq->total || !below(drive, 200)))
            seq_close(drive, draft, seq);
        live += seq->live;
    }
    for (uint32_t i = 0; i < DRIVE_SEQS; i++) {
        struct drive_seq *seq = &drive->seqs[i];
        if (seq->live && !below(drive, drive->graphs ? 100 : 10))
            seq_move(drive, draft, seq);
    }
    for (uint32_t i = 0; i < DRIVE_SEQS && live < drive->target_seqs; i++) {
        if (drive->seqs[i].live || below(drive, 2))
            continue;
        seq_open(drive, draft, &drive->seqs[i]);
        live++;
    }
    for (uint32_t i = 0; i < DRIVE_SEQS; i++) {
        if (drive->seqs[i].live && below(drive, 6))
            row_add(drive, draft, &drive->seqs[i]);
    }
}

int drive_steps(struct drive *drive, uint32_t steps)
{
    static struct draft draft;
    for (uint32_t i = 0; i < steps && !drive->lost; i++) {
        if (drive->step >= drive->limits.depth)
            checks_until(drive, drive->step + 1 - drive->limits.depth);
        for (uint32_t j = below(drive, 8); drive->stepping && j; j--)
            (void)rig_step();
        draft_make(drive, &draft);
        int status = gpu_module.submit(drive->engine, 0, &draft.plan, &drive->error);
        if (status)
            return status;
        drive->step++;
        if (!below(drive, 20))
            (void)drive_shrink(drive);
    }
    return drive->lost ? -ERR_TIMEOUT : 0;
}

void drive_end_all(struct drive *drive)
{
    for (uint32_t i = 0; i < DRIVE_SEQS; i++)
        drive->seqs[i].total = drive->seqs[i].planned;
    drive->target_seqs = 0;
}
