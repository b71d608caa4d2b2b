/* The calls that put work into streams: copies, fills, kernels, host functions. */
#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/device.h"
#include "gpu/emu/host.h"
#include "gpu/emu/pool.h"
#include "gpu/emu/stream.h"
#include "gpu/emu/work.h"

/* Device memory is only valid where something is allocated. */
static bool on_device(const void *address, size_t bytes)
{
    for (uint32_t i = 0; i < device_count(); i++) {
        if (memory_covers(&device_at((int)i)->memory, address, bytes))
            return true;
    }
    return false;
}

static enum cudaMemcpyKind kind_of(const void *dst, const void *src)
{
    if (memory_is_device(dst))
        return memory_is_device(src) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
    return memory_is_device(src) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

/* Both ends as the host addresses them; false where one is not what it should be. */
static bool resolve(struct work *copy, void *dst, const void *src, size_t bytes)
{
    bool to_device = memory_is_device(dst), from_device = memory_is_device(src);
    if (!dst || !src || (to_device && !on_device(dst, bytes)) ||
        (from_device && !on_device(src, bytes)))
        return false;
    *copy = (struct work){.kind = WORK_COPY,
                          .copy = {.dst = to_device ? dev(dst) : dst,
                                   .src = from_device ? dev(src) : src,
                                   .bytes = bytes}};
    return true;
}

static cudaError_t copy_submit(struct CUstream_st *stream, const struct work *copy, bool pinned)
{
    if (!pinned) {
        call_count_pageable();
        if (device_chosen.strict && stream->created)
            call_abort("a copy of %zu bytes between device and pageable memory on a created stream",
                       copy->copy.bytes);
        if (stream->capture)
            return capture_refuses(stream);
    }
    cudaError_t error = submit(stream, copy, NULL, 0);
    if (error != cudaSuccess)
        return call_fail(error);
    if (!pinned) /* as a device does: the source may be used again when the call returns */
        stream_await(stream, stream_issued(stream));
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream_handle)
{
    ENTER(cudaMemcpyAsync);
    struct CUstream_st *stream = stream_from(stream_handle);
    struct work copy;
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (count == 0)
        return cudaSuccess;
    if (kind > cudaMemcpyDefault)
        return call_fail(cudaErrorInvalidMemcpyDirection);
    enum cudaMemcpyKind real = kind_of(dst, src);
    if ((kind != cudaMemcpyDefault && kind != real) || !resolve(&copy, dst, src, count))
        return call_fail(cudaErrorInvalidValue);
    bool pinned = (real == cudaMemcpyDeviceToDevice || real == cudaMemcpyDeviceToHost ||
                   host_is_pinned(src, count)) &&
                  (real == cudaMemcpyDeviceToDevice || real == cudaMemcpyHostToDevice ||
                   host_is_pinned(dst, count));
    return copy_submit(stream, &copy, pinned);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t count, cudaStream_t stream_handle)
{
    ENTER(cudaMemcpyPeerAsync);
    struct CUstream_st *stream = stream_from(stream_handle);
    struct device *to = device_at(dst_device), *from = device_at(src_device);
    struct work copy;
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (!to || !from)
        return call_fail(cudaErrorInvalidDevice);
    if (count == 0)
        return cudaSuccess;
    if (!memory_covers(&to->memory, dst, count) || !memory_covers(&from->memory, src, count) ||
        !resolve(&copy, dst, src, count))
        return call_fail(cudaErrorInvalidValue);
    return copy_submit(stream, &copy, true);
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t count, cudaStream_t stream_handle)
{
    ENTER(cudaMemsetAsync);
    struct CUstream_st *stream = stream_from(stream_handle);
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (count == 0)
        return cudaSuccess;
    if (!on_device(pointer, count))
        return call_fail(cudaErrorInvalidValue);
    struct work fill = {.kind = WORK_FILL,
                        .fill = {.dst = dev(pointer), .value = value, .bytes = count}};
    cudaError_t error = submit(stream, &fill, NULL, 0);
    return error == cudaSuccess ? error : call_fail(error);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream_handle, cudaHostFn_t function, void *user_data)
{
    ENTER(cudaLaunchHostFunc);
    struct CUstream_st *stream = stream_from(stream_handle);
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    if (!function)
        return call_fail(cudaErrorInvalidValue);
    struct work host = {.kind = WORK_HOST, .host = {.function = function, .data = user_data}};
    cudaError_t error = submit(stream, &host, NULL, 0);
    return error == cudaSuccess ? error : call_fail(error);
}

cudaError_t emu_launch(cudaStream_t stream_handle, const char *name,
                       void (*kernel)(const void *args, uint32_t index), const void *args,
                       size_t args_size, uint32_t count)
{
    ENTER(launch);
    struct CUstream_st *stream = stream_from(stream_handle);
    if (!stream || stream->device != device_current())
        return call_fail(cudaErrorInvalidResourceHandle);
    if (!kernel || count == 0 || args_size > EMU_ARGS_MAX || (args_size > 0 && !args))
        return call_fail(cudaErrorInvalidValue);
    struct work launch = {.kind = WORK_KERNEL,
                          .hangs = call_hangs(),
                          .kernel = {.function = kernel, .name = name, .count = count}};
    cudaError_t error = submit(stream, &launch, args, args_size);
    return error == cudaSuccess ? error : call_fail(error);
}

static cudaError_t tally_submit(cudaStream_t stream_handle, const struct work *work)
{
    struct CUstream_st *stream = stream_from(stream_handle);
    cudaError_t error = call_sticky();
    if (error == cudaSuccess && !stream)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess)
        error = submit(stream, work, NULL, 0);
    return error == cudaSuccess ? error : call_fail(error);
}

cudaError_t emu_tally_raise(cudaStream_t stream, struct CUstream_st *tally)
{
    return tally_submit(stream, &(struct work){.kind = WORK_RAISE, .tally = {.own = tally}});
}

cudaError_t emu_tally_level(cudaStream_t stream, struct CUstream_st *own, struct CUstream_st *other)
{
    return tally_submit(stream,
                        &(struct work){.kind = WORK_LEVEL, .tally = {.own = own, .other = other}});
}
