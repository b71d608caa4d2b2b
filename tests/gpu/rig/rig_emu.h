/* What only the emulation can: engines whose order of work is chosen, several devices, small
 * memory. One thread. */
#pragma once

#include "gpu/emu/emu.h"

#define RIG_DEVICES 4 /* of a set-up that wants several */

/* Starts over, with poison and strictness; `seed` is the stepper's. False: no memory. */
bool rig_emu(enum emu_engine engine, uint32_t devices, uint64_t seed);
