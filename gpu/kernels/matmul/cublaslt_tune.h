/* Which of cuBLASLt's algorithms a product of many rows takes, or our own: timed off the step path,
 * kept on disk.
 *
 * Until a shape was timed, the library's own first choice is taken. A result serves row counts from
 * just over half of the timed one up to it. The file is DIR/products-DEVICE-VERSION (the device's
 * name in lower case, everything but letters and digits a dash; the library's version), text, with
 * a line per shape (tune_line.h). Lines that are not of its form are skipped, and a choice that the
 * library does not offer is not taken. Products of e4m3 by e4m3 have lines of their own; those with
 * a scale for each row and column are timed.
 *
 * Results are of the calling thread's current device. Any thread. CPU device: nothing to choose,
 * all of these do nothing. */
#pragma once

#include "gpu/kernels/matmul/matmul.h"

#define TUNE_SHAPES_MAX 1024 /* more are not kept */

/* Times the product's shape, if it may go to cuBLASLt at all; y is written, of weights in e4m3 in
 * float32, and x is read, then as bytes. `weights` are the data of weights of this shape, at least
 * one, which are taken in turns: as in a step, where none is still in the L2 from the time before.
 * Blocks; enqueues on the stream, which must not capture.
 * Not on the step path. */
OP_C cudaError_t tune_matmul(const struct matmul_args *args, const void *const *weights,
                             uint32_t weight_count, cudaStream_t stream);

/* Whether there is nothing to time: the shape was timed with just these rows, or does not go to
 * cuBLASLt. Pointers in args may be NULL, but for weight and bias. */
OP_C bool tune_known(const struct matmul_args *args);

/* The number of shapes known after it (0 where there is no file), or a negative error code. */
OP_C int tune_load(const char *dir);

/* Writes the file anew, through a temporary one beside it. 0, or a negative error code. */
OP_C int tune_save(const char *dir);
