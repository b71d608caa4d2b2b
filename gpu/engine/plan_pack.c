#include "gpu/engine/plan_pack.h"

#include <assert.h>
#include <string.h>

#define PACK_ALIGN 8
#define RESULT_ALIGN 32 /* of a small step's, for what is written in words */

static size_t align_up(size_t bytes)
{
    return (bytes + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
}

/* Of a step's guesses there are no more than samples, and a row of a small step for each; one more
 * small step may read each row. */
static size_t drafts_bytes_max(const struct gpu_limits *limits)
{
    if (!limits->drafts_max)
        return 0;
    return (limits->drafts_max + 1) * (align_up(sizeof(struct pack_head)) + PACK_ALIGN) +
           2 * limits->rows_max * sizeof(struct pack_row);
}

size_t pack_bytes_max(const struct gpu_limits *limits)
{
    return align_up(sizeof(struct pack_head)) +
           align_up(limits->slabs_max * sizeof(struct pack_slab)) +
           align_up(limits->opens_max * sizeof(struct pack_open)) +
           align_up(limits->appends_max * sizeof(struct gpu_append)) +
           align_up(limits->moves_max * sizeof(struct gpu_move)) +
           align_up(limits->rows_max * sizeof(struct pack_row)) +
           align_up(limits->ids_max * sizeof(int32_t)) +
           align_up(limits->bias_max * sizeof(struct gpu_bias)) + drafts_bytes_max(limits);
}

size_t result_bytes_max(const struct gpu_limits *limits, uint32_t hidden)
{
    return sizeof(struct result_head) + limits->rows_max * sizeof(struct gpu_sample) +
           limits->rows_max * sizeof(struct gpu_top) * GPU_LOGPROBS_MAX +
           limits->scores_max * sizeof(struct gpu_score) +
           (size_t)limits->scores_max * sizeof(struct gpu_top) * GPU_LOGPROBS_MAX +
           (size_t)limits->embeds_max * hidden * sizeof(float) +
           (limits->drafts_max ? limits->drafts_max + 1 : 0) *
               (sizeof(struct result_head) + RESULT_ALIGN) +
           (limits->drafts_max ? limits->rows_max * sizeof(struct gpu_sample) : 0);
}

static uint32_t row_embeds(const struct gpu_row *row)
{
    if (row->want & GPU_EMBED_ALL)
        return row->q_len;
    return row->want & (GPU_EMBED_LAST | GPU_POOL_OUT) ? 1 : 0;
}

/* Of the draft model: those before the model's step, and the one behind. */
static uint32_t small_steps(const struct result_layout *layout)
{
    return layout->draft_steps + layout->reads;
}

/* Those of the draft model's steps, from `at` on. */
static size_t drafts_layout(struct result_layout *layout, const struct gpu_plan *plan, size_t at)
{
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        uint32_t drafts = row->want & GPU_DRAFT ? row->drafts : 0;
        for (uint32_t j = 0; j < drafts; j++)
            layout->draft_rows[j]++;
        layout->draft_steps = drafts > layout->draft_steps ? drafts : layout->draft_steps;
    }
    for (uint32_t j = 0; j < small_steps(layout); j++) {
        at = (at + RESULT_ALIGN - 1) / RESULT_ALIGN * RESULT_ALIGN;
        layout->drafts[j] = (uint32_t)at;
        at += sizeof(struct result_head) + layout->draft_rows[j] * sizeof(struct gpu_sample);
    }
    for (uint32_t i = 0; layout->reads && i < plan->row_count; i++)
        layout->draft_rows[layout->draft_steps] += plan_row_is_read(&plan->rows[i]);
    return at;
}

void result_layout_set(struct result_layout *layout, const struct gpu_plan *plan, uint32_t hidden,
                       struct result_more more)
{
    struct result_layout set = {.reads = more.reads};
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        set.sample_count += row->want & GPU_SAMPLE ? 1 + row->drafts : 0;
        set.score_count += row->want & GPU_SCORE ? row->score_count : 0;
        set.embed_count += row_embeds(row);
    }
    size_t at = sizeof(struct result_head);
    set.samples = (uint32_t)at;
    at += set.sample_count * sizeof(struct gpu_sample);
    if (more.sample_tops) {
        set.tops = (uint32_t)at;
        at += set.sample_count * sizeof(struct gpu_top) * GPU_LOGPROBS_MAX;
    }
    set.scores = (uint32_t)at;
    at += set.score_count * sizeof(struct gpu_score);
    if (more.score_tops) {
        set.score_tops = (uint32_t)at;
        at += set.score_count * sizeof(struct gpu_top) * GPU_LOGPROBS_MAX;
    }
    set.embeds = (uint32_t)at;
    at += (size_t)set.embed_count * hidden * sizeof(float);
    set.bytes = (uint32_t)drafts_layout(&set, plan, at);
    *layout = set;
}

struct writer {
    char *base;
    size_t at;
};

static uint32_t section(struct writer *writer, size_t bytes)
{
    size_t at = writer->at;
    writer->at = at + align_up(bytes);
    return (uint32_t)at;
}

static uint32_t section_copy(struct writer *writer, const void *from, size_t bytes)
{
    uint32_t at = section(writer, bytes);
    if (bytes)
        memcpy(writer->base + at, from, bytes);
    return at;
}

static void slabs_write(struct pack_slab *to, const struct pack_source *source)
{
    const struct gpu_plan *plan = source->plan;
    for (uint32_t i = 0; i < plan->slab_count; i++) {
        const struct gpu_slab *slab = &plan->slabs[i];
        to[i] = (struct pack_slab){
            .group = slab->group,
            .slab = slab->slab,
            .base = source->slab_base(source->context, slab->group, slab->slab),
        };
    }
}

static void open_write(struct pack_open *to, const struct gpu_open *open,
                       const struct pack_source *source)
{
    const int32_t *ids = source->plan->ids;
    char *kept = open->flags & GPU_SLOT_MASKED && source->kept
                     ? source->kept + open->slot * source->kept_slot
                     : NULL;
    *to = (struct pack_open){
        .slot = open->slot,
        .bias_first = open->bias_first,
        .seen_first = open->seen_first,
        .state =
            {
                .flags = open->flags,
                .logprobs = open->logprobs,
                .seed = open->seed,
                .sampler = open->sampler,
                .prompt_len = open->prompt_len,
                .eos_from = open->eos_from,
                .bias_count = open->bias_count,
                .stop_count = open->stop_ids_count,
                .first = open->first,
                .kept = kept,
            },
    };
    if (open->stop_ids_count)
        memcpy(to->state.stop_ids, ids + open->stop_ids_first, open->stop_ids_count * sizeof *ids);
}

static void rows_write(struct pack_row *to, const struct pack_source *source,
                       struct batch_counts *counts)
{
    const struct gpu_plan *plan = source->plan;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct gpu_row *row = &plan->rows[i];
        bool sample = row->want & GPU_SAMPLE, score = row->want & GPU_SCORE;
        to[i] = (struct pack_row){
            .row = {.slot = row->slot,
                    .position = row->position,
                    .q_len = row->q_len,
                    .token = counts->tokens,
                    .want = row->want,
                    .drafts = row->drafts,
                    .uncounted = row->uncounted,
                    .adapter = source->slot_adapter
                                   ? source->slot_adapter(source->context, row->slot)
                                   : 0},
            .ids = row->input == GPU_IDS ? row->ids : PACK_NONE,
            .sample = sample ? counts->samples : PACK_NONE,
            .score_first = counts->scores,
            .score_count = score ? row->score_count : 0,
            .score_from = score ? row->score_from : 0,
            .embed_first = counts->embeds,
            .embed_count = row_embeds(row),
        };
        counts->tokens += row->q_len;
        counts->samples += sample ? 1 + row->drafts : 0;
        counts->scores += to[i].score_count;
        counts->embeds += to[i].embed_count;
    }
    counts->rows = plan->row_count;
}

/* A small step: its rows are its own, what it changes of tables and its ids are the model's step's,
 * whose sections lie behind. */
static void draft_write(char *base, const struct pack_source *source, const struct pack_head *model,
                        const struct pack_place *place, uint32_t j)
{
    uint32_t at = place->drafts[j], ahead = place->model - at;
    const bool reads = j == source->layout->draft_steps;
    struct gpu_plan plan;
    source->draft_plan(source->context, source->plan, reads ? PACK_READING : j, &plan);
    const struct pack_source own = {.plan = &plan};
    struct pack_head head = {
        .step = plan.step,
        .bytes = sizeof head,
        .slab_count = plan.slab_count,
        .append_count = plan.append_count,
        .move_count = plan.move_count,
        .slabs = ahead + model->slabs,
        .opens = ahead + model->opens,
        .appends = ahead + model->appends,
        .moves = ahead + model->moves,
        .rows = (uint32_t)align_up(sizeof head),
        .ids = ahead + model->ids,
        .bias = ahead + model->bias,
        .counts = {.moves = plan.move_count},
        .result = (char *)source->result + source->layout->drafts[j],
        .result_samples = sizeof(struct result_head),
        .tokens_out = reads ? NULL : source->guesses + (size_t)j * source->guess_stride,
    };
    rows_write((struct pack_row *)(base + at + head.rows), &own, &head.counts);
    memcpy(base + at, &head, sizeof head);
}

/* The small steps' heads and rows come first: what is behind a head can be said in its offsets. */
static struct pack_place place_make(const struct result_layout *layout)
{
    struct pack_place place = {.model = 0};
    struct writer writer = {.base = NULL};
    for (uint32_t j = 0; j < small_steps(layout); j++) {
        place.drafts[j] = section(&writer, sizeof(struct pack_head));
        (void)section(&writer, layout->draft_rows[j] * sizeof(struct pack_row));
    }
    place.model = (uint32_t)writer.at;
    return place;
}

size_t pack_write(void *to, const struct pack_source *source, struct pack_place *ret_place)
{
    const struct gpu_plan *plan = source->plan;
    const struct pack_place place = place_make(source->layout);
    struct writer writer = {.base = (char *)to + place.model};
    uint32_t moves = source->layout->draft_steps ? 0 : plan->move_count; /* else the first one's */
    struct pack_head head = {
        .step = plan->step,
        .slab_count = plan->slab_count,
        .open_count = plan->open_count,
        .append_count = plan->append_count,
        .move_count = moves,
        .counts = {.moves = moves},
        .result = source->result,
        .result_samples = source->layout->samples,
        .result_tops = source->layout->tops,
        .tokens_in = source->tokens_in,
        .tokens_out = source->tokens_out,
        .guesses = source->guesses,
        .guess_stride = source->guess_stride,
    };
    (void)section(&writer, sizeof head);
    head.slabs = section(&writer, plan->slab_count * sizeof(struct pack_slab));
    slabs_write((struct pack_slab *)(writer.base + head.slabs), source);
    head.opens = section(&writer, plan->open_count * sizeof(struct pack_open));
    for (uint32_t i = 0; i < plan->open_count; i++)
        open_write((struct pack_open *)(writer.base + head.opens) + i, &plan->opens[i], source);
    head.appends = section_copy(&writer, plan->appends, plan->append_count * sizeof *plan->appends);
    head.moves = section_copy(&writer, plan->moves, plan->move_count * sizeof *plan->moves);
    head.rows = section(&writer, plan->row_count * sizeof(struct pack_row));
    rows_write((struct pack_row *)(writer.base + head.rows), source, &head.counts);
    head.ids = section_copy(&writer, plan->ids, plan->id_count * sizeof *plan->ids);
    head.bias = section_copy(&writer, plan->bias, plan->bias_count * sizeof *plan->bias);
    head.bytes = (uint32_t)writer.at;
    memcpy(writer.base, &head, sizeof head);
    for (uint32_t j = 0; j < small_steps(source->layout); j++)
        draft_write(to, source, &head, &place, j);
    *ret_place = place;
    return place.model + writer.at;
}
