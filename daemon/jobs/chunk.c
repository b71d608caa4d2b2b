#include "daemon/jobs/chunk.h"

#include <inttypes.h>
#include <string.h>

#include "gpu/jobs/shape.h"

/* How many jobs are looked at for one chunk: of those behind, another chunk is made. */
#define LOOK_MAX 1024u

/* What is taken so far. */
struct room {
    uint64_t in, out, scratch;
};

static struct sluice_item rest_of(const struct tensor_job *job, uint64_t next)
{
    struct sluice_item item = {.sizes = {0}};
    memcpy(item.sizes, job->sizes, sizeof(item.sizes));
    memcpy(item.values, job->values, sizeof(item.values));
    item.sizes[0] -= next;
    return item;
}

static uint64_t all_of(const struct program *program, const struct chunk_limits *limits)
{
    const uint64_t own = shape_align(program->batch_scratch);
    return limits->all > own ? limits->all - own : 0;
}

uint64_t chunk_rows(const struct tensor_job *job, uint64_t next, const struct chunk_limits *limits)
{
    const struct program *program = &job->program->program;
    const struct sluice_item item = rest_of(job, next);
    return shape_rows(program, &item, limits->bytes, all_of(program, limits));
}

int chunk_check(const struct tensor_job *job, const struct chunk_limits *limits,
                struct error *error)
{
    const struct program *program = &job->program->program;
    const struct sluice_item item = rest_of(job, 0);
    struct shape_room room;
    int rc = shape_room(program, &item, &room, error);
    if (rc)
        return rc;
    const bool sizeless = program->size_count == 0;
    const bool fits = sizeless ? room.in <= limits->bytes && room.out <= limits->bytes &&
                                     room.in + room.out + room.scratch <= all_of(program, limits)
                               : chunk_rows(job, 0, limits) > 0;
    if (fits)
        return 0;
    return error_limit(error, ERR_TOO_LARGE, limits->bytes, room.in > room.out ? room.in : room.out,
                       "an item has %" PRIu64 " bytes of inputs, %" PRIu64
                       " of outputs and %" PRIu64
                       " of scratch: it does not fit a chunk (job-chunk) of %" PRIu64 "%s",
                       room.in, room.out, room.scratch, limits->bytes,
                       program->cut_rows ? "" : " and cannot be cut");
}

static void add_piece(struct chunk *chunk, struct seq *seq, uint64_t rows)
{
    struct tensor_job *job = seq->job;
    const struct program *program = &job->program->program;
    struct gpu_piece *piece = &chunk->pieces[chunk->base.count];
    *piece = (struct gpu_piece){.first = job->next, .whole = job->sizes[0]};
    memcpy(piece->sizes, job->sizes, sizeof(piece->sizes));
    memcpy(piece->values, job->values, sizeof(piece->values));
    piece->sizes[0] = rows;
    for (uint32_t i = 0; i < program->input_count; i++)
        piece->inputs[i] =
            (const char *)job->inputs[i] + shape_offset(&program->inputs[i], job->sizes, job->next);
    for (uint32_t i = 0; i < program->output_count; i++)
        piece->outputs[i] =
            (char *)job->outputs[i] + shape_offset(&program->outputs[i], job->sizes, job->next);
    chunk->seqs[chunk->base.count++] = seq;
    job->next += rows;
    job->under_way++;
    job->taken = job->next == job->sizes[0]; /* a program without sizes: 0 of 0 */
}

/* Whether what is left of the job fits beside what is there; counts it. */
static bool add_room(const struct tensor_job *job, uint64_t rows, const struct chunk_limits *limits,
                     struct room *room)
{
    struct sluice_item item = rest_of(job, 0);
    struct shape_room more;
    struct error ignored;
    item.sizes[0] = rows;
    if (shape_room(&job->program->program, &item, &more, &ignored))
        return false;
    if (room->in + more.in > limits->bytes || room->out + more.out > limits->bytes ||
        room->in + room->out + room->scratch + more.in + more.out + more.scratch >
            all_of(&job->program->program, limits))
        return false;
    room->in += more.in;
    room->out += more.out;
    room->scratch += more.scratch;
    return true;
}

/* Of two bounds of which 0 is none. */
static uint32_t least(uint32_t a, uint32_t b)
{
    return a && (!b || a < b) ? a : b;
}

uint32_t chunk_fill(struct chunk *chunk, struct list *waiting, const struct chunk_limits *limits)
{
    struct seq *first = container_of(waiting->next, struct seq, run_link);
    struct job_program *own = first->job->program;
    const struct program *program = &own->program;
    const uint32_t items =
        least(least(program->batch_items_max, limits->items), GPU_JOBS_PIECES_MAX);
    struct room room = {0};
    uint32_t looked = 0;
    struct seq *cut = NULL;
    chunk->base = (struct gpu_chunk){.program = program, .pieces = chunk->pieces};
    list_each_safe(link, waiting)
    {
        struct seq *seq = container_of(link, struct seq, run_link);
        struct tensor_job *job = seq->job;
        if (looked++ == LOOK_MAX || chunk->base.count == items)
            break;
        if (job->program != own)
            continue;
        uint64_t rest = job->sizes[0] - job->next;
        uint64_t rows = seq == first && rest > 0 ? chunk_rows(job, job->next, limits) : rest;
        if (!add_room(job, rows, limits, &room))
            continue;
        add_piece(chunk, seq, rows);
        if (job->taken)
            list_remove(&seq->run_link);
        else
            cut = seq;
    }
    chunk->bytes = room.in > room.out ? room.in : room.out;
    if (cut) {
        list_remove(&cut->run_link);
        list_append(waiting, &cut->run_link);
    }
    return chunk->base.count;
}

void chunk_give_back(struct chunk *chunk, struct list *waiting)
{
    /* From the last to the first, each to the head: the order stays. */
    for (uint32_t i = chunk->base.count; i-- > 0;) {
        struct seq *seq = chunk->seqs[i];
        struct tensor_job *job = seq->job;
        job->next -= chunk->pieces[i].sizes[0];
        job->under_way--;
        job->taken = false;
        if (list_linked(&seq->run_link))
            list_remove(&seq->run_link);
        list_prepend(waiting, &seq->run_link);
    }
    chunk->base.count = 0;
}
