/* Copies of blocks to host memory and back: kept until the test says so, and checked against the
 * contract of gpu/gpu.h meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "daemon/sched/kv.h"
#include "tests/daemon/rig/fake_inner.h"

static struct fake_copies *copies_of(struct gpu_engine *engine, enum gpu_way way, uint64_t number)
{
    return &engine->copies[way][number % GPU_COPIES_MAX];
}

static int32_t *place_of(struct gpu_engine *engine, const struct gpu_copy *copy)
{
    return &engine->hosted[copy->group][(size_t)copy->place * engine->shape.block_tokens];
}

/* Of the copies in flight of one way. */
static bool names(struct gpu_engine *engine, enum gpu_way way, uint32_t group, uint32_t block,
                  uint32_t place)
{
    for (uint64_t i = engine->copied[way] + 1; i <= engine->copying[way]; i++) {
        const struct fake_copies *copies = copies_of(engine, way, i);
        for (uint32_t c = 0; c < copies->count; c++)
            if (copies->copies[c].group == group &&
                (copies->copies[c].block == block || copies->copies[c].place == place))
                return true;
    }
    return false;
}

void fake_check_block_copied(struct gpu_engine *engine, uint32_t group, uint32_t block, bool read)
{
    if (names(engine, GPU_FROM_HOST, group, block, KV_NONE) ||
        (!read && names(engine, GPU_TO_HOST, group, block, KV_NONE)))
        fake_fail(engine, "block %u of group %u is named while a copy is at it", block, group);
}

bool fake_is_copying(const struct gpu_engine *engine)
{
    return engine->copied[GPU_TO_HOST] < engine->copying[GPU_TO_HOST] ||
           engine->copied[GPU_FROM_HOST] < engine->copying[GPU_FROM_HOST];
}

static void check_copy(struct gpu_engine *engine, enum gpu_way way, const struct gpu_copy *copy)
{
    uint32_t chunk = copy->place / engine->shape.chunk_blocks;
    uint32_t slab = copy->block / engine->shape.slab_blocks;
    if (chunk >= engine->shape.chunks_max || !engine->chunks[chunk].there ||
        engine->chunks[chunk].group != copy->group)
        fake_fail(engine, "place %u is in no chunk of group %u", copy->place, copy->group);
    if (slab >= engine->shape.slabs_max || !engine->slabs[copy->group][slab].exists)
        fake_fail(engine, "block %u of group %u is in no slab", copy->block, copy->group);
    if (way == GPU_FROM_HOST && engine->touched[copy->group][copy->block] > engine->completed)
        fake_fail(engine, "a step may touch block %u, which is copied to", copy->block);
    bool read = way == GPU_FROM_HOST;
    if (names(engine, GPU_TO_HOST, copy->group, read ? copy->block : KV_NONE, copy->place) ||
        names(engine, GPU_FROM_HOST, copy->group, copy->block, read ? KV_NONE : copy->place))
        fake_fail(engine, "block %u or place %u is another copy's", copy->block, copy->place);
}

int fake_copy(struct gpu_engine *engine, uint32_t rank, const struct gpu_copies *copies,
              struct error *error)
{
    int rc = 0;
    (void)rank;
    pthread_mutex_lock(&engine->lock);
    struct fake_copies *kept = copies_of(engine, copies->way, copies->number);
    if (engine->knobs.dead) {
        rc = error_set(error, ERR_DEVICE, "the device was lost");
    } else {
        if (copies->number != engine->copying[copies->way] + 1 ||
            copies->number > engine->copied[copies->way] + GPU_COPIES_MAX || copies->count == 0 ||
            copies->count > FAKE_COPIES_MAX)
            fake_fail(engine, "copies %lu are too many, or not the next",
                      (unsigned long)copies->number);
        for (uint32_t i = 0; i < copies->count; i++)
            check_copy(engine, copies->way, &copies->copies[i]);
        kept->after = engine->submitted;
        kept->count = copies->count;
        memcpy(kept->copies, copies->copies, copies->count * sizeof(*kept->copies));
        engine->copying[copies->way] = copies->number;
    }
    pthread_mutex_unlock(&engine->lock);
    return rc;
}

uint64_t fake_copied(const struct gpu_engine *engine, uint32_t rank, enum gpu_way way)
{
    struct gpu_engine *writable = (struct gpu_engine *)engine;
    (void)rank;
    pthread_mutex_lock(&writable->lock);
    uint64_t copied = engine->copied[way];
    pthread_mutex_unlock(&writable->lock);
    return copied;
}

bool fake_run_copies(struct gpu_engine *engine, enum gpu_way way)
{
    size_t bytes = engine->shape.block_tokens * sizeof(int32_t);
    pthread_mutex_lock(&engine->lock);
    struct fake_copies *copies = copies_of(engine, way, engine->copied[way] + 1);
    bool any = engine->copied[way] < engine->copying[way] && !engine->knobs.dead &&
               (way == GPU_FROM_HOST || copies->after <= engine->completed);
    for (uint32_t i = 0; any && i < copies->count; i++) {
        const struct gpu_copy *copy = &copies->copies[i];
        int32_t *block = &engine->content[copy->group][copy->block * engine->shape.block_tokens];
        if (way == GPU_TO_HOST)
            memcpy(place_of(engine, copy), block, bytes);
        else
            memcpy(block, place_of(engine, copy), bytes);
    }
    engine->copied[way] += any;
    pthread_mutex_unlock(&engine->lock);
    return any;
}

int fake_chunk_make(struct gpu_engine *engine, uint32_t group, uint32_t chunk, struct error *error)
{
    pthread_mutex_lock(&engine->lock);
    int rc = fake_below(&engine->random, 100) < engine->knobs.chunk_refused
                 ? error_set(error, ERR_NO_MEMORY, "no memory for a chunk")
                 : 0;
    if (engine->chunks[chunk].there)
        fake_fail(engine, "chunk %u is made twice", chunk);
    if (rc == 0)
        engine->chunks[chunk] = (struct chunk_state){.there = true, .group = group};
    engine->counts.chunks += rc == 0;
    pthread_mutex_unlock(&engine->lock);
    return rc;
}

void fake_chunk_drop(struct gpu_engine *engine, uint32_t chunk)
{
    pthread_mutex_lock(&engine->lock);
    uint32_t group = engine->chunks[chunk].group, blocks = engine->shape.chunk_blocks;
    if (!engine->chunks[chunk].there)
        fake_fail(engine, "chunk %u is given back twice", chunk);
    for (uint32_t place = chunk * blocks; place < (chunk + 1) * blocks; place++) {
        memset(&engine->hosted[group][place * engine->shape.block_tokens], 0x5a,
               engine->shape.block_tokens * sizeof(int32_t));
        if (names(engine, GPU_TO_HOST, group, KV_NONE, place) ||
            names(engine, GPU_FROM_HOST, group, KV_NONE, place))
            fake_fail(engine, "chunk %u is given back below a copy", chunk);
    }
    engine->chunks[chunk].there = false;
    engine->counts.chunks--;
    pthread_mutex_unlock(&engine->lock);
}
