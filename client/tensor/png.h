/* PNG files (ISO/IEC 15948) as arrays of uint8, height x width x 3, and back.
 *
 * Read are all colour types and depths: grey and palettes become RGB, of 16 bits the upper 8 are
 * kept, transparency and what a file says of its colour space are left out. Refused by name:
 * interlaced files, and more than PNG_SIDE_MAX pixels each way.
 *
 * A file may say anything: every chunk's length and checksum is looked at before the chunk is, and
 * memory grows with the rows that came, not with what the header announces.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/sluice.h"
#include "protocol/base/error.h"

#define PNG_SIDE_MAX 16384u
#define PNG_FILE_MAX ((size_t)1 << 30)

/* Whether it says that it is one. */
bool png_begins(const void *bytes, size_t length);
/* Whether a file of so many bytes is read: else ERR_TOO_LARGE. */
int png_fits(uint64_t length, struct error *error);
/* A whole file; *ret_data is the caller's to free, and ret_array->data. */
int png_decode(const void *bytes, size_t length, sluice_array *ret_array, void **ret_data,
               struct error *error);
/* 1 to PNG_SIDE_MAX each way, three bytes a pixel; *ret_bytes is the caller's to free. */
int png_encode(uint32_t width, uint32_t height, const unsigned char *pixels,
               unsigned char **ret_bytes, size_t *ret_length, struct error *error);
