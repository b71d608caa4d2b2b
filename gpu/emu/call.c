#include "gpu/emu/call.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gpu/emu/device.h"
#include "gpu/emu/lock.h"
#include "gpu/emu/tally.h"
#include "protocol/base/log.h"

static const char *const call_names[EMU_CALLS] = {
#define CALL(name, parameters) #name,
#include "gpu/emu/cudart.def"
#undef CALL
    "launch",
};

static struct {
    atomic_ullong calls[EMU_CALLS];
    atomic_ullong fault_nth[EMU_CALLS]; /* value of calls[] at which the fault strikes; 0 unarmed */
    atomic_uint fault_error[EMU_CALLS];
    atomic_ullong skip_in, hang_in; /* counted down to the one that is struck */
    atomic_ullong pageable;
    atomic_uint sticky;
} state;

static _Thread_local cudaError_t last_error;
static _Thread_local bool in_host_function;

_Noreturn void call_abort(const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    log_die("emulated CUDA", text);
}

/* "Not ready" is an answer: the runtime does not keep it as the last error. */
cudaError_t call_fail(cudaError_t error)
{
    if (error != cudaErrorNotReady)
        last_error = error;
    return error;
}

cudaError_t call_sticky(void)
{
    return (cudaError_t)atomic_load_explicit(&state.sticky, memory_order_acquire);
}

static bool is_sticky(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
        return true;
    default:
        return false;
    }
}

void call_break(cudaError_t sticky)
{
    unsigned int healthy = cudaSuccess;
    if (atomic_compare_exchange_strong(&state.sticky, &healthy, (unsigned int)sticky))
        futex_wake(&state.sticky, INT32_MAX);
    tally_release_all();
}

void call_hang(void)
{
    while (call_sticky() == cudaSuccess)
        futex_wait(&state.sticky, cudaSuccess);
}

static uint64_t count_call(enum emu_call call)
{
    if (in_host_function)
        call_abort("%s called inside a host function", call_names[call]);
    return atomic_fetch_add_explicit(&state.calls[call], 1, memory_order_relaxed) + 1;
}

/* The fault that strikes this call, the count-th of its kind, if any. */
static cudaError_t fault_due(enum emu_call call, uint64_t count)
{
    if (atomic_load_explicit(&state.fault_nth[call], memory_order_relaxed) != count)
        return cudaSuccess;
    atomic_store_explicit(&state.fault_nth[call], 0, memory_order_relaxed);
    cudaError_t error =
        (cudaError_t)atomic_load_explicit(&state.fault_error[call], memory_order_relaxed);
    if (is_sticky(error))
        call_break(error);
    return call_fail(error);
}

cudaError_t call_enter(enum emu_call call)
{
    uint64_t count = count_call(call);
    if (!device_ready()) {
        cudaError_t error = device_setup_default();
        if (error != cudaSuccess)
            return call_fail(error);
    }
    cudaError_t error = call_sticky();
    if (error != cudaSuccess)
        return call_fail(error);
    return fault_due(call, count);
}

/* Counts one down; true for the one that reaches zero. */
static bool strikes(atomic_ullong *countdown)
{
    unsigned long long left = atomic_load_explicit(countdown, memory_order_relaxed);
    while (left != 0) {
        if (atomic_compare_exchange_weak_explicit(countdown, &left, left - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return left == 1;
    }
    return false;
}

bool call_skips_wait(void)
{
    return strikes(&state.skip_in);
}

bool call_hangs(void)
{
    return strikes(&state.hang_in);
}

void call_count_pageable(void)
{
    atomic_fetch_add_explicit(&state.pageable, 1, memory_order_relaxed);
}

void call_host_function(bool inside)
{
    in_host_function = inside;
}

void emu_fault_set(enum emu_call call, uint64_t nth, cudaError_t error)
{
    uint64_t now = atomic_load_explicit(&state.calls[call], memory_order_relaxed);
    atomic_store_explicit(&state.fault_error[call], (unsigned int)error, memory_order_relaxed);
    atomic_store_explicit(&state.fault_nth[call], nth ? now + nth : 0, memory_order_relaxed);
}

void emu_fault_skip_wait(uint64_t nth)
{
    atomic_store_explicit(&state.skip_in, nth, memory_order_relaxed);
}

void emu_fault_hang(uint64_t nth)
{
    atomic_store_explicit(&state.hang_in, nth, memory_order_relaxed);
}

void emu_break(cudaError_t sticky)
{
    call_break(sticky);
}

uint64_t emu_calls(enum emu_call call)
{
    return atomic_load_explicit(&state.calls[call], memory_order_relaxed);
}

const char *emu_call_name(enum emu_call call)
{
    return call_names[call];
}

uint64_t emu_pageable_copies(void)
{
    return atomic_load_explicit(&state.pageable, memory_order_relaxed);
}

/* "illegal-address" names cudaErrorIllegalAddress. */
static cudaError_t error_from_words(const char *words)
{
    static const cudaError_t known[] = {
#define RESULT(name, value, text) name,
#include "gpu/emu/result.def"
#undef RESULT
    };
    char plain[64];
    size_t length = 0;
    for (const char *at = words; *at && length + 1 < sizeof(plain); at++) {
        if (*at != '-')
            plain[length++] = *at;
    }
    plain[length] = 0;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const char *name = cudaGetErrorName(known[i]);
        if (!strncmp(name, "cudaError", 9) && !strcasecmp(name + 9, plain))
            return known[i];
    }
    return cudaSuccess;
}

static bool fault_from_text(const char *name, uint64_t nth, const char *what)
{
    if (!strcmp(what, "hang") && !strcmp(name, call_names[EMU_launch])) {
        emu_fault_hang(nth);
        return true;
    }
    if (!strcmp(what, "skip") && !strcmp(name, call_names[EMU_cudaStreamWaitEvent])) {
        emu_fault_skip_wait(nth);
        return true;
    }
    cudaError_t error = error_from_words(what);
    for (int call = 0; call < EMU_CALLS && error != cudaSuccess; call++) {
        if (!strcmp(name, call_names[call])) {
            emu_fault_set((enum emu_call)call, nth, error);
            return true;
        }
    }
    return false;
}

static void faults_from_environment(void)
{
    const char *value = getenv("SLUICE_EMU_FAULT");
    char text[512];
    if (!value)
        return;
    snprintf(text, sizeof(text), "%s", value);
    char *rest = text;
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        char *name = strsep(&item, ":"), *nth = strsep(&item, ":"), *end = NULL;
        unsigned long long number = nth ? strtoull(nth, &end, 10) : 0;
        if (!nth || !item || end == nth || *end || !number || !fault_from_text(name, number, item))
            call_abort("SLUICE_EMU_FAULT is not call:nth:error[,...]: %s", value);
    }
}

void call_reset(bool from_environment)
{
    for (int call = 0; call < EMU_CALLS; call++) {
        atomic_store(&state.calls[call], 0);
        atomic_store(&state.fault_nth[call], 0);
    }
    atomic_store(&state.skip_in, 0);
    atomic_store(&state.hang_in, 0);
    atomic_store(&state.pageable, 0);
    atomic_store(&state.sticky, cudaSuccess);
    last_error = cudaSuccess;
    if (from_environment)
        faults_from_environment();
}

/* These two tell of calls before them and never fail themselves: a sticky error, too, is gone from
 * here once asked for, until the next call meets it. */
cudaError_t cudaGetLastError(void)
{
    (void)fault_due(EMU_cudaGetLastError, count_call(EMU_cudaGetLastError));
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    (void)fault_due(EMU_cudaPeekAtLastError, count_call(EMU_cudaPeekAtLastError));
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define RESULT(name, value, text)                                                                  \
    case name:                                                                                     \
        return #name;
#include "gpu/emu/result.def"
#undef RESULT
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define RESULT(name, value, text)                                                                  \
    case name:                                                                                     \
        return text;
#include "gpu/emu/result.def"
#undef RESULT
    }
    return "unrecognized error code";
}
