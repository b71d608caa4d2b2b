#include "gpu/emu/device.h"

#include <stdio.h>
#include <string.h>

#include "gpu/emu/call.h"
#include "gpu/emu/capture.h"
#include "gpu/emu/pool.h"

#define PRIORITY_GREATEST (-5)

static _Thread_local struct {
    uint32_t generation;
    int device;
} current;

struct device *device_current(void)
{
    return device_at(current.generation == device_generation() ? current.device : 0);
}

cudaError_t cudaGetDeviceCount(int *ret_count)
{
    ENTER(cudaGetDeviceCount);
    if (!ret_count)
        return call_fail(cudaErrorInvalidValue);
    *ret_count = (int)device_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    ENTER(cudaSetDevice);
    if (!device_at(device))
        return call_fail(cudaErrorInvalidDevice);
    current.generation = device_generation();
    current.device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *ret_device)
{
    ENTER(cudaGetDevice);
    if (!ret_device)
        return call_fail(cudaErrorInvalidValue);
    *ret_device = device_current()->ordinal;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_prop, int ordinal)
{
    ENTER(cudaGetDeviceProperties);
    if (!device_at(ordinal))
        return call_fail(cudaErrorInvalidDevice);
    if (!ret_prop)
        return call_fail(cudaErrorInvalidValue);
    *ret_prop = (struct cudaDeviceProp){
        .name = "CPU",
        .totalGlobalMem = (size_t)device_chosen.memory_bytes,
        .major = 9,
        .multiProcessorCount = (int)device_chosen.team_threads,
        .integrated = 1,
        .concurrentKernels = 1,
        .pciBusID = ordinal + 1,
        .asyncEngineCount = 3,
        .unifiedAddressing = 1,
        .l2CacheSize = 1 << 20,
        .streamPrioritiesSupported = 1,
        .memoryPoolsSupported = 1,
    };
    memcpy(ret_prop->uuid.bytes, "sluice-cpu", 10);
    ret_prop->uuid.bytes[15] = (char)ordinal;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *ret_value, enum cudaDeviceAttr attr, int ordinal)
{
    ENTER(cudaDeviceGetAttribute);
    if (!device_at(ordinal))
        return call_fail(cudaErrorInvalidDevice);
    if (!ret_value)
        return call_fail(cudaErrorInvalidValue);
    switch (attr) {
    case cudaDevAttrMultiProcessorCount:
        *ret_value = (int)device_chosen.team_threads;
        return cudaSuccess;
    case cudaDevAttrIntegrated:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
        *ret_value = 1;
        return cudaSuccess;
    case cudaDevAttrPciBusId:
        *ret_value = ordinal + 1;
        return cudaSuccess;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrComputeCapabilityMinor:
        *ret_value = 0;
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *ret_value = 1 << 20;
        return cudaSuccess;
    case cudaDevAttrAsyncEngineCount:
        *ret_value = 3;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *ret_value = 9;
        return cudaSuccess;
    }
    return call_fail(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *ret_id, int length, int ordinal)
{
    ENTER(cudaDeviceGetPCIBusId);
    if (!device_at(ordinal))
        return call_fail(cudaErrorInvalidDevice);
    if (!ret_id || length < 13)
        return call_fail(cudaErrorInvalidValue);
    snprintf(ret_id, (size_t)length, "0000:%02X:00.0", (unsigned)(ordinal + 1));
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    ENTER(cudaDeviceGetStreamPriorityRange);
    if (ret_least)
        *ret_least = 0;
    if (ret_greatest)
        *ret_greatest = PRIORITY_GREATEST;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER(cudaDeviceSynchronize);
    cudaError_t error = capture_forbids();
    if (error != cudaSuccess)
        return error;
    stream_await_all(device_current());
    error = call_sticky();
    if (error != cudaSuccess)
        return call_fail(error);
    pool_synchronised(device_current());
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *ret_can, int device, int peer)
{
    ENTER(cudaDeviceCanAccessPeer);
    if (!device_at(device) || !device_at(peer))
        return call_fail(cudaErrorInvalidDevice);
    if (!ret_can)
        return call_fail(cudaErrorInvalidValue);
    *ret_can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    ENTER(cudaDeviceEnablePeerAccess);
    struct device *device = device_current();
    if (!device_at(peer) || peer == device->ordinal)
        return call_fail(cudaErrorInvalidDevice);
    if (flags)
        return call_fail(cudaErrorInvalidValue);
    uint32_t bit = 1u << peer;
    if (atomic_fetch_or(&device->peers, bit) & bit)
        return call_fail(cudaErrorPeerAccessAlreadyEnabled);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    ENTER(cudaMemGetInfo);
    struct memory *memory = &device_current()->memory;
    if (!ret_free || !ret_total)
        return call_fail(cudaErrorInvalidValue);
    lock_take(&memory->lock);
    size_t most = memory->limit < memory->bytes ? memory->limit : memory->bytes;
    *ret_free = most > memory->used ? most - memory->used : 0;
    *ret_total = memory->bytes;
    lock_drop(&memory->lock);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *ret_stream, unsigned int flags, int priority)
{
    ENTER(cudaStreamCreateWithPriority);
    if (!ret_stream || (flags & ~(unsigned)cudaStreamNonBlocking))
        return call_fail(cudaErrorInvalidValue);
    priority = priority > 0 ? 0 : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
    struct CUstream_st *stream = stream_make(device_current(), priority, true);
    if (!stream)
        return call_fail(cudaErrorMemoryAllocation);
    *ret_stream = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    ENTER(cudaStreamDestroy);
    struct CUstream_st *stream = stream_from(handle);
    if (!stream || !stream->created)
        return call_fail(cudaErrorInvalidResourceHandle);
    cudaError_t error = capture_refuses(stream);
    if (error != cudaSuccess)
        return error;
    stream_retire(stream); /* what is queued still runs */
    return cudaSuccess;
}

/* What a query or a synchronise may not touch: streams under capture, and any by a capturing
 * thread. */
static cudaError_t host_may_ask(struct CUstream_st *stream)
{
    if (!stream)
        return call_fail(cudaErrorInvalidResourceHandle);
    cudaError_t error = capture_refuses(stream);
    return error == cudaSuccess ? capture_forbids() : error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    ENTER(cudaStreamSynchronize);
    struct CUstream_st *stream = stream_from(handle);
    cudaError_t error = host_may_ask(stream);
    if (error != cudaSuccess)
        return error;
    stream_await(stream, stream_issued(stream));
    error = call_sticky();
    if (error != cudaSuccess)
        return call_fail(error);
    pool_synchronised(stream->device);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    ENTER(cudaStreamQuery);
    struct CUstream_st *stream = stream_from(handle);
    cudaError_t error = host_may_ask(stream);
    if (error != cudaSuccess)
        return error;
    return stream_done(stream, stream_issued(stream)) ? cudaSuccess : call_fail(cudaErrorNotReady);
}
