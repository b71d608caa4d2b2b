#include "gpu/weights/loader.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/base/cuda_error.h"
#include "gpu/base/device.h"
#include "gpu/kernels/load/convert.h"
#include "gpu/kernels/load/fill.h"
#include "gpu/kernels/load/narrow.h"
#include "gpu/kernels/load/repack.h"
#include "gpu/weights/packed.h"
#include "gpu/weights/scales.h"
#include "gpu/weights/turned.h"

/* One thread copies out of the page cache at a fraction of what the bus takes. */
#define READERS 4
#define PLACES LOADER_PLACES

/* Some rows of a tensor. */
struct piece {
    const struct weights_part *part;
    const struct checkpoint_tensor *tensor;
    uint32_t row, rows;
};

/* Goes through all pieces of all parts. */
struct walk {
    const struct checkpoint *checkpoint;
    const struct weights_part *parts;
    uint64_t most; /* bytes of a piece */
    size_t count, at;
    uint32_t row;
};

/* So many columns of a row: as they go to the device, or as the tensor has them. */
static uint64_t columns_bytes(const struct piece *piece, uint32_t columns)
{
    bool packed = piece->tensor->words.bits || piece->part->format == FORMAT_E2M1;
    return packed ? format_bytes(piece->part->format, 1, columns)
                  : (uint64_t)columns * model_dtype_bytes(piece->tensor->dtype);
}

/* Of a row, what is this rank's. */
static uint64_t row_bytes(const struct piece *piece)
{
    return columns_bytes(piece, piece->part->place.columns);
}

static int piece_read(const struct checkpoint *checkpoint, const struct piece *piece, char *to,
                      struct error *error)
{
    const struct tensor_slice *place = &piece->part->place;
    if (piece->tensor->words.bits)
        return packed_rows(checkpoint, piece->part, piece->row, piece->rows, (uint8_t *)to, error);
    if (piece->part->transposed)
        return turned_rows(checkpoint, piece->part, piece->row, piece->rows, to, error);
    uint64_t bytes = row_bytes(piece), width = columns_bytes(piece, place->width);
    uint64_t first = (place->row + piece->row) * width + columns_bytes(piece, place->column);
    if (place->columns == place->width)
        return checkpoint_read(checkpoint, piece->tensor, first, piece->rows * bytes, to, error);
    int status = 0;
    for (uint32_t i = 0; !status && i < piece->rows; i++)
        status = checkpoint_read(checkpoint, piece->tensor, first + i * width, bytes,
                                 to + i * bytes, error);
    return status;
}

static bool walk_next(struct walk *walk, struct piece *ret)
{
    if (walk->at == walk->count)
        return false;
    const struct weights_part *part = &walk->parts[walk->at];
    *ret = (struct piece){
        .part = part,
        .tensor = checkpoint_tensor(walk->checkpoint, part->tensor),
        .row = walk->row,
    };
    uint64_t fit = walk->most / row_bytes(ret);
    assert(fit > 0);
    uint32_t left = part->place.rows - walk->row;
    ret->rows = left < fit ? left : (uint32_t)fit;
    walk->row += ret->rows;
    if (walk->row == part->place.rows) {
        walk->at++;
        walk->row = 0;
    }
    return true;
}

static uint64_t walk_bytes(struct walk walk)
{
    struct piece piece;
    uint64_t bytes = 0;
    while (walk_next(&walk, &piece))
        bytes += piece.rows * row_bytes(&piece);
    return bytes;
}

/* What the threads share: which pieces are being read, which are there, and how many places were
 * given back. */
struct exchange {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct walk walk;       /* of the next piece to be read */
    uint64_t taken, freed;  /* pieces that a reader took; places given back */
    uint64_t ready[PLACES]; /* number of the piece that was read into the place, plus 1 */
    bool stop;
    int status; /* of the first reader that failed */
    struct error error;
    void *pinned[PLACES];
};

/* Takes the next piece, in order, once its place is free. With the lock held. */
static bool piece_take(struct exchange *exchange, struct piece *ret, uint64_t *ret_number)
{
    while (!exchange->stop && !exchange->status && exchange->taken == exchange->freed + PLACES)
        pthread_cond_wait(&exchange->changed, &exchange->lock);
    if (exchange->stop || exchange->status || !walk_next(&exchange->walk, ret))
        return false;
    *ret_number = exchange->taken++;
    return true;
}

static void *reader(void *data)
{
    struct exchange *exchange = data;
    struct piece piece;
    uint64_t number;
    pthread_mutex_lock(&exchange->lock);
    while (piece_take(exchange, &piece, &number)) {
        pthread_mutex_unlock(&exchange->lock);
        struct error error;
        uint32_t place = number % PLACES;
        int status = piece_read(exchange->walk.checkpoint, &piece, exchange->pinned[place], &error);
        pthread_mutex_lock(&exchange->lock);
        exchange->ready[place] = number + 1;
        if (status && !exchange->status) {
            exchange->status = status;
            exchange->error = error;
        }
        pthread_cond_broadcast(&exchange->changed);
    }
    pthread_mutex_unlock(&exchange->lock);
    return NULL;
}

static int filled_await(struct exchange *exchange, uint64_t number, struct error *error)
{
    pthread_mutex_lock(&exchange->lock);
    while (!exchange->status && exchange->ready[number % PLACES] != number + 1)
        pthread_cond_wait(&exchange->changed, &exchange->lock);
    int status = exchange->status;
    if (status && error)
        *error = exchange->error;
    pthread_mutex_unlock(&exchange->lock);
    return status;
}

static void place_free(struct exchange *exchange, uint64_t count)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->freed = count;
    pthread_cond_broadcast(&exchange->changed);
    pthread_mutex_unlock(&exchange->lock);
}

static void readers_stop(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->stop = true;
    pthread_cond_broadcast(&exchange->changed);
    pthread_mutex_unlock(&exchange->lock);
}

struct staging {
    void *pinned, *device;
    uint64_t piece;
    cudaEvent_t copied[PLACES], converted[PLACES];
};

static int staging_open(struct staging *staging, const struct loader *loader, struct error *error)
{
    const struct loader_staging *given = loader->staging;
    *staging = (struct staging){.piece = given ? given->piece : device_traits.staging_bytes,
                                .pinned = given ? given->pinned : NULL,
                                .device = given ? given->device : NULL};
    uint64_t bytes = loader_staging_bytes(staging->piece);
    int status = given ? 0 : mem_pinned(loader->mem, bytes, &staging->pinned, error);
    if (!status && !given)
        status = mem_fixed(loader->mem, bytes, &staging->device, error);
    for (int i = 0; !status && i < PLACES; i++) {
        CUDA_TRY(cudaEventCreateWithFlags(&staging->copied[i], cudaEventDisableTiming), error);
        CUDA_TRY(cudaEventCreateWithFlags(&staging->converted[i], cudaEventDisableTiming), error);
    }
    return status;
}

static void staging_close(struct staging *staging, const struct loader *loader)
{
    /* The staging memory goes below: no copy and no conversion may still use it, also where loading
     * failed half way. Nothing is served yet, or the thread is none that steps wait for. */
    (void)cudaStreamSynchronize(loader->lane->bulk_in);
    (void)cudaStreamSynchronize(loader->lane->compute);
    if (staging->device && !loader->staging)
        (void)mem_fixed_free(loader->mem, staging->device, NULL);
    if (staging->pinned && !loader->staging)
        (void)mem_pinned_free(loader->mem, staging->pinned, NULL);
    for (int i = 0; i < PLACES; i++) {
        if (staging->copied[i])
            (void)cudaEventDestroy(staging->copied[i]);
        if (staging->converted[i])
            (void)cudaEventDestroy(staging->converted[i]);
    }
}

static int piece_convert(const struct loader *loader, const struct piece *piece, char *device,
                         struct error *error)
{
    const struct weights_part *part = piece->part;
    struct tensor_slice place = part->place;
    bool bytes = part->format > FORMAT_F16 && !part->scales;
    /* What stands in staging is this rank's part alone. */
    place.row = piece->row;
    place.rows = piece->rows;
    place.column = 0;
    place.columns = bytes ? (uint32_t)row_bytes(piece) : place.columns;
    place.width = place.columns;
    place.to += piece->row;
    place.order.first = piece->row;
    enum dtype from = weights_dtype(piece->tensor->dtype);
    struct convert_args convert = {.place = place,
                                   .from = device,
                                   .to = part->to,
                                   .from_dtype = from,
                                   .to_dtype = part->to_dtype,
                                   .bytes = bytes};
    struct narrow_args narrow = {
        .place = place, .from = device, .from_dtype = from, .to = part->to, .scales = part->scales};
    CUDA_TRY(part->scales ? op_narrow(&narrow, loader->lane->compute)
                          : op_convert(&convert, loader->lane->compute),
             error);
    return 0;
}

static int piece_send(const struct staging *staging, const struct loader *loader,
                      const struct piece *piece, uint64_t number, struct error *error)
{
    uint64_t at = number % PLACES * staging->piece;
    cudaEvent_t copied = staging->copied[number % PLACES];
    cudaEvent_t converted = staging->converted[number % PLACES];
    const struct streams *lane = loader->lane;
    if (number >= PLACES)
        CUDA_TRY(cudaStreamWaitEvent(lane->bulk_in, converted, 0), error);
    char *device = (char *)staging->device + at;
    CUDA_TRY(cudaMemcpyAsync(device, (char *)staging->pinned + at, piece->rows * row_bytes(piece),
                             cudaMemcpyHostToDevice, lane->bulk_in),
             error);
    CUDA_TRY(cudaEventRecord(copied, lane->bulk_in), error);
    CUDA_TRY(cudaStreamWaitEvent(lane->compute, copied, 0), error);
    int status = piece_convert(loader, piece, device, error);
    if (status)
        return status;
    CUDA_TRY(cudaEventRecord(converted, lane->compute), error);
    return 0;
}

/* `walk` sees the same pieces as the readers, in the same order. */
static int pieces_send(const struct loader *loader, const struct staging *staging, struct walk walk,
                       struct exchange *exchange, struct error *error)
{
    const uint64_t bytes_total = walk_bytes(walk);
    struct piece piece;
    uint64_t bytes = 0;
    for (uint64_t number = 0; walk_next(&walk, &piece); number++) {
        int status = filled_await(exchange, number, error);
        if (!status)
            status = piece_send(staging, loader, &piece, number, error);
        if (status)
            return status;
        if (number > 0) {
            /* A reader may fill the place again only when the copy out of it has ended; the one
             * enqueued just now keeps the bus busy meanwhile. */
            CUDA_TRY(cudaEventSynchronize(staging->copied[(number - 1) % PLACES]), error);
            place_free(exchange, number);
        }
        bytes += piece.rows * row_bytes(&piece);
        atomic_store_explicit(loader->progress, (uint32_t)(bytes * 999 / bytes_total),
                              memory_order_relaxed);
    }
    return 0;
}

static int load_run(const struct loader *loader, const struct weights_part *parts, size_t count,
                    const struct staging *staging, struct error *error)
{
    const struct checkpoint *checkpoint = loader->source->checkpoint;
    const struct walk walk = {
        .checkpoint = checkpoint, .parts = parts, .most = staging->piece, .count = count};
    struct exchange exchange = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .walk = walk,
    };
    for (int i = 0; i < PLACES; i++)
        exchange.pinned[i] = (char *)staging->pinned + i * staging->piece;
    pthread_t threads[READERS];
    int started = 0;
    while (started < READERS && pthread_create(&threads[started], NULL, reader, &exchange) == 0)
        started++;
    int status = started ? pieces_send(loader, staging, walk, &exchange, error)
                         : error_set(error, ERR_NO_MEMORY, "no thread to read the weights with");
    readers_stop(&exchange);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    return status;
}

static int load(const struct loader *loader, const struct weights_part *parts, size_t count,
                struct error *error)
{
    struct staging staging;
    int status = staging_open(&staging, loader, error);
    if (!status)
        status = load_run(loader, parts, count, &staging, error);
    staging_close(&staging, loader);
    return status;
}

static int fill(const struct loader *loader, const struct weights_part *parts, size_t count,
                struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        const struct weights_part *part = &parts[i];
        struct fill_args args = {
            .place = part->place,
            .to = part->to,
            .to_dtype = part->to_dtype,
            .format = part->format,
            .tensor = loader->source->list->tensors[part->tensor].number,
            .seed = loader->source->seed,
            .mean = part->mean,
            .deviation = part->deviation,
        };
        CUDA_TRY(op_fill(&args, loader->lane->compute), error);
        atomic_store_explicit(loader->progress, (uint32_t)((i + 1) * 999 / count),
                              memory_order_relaxed);
    }
    return 0;
}

/* Through this thread's own stream, which the caller waits for. The pinned copy is small and stays.
 */
static int rope_send(const struct loader *loader, uint32_t table, struct error *error)
{
    const struct model_rope *rope = &loader->source->list->ropes[table];
    void *pinned = NULL;
    size_t bytes = rope->pairs * sizeof(float);
    int status = mem_pinned(loader->mem, bytes, &pinned, error);
    if (status)
        return status;
    memcpy(pinned, rope->inverse_frequency, bytes);
    CUDA_TRY(cudaMemcpyAsync((void *)loader->weights->inverse_frequency[table], pinned, bytes,
                             cudaMemcpyHostToDevice, cudaStreamPerThread),
             error);
    return 0;
}

/* Behind all that fills them; experts' stay as they are (whole.h). */
static int repack(const struct loader *loader, struct error *error)
{
    for (uint32_t i = 0; i < loader->source->list->weight_count; i++)
        if (!loader->source->list->weights[i].experts)
            CUDA_TRY(op_repack(&loader->weights->at[i], loader->lane->compute), error);
    return 0;
}

/* Of the columns of its matrix; NULL: as they stand. */
static const uint32_t *order_of(const struct loader *loader, uint32_t **orders,
                                const struct weights_part *part)
{
    const uint32_t *order = orders[part->weight];
    return order ? order + (size_t)part->expert * loader->weights->at[part->weight].k : NULL;
}

/* Parts in order, or made of the seed; `orders` as scales_load gives them. */
static int parts_run(const struct loader *loader, uint32_t **orders, struct error *error)
{
    struct weights_part *parts = NULL;
    size_t count = 0;
    int status = scales_load(loader, orders, error);
    if (!status)
        status = weights_parts(loader->weights, loader->source, &parts, &count, error);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++)
        parts[i].order = order_of(loader, orders, &parts[i]);
    status = loader->source->checkpoint ? load(loader, parts, count, error)
                                        : fill(loader, parts, count, error);
    free(parts);
    return status ? status : repack(loader, error);
}

int loader_run(const struct loader *loader, struct error *error)
{
    uint32_t count = loader->source->list->weight_count;
    int status = 0;
    for (uint32_t i = 0; !status && i < loader->source->list->rope_count; i++)
        status = rope_send(loader, i, error);
    if (status)
        return status;
    uint32_t **orders = calloc(count + 1, sizeof *orders);
    if (!orders)
        return error_set(error, ERR_NO_MEMORY, "no memory for a list of %u weights", count);
    status = parts_run(loader, orders, error);
    for (uint32_t i = 0; i < count; i++)
        free(orders[i]);
    free(orders);
    return status;
}
