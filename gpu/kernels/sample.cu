/* Every sampled row is read once by several blocks, for the maximum and the mass beside it; that is
 * all that a greedy row needs, and it is bound by memory. Then a block per row puts the parts
 * together in their order; what else a row asks for costs further reads, from the cache: 4 per cut,
 * 1 per likeliest token. (One block per row for all of it: 353 us instead of 30 for 128 rows of
 * 128,256.) */
#include "gpu/kernels/count.h"
#include "gpu/kernels/cut.cuh"
#include "gpu/kernels/random.cuh"
#include "gpu/kernels/sample.h"

struct sample_shared {
    best bests[CUT_WARPS];
    struct cut_scratch cut;
};

__device__ static bool is_end(const struct sample_args &a, const struct batch_slot &slot,
                              int32_t token)
{
    for (uint32_t i = 0; i < a.eos_count; i++)
        if (a.eos[i] == token)
            return true;
    for (uint32_t i = 0; i < slot.stop_count; i++)
        if (slot.stop_ids[i] == token)
            return true;
    return false;
}

#define PART 16384 /* values of a row that a block reads */
#define PART_THREADS 256
#define PART_WORDS 4 /* 16-byte loads under way per thread */

struct part { /* of a row: its greatest value and the mass beside it */
    float value;
    uint32_t id;
    float top, sum;
};

/* Four values at `i`, -infinity where there are none or NaN. */
__device__ __forceinline__ float4 four_at(const float *logits, uint32_t i, uint32_t end, bool whole)
{
    float4 out = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    if (whole && i + 4 <= end)
        out = *reinterpret_cast<const float4 *>(logits + i);
    else
        for (uint32_t j = 0; j < 4 && i + j < end; j++)
            (&out.x)[j] = logits[i + j];
#pragma unroll
    for (int j = 0; j < 4; j++)
        (&out.x)[j] = isnan((&out.x)[j]) ? -INFINITY : (&out.x)[j];
    return out;
}

__global__ void __launch_bounds__(PART_THREADS)
    part_kernel(struct sample_args a, struct part *parts)
{
    __shared__ best bests[PART_THREADS / WARP];
    __shared__ mass masses[PART_THREADS / WARP];
    grid_trigger();
    grid_wait();
    uint32_t number = blockIdx.y, begin = blockIdx.x * PART;
    if (number >= a.batch.counts->samples)
        return;
    const float *logits = a.logits + (size_t)number * a.stride;
    uint32_t end = a.vocab - begin < PART ? a.vocab : begin + PART;
    bool whole = a.stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.logits) % 16 == 0;
    best top = best_none();
    mass sum = {-INFINITY, 0.0f};
    for (uint32_t base = begin; base < end; base += PART_THREADS * 4 * PART_WORDS) {
        float4 four[PART_WORDS];
        float most = sum.top;
#pragma unroll
        for (int w = 0; w < PART_WORDS; w++)
            four[w] = four_at(logits, base + (w * PART_THREADS + threadIdx.x) * 4, end, whole);
#pragma unroll
        for (int w = 0; w < PART_WORDS; w++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float value = (&four[w].x)[j];
                if (value > most) {
                    most = value;
                    top = {value, base + (w * PART_THREADS + threadIdx.x) * 4 + j};
                }
            }
        if (most == -INFINITY)
            continue;
        sum.sum *= expf(sum.top - most);
        sum.top = most;
#pragma unroll
        for (int w = 0; w < PART_WORDS; w++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum.sum += expf((&four[w].x)[j] - most);
    }
    sum = block_mass(sum, masses);
    top = block_best(top, bests);
    if (threadIdx.x == 0)
        parts[(size_t)number * gridDim.x + blockIdx.x] = {top.value, top.id, sum.top, sum.sum};
}

static uint32_t part_count(uint32_t vocab)
{
    return ceil_div(vocab, PART);
}

__device__ static best read_parts(const struct part *parts, uint32_t count, mass *ret_mass)
{
    best top = best_none();
    mass sum = {-INFINITY, 0.0f};
    for (uint32_t i = 0; i < count; i++) {
        struct part part = parts[i];
        top = best_of(top, {part.value, part.id});
        sum = mass_join(sum, {part.top, part.sum});
    }
    *ret_mass = sum;
    if (top.id == UINT32_MAX)
        top.id = 0;
    return top;
}

/* The n likeliest of the raw row, one read each: behind the one before in value, or in id. */
__device__ static uint32_t write_tops(const float *logits, uint32_t vocab, uint32_t wanted,
                                      float whole, struct gpu_top *tops,
                                      struct sample_shared *shared)
{
    best before = {INFINITY, 0};
    bool first = true;
    for (uint32_t n = 0; n < wanted; n++) {
        best next = best_none();
        for (uint32_t i = threadIdx.x; i < vocab; i += CUT_THREADS) {
            float value = logits[i];
            if (first || value < before.value || (value == before.value && i > before.id))
                if (!isnan(value))
                    next = best_of(next, {value, i});
        }
        next = block_best(next, shared->bests);
        if (next.id == UINT32_MAX)
            return n;
        if (threadIdx.x == 0) {
            tops[n].token = (int32_t)next.id;
            tops[n].logprob = next.value - whole;
        }
        before = next;
        first = false;
    }
    return wanted;
}

/* Penalties, then bias, then end tokens masked, in place. True if anything may have changed. */
__device__ static bool adjust(const struct sample_args &a, const struct batch_slot &slot,
                              uint32_t slot_index, uint32_t position, float *logits)
{
    bool masked = position < slot.eos_from;
    if (!(slot.flags & GPU_SLOT_PENALTIES) && !slot.bias_count && !masked)
        return false;
    if (slot.flags & GPU_SLOT_PENALTIES) {
        const uint16_t *seen = a.batch.seen + (size_t)slot_index * a.vocab;
        for (uint32_t i = threadIdx.x; i < a.vocab; i += CUT_THREADS) {
            if (!seen[i])
                continue;
            float score = logits[i], count = (float)(seen[i] & COUNT_MAX);
            score = score > 0 ? score / slot.repetition : score * slot.repetition;
            if (count > 0)
                score = score - slot.presence - slot.frequency * count;
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
    return true;
}

__device__ static best greatest_of(const float *scores, uint32_t vocab, struct sample_shared *shared)
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
        float score = scores[i] / slot.temperature;
        scores[i] = isnan(score) ? -INFINITY : score;
    }
    __syncthreads();
    best top = greatest_of(scores, vocab, shared);
    cut kept = {0, vocab - 1};
    if (slot.top_k > 0 && (uint32_t)slot.top_k < vocab)
        kept = cut_at(scores, vocab, kept, false, top.value, (uint32_t)slot.top_k, &shared->cut);
    if (slot.top_p < 1.0f) {
        double weight = (double)cut_mass(scores, vocab, kept, top.value, &shared->cut) *
                        (double)slot.top_p;
        unsigned long long target = (unsigned long long)weight;
        target += (double)target < weight;
        kept = cut_at(scores, vocab, kept, true, top.value, target ? target : 1, &shared->cut);
    }
    float least = slot.min_p > 0 ? logf(slot.min_p) : -INFINITY;
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

__global__ void __launch_bounds__(CUT_THREADS)
    sample_kernel(struct sample_args a, const struct part *parts, uint32_t part_count)
{
    __shared__ struct sample_shared shared;
    grid_trigger();
    grid_wait();
    uint32_t number = blockIdx.x;
    if (number >= a.batch.counts->samples)
        return;
    struct batch_row row = a.batch.rows[a.batch.sample_row[number]];
    struct batch_slot *slot = &a.batch.slots[row.slot];
    uint32_t position = row.position + row.q_len;
    float *logits = a.logits + (size_t)number * a.stride;

    mass raw_mass;
    best top = read_parts(parts + (size_t)number * part_count, part_count, &raw_mass);
    float whole = raw_mass.top + logf(raw_mass.sum);
    uint32_t wanted = slot->logprobs < GPU_LOGPROBS_MAX ? slot->logprobs : GPU_LOGPROBS_MAX;
    uint32_t tops = write_tops(logits, a.vocab, wanted, whole,
                               a.tops + (size_t)number * GPU_LOGPROBS_MAX, &shared);
    /* What follows changes the row: the raw logit of whichever token is chosen is kept here. */
    float *raw = static_cast<float *>(a.scratch) + (size_t)number * a.vocab;
    bool masked = position < slot->eos_from && is_end(a, *slot, (int32_t)top.id);
    bool changed =
        slot->temperature > 0 || (slot->flags & GPU_SLOT_PENALTIES) || slot->bias_count || masked;
    if (changed)
        for (uint32_t i = threadIdx.x; i < a.vocab; i += CUT_THREADS)
            raw[i] = logits[i];
    __syncthreads();
    uint32_t token = top.id;
    if (changed && adjust(a, *slot, row.slot, position, logits) && !(slot->temperature > 0))
        token = greatest_of(logits, a.vocab, &shared).id;
    if (slot->temperature > 0)
        token = draw(*slot, position, logits, a.vocab, &shared);
    if (threadIdx.x == 0) {
        bool finished = is_end(a, *slot, (int32_t)token);
        float logit = changed ? raw[token] : top.value;
        struct gpu_sample sample = {(int32_t)token, finished, logit - whole, tops};
        a.samples[number] = sample;
        slot->last = (int32_t)token;
        slot->finished = finished;
    }
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
    cudaError_t result =
        launch(part_kernel, dim3(count, samples), PART_THREADS, 0, stream, *args, parts);
    if (result != cudaSuccess)
        return result;
    return launch(sample_kernel, dim3(samples), CUT_THREADS, 0, stream, *args,
                  (const struct part *)parts, count);
}
