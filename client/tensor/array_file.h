/* Arrays in files: NumPy's (npy.h), and images (png.h), which of the two a file's first bytes say.
 */
#pragma once

#include "client/sluice.h"
#include "protocol/base/error.h"

/* A whole file, "-" is standard input; data is the caller's to free. Errors name the path. */
int array_read(const char *path, sluice_array *ret_array, void **ret_data, struct error *error);
/* As NumPy's. Makes or replaces it, "-" is standard output. */
int array_write(const char *path, const sluice_array *array, struct error *error);
/* As PNG, likewise. */
int array_write_picture(const char *path, uint32_t width, uint32_t height,
                        const unsigned char *pixels, struct error *error);
