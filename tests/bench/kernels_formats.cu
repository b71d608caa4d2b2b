/* The products of a layer of the 8B shape with weights in each format, by rows: each alone and all
 * four, as a decode step has them (norms handed on where there is a kernel that can, gate and up
 * with SwiGLU, sums added to the residual); beside those of 16 bits. */
#include <string.h>

#include "gpu/kernels/load/repack.h"
#include "gpu/kernels/matmul/matmul.h"
#include "tests/bench/kernels.cuh"

static const struct product_shape {
    const char *name;
    uint32_t n, k;
    bool gated, adds;
} SHAPES[] = {{"qkv", 6144, 4096, false, false},
              {"o", 4096, 4096, false, true},
              {"gate and up", 28672, 4096, true, false},
              {"down", 4096, 14336, false, true}};

static const struct scheme {
    const char *name;
    enum format format;
    uint32_t group; /* columns of a scale; 0: all */
    enum weight_rounding rounding;
    bool zeros;
} SCHEMES[] = {{"bf16", FORMAT_BF16, 0, ROUNDING_NONE, false},
               {"e4m3, inputs by token", FORMAT_E4M3, 0, ROUNDING_TOKEN, false},
               {"e4m3, inputs as they are", FORMAT_E4M3, 0, ROUNDING_NONE, false},
               {"u4, groups of 128", FORMAT_U4, 128, ROUNDING_NONE, false},
               {"u4, groups of 128, zeros", FORMAT_U4, 128, ROUNDING_NONE, true},
               {"u8", FORMAT_U8, 0, ROUNDING_NONE, true}};

static const uint32_t COPIES = 6; /* of a layer's weights: more than the L2 holds */
static const uint32_t ROWS_MOST = 512;

/* Bytes that are finite in e4m3. */
__global__ void bytes_kernel(uint32_t *to, size_t count)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += step) {
        uint32_t hash = static_cast<uint32_t>(i) * 2654435761u;
        hash = (hash ^ hash >> 15) * 2246822519u;
        to[i] = (hash ^ hash >> 13) & 0xb7b7b7b7u;
    }
}

struct formats_state {
    void *x, *y, *residual, *norm_weight, *workspace, *scratch;
    float *squares;
    uint32_t *count;
    size_t scratch_bytes;
};

static void *room(size_t bytes)
{
    void *out;
    MUST(cudaMalloc(&out, bytes));
    fill_random(out, bytes / 16 * 16);
    return out;
}

static struct formats_state formats_begin()
{
    struct formats_state s = {};
    s.x = room((size_t)ROWS_MOST * 14336 * 2);
    s.y = room((size_t)ROWS_MOST * 28672 * 2);
    s.residual = room((size_t)ROWS_MOST * 4096 * 4);
    s.norm_weight = room(4096 * 2);
    s.squares = static_cast<float *>(room(ROWS_MOST * MATMUL_PARTS * 4));
    s.workspace = room(MATMUL_WORKSPACE_BYTES);
    s.scratch_bytes = (size_t)256 << 20;
    s.scratch = room(s.scratch_bytes);
    s.count = to_device(std::vector<uint32_t>(1, 1u << 20));
    return s;
}

static struct weight weight_make(const scheme &how, const product_shape &shape)
{
    size_t bytes = format_bytes(how.format, shape.n, shape.k);
    uint32_t scales = shape.n * (how.group ? shape.k / how.group : 1);
    struct weight w = {};
    void *data = room(bytes);
    w.data = data;
    w.format = how.format;
    w.n = shape.n;
    w.k = shape.k;
    if (how.format == FORMAT_BF16)
        return w;
    bytes_kernel<<<2048, 256, 0, stream>>>(static_cast<uint32_t *>(data), bytes / 4);
    w.scales = {to_device(std::vector<float>(scales, 0.01f)), DTYPE_F32, 1, how.group};
    w.input.rounding = how.rounding;
    if (how.zeros)
        w.zeros = to_device(std::vector<uint8_t>(scales, how.format == FORMAT_U4 ? 8 : 128));
    MUST(op_repack(&w, stream));
    return w;
}

/* Norms go by halves where the product has a kernel for that. */
static struct matmul_args args_of(const formats_state &s, const product_shape &shape,
                                  const struct weight &w, uint32_t rows)
{
    struct matmul_args a = {};
    a.rows = {s.count, 0, rows};
    a.w = w;
    a.x = s.x;
    a.x_stride = shape.k;
    a.x_dtype = half_t;
    a.y = shape.adds ? s.residual : s.y;
    a.y_dtype = shape.adds ? DTYPE_F32 : half_t;
    a.y_stride = shape.gated ? shape.n / 2 : shape.n;
    a.gated = shape.gated;
    a.adds = shape.adds;
    a.workspace = s.workspace;
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    a.scratch = s.scratch;
    a.scratch_bytes = s.scratch_bytes;
    struct matmul_args with = a;
    if (shape.adds)
        with.norm_out = {s.norm_weight, s.x, s.squares, 4096, half_t, 0};
    else
        with.norm_in = {
            s.squares, 1e-5f, static_cast<const float *>(s.residual), s.norm_weight, 4096,
            half_t,    0};
    if (matmul_fuses(&with))
        return with;
    a.gated = a.gated && matmul_fuses(&a);
    if (!a.gated)
        a.y_stride = shape.n;
    return a;
}

static void scheme_bench(const formats_state &s, const scheme &how,
                         const std::vector<uint32_t> &all_rows)
{
    std::vector<struct weight> weights;
    double layer_bytes = 0;
    for (auto &shape : SHAPES) {
        layer_bytes += (double)format_bytes(how.format, shape.n, shape.k);
        for (uint32_t i = 0; i < COPIES; i++)
            weights.push_back(weight_make(how, shape));
    }
    printf("%s: us of", how.name);
    for (auto &shape : SHAPES)
        printf(" %s,", shape.name);
    printf(" all four\n");
    for (uint32_t rows : all_rows) {
        printf("    %3u rows:", rows);
        for (size_t i = 0; i < 4; i++)
            printf(" %7.1f", 1e3 / COPIES * time_graph_ms([&] {
                                 for (uint32_t copy = 0; copy < COPIES; copy++) {
                                     struct matmul_args a =
                                         args_of(s, SHAPES[i], weights[i * COPIES + copy], rows);
                                     MUST(op_matmul(&a, stream));
                                 }
                             }));
        double ms = time_graph_ms([&] {
                        for (uint32_t copy = 0; copy < COPIES; copy++)
                            for (size_t i = 0; i < 4; i++) {
                                struct matmul_args a =
                                    args_of(s, SHAPES[i], weights[i * COPIES + copy], rows);
                                MUST(op_matmul(&a, stream));
                            }
                    }) /
                    COPIES;
        printf(" %7.1f = %.0f GB/s, %.0f TFLOP/s\n", ms * 1e3, layer_bytes / ms / 1e6,
               2.0 * rows * 218103808 / ms / 1e9);
        fflush(stdout);
    }
    for (auto &w : weights) {
        MUST(cudaFree(const_cast<void *>(w.data)));
        MUST(cudaFree(const_cast<void *>(w.scales.data)));
        MUST(cudaFree(const_cast<uint8_t *>(w.zeros)));
    }
}

void formats_bench(const char *scheme, const std::vector<uint32_t> &rows)
{
    struct formats_state s = formats_begin();
    for (auto &how : SCHEMES)
        if (!strncmp(how.name, scheme, strlen(scheme)))
            scheme_bench(s, how, rows);
}
