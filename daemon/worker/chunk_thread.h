/* The thread that makes chunks of host memory for a worker, and gives them back: the driver takes
 * long for either, and no step is to wait for that. It starts with the first chunk. Without it the
 * worker makes them itself.
 *
 * Worker's thread, but chunk_thread_make, _stop and _free (loop, once the worker's thread is no
 * more).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"

struct chunk_thread;

/* `ready`: any thread; what was asked for has ended. */
int chunk_thread_make(const struct gpu_api *api, struct gpu_engine *engine,
                      const struct gpu_model *model, void (*ready)(void *context), void *context,
                      struct chunk_thread **ret_thread, struct error *error);
/* Before anything was asked for: there is to be a thread, and it takes no memory that the machine
 * does not have to spare (host_memory.h). `root`: of the system's files, "" but in tests; kept. */
void chunk_thread_threaded(struct chunk_thread *thread, const char *root);
/* One at a time: the one before was told. */
void chunk_thread_ask(struct chunk_thread *thread, uint32_t group, uint32_t chunk, bool make);
/* Whether what was asked for has ended since, and how. */
bool chunk_thread_told(struct chunk_thread *thread, bool *ret_good);
/* Blocks while a chunk is made or given back. */
void chunk_thread_stop(struct chunk_thread *thread);
void chunk_thread_free(struct chunk_thread *thread); /* NULL is allowed; stops it */
