/* The rows of a step whose sequences have read their prompts. */
#include "daemon/sched/builder.h"

/* On a pipeline, whether the row would make a stage wait: its token comes from a step that is still
 * on its way through the others. */
static bool is_early(const struct sched *sched, const struct seq *seq)
{
    return sched->step_last + 1 - seq->last_scheduled_step < sched->limits.stages;
}

/* The decode rows that a step takes at most. On a pipeline they are shared out over as many steps
 * as there are stages, so that each has one to work at. */
static uint32_t decode_share(const struct sched *sched)
{
    uint32_t stages = sched->limits.stages;
    return stages == 1 ? UINT32_MAX : (sched->decode_count + stages - 1) / stages;
}

/* Whether the token that its row reads was sampled; on a pipeline, was told. */
static bool has_token(const struct sched *sched, const struct seq *seq)
{
    return !seq->kept && !sched_draft_awaits(sched, seq) &&
           (sched->limits.stages == 1 || !seq->being_sampled);
}

/* Its next tokens are known here, not only on the device: on a pipeline, or since they were not
 * sampled. */
static bool by_ids(const struct sched *sched, const struct seq *seq)
{
    if (sched_guesses(sched) && (seq->draft.by_ids || seq->draft.next > 0))
        return true;
    return seq->mask != NULL && (sched->limits.stages > 1 || seq->num_computed < seq->known_len);
}

/* What the device has not counted yet, and the draft model not read, the token that is known, and
 * guesses, which the draft model makes there. */
static void put_draft_row(struct builder *b, struct seq *seq, uint32_t drafts)
{
    bool made_there = b->sched->options.draft_model && drafts > 0;
    uint32_t uncounted = seq->draft.uncounted, unread = made_there ? sched_draft_unread(seq) : 0;
    uint32_t before = unread > uncounted ? unread : uncounted;
    struct gpu_row *row = builder_row(b, seq, 1 + drafts, GPU_IDS);
    int32_t *ids = b->step->ids;
    uint32_t *count = &b->step->plan.id_count;
    for (uint32_t i = 0; i <= before; i++)
        ids[(*count)++] = sched_token_at(seq, row->position - before + i);
    for (uint32_t i = 0; i < drafts && !made_there; i++)
        ids[(*count)++] = seq->draft.ids[i];
    row->ids += before;
    row->uncounted = uncounted;
    row->unread = unread;
    row->drafts = drafts;
    row->want |= made_there ? GPU_DRAFT : 0;
    b->rows_left -= drafts;
    b->unread_left -= unread;
}

/* Blocks for so many guesses at most, of those that nobody will need for his next token. */
static uint32_t drafts_reach(struct builder *b, struct seq *seq, uint32_t drafts)
{
    struct sched *sched = b->sched;
    const struct kv_table *table = sched_table(sched, seq);
    uint32_t from = seq->num_computed + 1, blocks = sched_blocks_for(sched, from + drafts);
    for (uint32_t g = 0; g < sched->kv.group_count; g++) {
        uint32_t held = table->group[g].end, more = blocks > held ? blocks - held : 0;
        if (more > 0 && sched->kv.group[g].free < more + sched->slot_count)
            drafts = sched_min(drafts, held * sched->kv.block_tokens - from);
    }
    return sched_reach(sched, b->step, seq, from + drafts, b->now_us) - from;
}

/* As far as there is room in the step beside `others`. */
static void add_drafts(struct builder *b, struct seq *seq, uint32_t others)
{
    uint32_t from = seq->num_computed, taken = 1 + others, drafts = seq->draft.next;
    uint32_t tokens = b->tokens_left - sched_min(b->tokens_left, b->tokens_kept + taken);
    uint32_t rows = b->rows_left - sched_min(b->rows_left, taken);
    if (sched_reach(b->sched, b->step, seq, from + 1, b->now_us) <= from)
        return;
    drafts = sched_min(drafts, sched_min(tokens, rows));
    if (b->sched->options.draft_model && sched_draft_unread(seq) > b->unread_left)
        drafts = 0;
    put_draft_row(b, seq, drafts > 0 ? drafts_reach(b, seq, drafts) : 0);
}

static void put_decode_row(struct builder *b, struct seq *seq, uint32_t q_len)
{
    if (!by_ids(b->sched, seq)) {
        builder_row(b, seq, 1, GPU_LAST);
        return;
    }
    const struct gpu_row *row = builder_row(b, seq, q_len, GPU_IDS);
    for (uint32_t i = 0; i < q_len; i++)
        b->step->ids[b->step->plan.id_count++] = sched_token_at(seq, row->position + i);
}

/* As far as there are blocks, and room in the step beside `others`. */
static void add_decode(struct builder *b, struct seq *seq, uint32_t others)
{
    uint32_t from = seq->num_computed, q_len = 1;
    if (seq->mask == NULL && by_ids(b->sched, seq)) {
        add_drafts(b, seq, others);
        return;
    }
    if (from + 1 < seq->known_len)
        q_len = sched_min(seq->known_len - from, b->tokens_left - b->tokens_kept - others);
    uint32_t reached = sched_reach(b->sched, b->step, seq, from + q_len, b->now_us);
    if (reached > from)
        put_decode_row(b, seq, sched_min(q_len, reached - from));
}

static bool may_decode(const struct sched *sched, const struct seq *seq, bool early_too)
{
    return (early_too || !is_early(sched, seq)) && has_token(sched, seq);
}

/* Up to where their turns go in this step, of a token each; *ret_count: how many. */
static const struct list *decodes_end(const struct builder *b, bool early_too, uint32_t *ret_count)
{
    const struct sched *sched = b->sched;
    uint32_t room = b->tokens_left - sched_min(b->tokens_left, b->tokens_kept);
    uint32_t count = 0, most = sched_min(room, decode_share(sched));
    const struct list *link = sched->decode.next;
    for (; link != &sched->decode; link = link->next) {
        bool may = may_decode(sched, container_of(link, struct seq, run_link), early_too);
        if (may && count == most)
            break;
        count += may;
    }
    *ret_count = count;
    return link;
}

/* Those whose tokens the device knows come first. */
void builder_decodes(struct builder *b, bool early_too)
{
    struct sched *sched = b->sched;
    uint32_t left;
    const struct list *end = decodes_end(b, early_too, &left);
    b->step->cut = end != &sched->decode;
    for (struct list *link = sched->decode.next; sched_guesses(sched) && link != end;
         link = link->next)
        sched_draft_guess(sched, container_of(link, struct seq, run_link));
    for (int ids = 0; ids < 2; ids++)
        for (struct list *link = sched->decode.next; link != end; link = link->next) {
            struct seq *seq = container_of(link, struct seq, run_link);
            if (may_decode(sched, seq, early_too) && by_ids(sched, seq) == (ids > 0))
                add_decode(b, seq, --left);
        }
    b->step->decode_rows = b->step->plan.row_count;
}
