/* Pages of host memory that copies go over at the link's rate: mapped, touched and registered with
 * the driver, for all devices. They hold KV blocks that left the device (host_chunks.h) and weights
 * of models that sleep (kept_weights.h), of all engines of the process within one limit. Mapping,
 * touching and registering take tens of milliseconds for tens of megabytes, and the driver may make
 * other calls wait meanwhile: for threads that do nothing else, in small pieces.
 *
 * Any thread, with one of the devices current.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/error.h"

/* What is to be of use whole is reserved whole, before its first page is made: of two that fill
 * themselves at once and have room one by one, one does, and not each a half. `limit`: of all that
 * is reserved and not returned; 0: none. ERR_NO_MEMORY where it refuses; nothing has changed then.
 */
int host_pages_reserve(uint64_t limit, uint64_t bytes, struct error *error);
void host_pages_return(uint64_t bytes);
uint64_t host_pages_reserved(void);

/* Of what is reserved. ERR_NO_MEMORY where the system or the driver refuses. */
int host_pages_make(uint64_t bytes, void **ret_base, struct error *error);
/* False, as host_pages_unpin(): they are there still, and reserved. */
bool host_pages_drop(void *base, uint64_t bytes, bool pinned);

/* Pages that are kept while no device has them. ERR_NO_MEMORY where the driver registers no more. */
int host_pages_pin(void *base, uint64_t bytes, struct error *error);
/* False: of a device that failed they stay the driver's. */
bool host_pages_unpin(void *base);
