/* A program for sluiced: work of one kind that clients send tensors to ("jobs").
 *
 * A program is a shared module with one symbol for each device that it
 * has a body for, sluice_program_cuda or sluice_program_cpu, of type struct sluice_program. It says
 * what tensors it takes and gives; the daemon reads them from clients, batches items of any sizes,
 * copies, orders and answers. The program only enqueues kernels.
 *
 * Rules of enqueue():
 * 1. It puts work into the streams that it is given, in no other, and returns. It never waits for
 *    the device, and asks it nothing.
 * 2. What it enqueues begins when the inputs are there, on any of its streams, and the outputs are
 *    copied away when all of its streams are through. Between its own streams it orders by its events.
 * 3. Memory comes from the item's scratch and from the allocator, and is gone when the batch is.
 *    What the pointers point at belongs to the device: nothing is read or written by enqueue()
 *    itself but `batch` and what that says of the host.
 * 4. An item's outputs depend on that item alone, to the bit, whatever stands in the batch beside it.
 * 5. Batches are enqueued by one thread, and several are under way at once: no state outside `batch`.
 *
 * A program has all rights of the daemon, and an error in it ends the daemon. How modules are
 * compiled and what is refused: gpu/jobs/README.md.
 *
 * C11 and C++; needs no header of CUDA's. What changes this file's structs raises SLUICE_PROGRAM_ABI:
 *   2  sluice_program has `check`, sluice_streams `cuda`, and a size may be a parameter. Modules of 1
 *      are loaded as before: of these nothing is read behind `enqueue`.
 */
#ifndef SLUICE_PROGRAM_H
#define SLUICE_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_PROGRAM_ABI 2u
#define SLUICE_PROGRAM_ABI_OLDEST 1u /* that the daemon loads */

#define SLUICE_SIZES_MAX 4       /* dimensions that vary by themselves */
#define SLUICE_TENSORS_MAX 8     /* inputs, and outputs */
#define SLUICE_RANK_MAX 6        /* dimensions of a tensor */
#define SLUICE_PARAMETERS_MAX 16
#define SLUICE_STREAMS_MAX 4
#define SLUICE_EVENTS_MAX 8
#define SLUICE_NAME_MAX 63       /* bytes: a-z, 0-9, '_' and '-' */
#define SLUICE_ALIGN 256         /* of every tensor of every item, and of scratch */

struct CUstream_st; /* cudaStream_t is a pointer to it */
struct CUevent_st;  /* cudaEvent_t likewise */

/* Elements are little-endian. BOOL is a byte, 0 or 1. Numbers are never used again. */
enum sluice_dtype {
    SLUICE_BOOL = 1,
    SLUICE_U8 = 2,
    SLUICE_U16 = 3,
    SLUICE_U32 = 4,
    SLUICE_U64 = 5,
    SLUICE_I8 = 6,
    SLUICE_I16 = 7,
    SLUICE_I32 = 8,
    SLUICE_I64 = 9,
    SLUICE_F16 = 10,
    SLUICE_BF16 = 11,
    SLUICE_F32 = 12,
    SLUICE_F64 = 13
};

/* ---- what it is ------------------------------------------------------------------------------ */

/* A dimension that varies from item to item. All tensors that name it have the same one. One that
 * no input has is a parameter: of SLUICE_INTEGER and the same name, its bounds within these. */
struct sluice_size {
    const char *name;
    uint64_t min, max; /* min at least 1, max at most 2^40 */
};

/* In `shape`: the item's size of that number. Anything else there is a fixed dimension, at least 1. */
#define SLUICE_SIZE(number) (-1 - (int64_t)(number))

/* Row-major, without gaps. */
struct sluice_tensor {
    const char *name;
    uint32_t dtype; /* enum sluice_dtype */
    uint32_t rank;  /* 1 to SLUICE_RANK_MAX */
    int64_t shape[SLUICE_RANK_MAX];
};

enum sluice_parameter_type { SLUICE_INTEGER = 1, SLUICE_NUMBER = 2, SLUICE_SWITCH = 3 };

union sluice_value {
    int64_t integer; /* SLUICE_SWITCH: 0 or 1 */
    double number;
};

/* What a request says beside its tensors, by name. Numbers are finite. */
struct sluice_parameter {
    const char *name;
    const char *help; /* a line */
    uint32_t type;    /* enum sluice_parameter_type */
    uint32_t required;
    union sluice_value standard; /* where a request does not say it */
    union sluice_value min, max; /* of SLUICE_INTEGER (within +-2^53) and SLUICE_NUMBER */
};

/* ---- a batch --------------------------------------------------------------------------------- */

/* An item, or a piece of one (see cut_rows): all of its size 0 then are the piece's, `first` is where
 * it begins, and `whole` is the item's. */
struct sluice_item {
    uint64_t sizes[SLUICE_SIZES_MAX];
    uint64_t first, whole;
    const void *inputs[SLUICE_TENSORS_MAX]; /* device memory, as `outputs` and `scratch` */
    void *outputs[SLUICE_TENSORS_MAX];
    void *scratch; /* scratch() bytes; NULL: none */
    union sluice_value values[SLUICE_PARAMETERS_MAX];
};

/* Borrowed until enqueue() returns, but for what lies on the device. */
struct sluice_batch {
    uint32_t count;
    uint32_t reserved;
    const struct sluice_item *items;        /* on the host, for grids and sums of sizes */
    const struct sluice_item *device_items; /* the same on the device, for kernels */
};

/* What a body for the CPU device enqueues by. Kernels run later, on threads of the device's. */
struct sluice_cpu {
    /* kernel(items, args, index) once for each index below count, in no order and at the same time.
     * `args` (at most 1,024 bytes) are copied now. An index should be worth some microseconds. */
    int (*launch)(struct CUstream_st *stream, const char *name,
                  void (*kernel)(const struct sluice_item *items, const void *args, uint32_t index),
                  const struct sluice_batch *batch, const void *args, size_t args_size,
                  uint32_t count);
    int (*record)(struct CUevent_st *event, struct CUstream_st *stream);
    int (*wait)(struct CUstream_st *stream, struct CUevent_st *event);
};

/* A matrix in device memory, row-major without gaps, and the boxes that bulk copies bring of it. */
struct sluice_matrix {
    const void *data; /* a multiple of 16 bytes, and so is a row */
    uint32_t dtype;   /* enum sluice_dtype */
    uint32_t swizzle; /* of a box's rows in shared memory: 32, 64 or 128 bytes; 0: as they are */
    uint64_t rows, columns;
    uint32_t box_rows, box_columns; /* 1 to 256; a box's row is a multiple of 16 bytes */
};

/* What a body for a CUDA device may know of it, since it asks neither device nor driver. */
struct sluice_cuda {
    uint32_t major, minor; /* compute capability */
    uint32_t processors;   /* SMs */
    uint32_t shared_max;   /* bytes of shared memory that a block may have */
    /* Writes a CUtensorMap, 128 bytes at a multiple of 64, for a kernel to take as a
     * __grid_constant__ argument: what lies beyond the matrix comes as zeros, and is not written.
     * 0, or a CUDA error; of compute capability 9.0 and up. */
    int (*tensor_map)(void *map, const struct sluice_matrix *matrix);
};

/* The lane's: as many streams and events as the program asks for. */
struct sluice_streams {
    uint32_t count, event_count;
    struct CUstream_st *streams[SLUICE_STREAMS_MAX];
    struct CUevent_st *events[SLUICE_EVENTS_MAX]; /* without timing */
    const struct sluice_cpu *cpu;                 /* NULL on a CUDA device */
    const struct sluice_cuda *cuda;               /* NULL on the CPU device */
};

/* Memory of the batch beside its items' scratch: at most batch_scratch bytes in all. */
struct sluice_allocator {
    /* Device memory aligned to SLUICE_ALIGN, usable on all streams of the batch. NULL when it is more
     * than was asked for. */
    void *(*take)(struct sluice_allocator *allocator, uint64_t bytes);
};

/* ---- the program ----------------------------------------------------------------------------- */

/* enqueue() has every byte of outputs, scratch and taken memory written before it is read. Without it
 * the daemon clears them first, so that nobody sees what another user's job left there. */
#define SLUICE_WRITES_ALL 0x1u

struct sluice_program {
    uint32_t abi;   /* SLUICE_PROGRAM_ABI, of the header that it was compiled with */
    uint32_t flags; /* SLUICE_WRITES_ALL */
    const char *name;
    const char *summary; /* a line of at most 255 bytes, UTF-8 */

    uint32_t size_count, input_count, output_count, parameter_count;
    const struct sluice_size *sizes;
    const struct sluice_tensor *inputs;  /* at least one */
    const struct sluice_tensor *outputs; /* at least one */
    const struct sluice_parameter *parameters;

    uint32_t stream_count; /* 0: one */
    uint32_t event_count;

    /* Not 0: an item may be cut along size 0 into pieces that begin at multiples of so many rows and
     * are enqueued as items of their own, in any order and in any batches. Size 0 is the first
     * dimension of every output and of an input at least, is nowhere but first, and pieces give the
     * bits of the whole. Inputs without size 0 come with each piece. */
    uint64_t cut_rows;

    /* Of a batch; 0: as many as the daemon likes. */
    uint32_t batch_items_max;
    uint32_t reserved;
    uint64_t batch_scratch; /* bytes that the allocator may give in all */

    /* Bytes of scratch of an item with these sizes and values; nothing else of it is set. NULL: none.
     * Called by any thread, with the same result each time, and no more for fewer rows. */
    uint64_t (*scratch)(const struct sluice_item *item);

    /* 0, or a number of its own that the batch's jobs then fail with; a CUDA error is one. */
    int (*enqueue)(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator);

    /* Whether an item with these sizes and values, which are within their bounds, can be computed;
     * nothing else of it is set. NULL: yes; else why not, a line that lives on. NULL in place of
     * the function: every item can. Called by any thread, before anything is copied. */
    const char *(*check)(const struct sluice_item *item);
};

#if defined(__GNUC__)
#define SLUICE_EXPORT __attribute__((visibility("default")))
#else
#define SLUICE_EXPORT
#endif

extern SLUICE_EXPORT const struct sluice_program sluice_program_cpu;
extern SLUICE_EXPORT const struct sluice_program sluice_program_cuda;

#ifdef __cplusplus
}
#endif
#endif
