/* Attention and products on the GPU: checked against double precision over random ragged shapes
 * with poisoned memory, then timed beside the limits of the same run. Ends with 1 if anything is
 * wrong.
 *
 *     kernels [f16]      checks and figures, of BF16 where f16 is not said; likewise below
 *     kernels check      checks only (for compute-sanitizer)
 *     kernels check 1 3  every third of them from the second on: 0, 1 and 2 side by side are all
 *     kernels generic    the same checks of what a device before Hopper runs
 *     kernels decode     figures of decode attention only; likewise prefill, dimension, product
 *     kernels mix        decode steps and a prompt's chunk: in one step, or on two streams
 *     kernels load       products of many rows in a long run, when clocks are down
 *     kernels gated      gate and up with SwiGLU, as one kernel and as two
 *     kernels experts    a layer of a mixture, by how its rows are routed; SHAPE:KIND:ROWS: one
 *     kernels formats    a layer's products in each format of weights, by rows; SCHEME: that one
 *     kernels adapt [8]  adapters behind the products of a decode step, of 64 rows or so many
 *     kernels small      what stands between the products of a decode step
 *     kernels copy       a sequence's blocks copied out and in, by block size */
#include <string.h>

#include "gpu/kernels/common/device_props.cuh"
#include "tests/bench/kernels.cuh"

cudaStream_t stream;
int failures;
double read_rate;
enum dtype half_t = DTYPE_BF16;
static unsigned share, shares = 1;

bool check_is_ours()
{
    static unsigned met;
    return met++ % shares == share;
}

__global__ void fill_kernel(uint32_t *to, size_t count, uint32_t keep, uint32_t one)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t hash = 2654435761u * static_cast<uint32_t>(i + 1);
    for (; i < count; i += step) {
        hash ^= hash << 13;
        hash ^= hash >> 17;
        hash ^= hash << 5;
        to[i] = (hash & keep) | one;
    }
}

__global__ void read_kernel(const uint4 *from, size_t count, uint32_t *out)
{
    uint32_t any = 0;
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        uint4 a = __ldcs(from + i), b = __ldcs(from + i + step);
        uint4 c = __ldcs(from + i + 2 * step), d = __ldcs(from + i + 3 * step);
        any ^= a.x ^ b.y ^ c.z ^ d.w;
    }
    if (any == 0x12345)
        *out = any;
}

void fill_random(void *to, size_t bytes)
{
    bool half = half_t == DTYPE_F16;
    fill_kernel<<<2048, 256, 0, stream>>>(static_cast<uint32_t *>(to), bytes / 4,
                                          half ? 0x83ff83ff : 0x807f807f,
                                          half ? 0x3c003c00 : 0x3f803f80);
    MUST(cudaGetLastError());
    MUST(cudaStreamSynchronize(stream));
}

static void read_bench()
{
    size_t bytes = (size_t)4 << 30;
    char *from;
    uint32_t *out;
    MUST(cudaMalloc(&from, bytes));
    MUST(cudaMalloc(&out, 64));
    fill_random(from, bytes);
    double ms = time_ms([&] {
        read_kernel<<<132 * 8, 512, 0, stream>>>(reinterpret_cast<uint4 *>(from), bytes / 16, out);
    });
    read_rate = (double)bytes / ms / 1e6;
    printf("HBM read %.0f GB/s\n", read_rate);
    MUST(cudaFree(from));
    MUST(cudaFree(out));
}

/* A sequence of 2,048 tokens whose blocks (128 KiB a token, as llama-3.1-8b has) lie scattered,
 * copied to pinned memory and back, one copy per block. */
static void copy_bench()
{
    const size_t token = 128 << 10, tokens = 2048;
    char *device, *host;
    MUST(cudaMalloc(&device, 4 * tokens * token));
    MUST(cudaMallocHost(&host, tokens * token));
    for (size_t block : {16, 32, 64}) {
        double ms[2];
        for (int in = 0; in < 2; in++)
            ms[in] = time_ms([&] {
                for (size_t i = 0; i < tokens / block; i++) {
                    char *at = device + (i * 2654435761u % (4 * tokens / block)) * block * token;
                    char *to = host + i * block * token;
                    MUST(cudaMemcpyAsync(in ? at : to, in ? to : at, block * token,
                                         cudaMemcpyDefault, stream));
                }
            });
        printf("a sequence of %zu tokens in blocks of %zu: out %.1f GB/s, in %.1f GB/s\n", tokens,
               block, tokens * token / ms[0] / 1e6, tokens * token / ms[1] / 1e6);
    }
    MUST(cudaFree(device));
    MUST(cudaFreeHost(host));
}

int main(int argc, char **argv)
{
    bool f16 = argc > 1 && !strcmp(argv[1], "f16");
    const char *only = argc > 1 + f16 ? argv[1 + f16] : "";
    half_t = f16 ? DTYPE_F16 : DTYPE_BF16;
    if (argc > 3 + f16) {
        share = static_cast<unsigned>(atoi(argv[2 + f16]));
        shares = static_cast<unsigned>(atoi(argv[3 + f16]));
        if (share >= shares) {
            fprintf(stderr, "kernels: there is no share %u of %u\n", share, shares);
            return 2;
        }
    }
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    bool generic = !strcmp(only, "generic"), checks = generic || !strcmp(only, "check");
    if (generic)
        device_pretend(8);
    if (!*only || checks) {
        attention_check();
        matmul_check();
    }
    if (!checks) {
        read_bench();
        if (!*only || !strcmp(only, "decode"))
            decode_bench();
        if (!*only || !strcmp(only, "prefill"))
            prefill_bench();
        if (!*only || !strcmp(only, "dimension"))
            dimension_bench();
        if (!*only || !strcmp(only, "product"))
            matmul_bench();
        if (!strcmp(only, "mix"))
            mix_bench();
        if (!strcmp(only, "load"))
            load_bench();
        if (!strcmp(only, "small"))
            small_bench();
        if (!strcmp(only, "gated"))
            gated_bench();
        if (!strcmp(only, "experts"))
            experts_bench(argc > 2 + f16 ? argv[2 + f16] : "");
        if (!strcmp(only, "formats"))
            formats_bench(argc > 2 + f16 ? argv[2 + f16] : "",
                          {1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 512});
        if (!strcmp(only, "adapt"))
            adapt_bench(argc > 2 + f16 ? static_cast<uint32_t>(atoi(argv[2 + f16])) : 64);
        if (!strcmp(only, "copy"))
            copy_bench();
    }
    printf(failures ? "%d WRONG\n" : "all right\n", failures);
    return failures != 0;
}
