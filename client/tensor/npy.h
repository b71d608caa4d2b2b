/* NumPy's files: one array, its header and its bytes (numpy.lib.format, versions 1 to 3).
 *
 * A file may say anything: everything is looked at before it is used, and nothing is allocated by
 * what a header announces. What a program cannot take is refused by name: other byte order, Python
 * objects, Fortran's order, records. bfloat16, which NumPy does not know, is as ml_dtypes writes it
 * (V2).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/sluice.h"
#include "protocol/base/error.h"

#define NPY_HEADER_MAX 65536u /* of a file that is read */
#define NPY_HEADER_WRITTEN_MAX 512u

/* Reads the header at the start of `length` bytes, which are all there are or at least
 * NPY_HEADER_MAX: dtype, rank and shape of *ret_array; *ret_used is where the data begins. */
int npy_parse(const void *bytes, size_t length, sluice_array *ret_array, size_t *ret_used,
              struct error *error);
/* The header of an array, of a multiple of 64 bytes; its length. */
size_t npy_format(const sluice_array *array, char out[NPY_HEADER_WRITTEN_MAX]);
