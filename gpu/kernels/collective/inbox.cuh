/* Putting into inboxes and taking out of them, by the word or by four. A store of a word is never
 * seen in part, so each word tells by itself whether it is there. Plain loads could be served from
 * a cache of the SM: these are volatile. */
#pragma once

#include "gpu/kernels/common/device.cuh"
#include "gpu/kernels/collective/inbox.h"

#define INBOX_EMPTY_WORD 0xffffffffu
#define INBOX_NAN_WORD 0x7fff7fffu /* as one float32, and as two of the small dtypes */
#define INBOX_ASK_EVERY 4096u      /* turns of waiting for one look at host memory */

__device__ __forceinline__ uint32_t inbox_full(uint32_t word)
{
    return word == INBOX_EMPTY_WORD ? INBOX_NAN_WORD : word;
}

__device__ __forceinline__ uint4 inbox_full(uint4 words)
{
    return make_uint4(inbox_full(words.x), inbox_full(words.y), inbox_full(words.z),
                      inbox_full(words.w));
}

__device__ __forceinline__ bool inbox_there(uint32_t word)
{
    return word != INBOX_EMPTY_WORD;
}

__device__ __forceinline__ bool inbox_there(uint4 words)
{
    return inbox_there(words.x) && inbox_there(words.y) && inbox_there(words.z) &&
           inbox_there(words.w);
}

__device__ __forceinline__ uint32_t inbox_load(const uint32_t *at)
{
    uint32_t word;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
    return word;
}

__device__ __forceinline__ uint4 inbox_load(const uint4 *at)
{
    uint4 words;
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(at)
                 : "memory");
    return words;
}

__device__ __forceinline__ void inbox_store(uint32_t *at, uint32_t word)
{
    asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(at), "r"(word) : "memory");
}

__device__ __forceinline__ void inbox_store(uint4 *at, uint4 words)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(words.x),
                 "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
}

__device__ __forceinline__ void inbox_clear(uint32_t *at)
{
    inbox_store(at, INBOX_EMPTY_WORD);
}

__device__ __forceinline__ void inbox_clear(uint4 *at)
{
    inbox_store(at, make_uint4(INBOX_EMPTY_WORD, INBOX_EMPTY_WORD, INBOX_EMPTY_WORD,
                               INBOX_EMPTY_WORD));
}

/* The chunk at `index` of what `sender` puts into the inbox of `to`. */
template <class Chunk>
__device__ __forceinline__ Chunk *inbox_chunk(const struct inboxes &inboxes, uint32_t to,
                                              uint32_t sender, size_t index)
{
    char *part = static_cast<char *>(inboxes.at[to]) + sender * inboxes.part_bytes;
    return reinterpret_cast<Chunk *>(part) + index;
}

template <class Chunk>
__device__ __forceinline__ void inbox_put(const struct inboxes &inboxes, size_t index, Chunk chunk)
{
    chunk = inbox_full(chunk);
    for (uint32_t to = 0; to < inboxes.ranks; to++)
        if (to != inboxes.rank)
            inbox_store(inbox_chunk<Chunk>(inboxes, to, inboxes.rank, index), chunk);
}

/* Whether waiting has become pointless. */
__device__ __forceinline__ bool inbox_let_go(const struct inboxes &inboxes, uint32_t turn)
{
    return turn % INBOX_ASK_EVERY == 0 && inbox_load(inboxes.let_go) != 0;
}
