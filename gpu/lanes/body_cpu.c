#include "gpu/lanes/body.h"

#include <string.h>

#include "gpu/emu/emu.h"

#define ARGS_MAX 1024u

struct call {
    void (*kernel)(const struct sluice_item *items, const void *args, uint32_t index);
    const struct sluice_item *items;
    _Alignas(16) unsigned char args[ARGS_MAX];
};

_Static_assert(sizeof(struct call) <= EMU_ARGS_MAX, "a launch carries it");

static void run(const void *args, uint32_t index)
{
    const struct call *call = args;
    call->kernel(call->items, call->args, index);
}

static int launch(struct CUstream_st *stream, const char *name,
                  void (*kernel)(const struct sluice_item *items, const void *args, uint32_t index),
                  const struct sluice_batch *batch, const void *args, size_t args_size,
                  uint32_t count)
{
    struct call call = {.kernel = kernel, .items = batch->device_items};
    if (args_size > ARGS_MAX || !kernel)
        return cudaErrorInvalidValue;
    if (count == 0)
        return 0;
    if (args_size > 0)
        memcpy(call.args, args, args_size);
    return emu_launch(stream, name, run, &call, offsetof(struct call, args) + ARGS_MAX, count);
}

static int record(struct CUevent_st *event, struct CUstream_st *stream)
{
    return cudaEventRecord(event, stream);
}

static int wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    return cudaStreamWaitEvent(stream, event, 0);
}

static const struct sluice_cpu calls = {.launch = launch, .record = record, .wait = wait};
const struct sluice_cpu *const body_cpu = &calls;
const uint32_t body_streams_max = 16; /* a few threads run them */

int body_open(struct sluice_cuda *room, const struct sluice_cuda **ret_cuda, struct error *error)
{
    (void)room;
    (void)error;
    *ret_cuda = NULL;
    return 0;
}

void *body_address(void *device_pointer)
{
    return device_pointer ? dev(device_pointer) : NULL;
}
