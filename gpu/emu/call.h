/* The way into the runtime: every call enters here, is counted, may meet a fault, and leaves its
 * error as the thread's last one. Any thread.
 */
#pragma once

#include "gpu/emu/emu.h"

/* First line of every call. Aborts inside a host function. */
#define ENTER(name)                                                                                \
    do {                                                                                           \
        cudaError_t entered = call_enter(EMU_##name);                                              \
        if (entered != cudaSuccess)                                                                \
            return entered;                                                                        \
    } while (0)

cudaError_t call_enter(enum emu_call call);
cudaError_t call_fail(cudaError_t error); /* sets the last error and returns it */

/* The context's error; cudaSuccess while it is healthy. */
cudaError_t call_sticky(void);
void call_break(cudaError_t sticky); /* the first one stays */

/* Blocks while the context is healthy: what a kernel that never ends does. */
void call_hang(void);

bool call_skips_wait(void); /* counts one wait towards emu_fault_skip_wait */
bool call_hangs(void);      /* counts one launch towards emu_fault_hang */

void call_count_pageable(void);
void call_host_function(bool inside); /* of this thread */

void call_reset(bool faults_from_environment);

/* Our user's mistake that a device would punish less clearly: says so and aborts. */
_Noreturn void call_abort(const char *format, ...) __attribute__((format(printf, 1, 2)));
