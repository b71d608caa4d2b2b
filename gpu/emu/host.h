/* Pinned host memory: which ranges are registered. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool host_is_pinned(const void *address, size_t bytes); /* any thread */
void host_reset(void);
uint32_t host_live(void);
