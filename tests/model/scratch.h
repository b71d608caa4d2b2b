/* A directory of a test's own, and the files in it. Whatever fails ends the process: these are the
 * test's own mistakes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SCRATCH_PATH_MAX 256

void scratch_make(char directory[SCRATCH_PATH_MAX]);
void scratch_remove(const char *directory);

void scratch_path(const char *directory, const char *name, char path[SCRATCH_PATH_MAX]);
void scratch_write(const char *directory, const char *name, const void *bytes, size_t length);
void scratch_truncate(const char *directory, const char *name, uint64_t length);

/* Every file of the directory `from`. */
void scratch_copy(const char *from, const char *directory);

/* The whole file with a zero behind it; the caller frees it. */
char *scratch_read(const char *directory, const char *name, size_t *ret_length);

/* Replaces the first `from` of the file by `to`; both of one length where the file's lengths
 * matter. */
void scratch_replace(const char *directory, const char *name, const char *from, const char *to);

/* A tensor of the safetensors file gets another name, of any length. */
void scratch_rename(const char *directory, const char *name, const char *from, const char *to);

/* A tensor of the safetensors file gets other first bytes. */
void scratch_overwrite(const char *directory, const char *name, const char *tensor,
                       const void *bytes, size_t size);
