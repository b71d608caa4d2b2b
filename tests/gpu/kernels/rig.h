/* What kernel tests need of a device: buffers that show every stray write, random values, and
 * comparisons. One test at a time, on one stream. Everything is freed by rig_end.
 */
#pragma once

#include <check.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/common/kernel.h"

#define OK(call) ck_assert_str_eq(cudaGetErrorName(call), "cudaSuccess")

/* rig_emu.c, rig_cuda.c: the device that the tests run on. */
void rig_device(uint32_t threads);
void rig_suites(SRunner *runner); /* adds the suites about this device alone */

/* A kernel may wait for what another stream's does: CUDA. On the CPU device streams meet by
 * tallies; on CUDA these are NULL. */
extern const bool rig_kernels_wait;
extern const uint32_t rig_formats; /* of weights that products read here, a bit each */
extern bool rig_gates_many; /* whether gate and up of many rows are to be one kernel here */
cudaStream_t rig_tally_make(void);
void rig_tally_free(cudaStream_t tally);

void rig_begin(void);             /* two threads for a kernel's indices */
void rig_threads(uint32_t count); /* starts over with as many; before any buffer is made */
void rig_end(void);
extern cudaStream_t rig_stream;

/* Device memory holding a copy of `from` (NULL: every byte 0xa5), with guards before and behind
 * that rig_end checks. */
void *rig_new(const void *from, size_t bytes);
/* RIG_APART=1, for memcheck: no guards, and each block of keys and values is an allocation of its
 * own, so that what is read or written too far is nobody's. */
bool rig_apart(void);
void rig_read(void *to, const void *device, size_t bytes); /* waits for the stream */
void rig_wait(void);

/* The same values for the same seed. */
void rig_seed(uint64_t seed);
uint64_t rig_random(void);
uint32_t rig_between(uint32_t least, uint32_t most);
float rig_normal(void); /* roughly; deviation 1 */

/* Numbers in some dtype: what is on the device, and the same as floats here. */
struct tensor {
    void *device;
    float *host; /* [rows][stride], exactly what the device has */
    uint32_t rows, size, stride;
    enum dtype dtype;
};
/* Strides are multiples of so many elements from here on; until rig_begin, of any number. */
void tensor_align(uint32_t elements);
struct tensor tensor_random(enum dtype dtype, uint32_t rows, uint32_t size, float deviation);
struct tensor tensor_poison(enum dtype dtype, uint32_t rows, uint32_t size);
void tensor_read(struct tensor *tensor); /* device to host */
float tensor_at(const struct tensor *tensor, uint32_t row, uint32_t column);

/* Whether elements from `first_row` on, and the gaps between rows, still are as tensor_poison left
 * them. */
bool tensor_untouched(const struct tensor *tensor, uint32_t first_row);

/* |got - want| against what one rounding to dtype allows, plus `slack` for the sum before it. */
void check_close(double got, double want, enum dtype dtype, double slack);

/* A span of `count` rows in a buffer of max. */
struct row_range rig_span(uint32_t count, uint32_t first, uint32_t max);
