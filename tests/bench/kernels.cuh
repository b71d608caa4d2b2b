/* What the parts of the kernel bench share. */
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "gpu/kernels/common/device.cuh"

#define MUST(call)                                                                                 \
    do {                                                                                           \
        cudaError_t must_ = (call);                                                                \
        if (must_ != cudaSuccess) {                                                                \
            printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(must_));        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

extern cudaStream_t stream;
extern enum dtype half_t; /* the 16-bit dtype that is checked and timed */
extern int failures;
extern double read_rate; /* GB/s, measured in this run */

struct random_state {
    uint64_t state;
    uint32_t next()
    {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<uint32_t>(state >> 33);
    }
    uint32_t below(uint32_t bound)
    {
        return next() % bound;
    }
    float normal() /* about */
    {
        float sum = -6.0f;
        for (int i = 0; i < 12; i++)
            sum += (float)(next() & 0xffffff) / 16777216.0f;
        return sum;
    }
};

static inline const char *dtype_name(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? "f32" : dtype == DTYPE_BF16 ? "bf16" : "f16";
}

static inline uint16_t half_bits(float value)
{
    return half_t == DTYPE_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                                : __half_as_ushort(__float2half_rn(value));
}

static inline float bits_half(uint16_t bits)
{
    return half_t == DTYPE_BF16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                                : __half2float(__ushort_as_half(bits));
}

static inline float to_half(float value)
{
    return bits_half(half_bits(value));
}

/* Values in the dtype, on the device; never freed: the program ends soon. */
template <class T> T *to_device(const std::vector<T> &from)
{
    T *to;
    size_t bytes = std::max<size_t>(from.size() * sizeof(T), 16);
    MUST(cudaMalloc(&to, bytes));
    MUST(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
    return to;
}

static inline void *upload(const std::vector<float> &values, enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return to_device(values);
    std::vector<uint16_t> bits(values.size());
    for (size_t i = 0; i < bits.size(); i++)
        bits[i] = half_bits(values[i]);
    return to_device(bits);
}

static inline std::vector<float> download(const void *from, size_t count, enum dtype dtype)
{
    std::vector<float> out(count);
    if (dtype == DTYPE_F32) {
        MUST(cudaMemcpy(out.data(), from, count * 4, cudaMemcpyDeviceToHost));
        return out;
    }
    std::vector<uint16_t> bits(count);
    MUST(cudaMemcpy(bits.data(), from, count * 2, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        out[i] = bits_half(bits[i]);
    return out;
}

/* ||got - want|| / ||want||, and whether it is small enough. NaN never is. */
struct distance {
    double wrong = 0, size = 0;
    void add(double got, double want)
    {
        wrong += (got - want) * (got - want);
        size += want * want;
    }
    double value() const
    {
        return sqrt(wrong / size);
    }
};

static inline void verdict(const char *what, double value, double limit)
{
    bool good = value <= limit;
    if (!good)
        failures++;
    printf("%-72s %.2e %s\n", what, value, good ? "ok" : "WRONG");
    fflush(stdout);
}

/* Median milliseconds of one call, by events. */
template <class F> double time_ms(F call, int repeats = 11)
{
    cudaEvent_t begin, end;
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    call();
    MUST(cudaStreamSynchronize(stream));
    std::vector<float> all;
    for (int i = 0; i < repeats; i++) {
        float ms;
        MUST(cudaEventRecord(begin, stream));
        call();
        MUST(cudaEventRecord(end, stream));
        MUST(cudaEventSynchronize(end));
        MUST(cudaEventElapsedTime(&ms, begin, end));
        all.push_back(ms);
    }
    MUST(cudaEventDestroy(begin));
    MUST(cudaEventDestroy(end));
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

/* The calls as one graph: what they cost in a captured step. */
template <class F> double time_graph_ms(F calls, int repeats = 11)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    calls(); /* eagerly first: modules load, algorithms are chosen */
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    calls();
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    double ms = time_ms([&] { MUST(cudaGraphLaunch(exec, stream)); }, repeats);
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    return ms;
}

void fill_random(void *to, size_t bytes); /* half_t, magnitudes of 1 to 2, both signs */

bool check_is_ours(); /* asked once by each check: whether this process is to make it */
void attention_check();
void decode_bench();
void prefill_bench();
void dimension_bench();
void matmul_check();
void matmul_bench();
void mix_bench();
void load_bench();
void small_bench();
void gated_bench();
void adapt_bench(uint32_t rows); /* of a step, at most 512 */
void experts_bench(const char *name); /* "SHAPE:KIND:ROWS"; "": all */
/* Of schemes whose names begin so, and of these numbers of rows. */
void formats_bench(const char *scheme, const std::vector<uint32_t> &rows);
