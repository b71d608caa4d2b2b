#include "gpu/emu/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/device.h"
#include "gpu/emu/order.h"
#include "gpu/emu/team.h"
#include "gpu/emu/work.h"

#define STREAM_MAGIC 0x5354524du
#define CHUNK_BYTES (64 * 1024)
#define HEAVY_BYTES (256 * 1024)
#define TALLIES_MAX 256

/* A piece of a queue's storage: works are laid one after the other, and the piece is used again
 * when the last of them is done. In steady state no heap is touched. */
struct chunk {
    struct chunk *next;
    uint32_t used, live;
    _Alignas(16) unsigned char bytes[];
};

static struct lock all_lock; /* guards the list's head and `alive` when streams are taken from it */
static struct CUstream_st *all;
static uint32_t live_count;
static struct CUstream_st *tallies; /* by next_all; guarded likewise */
static uint32_t tally_count;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
/* The calling thread's default streams. */
static _Thread_local struct {
    uint32_t generation;
    struct CUstream_st *stream[DEVICES_MAX];
} per_thread;

/* --- life ------------------------------------------------------------------------------------ */

static struct CUstream_st *take_unused(struct device *device)
{
    for (struct CUstream_st *stream = all; stream; stream = stream->next_all) {
        if (!stream->alive && stream->device == device &&
            atomic_load(&stream->done) == stream->issued)
            return stream;
    }
    return NULL;
}

static struct CUstream_st *make_new(struct device *device)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->crew = device->crew ? device->crew : crew_make(1);
    if (!stream->crew) {
        free(stream);
        return NULL;
    }
    stream->magic = STREAM_MAGIC;
    stream->device = device;
    stream->wait.stream = stream;
    stream->next_all = all;
    all = stream;
    return stream;
}

struct CUstream_st *stream_make(struct device *device, int priority, bool created)
{
    lock_take(&all_lock);
    struct CUstream_st *stream = take_unused(device);
    if (!stream)
        stream = make_new(device);
    if (stream) {
        lock_take(&stream->lock);
        stream->priority = priority;
        stream->alive = true;
        stream->created = created;
        lock_drop(&stream->lock);
        live_count += created;
    }
    lock_drop(&all_lock);
    return stream;
}

void stream_retire(struct CUstream_st *stream)
{
    lock_take(&all_lock);
    live_count -= stream->created;
    lock_take(&stream->lock);
    stream->alive = false;
    lock_drop(&stream->lock);
    lock_drop(&all_lock);
}

uint32_t stream_live(void)
{
    lock_take(&all_lock);
    uint32_t count = live_count;
    lock_drop(&all_lock);
    return count;
}

static void free_chunks(struct chunk *chunk)
{
    while (chunk) {
        struct chunk *next = chunk->next;
        munmap(chunk, CHUNK_BYTES);
        chunk = next;
    }
}

void stream_join(void)
{
    for (struct CUstream_st *stream = all; stream; stream = stream->next_all) {
        if (!stream->device->crew)
            crew_join(stream->crew);
    }
}

void stream_reset(void)
{
    while (all) {
        struct CUstream_st *stream = all;
        all = stream->next_all;
        team_stop(stream->team);
        if (!stream->device->crew)
            crew_free(stream->crew);
        while (stream->head) {
            struct work *work = stream->head;
            stream->head = work->next;
            if (--work->chunk->live == 0 && work->chunk != stream->chunk)
                munmap(work->chunk, CHUNK_BYTES);
        }
        free_chunks(stream->spare);
        if (stream->chunk)
            munmap(stream->chunk, CHUNK_BYTES);
        free(stream);
    }
    live_count = 0;
}

static void thread_ends(void *unused)
{
    (void)unused;
    if (!device_ready() || per_thread.generation != device_generation())
        return;
    for (int i = 0; i < DEVICES_MAX; i++) {
        if (per_thread.stream[i])
            stream_retire(per_thread.stream[i]);
    }
    memset(&per_thread, 0, sizeof(per_thread));
}

static void make_key(void)
{
    if (pthread_key_create(&key, thread_ends) != 0)
        call_abort("no thread key left");
}

static struct CUstream_st *default_of_thread(void)
{
    struct device *device = device_current();
    if (per_thread.generation != device_generation()) {
        memset(&per_thread, 0, sizeof(per_thread));
        per_thread.generation = device_generation();
        pthread_once(&key_once, make_key);
        pthread_setspecific(key, &per_thread);
    }
    struct CUstream_st **slot = &per_thread.stream[device->ordinal];
    if (!*slot)
        *slot = stream_make(device, 0, false);
    return *slot;
}

struct CUstream_st *stream_from(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy)
        call_abort("the legacy default stream was used");
    if (handle == cudaStreamPerThread)
        return default_of_thread();
    return handle->magic == STREAM_MAGIC && handle->alive ? handle : NULL;
}

/* --- the queue ------------------------------------------------------------------------------- */

static struct chunk *chunk_with_room(struct CUstream_st *stream, uint32_t bytes)
{
    struct chunk *chunk = stream->chunk;
    if (chunk && chunk->used + bytes <= CHUNK_BYTES - sizeof(*chunk))
        return chunk;
    chunk = stream->spare;
    if (chunk) {
        stream->spare = chunk->next;
    } else {
        chunk = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED)
            return NULL;
    }
    chunk->next = NULL;
    chunk->used = chunk->live = 0;
    stream->chunk = chunk; /* the one before goes to `spare` with its last work */
    return chunk;
}

static void chunk_release(struct CUstream_st *stream, struct chunk *chunk)
{
    if (--chunk->live > 0)
        return;
    chunk->used = 0;
    if (chunk != stream->chunk) {
        chunk->next = stream->spare;
        stream->spare = chunk;
    }
}

/* A plain loop on purpose: memcpy would be seen by ThreadSanitizer, as a write to storage that was
 * used before by a thread that CUDA does not order before this one. */
static void copy_unseen(unsigned char *to, const unsigned char *from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        to[i] = from[i];
        __asm__ volatile("" ::: "memory");
    }
}

static struct work *append(struct CUstream_st *stream, const struct work *from, const void *args,
                           size_t size)
{
    uint32_t bytes = (uint32_t)((sizeof(struct work) + size + 15) & ~(size_t)15);
    struct chunk *chunk = chunk_with_room(stream, bytes);
    if (!chunk)
        return NULL;
    struct work *work = (struct work *)(chunk->bytes + chunk->used);
    chunk->used += bytes;
    chunk->live++;
    copy_unseen((unsigned char *)work, (const unsigned char *)from, sizeof(*work));
    copy_unseen(work->args, args, size);
    work->size = (uint32_t)size;
    work->chunk = chunk;
    work->next = NULL;
    work->seq = ++stream->issued;
    if (stream->tail)
        stream->tail->next = work;
    else
        stream->head = work;
    stream->tail = work;
    return work;
}

static void *issued_key(struct CUstream_st *stream, uint64_t seq)
{
    return &stream->issued_key[seq % STREAM_KEYS];
}

static void *done_key(struct CUstream_st *stream, uint64_t seq)
{
    return &stream->done_key[seq % STREAM_KEYS];
}

/* Owner only, while there is a head. */
static struct work *peek(struct CUstream_st *stream)
{
    lock_take(&stream->lock);
    struct work *head = stream->head;
    if (!head)
        stream->owned = false;
    lock_drop(&stream->lock);
    return head;
}

static bool is_wait(const struct work *work)
{
    return work->kind == WORK_WAIT || work->kind == WORK_LEVEL;
}

/* What a wait waits for. A stream's own tally stands still while the stream waits. */
static struct CUstream_st *awaited(const struct work *wait, uint64_t *ret_seq)
{
    if (wait->kind == WORK_WAIT) {
        *ret_seq = wait->wait.seq;
        return wait->wait.on;
    }
    *ret_seq = atomic_load_explicit(&wait->tally.own->done, memory_order_acquire);
    return wait->tally.other;
}

/* Hands the stream over to the end of what its head waits for. False: that is done already. */
static bool park(struct CUstream_st *stream, const struct work *wait)
{
    uint64_t seq;
    struct CUstream_st *on = awaited(wait, &seq);
    bool parked = false;
    lock_take(&on->lock);
    bool lost = wait->kind == WORK_LEVEL && call_sticky() != cudaSuccess;
    if (!lost && atomic_load_explicit(&on->done, memory_order_relaxed) < seq) {
        stream->wait.seq = seq;
        stream->wait.next = on->waiters;
        on->waiters = &stream->wait;
        parked = true;
    }
    lock_drop(&on->lock);
    return parked;
}

static void settle(struct CUstream_st *stream);
static void settle_all(struct stream_waiter *ready);

/* Whether even a wait that is over must come to the stream's own thread, to be seen (order.h). */
static bool waits_must_run(void)
{
    return ORDER_SEEN && device_chosen.engine != EMU_STEPPER;
}

/* Takes those off the list whose work is done. The stream's lock is held. */
static struct stream_waiter *take_waiters(struct CUstream_st *stream, uint64_t done)
{
    struct stream_waiter *ready = NULL;
    for (struct stream_waiter **at = &stream->waiters; *at;) {
        struct stream_waiter *waiter = *at;
        if (waiter->seq > done) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter->next = ready;
        ready = waiter;
    }
    return ready;
}

/* Owner only: the head is done. */
static void complete(struct CUstream_st *stream, struct work *work)
{
    uint64_t seq = work->seq;
    order_give(done_key(stream, seq));
    lock_take(&stream->lock);
    stream->head = work->next;
    if (!stream->head)
        stream->tail = NULL;
    chunk_release(stream, work->chunk);
    atomic_store_explicit(&stream->done, seq, memory_order_release);
    struct stream_waiter *ready = stream->waiters ? take_waiters(stream, seq) : NULL;
    lock_drop(&stream->lock);
    settle_all(ready);
}

/* Owner only: gives the stream to whoever can go on with it. A wait that is over is completed here
 * where it can be. */
static void settle(struct CUstream_st *stream)
{
    struct work *head;
    while ((head = peek(stream)) != NULL) {
        if (!is_wait(head)) {
            crew_push(stream->crew, stream);
            return;
        }
        if (park(stream, head))
            return;
        if (waits_must_run()) {
            crew_push(stream->crew, stream);
            return;
        }
        complete(stream, head);
    }
}

static void settle_all(struct stream_waiter *ready)
{
    while (ready) {
        struct stream_waiter *next = ready->next; /* gone once it was told */
        if (ready->stream)
            settle(ready->stream);
        else
            signal_give(&ready->signal);
        ready = next;
    }
}

void stream_tally_raise(struct CUstream_st *tally)
{
    lock_take(&tally->lock);
    uint64_t count = atomic_load_explicit(&tally->done, memory_order_relaxed) + 1;
    order_give(done_key(tally, count));
    atomic_store_explicit(&tally->done, count, memory_order_release);
    struct stream_waiter *ready = take_waiters(tally, count);
    lock_drop(&tally->lock);
    settle_all(ready);
}

void stream_tallies_release(void)
{
    lock_take(&all_lock);
    struct stream_waiter *ready[TALLIES_MAX];
    uint32_t count = 0;
    for (struct CUstream_st *tally = tallies; tally; tally = tally->next_all) {
        lock_take(&tally->lock);
        ready[count++] = take_waiters(tally, UINT64_MAX);
        lock_drop(&tally->lock);
    }
    lock_drop(&all_lock);
    while (count-- > 0)
        settle_all(ready[count]);
}

struct CUstream_st *emu_tally_make(void)
{
    struct CUstream_st *tally = calloc(1, sizeof(*tally));
    if (!tally)
        return NULL;
    lock_take(&all_lock);
    bool full = tally_count == TALLIES_MAX;
    if (!full) {
        tally_count++;
        tally->next_all = tallies;
        tallies = tally;
    }
    lock_drop(&all_lock);
    if (full)
        free(tally);
    return full ? NULL : tally;
}

void emu_tally_free(struct CUstream_st *tally)
{
    if (!tally)
        return;
    lock_take(&all_lock);
    for (struct CUstream_st **at = &tallies; *at; at = &(*at)->next_all) {
        if (*at != tally)
            continue;
        *at = tally->next_all;
        tally_count--;
        break;
    }
    lock_drop(&all_lock);
    free(tally);
}

uint64_t stream_enqueue(struct CUstream_st *stream, const struct work *from, const void *args,
                        size_t size)
{
    lock_take(&stream->lock);
    struct work *work = append(stream, from, args, size);
    if (!work) {
        lock_drop(&stream->lock);
        return 0;
    }
    uint64_t seq = work->seq;
    order_give(issued_key(stream, seq));
    bool rests = !stream->owned;
    stream->owned = true;
    lock_drop(&stream->lock);
    if (rests)
        settle(stream);
    return seq;
}

uint64_t stream_issued(struct CUstream_st *stream)
{
    lock_take(&stream->lock);
    uint64_t issued = stream->issued;
    lock_drop(&stream->lock);
    return issued;
}

cudaError_t stream_wait(struct CUstream_st *stream, struct CUstream_st *on, uint64_t seq)
{
    if (on == stream || seq == 0)
        return cudaSuccess;
    if (!waits_must_run() && atomic_load_explicit(&on->done, memory_order_acquire) >= seq)
        return cudaSuccess;
    struct work wait = {.kind = WORK_WAIT, .wait = {.on = on, .seq = seq}};
    return stream_enqueue(stream, &wait, NULL, 0) ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* --- running --------------------------------------------------------------------------------- */

enum stream_class stream_head_class(const struct CUstream_st *stream)
{
    const struct work *head = stream->head;
    switch ((enum work_kind)head->kind) {
    case WORK_HOST:
        return CLASS_HOST;
    case WORK_KERNEL:
        return CLASS_HEAVY;
    case WORK_COPY:
        return head->copy.bytes > HEAVY_BYTES ? CLASS_HEAVY : CLASS_LIGHT;
    case WORK_FILL:
        return head->fill.bytes > HEAVY_BYTES ? CLASS_HEAVY : CLASS_LIGHT;
    case WORK_WAIT:
    case WORK_STAMP:
    case WORK_RAISE:
    case WORK_LEVEL:
        break;
    }
    return CLASS_LIGHT;
}

bool stream_head_hangs(const struct CUstream_st *stream)
{
    return stream->head->hangs && call_sticky() == cudaSuccess;
}

static void run_head(struct CUstream_st *stream, struct crew_member *member, struct work *head)
{
    order_take(issued_key(stream, head->seq));
    if (is_wait(head)) {
        uint64_t seq;
        struct CUstream_st *on = awaited(head, &seq);
        order_take(done_key(on, seq));
        return;
    }
    if (call_sticky() != cudaSuccess)
        return;
    enum stream_class class = stream_head_class(stream);
    if (member && class != CLASS_LIGHT)
        crew_busy(member, class == CLASS_HEAVY, head->hangs);
    if (head->hangs)
        call_hang();
    else
        work_run(stream, head);
    if (member)
        crew_light(member);
}

void stream_run(struct CUstream_st *stream, struct crew_member *member, uint32_t budget)
{
    struct work *head;
    for (uint32_t count = 0; (head = peek(stream)) != NULL; count++) {
        if (is_wait(head) && park(stream, head))
            return;
        if (budget && count == budget) {
            settle(stream);
            return;
        }
        if (count > 0 && crew_prefers_another(stream->crew, stream_head_class(stream))) {
            crew_push(stream->crew, stream);
            return;
        }
        run_head(stream, member, head);
        complete(stream, head);
    }
}

/* --- waiting from the host ------------------------------------------------------------------- */

static void observe(struct CUstream_st *stream, uint64_t seq)
{
    uint64_t before = atomic_load_explicit(&stream->observed, memory_order_relaxed);
    while (before < seq && !atomic_compare_exchange_weak(&stream->observed, &before, seq))
        ;
    order_take(done_key(stream, seq));
}

bool stream_done(struct CUstream_st *stream, uint64_t seq)
{
    if (atomic_load_explicit(&stream->done, memory_order_acquire) < seq)
        return false;
    observe(stream, seq);
    return true;
}

void stream_await(struct CUstream_st *stream, uint64_t seq)
{
    if (device_chosen.engine == EMU_STEPPER) {
        while (atomic_load(&stream->done) < seq) {
            if (!emu_step())
                call_abort("synchronising would wait forever: nothing can run");
        }
    } else if (atomic_load_explicit(&stream->done, memory_order_acquire) < seq) {
        struct stream_waiter waiter = {.seq = seq};
        crew_await_begin(stream->crew);
        lock_take(&stream->lock);
        bool wait = atomic_load_explicit(&stream->done, memory_order_relaxed) < seq;
        if (wait) {
            waiter.next = stream->waiters;
            stream->waiters = &waiter;
        }
        lock_drop(&stream->lock);
        if (wait)
            signal_await(&waiter.signal);
        crew_await_end(stream->crew);
    }
    observe(stream, seq);
}

void stream_await_all(struct device *device)
{
    lock_take(&all_lock);
    struct CUstream_st *stream = all;
    lock_drop(&all_lock);
    for (; stream; stream = stream->next_all) {
        if (stream->device == device)
            stream_await(stream, stream_issued(stream));
    }
}
