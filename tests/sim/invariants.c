#include "tests/sim/invariants.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/engine/engine.h"

/* Steps that an open sequence may be passed over: each prompt's turn comes every 8th step, and
 * decode rows that do not fit a step take turns. */
#define PATIENCE 40u

struct slot {
    bool open, sampled;
    uint32_t length;   /* positions written by plans so far */
    uint32_t drafts;   /* of these the last, guesses that need not stand */
    uint64_t row_step; /* last step that had a row of it */
    uint32_t *blocks[GPU_GROUPS_MAX];
    uint32_t count[GPU_GROUPS_MAX];
};

struct group {
    uint32_t *holders; /* [blocks]: slots that name it; not kept where there is a window */
    uint32_t *written; /* [blocks]: positions that rows have written, since it was last given out */
    uint8_t *there;    /* [slabs]: 1 grown, 2 and told to the device */
    uint64_t *copied[GPU_WAYS]; /* [blocks]: the last copies of each way that it was in */
    uint32_t *hosted;           /* [places]: written positions of what is there */
    uint32_t blocks;
};

struct request_table {
    const struct gpu_engine *engine;
    struct gpu_model model;
    struct gpu_limits limits;
    struct slot *slots;
    struct group groups[GPU_GROUPS_MAX];
    uint64_t step;
};

static struct {
    struct scene *scene;
    bool fair;
    uint32_t count;
    struct request_table ledgers[INVARIANTS_ENGINES];
    struct invariants_figures figures;
    uint32_t dead_count;
    struct gpu_engine *dead[INVARIANTS_ENGINES];
} books;

#define WRONG(...) scene_fail(books.scene, "plan: " __VA_ARGS__)

static void *make(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

static struct request_table *find(const struct gpu_engine *engine)
{
    for (uint32_t i = 0; i < books.count; i++)
        if (books.ledgers[i].engine == engine)
            return &books.ledgers[i];
    abort();
}

static bool windowed(const struct request_table *ledger, uint32_t group)
{
    return ledger->model.groups[group].window != 0;
}

/* What is read from now on has come back on all ranks, what is written is being read by no copy. */
static void check_copied(const struct request_table *ledger, uint32_t g, uint32_t block, bool read)
{
    for (uint32_t rank = 0; rank < ledger->model.ranks; rank++)
        for (enum gpu_way way = read ? GPU_FROM_HOST : GPU_TO_HOST; way < GPU_WAYS; way++)
            if (gpu_module.copied(ledger->engine, rank, way) < ledger->groups[g].copied[way][block])
                WRONG("block %u of group %u is given while a copy is in flight", block, g);
}

/* ---- the parts of a plan -----------------------------------------------------------------------
 */

static void close_slot(struct request_table *ledger, uint32_t number)
{
    struct slot *slot = &ledger->slots[number];
    if (number >= ledger->limits.slots_max || !slot->open) {
        WRONG("slot %u is closed and was not open", number);
        return;
    }
    slot->open = false;
    for (uint32_t g = 0; g < ledger->model.group_count; g++)
        for (uint32_t i = 0; i < slot->count[g] && !windowed(ledger, g); i++)
            ledger->groups[g].holders[slot->blocks[g][i]]--;
}

static bool check_there(const struct request_table *ledger, uint32_t g, uint32_t block)
{
    const struct group *group = &ledger->groups[g];
    uint32_t slab = block / ledger->model.groups[g].slab_blocks;
    if (block < group->blocks && group->there[slab] == 2)
        return true;
    WRONG("block %u of group %u lies in no slab that the device knows", block, g);
    return false;
}

/* The block may be given to somebody, who writes it. */
static bool check_free(const struct request_table *ledger, uint32_t g, uint32_t block)
{
    const struct group *group = &ledger->groups[g];
    if (!check_there(ledger, g, block))
        return false;
    if (group->holders[block] > 0)
        WRONG("block %u of group %u is held by %u already", block, g, group->holders[block]);
    return group->holders[block] == 0;
}

enum giving { TO_WRITE, TO_READ, MOVED };

/* A sequence that is opened begins behind what it has from others of its prompt. */
static enum giving giving_of(const struct request_table *ledger, const struct gpu_plan *plan,
                             const struct gpu_append *append)
{
    for (uint32_t i = 0; i < plan->move_count; i++)
        if (plan->moves[i].group == append->group && plan->moves[i].to == append->block)
            return append->index < ledger->slots[append->slot].count[append->group] ? MOVED
                                                                                    : TO_READ;
    for (uint32_t i = 0; i < plan->row_count; i++)
        if (plan->rows[i].slot == append->slot)
            return plan->rows[i].position / ledger->model.block_tokens > append->index ? TO_READ
                                                                                       : TO_WRITE;
    return TO_WRITE;
}

static bool check_giving(struct request_table *ledger, const struct gpu_append *append,
                         enum giving giving)
{
    struct group *group = &ledger->groups[append->group];
    if (giving == TO_WRITE && !check_free(ledger, append->group, append->block))
        return false;
    if (giving == TO_WRITE)
        group->written[append->block] = 0;
    check_copied(ledger, append->group, append->block, giving == TO_READ);
    if (giving == TO_READ && group->written[append->block] != ledger->model.block_tokens)
        WRONG("slot %u is given block %u of group %u to read, which has %u positions", append->slot,
              append->block, append->group, group->written[append->block]);
    books.figures.shared += giving == TO_READ;
    return check_there(ledger, append->group, append->block);
}

static void append(struct request_table *ledger, const struct gpu_plan *plan,
                   const struct gpu_append *append)
{
    struct slot *slot = &ledger->slots[append->slot];
    uint32_t g = append->group, *count = &slot->count[g];
    enum giving giving = giving_of(ledger, plan, append);
    if (giving == TO_READ && windowed(ledger, g) && *count == 0)
        *count = append->index; /* what lies before the window need not be there */
    if (!slot->open || append->index > *count) {
        WRONG("block %u is appended to slot %u at %u, which has %u", append->block, append->slot,
              append->index, *count);
        return;
    }
    if (!check_giving(ledger, append, giving))
        return;
    if (append->index == *count)
        ++*count;
    else if (!windowed(ledger, g))
        ledger->groups[g].holders[slot->blocks[g][append->index]]--;
    slot->blocks[g][append->index] = append->block;
    if (!windowed(ledger, g))
        ledger->groups[g].holders[append->block]++;
}

static void check_move(struct request_table *ledger, const struct gpu_move *move)
{
    struct group *group = &ledger->groups[move->group];
    if (!windowed(ledger, move->group) && group->holders[move->from] == 0 &&
        group->written[move->from] != ledger->model.block_tokens)
        WRONG("block %u of group %u is moved and is nobody's", move->from, move->group);
    if (check_free(ledger, move->group, move->to))
        group->written[move->to] = group->written[move->from];
}

/* Whoever had it has the other now. */
static void check_moved(const struct request_table *ledger, const struct gpu_move *move)
{
    if (!windowed(ledger, move->group) && ledger->groups[move->group].holders[move->from] > 0)
        WRONG("block %u of group %u was moved, and not for all", move->from, move->group);
}

static void write_blocks(struct request_table *ledger, const struct slot *slot,
                         const struct gpu_row *row)
{
    for (uint32_t g = 0; g < ledger->model.group_count; g++)
        for (uint32_t i = 0; i < row->q_len; i++) {
            uint32_t block = slot->blocks[g][(row->position + i) / ledger->model.block_tokens];
            ledger->groups[g].written[block]++;
            check_copied(ledger, g, block, false);
            if (!windowed(ledger, g) && ledger->groups[g].holders[block] != 1)
                WRONG("slot %u writes block %u of group %u, which others hold", row->slot, block,
                      g);
        }
}

/* Guesses of the slot's last row that did not stand: their positions are written anew. */
static void take_back(struct request_table *ledger, struct slot *slot, uint32_t length)
{
    while (slot->length > length && slot->drafts > 0) {
        slot->length--;
        slot->drafts--;
        for (uint32_t g = 0; g < ledger->model.group_count; g++)
            ledger->groups[g].written[slot->blocks[g][slot->length / ledger->model.block_tokens]]--;
    }
}

static void check_row(struct request_table *ledger, const struct gpu_row *row, uint64_t step)
{
    struct slot *slot = &ledger->slots[row->slot];
    if (row->slot >= ledger->limits.slots_max || !slot->open) {
        WRONG("a row of slot %u, which is not open", row->slot);
        return;
    }
    if (slot->row_step == step && slot->length > 0)
        WRONG("two rows of slot %u in step %" PRIu64, row->slot, step);
    take_back(ledger, slot, row->position);
    if (row->position != slot->length || row->q_len <= row->drafts)
        WRONG("slot %u has %u positions, its row is %u at %u", row->slot, slot->length, row->q_len,
              row->position);
    if (row->input == GPU_LAST && !slot->sampled)
        WRONG("a row of slot %u reads a token that was not sampled", row->slot);
    slot->length = row->position + row->q_len;
    slot->row_step = step;
    slot->drafts = row->drafts;
    slot->sampled = row->want & GPU_SAMPLE && row->drafts == 0;
    for (uint32_t g = 0; g < ledger->model.group_count; g++)
        if (slot->count[g] * ledger->model.block_tokens < slot->length)
            WRONG("slot %u writes position %u and has %u blocks of group %u", row->slot,
                  slot->length - 1, slot->count[g], g);
    if (!books.scene->failed)
        write_blocks(ledger, slot, row);
}

static void check_patience(const struct request_table *ledger, uint64_t step)
{
    for (uint32_t i = 0; books.fair && i < ledger->limits.slots_max; i++)
        if (ledger->slots[i].open && step - ledger->slots[i].row_step > PATIENCE)
            WRONG("slot %u has had no row since step %" PRIu64 ", this is %" PRIu64, i,
                  ledger->slots[i].row_step, step);
}

/* Slabs may be given back although the slots that had blocks there are closed by the next plan
 * only: after its closes and moves, nobody may be left in one. */
static void check_slabs(const struct request_table *ledger)
{
    for (uint32_t g = 0; g < ledger->model.group_count; g++) {
        const struct group *group = &ledger->groups[g];
        for (uint32_t block = 0; block < group->blocks && !windowed(ledger, g); block++)
            if (group->holders[block] > 0 &&
                !group->there[block / ledger->model.groups[g].slab_blocks])
                WRONG("block %u of group %u is held, and its slab was given back", block, g);
    }
}

static void follow(struct request_table *ledger, const struct gpu_plan *plan)
{
    if (plan->step != ledger->step + 1)
        WRONG("step %" PRIu64 " follows %" PRIu64, plan->step, ledger->step);
    ledger->step = plan->step;
    for (uint32_t i = 0; i < plan->close_count; i++)
        close_slot(ledger, plan->closes[i]);
    for (uint32_t i = 0; i < plan->slab_count; i++) {
        uint8_t *there = &ledger->groups[plan->slabs[i].group].there[plan->slabs[i].slab];
        if (*there != 1)
            WRONG("slab %u is new to the device and was not grown", plan->slabs[i].slab);
        *there = 2;
    }
    for (uint32_t i = 0; i < plan->move_count; i++)
        check_move(ledger, &plan->moves[i]);
    for (uint32_t i = 0; i < plan->open_count; i++) {
        struct slot *slot = &ledger->slots[plan->opens[i].slot];
        if (slot->open)
            WRONG("slot %u is opened and is open", plan->opens[i].slot);
        slot->open = true;
        slot->sampled = false;
        slot->length = plan->opens[i].first;
        slot->row_step = plan->step - 1;
        memset(slot->count, 0, sizeof(slot->count));
    }
    for (uint32_t i = 0; i < plan->append_count && !books.scene->failed; i++)
        append(ledger, plan, &plan->appends[i]);
    for (uint32_t i = 0; i < plan->move_count; i++)
        check_moved(ledger, &plan->moves[i]);
    for (uint32_t i = 0; i < plan->row_count && !books.scene->failed; i++)
        check_row(ledger, &plan->rows[i], plan->step);
    check_slabs(ledger);
    check_patience(ledger, plan->step);
    books.figures.steps++;
    books.figures.rows += plan->row_count;
    books.figures.moves += plan->move_count;
    scene_note(books.scene, "step", plan->step, plan->row_count);
}

/* ---- the table ---------------------------------------------------------------------------------
 */

static int submit(struct gpu_engine *engine, uint32_t rank, const struct gpu_plan *plan,
                  struct error *error)
{
    int rc = gpu_module.submit(engine, rank, plan, error);
    if (rc == 0 && rank == 0)
        follow(find(engine), plan);
    else
        scene_note(books.scene, "refused", plan->step, (uint64_t)-rc);
    return rc;
}

/* What a copy moves. Slots that are to be closed may name what it writes to. */
static void follow_copy(struct request_table *ledger, const struct gpu_copies *copies,
                        const struct gpu_copy *copy)
{
    struct group *group = &ledger->groups[copy->group];
    bool in = copies->way == GPU_FROM_HOST;
    group->copied[copies->way][copy->block] = copies->number;
    if (in)
        group->written[copy->block] = group->hosted[copy->place];
    else
        group->hosted[copy->place] = group->written[copy->block];
}

static int copy(struct gpu_engine *engine, uint32_t rank, const struct gpu_copies *copies,
                struct error *error)
{
    int rc = gpu_module.copy(engine, rank, copies, error);
    for (uint32_t i = 0; rc == 0 && rank == 0 && i < copies->count; i++)
        follow_copy(find(engine), copies, &copies->copies[i]);
    scene_note(books.scene, copies->way == GPU_TO_HOST ? "copy out" : "copy in", copies->count,
               (uint64_t)-rc);
    return rc;
}

static int grow(struct gpu_engine *engine, uint32_t group, uint32_t *ret_slab, struct error *error)
{
    struct request_table *ledger = find(engine);
    int rc = gpu_module.kv_grow(engine, group, ret_slab, error);
    scene_note(books.scene, "grow", group, (uint64_t)-rc);
    books.figures.refused += rc != 0;
    if (rc != 0)
        return rc;
    books.figures.grown++;
    if (*ret_slab >= ledger->model.groups[group].slabs_max ||
        ledger->groups[group].there[*ret_slab])
        WRONG("slab %u was given twice", *ret_slab);
    else
        ledger->groups[group].there[*ret_slab] = 1;
    return 0;
}

static int shrink(struct gpu_engine *engine, uint32_t group, uint32_t slab, struct error *error)
{
    struct request_table *ledger = find(engine);
    if (!ledger->groups[group].there[slab])
        WRONG("slab %u is given back and is not there", slab);
    ledger->groups[group].there[slab] = 0;
    books.figures.shrunk++;
    scene_note(books.scene, "shrink", group, slab);
    return gpu_module.kv_shrink(engine, group, slab, error);
}

static void drop(struct request_table *ledger)
{
    for (uint32_t s = 0; s < ledger->limits.slots_max; s++)
        for (uint32_t g = 0; g < ledger->model.group_count; g++)
            free(ledger->slots[s].blocks[g]);
    free(ledger->slots);
    for (uint32_t g = 0; g < ledger->model.group_count; g++) {
        free(ledger->groups[g].holders);
        free(ledger->groups[g].written);
        free(ledger->groups[g].copied[GPU_TO_HOST]);
        free(ledger->groups[g].copied[GPU_FROM_HOST]);
        free(ledger->groups[g].hosted);
        free(ledger->groups[g].there);
    }
    *ledger = (struct request_table){.engine = NULL};
}

/* An engine whose device failed keeps its memory, for host functions that may be late. Here none
 * is: the device is set up anew before these books end. */
static void close_engine(struct gpu_engine *engine)
{
    if (atomic_load(&engine->failed)) {
        if (books.dead_count == INVARIANTS_ENGINES)
            abort();
        books.dead[books.dead_count++] = engine;
    }
    drop(find(engine));
    gpu_module.close(engine);
}

void invariants_begin(struct scene *scene, bool fair)
{
    invariants_end();
    books.scene = scene;
    books.fair = fair;
}

void invariants_end(void)
{
    for (uint32_t i = 0; i < books.count; i++)
        drop(&books.ledgers[i]);
    for (uint32_t i = 0; i < books.dead_count; i++)
        free(books.dead[i]);
    memset(&books, 0, sizeof(books));
}

void invariants_add(const struct gpu_engine *engine, const struct gpu_model *model,
                    const struct gpu_limits *limits)
{
    uint32_t at = 0;
    while (at < books.count && books.ledgers[at].engine)
        at++;
    if (at == INVARIANTS_ENGINES)
        abort();
    books.count += at == books.count;
    struct request_table *ledger = &books.ledgers[at];
    *ledger = (struct request_table){.engine = engine, .model = *model, .limits = *limits};
    ledger->slots = make(limits->slots_max, sizeof(*ledger->slots));
    uint32_t blocks = limits->context_max / model->block_tokens + 2;
    for (uint32_t s = 0; s < limits->slots_max; s++)
        for (uint32_t g = 0; g < model->group_count; g++)
            ledger->slots[s].blocks[g] = make(blocks, sizeof(uint32_t));
    for (uint32_t g = 0; g < model->group_count; g++) {
        struct group *group = &ledger->groups[g];
        group->blocks = model->groups[g].slabs_max * model->groups[g].slab_blocks;
        group->holders = make(group->blocks, sizeof(uint32_t));
        group->written = make(group->blocks, sizeof(uint32_t));
        for (enum gpu_way way = 0; way < GPU_WAYS; way++)
            group->copied[way] = make(group->blocks, sizeof(uint64_t));
        group->hosted =
            make((size_t)limits->chunks_max * model->groups[g].chunk_blocks, sizeof(uint32_t));
        group->there = make(model->groups[g].slabs_max, 1);
    }
}

uint32_t invariants_open(void)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < books.count; i++)
        open += books.ledgers[i].engine != NULL;
    return open;
}

const struct gpu_api *invariants_api(void)
{
    static struct gpu_api api;
    api = gpu_module;
    api.submit = submit;
    api.kv_grow = grow;
    api.kv_shrink = shrink;
    api.copy = copy;
    api.close = close_engine;
    return &api;
}

struct invariants_figures invariants_figures(void)
{
    return books.figures;
}
