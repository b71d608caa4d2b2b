#include "tests/gpu/kernels/rig.h"

#include <math.h>

#include "gpu/kernels/cpu/number.h"

#define GUARD 256
#define BUFFERS_MAX 4096
#define POISON 0xa5

struct buffer {
    char *device;
    size_t bytes;
};

cudaStream_t rig_stream;
static struct buffer buffers[BUFFERS_MAX];
static void *hosts[BUFFERS_MAX];
static uint32_t align = 1; /* of strides */
static uint32_t buffer_count, host_count;
static size_t guard_bytes; /* before and behind each buffer */
static uint64_t state;

void rig_threads(uint32_t count)
{
    int least, greatest;
    rig_device(count);
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&rig_stream, cudaStreamNonBlocking, greatest));
    buffer_count = 0;
    guard_bytes = rig_apart() ? 0 : GUARD;
}

bool rig_apart(void)
{
    return getenv("RIG_APART") != NULL;
}

void rig_begin(void)
{
    rig_seed(1);
    rig_threads(2);
    tensor_align(1);
}

void rig_wait(void)
{
    OK(cudaStreamSynchronize(rig_stream));
}

void rig_end(void)
{
    rig_wait();
    for (uint32_t i = 0; i < buffer_count; i++) {
        unsigned char guard[2 * GUARD];
        size_t behind = guard_bytes + buffers[i].bytes;
        OK(cudaMemcpyAsync(guard, buffers[i].device, guard_bytes, cudaMemcpyDeviceToHost,
                           rig_stream));
        OK(cudaMemcpyAsync(guard + guard_bytes, buffers[i].device + behind, guard_bytes,
                           cudaMemcpyDeviceToHost, rig_stream));
        rig_wait();
        for (size_t j = 0; j < 2 * guard_bytes; j++)
            ck_assert_msg(guard[j] == POISON, "buffer %u: a write outside of it", i);
        OK(cudaFree(buffers[i].device));
    }
    for (uint32_t i = 0; i < host_count; i++)
        free(hosts[i]);
    buffer_count = host_count = 0;
    OK(cudaStreamDestroy(rig_stream));
}

void *rig_new(const void *from, size_t bytes)
{
    void *device;
    ck_assert_uint_lt(buffer_count, BUFFERS_MAX);
    size_t whole = bytes + 2 * guard_bytes;
    OK(cudaMalloc(&device, whole ? whole : 1));
    OK(cudaMemsetAsync(device, POISON, whole, rig_stream));
    buffers[buffer_count++] = (struct buffer){device, bytes};
    if (from)
        OK(cudaMemcpyAsync((char *)device + guard_bytes, from, bytes, cudaMemcpyHostToDevice,
                           rig_stream));
    rig_wait();
    return (char *)device + guard_bytes;
}

void rig_read(void *to, const void *device, size_t bytes)
{
    OK(cudaMemcpyAsync(to, device, bytes, cudaMemcpyDeviceToHost, rig_stream));
    rig_wait();
}

void rig_seed(uint64_t seed)
{
    state = seed * 0x9e3779b97f4a7c15u + 1;
}

uint64_t rig_random(void)
{
    uint64_t mixed = (state += 0x9e3779b97f4a7c15u);
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
}

uint32_t rig_between(uint32_t least, uint32_t most)
{
    return least + (uint32_t)(rig_random() % ((uint64_t)most - least + 1));
}

float rig_normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (double)(rig_random() >> 11) * 0x1p-53;
    return (float)sum;
}

static void *host_new(size_t bytes)
{
    ck_assert_uint_lt(host_count, BUFFERS_MAX);
    return hosts[host_count++] = malloc(bytes ? bytes : 1);
}

void tensor_align(uint32_t elements)
{
    align = elements;
}

static struct tensor tensor_make(enum dtype dtype, uint32_t rows, uint32_t size)
{
    uint32_t stride = (size + rig_between(0, 9) + align - 1) / align * align;
    struct tensor tensor = {.rows = rows, .size = size, .stride = stride, .dtype = dtype};
    tensor.host = host_new((size_t)rows * stride * sizeof(float));
    return tensor;
}

struct tensor tensor_random(enum dtype dtype, uint32_t rows, uint32_t size, float deviation)
{
    struct tensor tensor = tensor_make(dtype, rows, size);
    size_t count = (size_t)rows * tensor.stride;
    void *stored = malloc(count * dtype_bytes(dtype) + 1);
    for (size_t i = 0; i < count; i++)
        tensor.host[i] = rig_normal() * deviation;
    number_round(stored, tensor.host, dtype, count);
    number_widen(tensor.host, stored, dtype, count);
    tensor.device = rig_new(stored, count * dtype_bytes(dtype));
    free(stored);
    return tensor;
}

struct tensor tensor_poison(enum dtype dtype, uint32_t rows, uint32_t size)
{
    struct tensor tensor = tensor_make(dtype, rows, size);
    tensor.device = rig_new(NULL, (size_t)rows * tensor.stride * dtype_bytes(dtype));
    return tensor;
}

void tensor_read(struct tensor *tensor)
{
    size_t count = (size_t)tensor->rows * tensor->stride;
    void *stored = malloc(count * dtype_bytes(tensor->dtype) + 1);
    rig_read(stored, tensor->device, count * dtype_bytes(tensor->dtype));
    number_widen(tensor->host, stored, tensor->dtype, count);
    free(stored);
}

float tensor_at(const struct tensor *tensor, uint32_t row, uint32_t column)
{
    return tensor->host[(size_t)row * tensor->stride + column];
}

bool tensor_untouched(const struct tensor *tensor, uint32_t first_row)
{
    size_t each = dtype_bytes(tensor->dtype), bytes = (size_t)tensor->rows * tensor->stride * each;
    unsigned char *stored = malloc(bytes + 1);
    bool clean = true;
    rig_read(stored, tensor->device, bytes);
    for (size_t i = 0; i < bytes; i++) {
        size_t row = i / each / tensor->stride, column = i / each % tensor->stride;
        if ((row >= first_row || column >= tensor->size) && stored[i] != POISON)
            clean = false;
    }
    free(stored);
    return clean;
}

void check_close(double got, double want, enum dtype dtype, double slack)
{
    double unit = dtype == DTYPE_F32 ? 0x1p-24 : dtype == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    double least = dtype == DTYPE_F16 ? 0x1p-25 : 0x1p-140;
    double allowed = fabs(want) * unit + slack * 1.01 + least;
    ck_assert_msg(fabs(got - want) <= allowed, "got %.9g, want %.9g, allowed %.3g", got, want,
                  allowed);
}

struct row_range rig_span(uint32_t count, uint32_t first, uint32_t max)
{
    return (struct row_range){rig_new(&count, sizeof count), first, max};
}
