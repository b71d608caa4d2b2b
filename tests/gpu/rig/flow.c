#include "tests/gpu/rig/flow.h"

#include <assert.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/worker/rank_group.h"
#include "tests/gpu/rig/rig.h"

#define APPENDS (GPU_GROUPS_MAX * FLOW_SEQS * 32)

struct draft {
    struct gpu_plan plan;
    struct gpu_slab slabs[64];
    struct gpu_open opens[FLOW_SEQS];
    struct gpu_append appends[APPENDS];
    struct gpu_row rows[FLOW_SEQS];
    int32_t ids[FLOW_SEQS * REFERENCE_TOKENS];
    uint32_t seq[FLOW_SEQS]; /* of each row */
};

struct flow {
    const struct flow_options *options;
    const struct reference *reference;
    struct gpu_engine *engine;
    struct rank_group *group;
    struct gpu_model model;
    struct gpu_limits limits;
    int wake_fd;
    uint64_t step, taken;
    uint32_t planned[FLOW_SEQS], sampled[FLOW_SEQS]; /* positions; samples that were planned */
    uint32_t answered[FLOW_SEQS];                    /* samples, or scores, that came */
    uint32_t blocks_left[GPU_GROUPS_MAX], block_next[GPU_GROUPS_MAX];
    struct draft drafts[GPU_DEPTH_MAX + 1];
    struct flow_answers *answers;
};

static uint32_t blocks_of(const struct flow *flow, uint32_t seq)
{
    uint32_t positions = flow->reference->prompts[seq].count + FLOW_SAMPLES;
    return (positions + flow->model.block_tokens - 1) / flow->model.block_tokens;
}

static int seq_open(struct flow *flow, struct draft *draft, uint32_t seq, struct error *error)
{
    draft->opens[draft->plan.open_count++] =
        (struct gpu_open){.slot = seq,
                          .seed = seq,
                          .sampler.temperature = seq % 2 ? 0.8f : 0,
                          .sampler.top_p = 0.9f,
                          .sampler.repetition_penalty = 1,
                          .prompt_len = flow->reference->prompts[seq].count,
                          .eos_from = UINT32_MAX};
    for (uint32_t group = 0; group < flow->model.group_count; group++) {
        for (uint32_t i = 0; i < blocks_of(flow, seq); i++) {
            uint32_t slab, per_slab = flow->model.groups[group].slab_blocks;
            if (!flow->blocks_left[group]) {
                int status = rank_group_kv_grow(flow->group, group, &slab, error);
                if (status)
                    return status;
                draft->slabs[draft->plan.slab_count++] =
                    (struct gpu_slab){.group = group, .slab = slab};
                flow->blocks_left[group] = per_slab;
                flow->block_next[group] = slab * per_slab;
            }
            flow->blocks_left[group]--;
            draft->appends[draft->plan.append_count++] = (struct gpu_append){
                .slot = seq, .group = group, .index = i, .block = flow->block_next[group]++};
        }
    }
    return 0;
}

/* Positions to read of the prompt: its last token has no successor to score. */
static uint32_t prompt_end(const struct flow *flow, uint32_t seq)
{
    return flow->reference->prompts[seq].count - flow->options->score;
}

static bool seq_done(const struct flow *flow, uint32_t seq)
{
    return flow->options->score ? flow->planned[seq] == prompt_end(flow, seq)
                                : flow->sampled[seq] == FLOW_SAMPLES;
}

static void row_add(struct flow *flow, struct draft *draft, uint32_t seq)
{
    const struct reference_prompt *prompt = &flow->reference->prompts[seq];
    uint32_t position = flow->planned[seq], end = prompt_end(flow, seq);
    bool decode = position >= end;
    uint32_t left = decode ? 1 : end - position, chunk = flow->options->chunk;
    struct gpu_row *row = &draft->rows[draft->plan.row_count];
    *row = (struct gpu_row){.slot = seq,
                            .position = position,
                            .q_len = left < chunk ? left : chunk,
                            .input = decode ? GPU_LAST : GPU_IDS,
                            .ids = draft->plan.id_count};
    if (flow->options->score) {
        row->want = GPU_SCORE;
        row->score_count = row->q_len;
    } else if (position + row->q_len >= end) {
        row->want = GPU_SAMPLE | GPU_LOGPROBS;
        flow->sampled[seq]++;
    }
    for (uint32_t i = 0; !decode && i < row->q_len + (row->score_count > 0); i++)
        draft->ids[draft->plan.id_count++] = prompt->tokens[position + i];
    flow->planned[seq] += row->q_len;
    draft->plan.token_count += row->q_len;
    draft->seq[draft->plan.row_count++] = seq;
}

/* False when there is nothing left to do. A group that has ended gives its turn to nobody. */
static bool draft_make(struct flow *flow, struct draft *draft, int *ret_status, struct error *error)
{
    uint32_t groups = flow->options->groups;
    bool left = false;
    draft->plan = (struct gpu_plan){.step = flow->step + 1,
                                    .slabs = draft->slabs,
                                    .opens = draft->opens,
                                    .appends = draft->appends,
                                    .rows = draft->rows,
                                    .ids = draft->ids};
    *ret_status = 0;
    for (uint32_t seq = 0; !*ret_status && seq < FLOW_SEQS; seq++) {
        if (seq_done(flow, seq))
            continue;
        left = true;
        if (seq % groups != flow->step % groups)
            continue;
        if (!flow->planned[seq])
            *ret_status = seq_open(flow, draft, seq, error);
        if (!*ret_status)
            row_add(flow, draft, seq);
    }
    return left && !*ret_status;
}

static int await(struct flow *flow, uint64_t step, struct error *error)
{
    while (rank_group_completed(flow->group) < step) {
        if (flow->options->stepping) {
            if (!rig_step() && rank_group_completed(flow->group) < step)
                return error_set(error, ERR_TIMEOUT, "nothing can run");
            continue;
        }
        struct pollfd wait = {.fd = flow->wake_fd, .events = POLLIN};
        uint64_t events;
        if (poll(&wait, 1, 50) <= 0 && rank_group_query(flow->group, error) == GPU_FAILED)
            return -ERR_DEVICE;
        (void)!read(flow->wake_fd, &events, sizeof events);
    }
    return 0;
}

static void answers_take(struct flow *flow, const struct draft *draft,
                         const struct gpu_results *results)
{
    struct flow_answers *answers = flow->answers;
    uint32_t sample = 0, score = 0;
    for (uint32_t i = 0; i < draft->plan.row_count; i++) {
        uint32_t seq = draft->seq[i];
        if (draft->rows[i].want & GPU_SAMPLE)
            answers->samples[seq][flow->answered[seq]++] = results->samples[sample++];
        for (uint32_t j = 0; j < draft->rows[i].score_count; j++)
            answers->scores[seq][flow->answered[seq]++] = results->scores[score++];
    }
}

static int results_take(struct flow *flow, uint64_t until, struct error *error)
{
    int status = 0;
    while (flow->taken < until && !(status = await(flow, flow->taken + 1, error))) {
        struct gpu_results results;
        flow->taken++;
        gpu_module.results(flow->engine, flow->taken, &results);
        answers_take(flow, &flow->drafts[flow->taken % (GPU_DEPTH_MAX + 1)], &results);
    }
    return status;
}

static int steps_run(struct flow *flow, struct error *error)
{
    int status = 0;
    for (;;) {
        uint64_t next = flow->step + 1;
        if (next > flow->limits.depth)
            status = results_take(flow, next - flow->limits.depth, error);
        struct draft *draft = &flow->drafts[next % (GPU_DEPTH_MAX + 1)];
        if (status || !draft_make(flow, draft, &status, error))
            break;
        status = rank_group_submit(flow->group, &draft->plan, error);
        if (status)
            break;
        flow->step = next;
    }
    return status ? status : results_take(flow, flow->step, error);
}

int flow_run(const struct flow_options *options, const struct reference *reference,
             struct flow_answers *ret, struct error *error)
{
    static struct flow flow;
    memset(&flow, 0, sizeof flow);
    memset(ret, 0, sizeof *ret);
    flow.options = options;
    flow.reference = reference;
    flow.answers = ret;
    int status = gpu_module.open(&options->gpu, &flow.engine, &flow.model, &flow.limits, error);
    if (status)
        return status;
    flow.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    status = rank_group_make(&gpu_module, flow.engine, flow.model.ranks, &flow.group, error);
    assert(!status);
    status = rank_group_start(flow.group, flow.wake_fd, !options->stepping, error);
    if (!status && options->after_start)
        options->after_start(flow.engine);
    if (!status)
        status = steps_run(&flow, error);
    if (options->before_stop)
        options->before_stop(flow.engine);
    struct error ignored; /* what was wrong before is told */
    (void)rank_group_stop(flow.group, &ignored);
    rank_group_free(flow.group);
    gpu_module.close(flow.engine);
    if (status != -ERR_DEVICE) /* else a host function may write to it still */
        close(flow.wake_fd);
    return status;
}
