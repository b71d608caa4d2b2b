#include "gpu/lanes/lane.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "gpu/base/cuda_error.h"
#include "gpu/jobs/shape.h"
#include "gpu/lanes/body.h"
#include "gpu/lanes/copy_crew.h"

/* A copy engine ends the copy that it is at before it looks at more urgent ones, and each step of a
 * model has two small copies: so beside one, copies are no longer than 40 us of its link. */
#define BACKGROUND_COPY (2ull << 20)

_Static_assert(LANE_STAGING_ALIGN == SLUICE_ALIGN, "tensors follow the table");

static void add(_Atomic uint64_t *number, uint64_t by)
{
    atomic_fetch_add_explicit(number, by, memory_order_relaxed);
}

/* ---- opening and closing -----------------------------------------------------------------------
 */

static int open_streams(struct lane *lane, bool background, struct error *error)
{
    int least = 0, greatest = 0;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), error);
    cudaStream_t *streams[3 + SLUICE_STREAMS_MAX] = {&lane->in, &lane->out, &lane->notify};
    for (uint32_t i = 0; i < lane->compute_count; i++)
        streams[3 + i] = &lane->compute[i];
    for (uint32_t i = 0; i < 3 + lane->compute_count; i++)
        CUDA_TRY(cudaStreamCreateWithPriority(streams[i], cudaStreamNonBlocking,
                                              background ? least : greatest),
                 error);
    for (uint32_t i = 0; i < lane->event_count; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&lane->events[i], cudaEventDisableTiming), error);
    return 0;
}

static int pinned(struct lane *lane, uint64_t bytes, unsigned char **ret, struct error *error)
{
    void *host = NULL;
    CUDA_TRY(cudaHostAlloc(&host, bytes, cudaHostAllocDefault), error);
    *ret = host;
    add(&lane->numbers->pinned, bytes);
    add(&lane->numbers->allocations, lane->settled);
    return 0;
}

static int open_slot(struct lane *lane, struct lane_slot *slot, struct error *error)
{
    slot->lane = lane;
    atomic_init(&slot->state, SLOT_FREE);
    CUDA_TRY(cudaEventCreateWithFlags(&slot->inputs_there, cudaEventDisableTiming), error);
    CUDA_TRY(cudaEventCreateWithFlags(&slot->outputs_on_host, cudaEventDisableTiming), error);
    for (uint32_t i = 0; i < lane->compute_count; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&slot->through[i], cudaEventDisableTiming), error);
    int rc = lane_times_open(&slot->times, lane->compute_count, error);
    if (!rc)
        rc = pinned(lane, lane->in_room, &slot->staging_in, error);
    return rc ? rc : pinned(lane, lane->out_room, &slot->staging_out, error);
}

int lane_open(struct lane *lane, const struct gpu_jobs_options *options, struct error *error)
{
    lane->compute_count = options->stream_count;
    lane->event_count = options->event_count;
    lane->ring = options->ring;
    lane->in_room = lane_table_bytes(GPU_JOBS_PIECES_MAX) + options->chunk_bytes;
    lane->out_room = options->chunk_bytes;
    lane->copy_most = options->background ? BACKGROUND_COPY : UINT64_MAX;
    int rc = open_streams(lane, options->background, error);
    for (uint32_t i = 0; !rc && i < lane->ring; i++)
        rc = open_slot(lane, &lane->slots[i], error);
    if (rc)
        lane_close(lane);
    return rc;
}

static void close_event(cudaEvent_t *event)
{
    if (*event)
        (void)cudaEventDestroy(*event);
    *event = NULL;
}

static void close_slot(struct lane_slot *slot)
{
    close_event(&slot->inputs_there);
    close_event(&slot->outputs_on_host);
    for (uint32_t i = 0; i < SLUICE_STREAMS_MAX; i++)
        close_event(&slot->through[i]);
    lane_times_close(&slot->times);
    /* May wait for the whole device: at the end alone, when no job is left (jobs_stop()), or where
     * a lane could not be opened. */
    if (slot->staging_in)
        (void)cudaFreeHost(slot->staging_in);
    if (slot->staging_out)
        (void)cudaFreeHost(slot->staging_out);
    slot->staging_in = slot->staging_out = NULL;
}

/* Errors are of no use here: the device is lost and goes with the process, or these calls succeed.
 */
void lane_close(struct lane *lane)
{
    for (uint32_t i = 0; i < GPU_JOBS_RING_MAX; i++)
        close_slot(&lane->slots[i]);
    for (uint32_t i = 0; i < SLUICE_EVENTS_MAX; i++)
        close_event(&lane->events[i]);
    cudaStream_t *streams[3 + SLUICE_STREAMS_MAX] = {&lane->in, &lane->out, &lane->notify};
    for (uint32_t i = 0; i < SLUICE_STREAMS_MAX; i++)
        streams[3 + i] = &lane->compute[i];
    for (uint32_t i = 0; i < 3 + SLUICE_STREAMS_MAX; i++) {
        if (*streams[i])
            (void)cudaStreamDestroy(*streams[i]);
        *streams[i] = NULL;
    }
}

int lane_synchronize(struct lane *lane, struct error *error)
{
    /* Waits: at the end alone (jobs_stop()), one stream after the other in the order in which a job
     * passes them; counted where a job is under way. */
    for (uint32_t i = 0; i < lane->ring; i++)
        add(&lane->numbers->synchronizes,
            atomic_load_explicit(&lane->slots[i].state, memory_order_relaxed) == SLOT_UNDER_WAY);
    CUDA_TRY(cudaStreamSynchronize(lane->in), error);
    for (uint32_t i = 0; i < lane->compute_count; i++)
        CUDA_TRY(cudaStreamSynchronize(lane->compute[i]), error);
    CUDA_TRY(cudaStreamSynchronize(lane->out), error);
    CUDA_TRY(cudaStreamSynchronize(lane->notify), error);
    return 0;
}

struct lane_slot *lane_free_slot(struct lane *lane)
{
    for (uint32_t i = 0; i < lane->ring; i++)
        if (atomic_load_explicit(&lane->slots[i].state, memory_order_relaxed) == SLOT_FREE)
            return &lane->slots[i];
    return NULL;
}

/* ---- where things lie --------------------------------------------------------------------------
 */

struct layout {
    uint64_t scratch_at[GPU_JOBS_PIECES_MAX];
};

/* Sizes to sums; they were looked at when the pieces were made. */
static int measure(struct lane_slot *slot, const struct gpu_chunk *chunk, struct layout *layout,
                   struct error *error)
{
    slot->in_bytes = lane_table_bytes(chunk->count);
    slot->out_bytes = slot->scratch_bytes = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        struct sluice_item item = {.sizes = {0}};
        struct shape_room room;
        memcpy(item.sizes, chunk->pieces[i].sizes, sizeof(item.sizes));
        memcpy(item.values, chunk->pieces[i].values, sizeof(item.values));
        int rc = shape_room(chunk->program, &item, &room, error);
        if (rc)
            return rc;
        slot->out_at[i] = slot->out_bytes;
        layout->scratch_at[i] = slot->scratch_bytes;
        slot->in_bytes += room.in;
        slot->out_bytes += room.out;
        slot->scratch_bytes += room.scratch;
    }
    slot->scratch_bytes += shape_align(chunk->program->batch_scratch);
    assert(slot->in_bytes <= slot->lane->in_room && slot->out_bytes <= slot->lane->out_room);
    return 0;
}

/* A quarter of a power of two at a time: what one chunk gave back serves the next of about its
 * size. */
static uint64_t rounded(uint64_t bytes)
{
    uint64_t step = 64u << 10;
    while (step * 8 < bytes)
        step *= 2;
    return (bytes + step - 1) / step * step;
}

/* The tensor's bytes, then zeros up to where the next begins; pinned ones are copied by the device.
 */
static uint64_t put_tensor(const struct lane_slot *slot, uint64_t at,
                           const struct program_tensor *tensor, const struct gpu_piece *piece,
                           const void *from)
{
    uint64_t bytes = 0;
    struct error ignored;
    (void)shape_bytes(tensor, piece->sizes, &bytes, &ignored); /* it was measured */
    uint64_t padded = shape_align(bytes);
    if (slot->chunk->pinned)
        return padded;
    copy_crew_add(slot->lane->crew, slot->staging_in + at, from, bytes);
    memset(slot->staging_in + at + bytes, 0, padded - bytes);
    return padded;
}

static void fill_item(struct lane_slot *slot, const struct gpu_piece *piece, uint32_t number,
                      const struct layout *layout, uint64_t *in_at, struct sluice_item *item)
{
    const struct program *program = slot->chunk->program;
    unsigned char *memory = slot->memory;
    uint64_t out_at = slot->in_bytes + slot->out_at[number], bytes = 0;
    struct error ignored;
    *item = (struct sluice_item){.first = piece->first, .whole = piece->whole};
    memcpy(item->sizes, piece->sizes, sizeof(item->sizes));
    memcpy(item->values, piece->values, sizeof(item->values));
    for (uint32_t i = 0; i < program->input_count; i++) {
        item->inputs[i] = body_address(memory + *in_at);
        *in_at += put_tensor(slot, *in_at, &program->inputs[i], piece, piece->inputs[i]);
    }
    for (uint32_t i = 0; i < program->output_count; i++) {
        item->outputs[i] = body_address(memory + out_at);
        (void)shape_bytes(&program->outputs[i], piece->sizes, &bytes, &ignored);
        out_at += shape_align(bytes);
    }
    if (program->scratch)
        item->scratch =
            body_address(memory + slot->in_bytes + slot->out_bytes + layout->scratch_at[number]);
}

static void fill_staging(struct lane_slot *slot, const struct layout *layout)
{
    const struct gpu_chunk *chunk = slot->chunk;
    struct sluice_item *items = (struct sluice_item *)(void *)slot->staging_in;
    uint64_t at = lane_table_bytes(chunk->count);
    for (uint32_t i = 0; i < chunk->count; i++)
        fill_item(slot, &chunk->pieces[i], i, layout, &at, &items[i]);
    assert(at == slot->in_bytes);
    copy_crew_run(slot->lane->crew);
}

/* ---- enqueueing --------------------------------------------------------------------------------
 */

/* What the allocator gives is the end of the chunk's scratch. */
struct taker {
    struct sluice_allocator base;
    unsigned char *at;
    uint64_t left;
};

static void *take(struct sluice_allocator *allocator, uint64_t bytes)
{
    struct taker *taker = (struct taker *)allocator;
    if (bytes == 0 || bytes > taker->left || shape_align(bytes) > taker->left)
        return NULL;
    void *at = taker->at;
    taker->at += shape_align(bytes);
    taker->left -= shape_align(bytes);
    return body_address(at);
}

/* In parts of copy_most. */
static int copy_parts(const struct lane *lane, unsigned char *to, const unsigned char *from,
                      uint64_t bytes, bool in, struct error *error)
{
    for (uint64_t at = 0; at < bytes; at += lane->copy_most) {
        uint64_t part = bytes - at < lane->copy_most ? bytes - at : lane->copy_most;
        CUDA_TRY(cudaMemcpyAsync(to + at, from + at, part,
                                 in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                 in ? lane->in : lane->out),
                 error);
        if (part == bytes - at)
            break;
    }
    return 0;
}

/* From or to the slot's staging; anything else would be a pageable copy, which waits. */
static int copy(struct lane_slot *slot, void *to, const void *from, uint64_t bytes, bool in,
                struct error *error)
{
    struct lane *lane = slot->lane;
    const unsigned char *host = in ? from : to, *base = in ? slot->staging_in : slot->staging_out;
    const uint64_t room = in ? lane->in_room : lane->out_room;
    if (host < base || bytes > room || (uint64_t)(host - base) > room - bytes)
        add(&lane->numbers->pageable_copies, 1);
    return copy_parts(lane, to, from, bytes, in, error);
}

/* From where each tensor of each piece lies; what staging would have as zeros is cleared. */
static int copy_pinned_in(const struct lane_slot *slot, struct error *error)
{
    const struct gpu_chunk *chunk = slot->chunk;
    unsigned char *at = (unsigned char *)slot->memory + lane_table_bytes(chunk->count);
    for (uint32_t i = 0; i < chunk->count * chunk->program->input_count; i++) {
        const uint32_t tensor = i % chunk->program->input_count;
        const struct gpu_piece *piece = &chunk->pieces[i / chunk->program->input_count];
        uint64_t bytes = 0;
        (void)shape_bytes(&chunk->program->inputs[tensor], piece->sizes, &bytes, error);
        CUDA_TRY(cudaMemcpyAsync(at, piece->inputs[tensor], bytes, cudaMemcpyHostToDevice,
                                 slot->lane->in),
                 error);
        if (shape_align(bytes) > bytes)
            CUDA_TRY(cudaMemsetAsync(at + bytes, 0, shape_align(bytes) - bytes, slot->lane->in),
                     error);
        at += shape_align(bytes);
    }
    return 0;
}

static int copy_pinned_out(const struct lane_slot *slot, struct error *error)
{
    const struct gpu_chunk *chunk = slot->chunk;
    const unsigned char *at = (const unsigned char *)slot->memory + slot->in_bytes;
    for (uint32_t i = 0; i < chunk->count * chunk->program->output_count; i++) {
        const uint32_t tensor = i % chunk->program->output_count;
        const struct gpu_piece *piece = &chunk->pieces[i / chunk->program->output_count];
        uint64_t bytes = 0;
        (void)shape_bytes(&chunk->program->outputs[tensor], piece->sizes, &bytes, error);
        if (piece->outputs[tensor])
            CUDA_TRY(cudaMemcpyAsync(piece->outputs[tensor], at, bytes, cudaMemcpyDeviceToHost,
                                     slot->lane->out),
                     error);
        at += shape_align(bytes);
    }
    return 0;
}

static int copy_in(struct lane_slot *slot, struct error *error)
{
    const bool pinned = slot->chunk->pinned;
    const uint64_t bytes = pinned ? lane_table_bytes(slot->chunk->count) : slot->in_bytes;
    int rc = copy(slot, slot->memory, slot->staging_in, bytes, true, error);
    return rc || !pinned ? rc : copy_pinned_in(slot, error);
}

static int copy_out(struct lane_slot *slot, struct error *error)
{
    if (slot->chunk->pinned)
        return copy_pinned_out(slot, error);
    return copy(slot, slot->staging_out, (unsigned char *)slot->memory + slot->in_bytes,
                slot->out_bytes, false, error);
}

/* Of a chunk that is timed, else nothing. */
static int stamp(const struct lane_slot *slot, cudaEvent_t event, cudaStream_t stream,
                 struct error *error)
{
    if (slot->chunk->timed)
        CUDA_TRY(cudaEventRecord(event, stream), error);
    return 0;
}

static int stamp_streams(const struct lane_slot *slot, const cudaEvent_t *events,
                         struct error *error)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < slot->chunk->program->stream_count; i++)
        rc = stamp(slot, events[i], slot->lane->compute[i], error);
    return rc;
}

static int copies_in(struct lane_slot *slot, struct error *error)
{
    struct lane *lane = slot->lane;
    unsigned char *memory = slot->memory;
    const struct program *program = slot->chunk->program;
    int rc = stamp(slot, slot->times.in_first, lane->in, error);
    if (!rc)
        rc = copy_in(slot, error);
    if (!rc)
        rc = stamp(slot, slot->times.in_last, lane->in, error);
    if (rc)
        return rc;
    if (!program->writes_all)
        CUDA_TRY(cudaMemsetAsync(memory + slot->in_bytes, 0, slot->out_bytes + slot->scratch_bytes,
                                 lane->in),
                 error);
    CUDA_TRY(cudaEventRecord(slot->inputs_there, lane->in), error);
    for (uint32_t i = 0; i < program->stream_count; i++)
        CUDA_TRY(cudaStreamWaitEvent(lane->compute[i], slot->inputs_there, 0), error);
    return stamp_streams(slot, slot->times.begun, error);
}

static void run_program(struct lane_slot *slot)
{
    struct lane *lane = slot->lane;
    struct gpu_chunk *chunk = slot->chunk;
    const struct program *program = chunk->program;
    unsigned char *memory = slot->memory;
    const uint64_t own = shape_align(program->batch_scratch);
    struct sluice_streams streams = {.count = program->stream_count,
                                     .event_count = program->event_count,
                                     .cpu = body_cpu,
                                     .cuda = lane->cuda};
    struct taker taker = {.base.take = take,
                          .at =
                              memory + slot->in_bytes + slot->out_bytes + slot->scratch_bytes - own,
                          .left = own};
    const struct sluice_batch batch = {.count = chunk->count,
                                       .items = (const void *)slot->staging_in,
                                       .device_items = body_address(memory)};
    memcpy(streams.streams, lane->compute, sizeof(streams.streams));
    memcpy(streams.events, lane->events, sizeof(streams.events));
    chunk->status = program->enqueue(&batch, &streams, &taker.base);
}

static void chunk_ended(void *data)
{
    struct lane_slot *slot = data;
    const int wake_fd = slot->lane->wake_fd;
    /* Release: who sees it may read the outputs. */
    atomic_store_explicit(&slot->state, SLOT_ENDED, memory_order_release);
    uint64_t one = 1;
    while (write(wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue; /* a full eventfd is readable already */
}

static int copies_out(struct lane_slot *slot, struct error *error)
{
    struct lane *lane = slot->lane;
    int rc = stamp_streams(slot, slot->times.through, error);
    for (uint32_t i = 0; !rc && i < slot->chunk->program->stream_count; i++) {
        CUDA_TRY(cudaEventRecord(slot->through[i], lane->compute[i]), error);
        CUDA_TRY(cudaStreamWaitEvent(lane->out, slot->through[i], 0), error);
    }
    if (!rc)
        rc = stamp(slot, slot->times.out_first, lane->out, error);
    if (!rc && slot->chunk->status == 0)
        rc = copy_out(slot, error);
    if (!rc)
        rc = stamp(slot, slot->times.out_last, lane->out, error);
    if (rc)
        return rc;
    CUDA_TRY(cudaEventRecord(slot->outputs_on_host, lane->out), error);
    CUDA_TRY(cudaStreamWaitEvent(lane->notify, slot->outputs_on_host, 0), error);
    CUDA_TRY(cudaLaunchHostFunc(lane->notify, chunk_ended, slot), error);
    return 0;
}

int lane_submit(struct lane_slot *slot, struct gpu_chunk *chunk, struct error *error)
{
    struct lane *lane = slot->lane;
    struct layout layout;
    assert(chunk->count > 0 && chunk->count <= GPU_JOBS_PIECES_MAX);
    int rc = measure(slot, chunk, &layout, error);
    if (rc)
        return rc;
    slot->memory_bytes = rounded(slot->in_bytes + slot->out_bytes + slot->scratch_bytes);
    CUDA_TRY(cudaMallocFromPoolAsync(&slot->memory, slot->memory_bytes, lane->pool, lane->in),
             error);
    add(&lane->numbers->used, slot->memory_bytes);
    slot->chunk = chunk;
    chunk->status = 0;
    fill_staging(slot, &layout);
    atomic_store_explicit(&slot->state, SLOT_UNDER_WAY, memory_order_relaxed);
    rc = copies_in(slot, error);
    if (!rc)
        run_program(slot);
    if (!rc)
        rc = copies_out(slot, error);
    /* Half a chunk may be in the streams: whatever it was, the lanes are dead. */
    if (rc)
        return -(error->code = ERR_DEVICE);
    add(&lane->numbers->chunks, 1);
    add(&lane->numbers->pieces, chunk->count);
    add(&lane->numbers->bytes_in, slot->in_bytes);
    add(&lane->numbers->bytes_out, chunk->status == 0 ? slot->out_bytes : 0);
    return 0;
}

/* ---- the end of a chunk ------------------------------------------------------------------------
 */

static void fetch_outputs(const struct lane_slot *slot)
{
    const struct gpu_chunk *chunk = slot->chunk;
    const struct program *program = chunk->program;
    struct error ignored;
    for (uint32_t i = 0; i < chunk->count; i++) {
        const struct gpu_piece *piece = &chunk->pieces[i];
        uint64_t at = slot->out_at[i], bytes = 0;
        for (uint32_t j = 0; j < program->output_count; j++) {
            (void)shape_bytes(&program->outputs[j], piece->sizes, &bytes, &ignored);
            if (piece->outputs[j])
                copy_crew_add(slot->lane->crew, piece->outputs[j], slot->staging_out + at, bytes);
            at += shape_align(bytes);
        }
    }
    copy_crew_run(slot->lane->crew);
}

static int read_times(struct lane_slot *slot, struct error *error)
{
    struct gpu_chunk *chunk = slot->chunk;
    int rc = lane_times_read(&slot->times, slot->lane->clock, chunk->program->stream_count,
                             &chunk->times, error);
    chunk->times.lane = slot->lane->number;
    chunk->times.bytes_in = slot->in_bytes;
    chunk->times.bytes_out = chunk->status == 0 ? slot->out_bytes : 0;
    return rc;
}

int lane_take(struct lane_slot *slot, struct gpu_chunk **ret_chunk, struct error *error)
{
    struct lane *lane = slot->lane;
    struct gpu_chunk *chunk = slot->chunk;
    int rc = chunk->timed ? read_times(slot, error) : 0;
    if (rc)
        return rc;
    if (chunk->status == 0 && !chunk->pinned)
        fetch_outputs(slot);
    /* It has ended, as the host knows; the stream that frees is told of it, too. */
    CUDA_TRY(cudaStreamWaitEvent(lane->in, slot->outputs_on_host, 0), error);
    CUDA_TRY(cudaFreeAsync(slot->memory, lane->in), error);
    atomic_fetch_sub_explicit(&lane->numbers->used, slot->memory_bytes, memory_order_relaxed);
    slot->memory = NULL;
    slot->chunk = NULL;
    atomic_store_explicit(&slot->state, SLOT_FREE, memory_order_relaxed);
    *ret_chunk = chunk;
    return 0;
}
