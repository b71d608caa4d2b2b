/* The emulated devices and the options they were set up with. */
#pragma once

#include "gpu/emu/crew.h"
#include "gpu/emu/emu.h"
#include "gpu/emu/memory.h"

#define DEVICES_MAX 16

struct device {
    int ordinal;
    struct crew *crew; /* shared by its streams; NULL with EMU_STREAM_THREAD */
    struct memory memory;
    atomic_uint peers; /* bit mask: devices whose memory this one's streams may touch */
};

extern struct emu_options device_chosen; /* as in force */

bool device_ready(void);
cudaError_t device_setup_default(void);
struct device *device_current(void);
struct device *device_at(int ordinal); /* NULL when there is none */
uint32_t device_count(void);
uint64_t device_random(void); /* the stepper's choices */
uint32_t
device_generation(void); /* changes with every set-up: thread-locals of older ones are void */
