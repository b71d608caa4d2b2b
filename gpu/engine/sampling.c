#include "gpu/engine/sampling.h"

#include <assert.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/engine/engine.h"
#include "gpu/kernels/sampling/sample.h"
#include "gpu/kernels/step/null.h"

/* A place of results: head, samples, the likeliest. */
#define RESULT_SAMPLES sizeof(struct result_head)
#define RESULT_TOPS (RESULT_SAMPLES + GPU_SAMPLING_ROWS_MAX * sizeof(struct gpu_sample))

static size_t result_bytes(uint32_t rows)
{
    return RESULT_TOPS + (size_t)rows * sizeof(struct gpu_top) * GPU_LOGPROBS_MAX;
}

static size_t mask_bytes(const struct rank *rank, uint32_t rows)
{
    return sizeof(struct sampling_head) +
           (size_t)rows * rank->samplings.mask_words * sizeof(uint32_t);
}

static uint64_t scratch_bytes(const struct rank *rank)
{
    const struct engine_config *facts = &rank->engine->facts;
    if (!op_list_computes(&facts->source.list))
        return 0;
    return sample_scratch_bytes(facts->limits.sampling_rows_max, facts->model.vocab);
}

int sampling_ring_open(struct rank *rank, struct error *error)
{
    const struct engine_config *facts = &rank->engine->facts;
    struct sampling_ring *ring = &rank->samplings;
    *ring = (struct sampling_ring){.mask_words = (facts->model.vocab + 31) / 32};
    size_t masks = mem_round(mask_bytes(rank, facts->limits.sampling_rows_max));
    size_t place = masks + mem_round(result_bytes(facts->limits.sampling_rows_max));
    void *pinned = NULL, *device = NULL;
    ring->bytes = place * GPU_SAMPLINGS_MAX;
    int status = mem_pinned(&rank->mem, ring->bytes, &pinned, error);
    if (!status)
        status = mem_fixed(&rank->mem, ring->bytes, &device, error);
    for (uint32_t i = 0; !status && i < GPU_SAMPLINGS_MAX; i++) {
        char *host = (char *)pinned + i * place, *gpu = (char *)device + i * place;
        ring->places[i] = (struct sampling_place){.masks_pinned = host,
                                                  .masks = gpu,
                                                  .result_pinned = host + masks,
                                                  .result = gpu + masks};
    }
    return status;
}

void kept_measure(struct rank *rank)
{
    const struct engine_config *facts = &rank->engine->facts;
    struct state *state = &rank->state;
    bool computes = op_list_computes(&facts->source.list);
    state->kept_slot = computes ? facts->model.vocab * sizeof(float) : sizeof(uint64_t);
    state->kept_bytes =
        mem_round(facts->limits.slots_max * state->kept_slot) + mem_round(scratch_bytes(rank));
}

static void rows_check(const struct rank *rank, const struct gpu_sampling *sampling)
{
    const struct gpu_limits *limits = &rank->engine->facts.limits;
    assert(sampling->number == rank->samplings.submitted + 1);
    assert(sampling->number - streams_sampled(&rank->lane) <= limits->samplings_max);
    assert(sampling->count > 0 && sampling->count <= limits->sampling_rows_max);
    for (uint32_t i = 0; i < sampling->count; i++) {
        const struct gpu_masked *row = &sampling->rows[i];
        assert(row->slot < limits->slots_max);
        struct rank_slot *slot = &rank->slots[row->slot];
        assert(slot->open && slot->kept && slot->sampled == row->position);
        slot->kept = false; /* two rows of one slot are wrong as well */
    }
}

/* What the sampler sees: the batch of these rows alone. */
static void place_write(const struct rank *rank, const struct gpu_sampling *sampling,
                        struct sampling_place *place)
{
    struct sampling_head *head = place->masks_pinned;
    char *masks = (char *)place->masks_pinned + sizeof *head;
    size_t mask = rank->samplings.mask_words * sizeof(uint32_t);
    place->number = sampling->number;
    place->count = sampling->count;
    place->tops = false;
    head->counts = (struct batch_counts){.rows = sampling->count, .samples = sampling->count};
    head->control = (struct step_control){.step = sampling->number,
                                          .result = place->result,
                                          .result_samples = RESULT_SAMPLES,
                                          .result_tops = RESULT_TOPS};
    for (uint32_t i = 0; i < sampling->count; i++) {
        const struct gpu_masked *row = &sampling->rows[i];
        head->rows[i] =
            (struct batch_row){.slot = row->slot, .position = row->position - 1, .q_len = 1};
        head->sample_row[i] = i;
        memcpy(masks + i * mask, row->mask, mask);
        place->tops |= rank->slots[row->slot].logprobs > 0;
    }
}

static struct batch batch_of(const struct rank *rank, const struct sampling_place *place)
{
    const struct sampling_head *head = place->masks; /* device */
    struct batch batch = rank->state.batch;
    batch.counts = &head->counts;
    batch.rows = head->rows;
    batch.sample_row = head->sample_row;
    batch.rows_max = batch.samples_max = place->count;
    batch.tokens_max = batch.scores_max = batch.embeds_max = batch.moves_max = 0;
    return batch;
}

static int sampler_run(const struct rank *rank, const struct sampling_place *place,
                       struct error *error)
{
    const struct engine_config *facts = &rank->engine->facts;
    const struct sampling_head *head = place->masks; /* device */
    const uint32_t *masks = (const uint32_t *)((const char *)place->masks + sizeof *head);
    uint64_t kept = mem_round(facts->limits.slots_max * rank->state.kept_slot);
    if (!op_list_computes(&facts->source.list)) {
        struct null_masked_args null = {.batch = batch_of(rank, place),
                                        .control = &head->control,
                                        .masks = masks,
                                        .mask_words = rank->samplings.mask_words};
        CUDA_TRY(op_null_masked(&null, rank->lane.compute), error);
        return 0;
    }
    struct sample_args args = {.batch = batch_of(rank, place),
                               .logits = (float *)rank->state.kept,
                               .stride = facts->model.vocab,
                               .vocab = facts->model.vocab,
                               .eos_count = rank->program.eos_count,
                               .samples = rank->state.samples,
                               .tops = rank->state.tops,
                               .control = &head->control,
                               .slots_max = facts->limits.slots_max,
                               .scratch = rank->state.kept + kept,
                               .scratch_bytes = scratch_bytes(rank),
                               .masks = masks,
                               .mask_words = rank->samplings.mask_words};
    for (uint32_t i = 0; i < args.eos_count; i++)
        args.eos[i] = rank->program.eos[i];
    CUDA_TRY(op_sample(&args, rank->lane.compute), error);
    return 0;
}

static int enqueue(struct rank *rank, struct sampling_place *place, struct error *error)
{
    size_t bytes = mask_bytes(rank, place->count), out = result_bytes(place->tops ? place->count : 0);
    if (!mem_is_pinned(&rank->mem, place->masks_pinned, bytes) ||
        !mem_is_pinned(&rank->mem, place->result_pinned, out))
        rank_count(&rank->counters.pageable_copies, true);
    int status = streams_masks_in(&rank->lane, place->masks, place->masks_pinned, bytes, error);
    if (!status)
        status = sampler_run(rank, place, error);
    if (!status)
        status = streams_samples_out(&rank->lane, place->number, place->result_pinned,
                                     place->result, out, error);
    return status;
}

int sampling_submit(struct rank *rank, const struct gpu_sampling *sampling, struct error *error)
{
    struct sampling_ring *ring = &rank->samplings;
    if (rank->dead)
        return error_set(error, ERR_DEVICE, "the device failed before");
    if (rank->program.has_next_stage)
        return 0;
    rows_check(rank, sampling);
    struct sampling_place *place = &ring->places[sampling->number % GPU_SAMPLINGS_MAX];
    place_write(rank, sampling, place);
    int status = enqueue(rank, place, error);
    if (status)
        return rank_lost(rank, error);
    ring->submitted = sampling->number;
    rank_count(&rank->counters.samplings, true);
    return 0;
}

void sampling_results(const struct rank *rank, uint64_t number, struct gpu_results *ret_results)
{
    const struct sampling_place *place = &rank->samplings.places[number % GPU_SAMPLINGS_MAX];
    const char *result = place->result_pinned;
    assert(place->number == number && streams_sampled(&rank->lane) >= number);
    *ret_results = (struct gpu_results){
        .step = number,
        .sample_count = place->count,
        .samples = (const struct gpu_sample *)(result + RESULT_SAMPLES),
        .tops = place->tops ? (const struct gpu_top *)(result + RESULT_TOPS) : NULL,
    };
}
