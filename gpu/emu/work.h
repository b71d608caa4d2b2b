/* Work: what stands in a stream's queue, and how it is run: copies, fills, kernels, host functions.
 * Running is compiled with whatever sanitizer the build has, unlike the bookkeeping: these accesses
 * are the program's own. */
#pragma once

#include "gpu/emu/emu.h"

struct CUstream_st;

enum work_kind {
    WORK_WAIT,
    WORK_COPY,
    WORK_FILL,
    WORK_KERNEL,
    WORK_HOST,
    WORK_STAMP,
    WORK_RAISE, /* of a tally */
    WORK_LEVEL  /* waits until another tally stands as high as this stream's own */
};

/* Work as it stands in a queue, followed by a kernel's arguments; and as a template. */
struct work {
    struct work *next;
    struct chunk *chunk;
    uint64_t seq;
    uint32_t size; /* of the arguments */
    uint8_t kind;  /* enum work_kind */
    bool hangs;
    union {
        struct {
            struct CUstream_st *on;
            uint64_t seq;
        } wait;
        struct {
            void *dst; /* as the host addresses them; device memory by its alias */
            const void *src;
            size_t bytes;
        } copy;
        struct {
            void *dst;
            int value;
            size_t bytes;
        } fill;
        struct {
            void (*function)(const void *args, uint32_t index);
            const char *name;
            uint32_t count;
        } kernel;
        struct {
            cudaHostFn_t function;
            void *data;
        } host;
        struct {
            struct CUevent_st *event;
            uint64_t generation;
        } stamp;
        struct {
            struct CUstream_st *own, *other; /* tallies; RAISE: own */
        } tally;
    };
    _Alignas(16) unsigned char args[];
};

/* The thread of the stream's owner; the work is its queue's head. */
void work_run(struct CUstream_st *stream, const struct work *work);

void work_fill(void *dst, int value, size_t bytes);
