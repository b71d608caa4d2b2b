/* What constrained sequences may say, and the device's samplings by masks. The rule depends on the
 * sequence's seed and on what it has said alone, as a constraint's does. */
#include "tests/daemon/rig/fake_inner.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/seq_mask.h"

#define WORDS ((FAKE_VOCAB + 31) / 32)

/* ---- the rule ---------------------------------------------------------------------------------
 */

static void allow(uint32_t *bits, uint32_t token)
{
    bits[token / 32] |= 1u << token % 32;
}

static uint32_t ones(const uint32_t *bits)
{
    uint32_t count = 0;
    for (uint32_t token = 0; token < FAKE_VOCAB; token++)
        count += bits[token / 32] >> token % 32 & 1;
    return count;
}

static int32_t nth(const uint32_t *bits, uint32_t n)
{
    for (uint32_t token = 0; token < FAKE_VOCAB; token++)
        if ((bits[token / 32] >> token % 32 & 1) && n-- == 0)
            return (int32_t)token;
    return -1;
}

/* Behind what it has said, of which `said` is a hash. Returns how many tokens; 0: none, and *ret_ends
 * says whether it is whole. */
static uint32_t rule(uint64_t said, uint32_t *bits, bool *ret_ends)
{
    uint64_t state = said;
    uint32_t kind = fake_below(&state, 32);
    memset(bits, 0, WORDS * sizeof(*bits));
    *ret_ends = kind < 3 || kind == 4;
    if (kind == 1 || kind == 2)
        allow(bits, FAKE_EOS);
    if (kind >= 2 && kind != 4 && kind != 5 + 7 * (fake_below(&state, 8) == 0))
        allow(bits, 10 + fake_below(&state, FAKE_VOCAB - 10));
    if (kind >= 16) /* else one alone, as often */
        for (uint32_t i = 0; i < kind; i++)
            allow(bits, 10 + fake_below(&state, FAKE_VOCAB - 10));
    return ones(bits);
}

static uint64_t begin(const struct seq *seq)
{
    return fake_mix(0x5151, (int32_t)seq->sampling.seed);
}

uint32_t fake_allowed(const struct seq *seq, uint32_t count, uint32_t *bits, bool *ret_ends)
{
    uint64_t said = begin(seq);
    for (uint32_t i = 0; i < count; i++)
        said = fake_mix(said, seq->out_tokens[i]);
    return rule(said, bits, ret_ends);
}

int32_t fake_pick(uint64_t full, uint64_t window, const struct gpu_open *settings,
                  uint32_t position, const uint32_t *bits)
{
    uint32_t drawn =
        (uint32_t)fake_rule(full, window, settings, position, &(struct fake_knobs){.words = 0});
    return nth(bits, drawn % ones(bits));
}

/* ---- a sequence's mask, made by hand ------------------------------------------------------------
 */

static struct constraint_held *const some = (struct constraint_held *)(uintptr_t)&fake_api;

bool fake_is_constrained(const struct seq *seq)
{
    return seq->constraint != NULL;
}

void fake_constrain(struct seq *seq)
{
    seq->constraint = some; /* nobody looks into it here */
    seq->mask = calloc(1, sizeof(*seq->mask) + WORDS * sizeof(uint32_t));
    seq->mask->words = WORDS;
    seq->sampling.ignore_eos = false;
    seq->sampling.min_tokens = 0;
}

void fake_mask_make(struct seq *seq, bool fail)
{
    struct seq_mask *mask = seq->mask;
    uint32_t count = atomic_load(&seq->out_count);
    uint64_t said = begin(seq);
    mask->forced_count = 0;
    mask->forced_end = false;
    for (uint32_t i = 0; i < count; i++)
        said = fake_mix(said, seq->out_tokens[i]);
    mask->allowed = rule(said, mask->bits, &mask->ends);
    while (mask->forces && mask->allowed == 1 && !mask->forced_end &&
           mask->forced_count < SEQ_MASK_FORCED_MAX) {
        int32_t token = nth(mask->bits, 0);
        mask->forced[mask->forced_count++] = token;
        mask->forced_end = token == FAKE_EOS;
        said = fake_mix(said, token);
        mask->allowed = rule(said, mask->bits, &mask->ends);
    }
    if (fail)
        error_set(&mask->error, ERR_TOO_LARGE, "too many ways");
    atomic_store_explicit(&mask->state, fail ? SEQ_MASK_FAILED : SEQ_MASK_READY,
                          memory_order_release);
}

/* ---- the device -------------------------------------------------------------------------------
 */

void fake_check_kept(struct gpu_engine *engine, const struct gpu_plan *plan)
{
    for (uint32_t i = 0; i < plan->open_count; i++) {
        struct fake_told *told = &engine->told_kept[plan->opens[i].slot];
        *told = (struct fake_told){.masked = plan->opens[i].flags & GPU_SLOT_MASKED};
    }
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        struct fake_told *told = &engine->told_kept[row->slot];
        if (row->want & GPU_KEEP ? !told->masked || !(row->want & GPU_SAMPLE)
                                 : told->masked && (row->want & GPU_SAMPLE))
            fake_fail(engine, "row %u keeps logits and should not, or the other way", i);
        if (row->input == GPU_LAST && told->masked && (told->kept || engine->limits.stages > 1))
            fake_fail(engine, "row %u reads a token that was not sampled", i);
        told->kept = row->want & GPU_KEEP ? row->position + row->q_len : 0;
    }
}

static void check_rows(struct gpu_engine *engine, const struct gpu_sampling *sampling)
{
    if (sampling->number != engine->sampling_last + 1 ||
        engine->sampling_last - engine->sampling_done >= engine->limits.samplings_max)
        fake_fail(engine, "sampling %lu after %lu", (unsigned long)sampling->number,
                  (unsigned long)engine->sampling_last);
    if (sampling->count == 0 || sampling->count > engine->limits.sampling_rows_max)
        fake_fail(engine, "a sampling of %u rows", sampling->count);
    for (uint32_t i = 0; i < sampling->count; i++) {
        const struct gpu_masked *row = &sampling->rows[i];
        struct fake_told *told = &engine->told_kept[row->slot];
        if (!engine->open_told[row->slot] || told->kept != row->position || row->position == 0)
            fake_fail(engine, "slot %u has kept no logits for position %u", row->slot,
                      row->position);
        if (ones(row->mask) == 0)
            fake_fail(engine, "a mask that allows nothing");
        told->kept = 0; /* two rows of one slot are wrong as well */
    }
}

int fake_sample(struct gpu_engine *engine, uint32_t rank, const struct gpu_sampling *sampling,
                struct error *error)
{
    int rc = 0;
    (void)rank;
    pthread_mutex_lock(&engine->lock);
    if (engine->knobs.dead) {
        rc = error_set(error, ERR_DEVICE, "the device was lost");
    } else {
        check_rows(engine, sampling);
        struct fake_sampling *kept = &engine->samplings[sampling->number % GPU_SAMPLINGS_MAX];
        kept->after = engine->submitted;
        kept->count = sampling->count;
        for (uint32_t i = 0; i < sampling->count; i++) {
            kept->rows[i] = sampling->rows[i];
            memcpy(kept->masks[i], sampling->rows[i].mask, sizeof(kept->masks[i]));
        }
        engine->sampling_last++;
        engine->counts.samplings++;
        if (engine->knobs.at_once)
            fake_run_locked(engine);
    }
    pthread_mutex_unlock(&engine->lock);
    return rc;
}

uint64_t fake_sampled(const struct gpu_engine *engine, uint32_t rank)
{
    struct gpu_engine *writable = (struct gpu_engine *)engine;
    (void)rank;
    pthread_mutex_lock(&writable->lock);
    uint64_t done = engine->sampling_done;
    pthread_mutex_unlock(&writable->lock);
    return done;
}

void fake_sampling_results(struct gpu_engine *engine, uint64_t number, struct gpu_results *ret)
{
    const struct fake_sampling *kept = &engine->samplings[number % GPU_SAMPLINGS_MAX];
    *ret = (struct gpu_results){.step = number,
                                .sample_count = kept->count,
                                .samples = kept->samples,
                                .tops = kept->tops};
}

bool fake_sampling_is_next(const struct gpu_engine *engine)
{
    uint64_t next = engine->sampling_done + 1;
    return next <= engine->sampling_last &&
           engine->samplings[next % GPU_SAMPLINGS_MAX].after <= engine->completed;
}

void fake_run_sampling(struct gpu_engine *engine)
{
    struct fake_sampling *kept = &engine->samplings[++engine->sampling_done % GPU_SAMPLINGS_MAX];
    for (uint32_t i = 0; i < kept->count; i++) {
        struct fake_slot *slot = &engine->slots[kept->rows[i].slot];
        int32_t token = fake_pick(slot->full, slot->window, &slot->settings,
                                  kept->rows[i].position, kept->masks[i]);
        slot->last = token;
        slot->has_last = true;
        kept->samples[i] = (struct gpu_sample){.token = token,
                                               .finished = token == FAKE_EOS,
                                               .logprob = (float)-token,
                                               .top_count = slot->settings.logprobs};
        for (uint32_t t = 0; t < slot->settings.logprobs; t++)
            kept->tops[i * GPU_LOGPROBS_MAX + t] =
                (struct gpu_top){.token = token + (int32_t)t, .logprob = -(float)t};
    }
}
