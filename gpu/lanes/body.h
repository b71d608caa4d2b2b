/* What differs between devices for programs: one file per module defines this. Any thread. */
#pragma once

#include <stdint.h>

#include "gpu/sluice_program.h"
#include "protocol/base/error.h"

/* How a body for the CPU device launches; NULL on a CUDA device. */
extern const struct sluice_cpu *const body_cpu;

/* What programs may know of the current device, in *room; *ret_cuda is NULL on the CPU device. */
int body_open(struct sluice_cuda *room, const struct sluice_cuda **ret_cuda, struct error *error);

/* A device's address as programs are given it: on the CPU device one that can be read. */
void *body_address(void *device_pointer);

/* The most streams with a kernel each that measuring the machine goes up to (machine.h). */
extern const uint32_t body_streams_max;
