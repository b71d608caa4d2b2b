/* Every sampled row is read once by several blocks: for the mass, and for the token that is taken
 * of those that the mask allows, the greatest or, with a temperature, the greatest with its noise.
 * A row whose mask is not known yet is kept by the same read. Then a block per row puts the parts
 * together, and the last of them ends the step; what else a row asks for costs further reads, from
 * the cache: penalties and bias 4, 4 per cut, 1 per likeliest token. (One block per row for all of
 * it takes ten times as long: tests/bench/EXPERIMENTS.md.) */
#include "gpu/kernels/common/clock.cuh"
#include "gpu/kernels/common/random.cuh"
#include "gpu/kernels/sampling/count.h"
#include "gpu/kernels/sampling/sample.h"
#include "gpu/kernels/sampling/top_k_top_p.cuh"
#include "gpu/kernels/sampling/tops.cuh"

struct sample_shared {
    best bests[CUT_WARPS];
    struct cut_scratch cut;
};

__device__ static bool is_end(const struct sample_args &a, const struct batch_slot &slot,
                              int32_t token)
{
#pragma unroll 1
    for (uint32_t i = 0; i < a.eos_count; i++)
        if (a.eos[i] == token)
            return true;
#pragma unroll 1
    for (uint32_t i = 0; i < slot.stop_count; i++)
        if (slot.stop_ids[i] == token)
            return true;
    return false;
}

#define PART_THREADS 256
#define PART_WORDS 4                         /* 16-byte loads of a thread */
#define PART (PART_THREADS * PART_WORDS * 4) /* values of a row that a block reads */

struct part {    /* of a row */
    float most;  /* its greatest value */
    float sum;   /* of exp(x - most) */
    float score; /* the greatest that may be taken, and whose it is */
    uint32_t id;
};

/* Four values at `i`, -infinity where there are none or NaN. WHOLE: rows are so many fours. */
template <bool WHOLE>
__device__ __forceinline__ float4 four_at(const float *logits, uint32_t i, uint32_t end)
{
    float4 out = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    if (WHOLE) {
        if (i < end)
            out = *reinterpret_cast<const float4 *>(logits + i);
    } else {
        for (uint32_t j = 0; j < 4 && i + j < end; j++)
            (&out.x)[j] = logits[i + j];
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        (&out.x)[j] = isnan((&out.x)[j]) ? -INFINITY : (&out.x)[j];
    return out;
}

/* With masks every row up to the bound exists. */
__device__ __forceinline__ float *logits_of(const struct sample_args &a, uint32_t number)
{
    uint32_t place = a.masks ? a.batch.rows[a.batch.sample_row[number]].slot : number;
    return a.logits + (size_t)place * a.stride;
}

/* The token that is sampled. */
__device__ __forceinline__ uint32_t position_of(const struct sample_args &a, uint32_t number,
                                                const struct batch_row &row)
{
    if (!row.drafts) /* none in a sampling by masks, whose batch has no tokens */
        return row.position + row.q_len + a.ahead;
    return row.position + (a.batch.sample_token[number] - row.token) + 1;
}

/* What tokens of a part are taken by: which of them, with which noise. */
struct choice {
    const uint32_t *mask; /* null: all */
    uint64_t seed;
    uint32_t position;
    float temperature; /* 0: without noise */
};

__device__ __forceinline__ struct choice choice_of(const struct sample_args &a, uint32_t number,
                                                   const struct batch_row &row,
                                                   const struct batch_slot &slot)
{
    return {a.masks ? a.masks + (size_t)number * a.mask_words : nullptr, slot.seed,
            position_of(a, number, row), slot.sampler.temperature};
}

/* With the four values from `i` on, of which a word of the mask has all. */
__device__ __forceinline__ best take_four(best top, const struct choice &choice, float4 four,
                                          uint32_t i)
{
    uint32_t allowed = choice.mask ? choice.mask[i / 32] >> i % 32 : ~0u;
    uint4 words = {};
    if (choice.temperature > 0)
        words = random_words(choice.seed, choice.position, i / 4);
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        float score = (&four.x)[j];
        if (!(allowed >> j & 1) || score == -INFINITY)
            continue;
        if (choice.temperature > 0) {
            score /= choice.temperature;
            if (isnan(score) || score + RANDOM_NOISE_MAX <= top.value)
                continue;
            score += random_noise((&words.x)[j]);
        }
        if (score > top.value)
            top = {score, i + j};
    }
    return top;
}

/* For who will know the row's mask. */
template <bool WHOLE>
__device__ __forceinline__ void keep_four(float *kept, float4 four, uint32_t i, uint32_t end)
{
    if (WHOLE) {
        if (i < end)
            *reinterpret_cast<float4 *>(kept + i) = four;
    } else {
        for (uint32_t j = 0; j < 4 && i + j < end; j++)
            kept[i + j] = (&four.x)[j];
    }
}

/* The kernel behind may start when this one has waited: it then reads what was there before the
 * logits without a wait of its own. Rows up to the bound can be read: no wait for the count. */
template <bool WHOLE>
__global__ void __launch_bounds__(PART_THREADS)
    part_kernel(struct sample_args a, struct part *parts)
{
    __shared__ best bests[PART_THREADS / WARP];
    __shared__ float sums[PART_THREADS / WARP];
    grid_wait();
    grid_trigger();
    uint32_t number = blockIdx.y, begin = blockIdx.x * PART;
    const float *logits = logits_of(a, number);
    uint32_t end = a.vocab - begin < PART ? a.vocab : begin + PART;
    float4 four[PART_WORDS];
#pragma unroll
    for (int w = 0; w < PART_WORDS; w++)
        four[w] = four_at<WHOLE>(logits, begin + (w * PART_THREADS + threadIdx.x) * 4, end);
    if (number >= a.batch.counts->samples)
        return;
    const struct batch_row &row = a.batch.rows[a.batch.sample_row[number]];
    const struct batch_slot &slot = a.batch.slots[row.slot];
    if (row.want & GPU_KEEP) {
#pragma unroll
        for (int w = 0; w < PART_WORDS; w++)
            keep_four<WHOLE>(static_cast<float *>(slot.kept), four[w],
                             begin + (w * PART_THREADS + threadIdx.x) * 4, end);
        return;
    }
    const struct choice choice = choice_of(a, number, row, slot);
    best top = best_none(), taken = best_none();
#pragma unroll
    for (int w = 0; w < PART_WORDS; w++) {
        uint32_t i = begin + (w * PART_THREADS + threadIdx.x) * 4;
#pragma unroll
        for (int j = 0; j < 4; j++)
            if ((&four[w].x)[j] > top.value)
                top = {(&four[w].x)[j], i + j};
        if (i < end && (choice.mask || choice.temperature > 0))
            taken = take_four(taken, choice, four[w], i);
    }
    top = block_best(top, bests);
    float sum = 0;
    if (top.value > -INFINITY)
#pragma unroll
        for (int w = 0; w < PART_WORDS; w++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum += expf((&four[w].x)[j] - top.value);
    sum = block_sum(sum, sums);
    taken = choice.mask || choice.temperature > 0 ? block_best(taken, bests) : top;
    if (threadIdx.x == 0)
        parts[(size_t)number * gridDim.x + blockIdx.x] = {top.value, sum, taken.value, taken.id};
}

static uint32_t part_count(uint32_t vocab)
{
    return ceil_div(vocab, PART);
}

/* Whole warps, each for itself. What is taken; of the mass the logarithm. */
__device__ static best read_parts(const struct part *parts, uint32_t count, float *ret_log)
{
    best taken = best_none();
    float most = -INFINITY, sum = 0;
    for (uint32_t i = threadIdx.x % WARP; i < count; i += WARP) {
        taken = best_of(taken, {parts[i].score, parts[i].id});
        most = fmaxf(most, parts[i].most);
    }
    taken = warp_best(taken);
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        most = fmaxf(most, __shfl_xor_sync(FULL_MASK, most, offset));
    for (uint32_t i = threadIdx.x % WARP; i < count && most > -INFINITY; i += WARP)
        sum += parts[i].sum * expf(parts[i].most - most);
    *ret_log = most + logf(warp_sum(sum));
    if (taken.id == UINT32_MAX)
        taken.id = 0;
    return taken;
}

/* Whole block; who goes on has all of it. */
__device__ static void allow(const struct sample_args &a, uint32_t number, float *logits)
{
    const uint32_t *mask = a.masks + (size_t)number * a.mask_words;
    for (uint32_t i = threadIdx.x; i < a.vocab; i += CUT_THREADS)
        if (!(mask[i / 32] >> i % 32 & 1))
            logits[i] = -INFINITY;
    __syncthreads();
}

/* Guesses that stand before a sampled token, as inputs of its row. */
struct draft_list {
    const int32_t *ids;
    uint32_t count;
};

/* What was seen of a token, those included. */
__device__ static uint32_t seen_with(const struct draft_list &drafts, uint16_t seen, uint32_t token)
{
    uint32_t count = seen & COUNT_MAX;
#pragma unroll 1
    for (uint32_t i = 0; i < drafts.count && count < COUNT_MAX; i++)
        count += (uint32_t)drafts.ids[i] == token;
    return (seen & COUNT_PROMPT) | count;
}

/* Penalties, then bias, then end tokens masked, in place. */
__device__ static void adjust(const struct sample_args &a, const struct batch_slot &slot,
                              uint32_t slot_index, uint32_t position,
                              const struct draft_list &drafts, float *logits)
{
    bool masked = position < slot.eos_from;
    if (!(slot.flags & GPU_SLOT_PENALTIES) && !slot.bias_count && !masked)
        return;
    if (slot.flags & GPU_SLOT_PENALTIES) {
        const uint16_t *seen = a.batch.seen + (size_t)slot_index * a.vocab;
        for (uint32_t i = threadIdx.x; i < a.vocab; i += CUT_THREADS) {
            uint32_t entry = seen_with(drafts, seen[i], i);
            if (!entry)
                continue;
            float score = logits[i], count = (float)(entry & COUNT_MAX);
            score = score > 0 ? score / slot.sampler.repetition_penalty
                              : score * slot.sampler.repetition_penalty;
            if (count > 0)
                score =
                    score - slot.sampler.presence_penalty - slot.sampler.frequency_penalty * count;
            logits[i] = score;
        }
    }
    __syncthreads();
    const struct gpu_bias *bias = a.batch.bias + (size_t)slot_index * GPU_BIAS_MAX;
    for (uint32_t i = threadIdx.x; i < slot.bias_count; i += CUT_THREADS)
        if ((uint32_t)bias[i].token < a.vocab)
            atomicAdd(&logits[bias[i].token], bias[i].value);
    __syncthreads();
    if (masked) {
        for (uint32_t i = threadIdx.x; i < a.eos_count; i += CUT_THREADS)
            if ((uint32_t)a.eos[i] < a.vocab)
                logits[a.eos[i]] = -INFINITY;
        for (uint32_t i = threadIdx.x; i < slot.stop_count; i += CUT_THREADS)
            if ((uint32_t)slot.stop_ids[i] < a.vocab)
                logits[slot.stop_ids[i]] = -INFINITY;
        __syncthreads();
    }
}

__device__ static best greatest_of(const float *scores, uint32_t vocab,
                                   struct sample_shared *shared)
{
    best top = best_none();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < vocab; i += CUT_THREADS)
        if (!isnan(scores[i]) && scores[i] > -INFINITY)
            top = best_of(top, {scores[i], i});
    top = block_best(top, shared->bests);
    if (top.id == UINT32_MAX)
        top.id = 0;
    return top;
}

__device__ static uint32_t draw(const struct batch_slot &slot, uint32_t position, float *scores,
                                uint32_t vocab, struct sample_shared *shared)
{
    for (uint32_t i = threadIdx.x; i < vocab; i += CUT_THREADS) {
        float score = scores[i] / slot.sampler.temperature;
        scores[i] = isnan(score) ? -INFINITY : score;
    }
    __syncthreads();
    best top = greatest_of(scores, vocab, shared);
    cut kept = {0, vocab - 1};
    if (slot.sampler.top_k > 0 && (uint32_t)slot.sampler.top_k < vocab)
        kept = cut_at(scores, vocab, kept, false, top.value, (uint32_t)slot.sampler.top_k,
                      &shared->cut);
    if (slot.sampler.top_p < 1.0f) {
        double weight = (double)cut_mass(scores, vocab, kept, top.value, &shared->cut) *
                        (double)slot.sampler.top_p;
        unsigned long long target = (unsigned long long)weight;
        target += (double)target < weight;
        kept = cut_at(scores, vocab, kept, true, top.value, target ? target : 1, &shared->cut);
    }
    float least = slot.sampler.min_p > 0 ? logf(slot.sampler.min_p) : -INFINITY;
    best drawn = best_none();
    for (uint32_t i = threadIdx.x; i < vocab; i += CUT_THREADS) {
        float score = scores[i];
        if (!cut_keeps(kept, key_of(score), i) || !(score - top.value >= least) ||
            score + RANDOM_NOISE_MAX <= drawn.value || score == -INFINITY)
            continue;
        float noise = random_noise(random_word(slot.seed, position, i / 4, i % 4));
        drawn = best_of(drawn, {score + noise, i});
    }
    drawn = block_best(drawn, shared->bests);
    return drawn.id == UINT32_MAX ? top.id : drawn.id;
}

/* Where a step's results go, and what is asked of a row: there before the logits are. */
struct sample_row {
    struct batch_row row;
    struct batch_slot *slot;
    struct gpu_sample *sample;
    struct gpu_top *tops;
    uint32_t logprobs, eos_from;
    bool changes;      /* penalties, bias or a cut: its parts do not say which token is taken */
    bool is_drawn;     /* by noise */
    uint32_t position; /* of the sampled token */
    struct draft_list drafts;
};

__device__ static struct sample_row row_of(const struct sample_args &a, uint32_t number,
                                           const struct step_control &control)
{
    struct sample_row of;
    of.row = a.batch.rows[a.batch.sample_row[number]];
    of.slot = &a.batch.slots[of.row.slot];
    of.logprobs = min(of.slot->logprobs, GPU_LOGPROBS_MAX);
    of.eos_from = of.slot->eos_from;
    const auto &sampler = of.slot->sampler;
    of.is_drawn = sampler.temperature > 0;
    of.changes = (of.slot->flags & GPU_SLOT_PENALTIES) || of.slot->bias_count ||
                 (of.is_drawn && (sampler.top_k > 0 || sampler.top_p < 1 || sampler.min_p > 0));
    of.position = position_of(a, number, of.row);
    of.drafts = {nullptr, 0};
    if (of.row.drafts) {
        uint32_t token = of.position - of.row.position - 1;
        uint32_t certain = of.row.q_len - of.row.drafts;
        of.drafts = {a.batch.token_id + of.row.token + certain, token + 1 - certain};
    }
    char *result = static_cast<char *>(control.result);
    of.sample = a.samples + number;
    of.tops = a.tops + (size_t)number * GPU_LOGPROBS_MAX;
    if (result)
        of.sample = reinterpret_cast<struct gpu_sample *>(result + control.result_samples) + number;
    if (result && control.result_tops)
        of.tops = reinterpret_cast<struct gpu_top *>(result + control.result_tops) +
                  (size_t)number * GPU_LOGPROBS_MAX;
    return of;
}

/* Of a row whose logits change before one is taken: its token. It is kept apart, so that the code
 * that every row takes is short, and in one piece. */
__device__ __noinline__ static uint32_t choose(const struct sample_args &a, struct sample_row of,
                                               uint32_t number, float *logits, float *raw,
                                               struct sample_shared *shared)
{
    /* What follows changes the row: the raw logit of whichever token is chosen is kept here. */
    for (uint32_t i = threadIdx.x; i < a.vocab; i += CUT_THREADS)
        raw[i] = logits[i];
    __syncthreads();
    if (a.masks)
        allow(a, number, logits);
    adjust(a, *of.slot, of.row.slot, of.position, of.drafts, logits);
    if (of.is_drawn)
        return draw(*of.slot, of.position, logits, a.vocab, shared);
    return greatest_of(logits, a.vocab, shared).id;
}

__device__ static void sample_one(const struct sample_args &a, const struct sample_row &of,
                                  uint32_t number, const struct part *parts, uint32_t part_count,
                                  struct sample_shared *shared)
{
    float *logits = logits_of(a, number), whole;
    best taken = read_parts(parts + (size_t)number * part_count, part_count, &whole);
    uint32_t token = taken.id, tops = 0;
    float logit = of.is_drawn || a.masks ? logits[token] : taken.value;
    bool finished = is_end(a, *of.slot, (int32_t)token);
    if (of.logprobs)
        tops = write_tops<CUT_THREADS>(logits, a.vocab, of.logprobs, whole, of.tops, shared->bests);
    if (of.changes || (finished && of.position < of.eos_from)) {
        float *raw = static_cast<float *>(a.scratch) + (size_t)number * a.vocab;
        token = choose(a, of, number, logits, raw, shared);
        logit = raw[token];
        finished = is_end(a, *of.slot, (int32_t)token);
    }
    if (threadIdx.x == 0) {
        *of.sample = {(int32_t)token, finished, logit - whole, tops};
        if (of.row.drafts)
            return;
        of.slot->last = (int32_t)token;
        of.slot->finished = finished;
    }
}

/* Whole block, at its end. The last block to come ends the step: see step_end.cu. */
__device__ static void publish(const struct sample_args &a, const struct step_control &control)
{
    __shared__ bool last;
    if (threadIdx.x == 0) {
        last = true;
        if (gridDim.x > 1) {
            __threadfence();
            last = atomicInc(a.batch.next_item, gridDim.x - 1) == gridDim.x - 1;
            __threadfence();
        }
    }
    __syncthreads();
    if (!last)
        return;
    for (uint32_t i = threadIdx.x; control.tokens_out && i < a.slots_max; i += CUT_THREADS)
        control.tokens_out[i] = __ldcg(&a.batch.slots[i].last);
    if (control.tokens_out)
        __syncthreads();
    if (threadIdx.x == 0) {
        struct result_head head = {control.step, control.start_ns, clock_now_ns(), 0};
        *static_cast<struct result_head *>(control.result) = head;
    }
}

__global__ void __launch_bounds__(CUT_THREADS)
    sample_kernel(const __grid_constant__ struct sample_args a, const struct part *parts,
                  uint32_t part_count)
{
    __shared__ struct sample_shared shared;
    grid_trigger();
    uint32_t number = blockIdx.x;
    bool exists = number < a.batch.counts->samples;
    struct step_control control = {};
    struct sample_row of = {};
    if (a.control)
        control = *a.control;
    prefetch_l2(parts + (size_t)number * part_count);
    if (exists)
        of = row_of(a, number, control);
    grid_wait();
    if (exists && (of.row.want & GPU_KEEP)) { /* no token yet: who knows its mask samples it */
        if (threadIdx.x == 0)
            *of.sample = {-1, 0, 0, 0};
    } else if (exists)
        sample_one(a, of, number, parts, part_count, &shared);
    if (a.control)
        publish(a, control);
}

/* Rows as they were, then the parts. */
static size_t raw_bytes(uint32_t samples_max, uint32_t vocab)
{
    return ((size_t)samples_max * vocab * sizeof(float) + 255) / 256 * 256;
}

size_t sample_scratch_bytes(uint32_t samples_max, uint32_t vocab)
{
    return raw_bytes(samples_max, vocab) +
           (size_t)samples_max * part_count(vocab) * sizeof(struct part);
}

cudaError_t op_sample(const struct sample_args *args, cudaStream_t stream)
{
    uint32_t samples = args->batch.samples_max, count = part_count(args->vocab);
    if (args->scratch_bytes < sample_scratch_bytes(samples, args->vocab))
        return cudaErrorInvalidValue;
    struct part *parts = reinterpret_cast<struct part *>(static_cast<char *>(args->scratch) +
                                                         raw_bytes(samples, args->vocab));
    bool whole = (args->stride | args->vocab) % 4 == 0 &&
                 reinterpret_cast<uintptr_t>(args->logits) % 16 == 0;
    cudaError_t result = launch(whole ? part_kernel<true> : part_kernel<false>,
                                dim3(count, samples), PART_THREADS, 0, stream, *args, parts);
    if (result != cudaSuccess)
        return result;
    return launch(sample_kernel, dim3(samples), CUT_THREADS, 0, stream, *args,
                  (const struct part *)parts, count);
}
