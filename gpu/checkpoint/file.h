/* The files of a model directory, read with pread alone: they are untrusted, may be symlinks into a
 * cache, and may change under us. Each way in which a file can be absent has its own message.
 * Errors are ERR_BAD_MODEL and name the file as "directory/name". Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

/* True also for a dangling symlink: opening it says so. */
bool file_exists(const char *directory, const char *name);

/* Refuses what is no regular file, and a git-lfs pointer. The caller closes the descriptor. */
int file_open(const char *directory, const char *name, int *ret_fd, uint64_t *ret_bytes,
              struct error *error);

/* Exactly `bytes` bytes from `offset` on; `name` is for the message. */
int file_read(int fd, const char *name, uint64_t offset, void *buffer, size_t bytes,
              struct error *error);

/* The whole file, with a zero byte behind it; the caller frees it. */
int file_text(const char *directory, const char *name, size_t bytes_max, char **ret_text,
              size_t *ret_length, struct error *error);
