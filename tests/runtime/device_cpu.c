#include "tests/runtime/device.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/emu/emu.h"

#define PIECE 64 /* elements per index, so that kernels have several */

struct span_args {
    uint32_t *data;
    const uint32_t *from;
    uint32_t count, value;
};

static enum emu_engine engine(void)
{
    const char *name = getenv("SLUICE_TEST_ENGINE");
    if (name && !strcmp(name, "stepper"))
        return EMU_STEPPER;
    return name && !strcmp(name, "stream-thread") ? EMU_STREAM_THREAD : EMU_THREADS;
}

void device_begin(void)
{
    struct emu_options options = {.engine = engine(),
                                  .devices = 2,
                                  .memory_bytes = (uint64_t)256 << 20,
                                  .team_threads = 3,
                                  .seed = 1,
                                  .poison = true,
                                  .strict = true};
    if (emu_setup(&options) != cudaSuccess)
        abort();
}

bool device_clean(void)
{
    struct emu_live live = emu_live();
    return live.streams == 0 && live.events == 0 && live.pools == 0 && live.graphs == 0 &&
           live.host_ranges == 0 && live.device_bytes == 0;
}

bool device_threads(void)
{
    return engine() != EMU_STEPPER;
}

static void fill(const void *params, uint32_t index)
{
    const struct span_args *args = params;
    uint32_t *data = dev(args->data);
    for (uint32_t i = index * PIECE; i < (index + 1) * PIECE && i < args->count; i++)
        data[i] = args->value;
}

static void add(const void *params, uint32_t index)
{
    const struct span_args *args = params;
    uint32_t *data = dev(args->data);
    for (uint32_t i = index * PIECE; i < (index + 1) * PIECE && i < args->count; i++)
        data[i] += args->value;
}

static void copy(const void *params, uint32_t index)
{
    const struct span_args *args = params;
    uint32_t *data = dev(args->data);
    const uint32_t *from = dev(args->from);
    for (uint32_t i = index * PIECE; i < (index + 1) * PIECE && i < args->count; i++)
        data[i] = from[i];
}

static cudaError_t launch(cudaStream_t stream, const char *name,
                          void (*kernel)(const void *, uint32_t), struct span_args args)
{
    return emu_launch(stream, name, kernel, &args, sizeof(args), (args.count + PIECE - 1) / PIECE);
}

cudaError_t kernel_fill(cudaStream_t stream, uint32_t *data, uint32_t count, uint32_t value)
{
    return launch(stream, "fill", fill,
                  (struct span_args){.data = data, .count = count, .value = value});
}

cudaError_t kernel_add(cudaStream_t stream, uint32_t *data, uint32_t count, uint32_t addend)
{
    return launch(stream, "add", add,
                  (struct span_args){.data = data, .count = count, .value = addend});
}

cudaError_t kernel_copy(cudaStream_t stream, uint32_t *dst, const uint32_t *src, uint32_t count)
{
    return launch(stream, "copy", copy,
                  (struct span_args){.data = dst, .from = src, .count = count});
}

static void trap(const void *unused, uint32_t index)
{
    (void)unused;
    (void)index;
    emu_break(cudaErrorLaunchFailure);
}

cudaError_t kernel_trap(cudaStream_t stream)
{
    return emu_launch(stream, "trap", trap, NULL, 0, 1);
}
