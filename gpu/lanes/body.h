/* What differs between devices for programs: one file per module defines this. Any thread. */
#pragma once

#include "gpu/sluice_program.h"

/* How a body for the CPU device launches; NULL on a CUDA device. */
extern const struct sluice_cpu *const body_cpu;

/* A device's address as programs are given it: on the CPU device one that can be read. */
void *body_address(void *device_pointer);
