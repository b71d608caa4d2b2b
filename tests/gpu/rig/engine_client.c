#include "tests/gpu/rig/engine_client.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/gpu/rig/rig.h"

struct draft {
    struct gpu_plan plan;
    uint32_t closes[ENGINE_CLIENT_JOBS];
    struct gpu_slab slabs[64];
    struct gpu_open opens[ENGINE_CLIENT_JOBS];
    struct gpu_append appends[ENGINE_CLIENT_JOBS * 128];
    struct gpu_row rows[ENGINE_CLIENT_JOBS];
    struct engine_client_job *job[ENGINE_CLIENT_JOBS]; /* of each row */
    int32_t ids[ENGINE_CLIENT_JOBS * ENGINE_CLIENT_TOKENS];
    struct gpu_bias bias[ENGINE_CLIENT_JOBS * 4];
};

int engine_client_open(struct engine_client *talk, const struct gpu_options *options, bool stepping)
{
    memset(talk, 0, sizeof *talk);
    talk->stepping = stepping;
    talk->random = 1;
    talk->ranks = (options->tp ? options->tp : 1) * (options->pp ? options->pp : 1);
    talk->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return gpu_module.open(options, &talk->engine, &talk->model, &talk->limits, &talk->error);
}

int engine_client_start(struct engine_client *talk)
{
    int status = 0;
    for (uint32_t rank = 0; !status && rank < talk->ranks; rank++)
        status = gpu_module.start(talk->engine, rank, talk->wake_fd, &talk->error);
    return status;
}

void engine_client_close(struct engine_client *talk)
{
    for (uint32_t rank = 0; rank < talk->ranks; rank++)
        (void)gpu_module.stop(talk->engine, rank, NULL);
    bool failed = atomic_load(&talk->engine->failed);
    gpu_module.close(talk->engine);
    if (!failed) /* else a host function may write to it still */
        close(talk->wake_fd);
}

static uint32_t below(struct engine_client *talk, uint32_t bound)
{
    talk->random = talk->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(talk->random >> 33) % bound;
}

static int block_take(struct engine_client *talk, struct draft *draft, uint32_t group,
                      uint32_t *ret)
{
    uint32_t per_slab = talk->model.groups[group].slab_blocks;
    for (uint32_t i = 0; i < talk->block_end[group]; i++) {
        if (!talk->free_block[group][i])
            continue;
        talk->free_block[group][i] = false;
        *ret = i;
        return 0;
    }
    uint32_t slab;
    int status = gpu_module.kv_grow(talk->engine, group, &slab, &talk->error);
    if (status)
        return status;
    draft->slabs[draft->plan.slab_count++] = (struct gpu_slab){.group = group, .slab = slab};
    for (uint32_t i = 0; i < per_slab; i++)
        talk->free_block[group][slab * per_slab + i] = true;
    if (talk->block_end[group] < (slab + 1) * per_slab)
        talk->block_end[group] = (slab + 1) * per_slab;
    return block_take(talk, draft, group, ret);
}

static void append(struct draft *draft, const struct engine_client_job *job, uint32_t group,
                   uint32_t index)
{
    draft->appends[draft->plan.append_count++] = (struct gpu_append){
        .slot = job->slot, .group = group, .index = index, .block = job->blocks[group][index]};
}

static int blocks_ensure(struct engine_client *talk, struct draft *draft,
                         struct engine_client_job *job, uint32_t end)
{
    for (uint32_t group = 0; group < talk->model.group_count; group++) {
        while (job->block_count[group] * talk->model.block_tokens < end) {
            uint32_t index = job->block_count[group];
            int status = block_take(talk, draft, group, &job->blocks[group][index]);
            if (status)
                return status;
            append(draft, job, group, index);
            job->block_count[group]++;
        }
        if (talk->swap_blocks && job->block_count[group] > 1 && job->planned && !job->swapped) {
            uint32_t first = job->blocks[group][0];
            job->blocks[group][0] = job->blocks[group][1];
            job->blocks[group][1] = first;
            append(draft, job, group, 0);
            append(draft, job, group, 1);
        }
    }
    job->swapped = job->planned > 0;
    return 0;
}

/* The cached blocks become the job's first. */
static void cache_take(const struct engine_client *talk, struct draft *draft,
                       struct engine_client_job *job)
{
    job->borrowed = talk->cache / talk->model.block_tokens;
    job->planned = talk->cache;
    for (uint32_t group = 0; group < talk->model.group_count; group++) {
        for (uint32_t i = 0; i < job->borrowed; i++) {
            job->blocks[group][i] = talk->cached[group][i];
            append(draft, job, group, i);
        }
        job->block_count[group] = job->borrowed;
    }
}

/* Of job 0, once it has them whole. */
static void cache_keep(struct engine_client *talk, struct engine_client_job *job)
{
    if (!talk->cache || talk->is_cached || !job->live || job->planned < talk->cache)
        return;
    job->borrowed = talk->cache / talk->model.block_tokens;
    for (uint32_t group = 0; group < talk->model.group_count; group++)
        memcpy(talk->cached[group], job->blocks[group], job->borrowed * sizeof **talk->cached);
    talk->is_cached = true;
}

static void job_open(const struct engine_client *talk, struct draft *draft,
                     struct engine_client_job *job, const struct engine_client_job *jobs,
                     uint32_t count)
{
    for (job->slot = 0;; job->slot++) {
        bool taken = false;
        for (uint32_t i = 0; i < count; i++)
            taken = taken || (jobs[i].live && jobs[i].slot == job->slot);
        if (!taken)
            break;
    }
    job->live = job->fresh = true;
    job->swapped = false;
    job->planned = job->borrowed = 0;
    memset(job->block_count, 0, sizeof job->block_count);
    if (talk->is_cached)
        cache_take(talk, draft, job);
    struct gpu_open *open = &draft->opens[draft->plan.open_count++];
    *open = job->open;
    open->slot = job->slot;
    open->first = job->planned;
    if (open->flags & GPU_SLOT_PENALTIES) { /* what it has not read itself is counted, too */
        open->seen_first = draft->plan.id_count;
        memcpy(draft->ids + draft->plan.id_count, job->tokens, job->planned * sizeof *draft->ids);
        draft->plan.id_count += job->planned;
    }
    open->prompt_len = job->prompt_len;
    open->stop_ids_first = draft->plan.id_count;
    memcpy(draft->ids + draft->plan.id_count, job->stop_ids,
           open->stop_ids_count * sizeof *draft->ids);
    draft->plan.id_count += open->stop_ids_count;
    open->bias_first = draft->plan.bias_count;
    memcpy(draft->bias + draft->plan.bias_count, job->bias, open->bias_count * sizeof *draft->bias);
    draft->plan.bias_count += open->bias_count;
}

static void job_close(struct engine_client *talk, struct draft *draft,
                      struct engine_client_job *job)
{
    draft->closes[draft->plan.close_count++] = job->slot;
    job->live = false;
    for (uint32_t group = 0; group < talk->model.group_count; group++) {
        for (uint32_t i = job->borrowed; i < job->block_count[group]; i++)
            talk->free_block[group][job->blocks[group][i]] = true;
    }
}

static void row_ids(struct draft *draft, const struct engine_client_job *job, struct gpu_row *row)
{
    uint32_t count = row->q_len;
    row->ids = draft->plan.id_count;
    if (job->score && row->position < job->prompt_len - 1) {
        row->want |= GPU_SCORE;
        uint32_t last = job->prompt_len - 1; /* the last token has no target */
        row->score_count = row->position + row->q_len <= last ? row->q_len : last - row->position;
        count += row->score_count == row->q_len;
    }
    memcpy(draft->ids + row->ids, job->tokens + row->position, count * sizeof *draft->ids);
    draft->plan.id_count += count;
    if (job->next_count == 0 || row->position + row->q_len < job->prompt_len)
        return;
    row->want |= GPU_SCORE;
    row->score_from = row->q_len - 1;
    row->score_count = job->next_count;
    memcpy(draft->ids + draft->plan.id_count, job->next, job->next_count * sizeof *job->next);
    draft->plan.id_count += job->next_count;
}

/* Guesses behind the last token of a row that decodes; how many. */
static uint32_t guess(const struct engine_client *talk, struct engine_client_job *job)
{
    uint32_t left = job->generate - job->sampled - 1; /* behind the token that is sampled anyhow */
    uint32_t count = talk->drafts < left ? talk->drafts : left;
    memcpy(job->tokens + job->prompt_len + job->sampled, job->guesses + job->sampled,
           count * sizeof *job->tokens);
    return count;
}

static int row_add(struct engine_client *talk, struct draft *draft, struct engine_client_job *job)
{
    uint32_t known = job->prompt_len + job->sampled; /* tokens that exist */
    uint32_t left = known - job->planned;
    bool decoding = left == 1 && !job->fresh;
    uint32_t q_len = talk->chunk && left > talk->chunk ? talk->chunk : left;
    uint32_t budget = talk->limits.tokens_max - draft->plan.token_count;
    if (q_len > budget)
        q_len = budget;
    if (!q_len)
        return 0;
    bool guesses = decoding && talk->drafts && job->guesses;
    uint32_t drafts = guesses ? guess(talk, job) : 0;
    drafts = drafts < budget ? drafts : budget - 1;
    q_len += drafts;
    uint32_t end = job->planned + q_len;
    int status = blocks_ensure(talk, draft, job, end);
    if (status)
        return status;
    draft->job[draft->plan.row_count] = job;
    struct gpu_row *row = &draft->rows[draft->plan.row_count++];
    *row = (struct gpu_row){.slot = job->slot, .position = job->planned, .q_len = q_len};
    row->input = decoding && !guesses ? GPU_LAST : GPU_IDS;
    row->drafts = drafts;
    if (job->embed & GPU_POOL_OUT)
        row->want |= GPU_POOL_ADD;
    if (end == known + drafts && job->generate)
        row->want |= GPU_SAMPLE | GPU_LOGPROBS;
    if (end == known && job->embed)
        row->want |= job->embed;
    if (row->input == GPU_IDS)
        row_ids(draft, job, row);
    job->planned = end;
    draft->plan.token_count += q_len;
    return 0;
}

static int draft_make(struct engine_client *talk, struct draft *draft,
                      struct engine_client_job *jobs, uint32_t count)
{
    draft->plan = (struct gpu_plan){
        .step = talk->step + 1,
        .closes = draft->closes,
        .slabs = draft->slabs,
        .opens = draft->opens,
        .appends = draft->appends,
        .rows = draft->rows,
        .ids = draft->ids,
        .bias = draft->bias,
    };
    uint32_t live = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool preempted = jobs[i].live && talk->preempt && !below(talk, talk->preempt);
        if (jobs[i].live && (jobs[i].done || preempted))
            job_close(talk, draft, &jobs[i]);
        live += jobs[i].live;
    }
    uint32_t most = talk->together ? talk->together : talk->limits.slots_max;
    for (uint32_t i = 0; i < count && live < most; i++) {
        if (jobs[i].live || jobs[i].done)
            continue;
        job_open(talk, draft, &jobs[i], jobs, count);
        live++;
    }
    for (uint32_t i = 0; i < count; i++) {
        int status = jobs[i].live ? row_add(talk, draft, &jobs[i]) : 0;
        if (status)
            return status;
    }
    return 0;
}

static uint64_t completed(const struct engine_client *talk)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t rank = 0; rank < talk->ranks; rank++) {
        uint64_t step = gpu_module.completed(talk->engine, rank);
        least = step < least ? step : least;
    }
    return least;
}

static int step_run(struct engine_client *talk, const struct draft *draft)
{
    int status = 0;
    for (uint32_t rank = 0; !status && rank < talk->ranks; rank++)
        status = gpu_module.submit(talk->engine, rank, &draft->plan, &talk->error);
    if (status)
        return status;
    talk->step++;
    while (completed(talk) < talk->step) {
        if (talk->stepping) {
            if (!rig_step() && completed(talk) < talk->step)
                return -ERR_TIMEOUT;
            continue;
        }
        struct pollfd wait = {.fd = talk->wake_fd, .events = POLLIN};
        if (poll(&wait, 1, 60000) <= 0)
            return -ERR_TIMEOUT;
        uint64_t events;
        (void)!read(talk->wake_fd, &events, sizeof events);
    }
    return 0;
}

/* One, and behind each guess that it confirms another. */
static void samples_take(struct engine_client_job *job, const struct gpu_results *results,
                         uint32_t first, uint32_t drafts)
{
    for (uint32_t i = 0; i <= drafts && !job->done; i++) {
        const struct gpu_sample *sample = &results->samples[first + i];
        uint32_t known = job->prompt_len + job->sampled;
        bool stands = i < drafts && job->tokens[known] == sample->token;
        job->samples[job->sampled] = *sample;
        if (results->tops)
            memcpy(job->tops[job->sampled], results->tops + (first + i) * GPU_LOGPROBS_MAX,
                   sizeof job->tops[0]);
        job->tokens[known] = sample->token;
        job->sampled++;
        job->done = sample->finished || job->sampled == job->generate;
        if (!stands)
            break;
    }
    job->fresh = false;
    if (drafts)
        job->planned = job->prompt_len + job->sampled - 1; /* guesses that fell are written anew */
}

static void results_take(struct engine_client *talk, const struct draft *draft)
{
    struct gpu_results results;
    gpu_module.results(talk->engine, talk->step, &results);
    uint32_t sample = 0, score = 0, embed = 0;
    for (uint32_t i = 0; i < draft->plan.row_count; i++) {
        const struct gpu_row *row = &draft->rows[i];
        struct engine_client_job *job = draft->job[i];
        for (uint32_t j = 0; j < row->score_count; j++)
            job->scores[job->next_count > 0 ? j : row->position + j] = results.scores[score++];
        if (row->want & (GPU_POOL_OUT | GPU_EMBED_LAST)) {
            memcpy(job->embedding, results.embeddings + (size_t)embed++ * talk->model.hidden,
                   talk->model.hidden * sizeof(float));
        }
        if (row->want & GPU_SAMPLE) {
            samples_take(job, &results, sample, row->drafts);
            sample += 1 + row->drafts;
        } else {
            job->done = job->planned == job->prompt_len + job->sampled;
        }
    }
}

int engine_client_run(struct engine_client *talk, struct engine_client_job *jobs, uint32_t count)
{
    static struct draft draft;
    talk->is_cached = false;
    for (uint32_t i = 0; i < count; i++) {
        jobs[i].live = jobs[i].done = false;
        jobs[i].sampled = 0;
        memcpy(jobs[i].tokens, jobs[i].prompt, jobs[i].prompt_len * sizeof *jobs[i].tokens);
    }
    for (;;) {
        bool left = false;
        int status = draft_make(talk, &draft, jobs, count);
        if (!status)
            status = step_run(talk, &draft);
        if (status)
            return status;
        results_take(talk, &draft);
        cache_keep(talk, &jobs[0]);
        for (uint32_t i = 0; i < count; i++)
            left = left || jobs[i].live || !jobs[i].done;
        if (!left)
            return 0;
    }
}
