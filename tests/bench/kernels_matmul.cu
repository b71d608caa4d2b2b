#include <string.h>

#include "gpu/kernels/matmul/cublaslt_tune.h"
#include "gpu/kernels/matmul/matmul.h"
#include "tests/bench/kernels.cuh"

static const uint32_t SPARE = 2; /* columns beyond n, that nothing may write */

struct case_of {
    uint32_t max, count, n, k;
    enum dtype x, y;
    bool bias;
};

static void *workspace()
{
    static void *space;
    if (!space)
        MUST(cudaMalloc(&space, MATMUL_WORKSPACE_BYTES));
    return space;
}

static std::vector<float> run_case(const case_of &c, struct matmul_args a, uint32_t count)
{
    uint32_t *count_on_device;
    std::vector<float> y;
    size_t size = (size_t)c.max * a.y_stride;
    MUST(cudaMalloc(&a.y, size * dtype_bytes(c.y)));
    MUST(cudaMemset(a.y, 0xff, size * dtype_bytes(c.y)));
    MUST(cudaMalloc(&count_on_device, 4));
    MUST(cudaMemcpy(count_on_device, &count, 4, cudaMemcpyHostToDevice));
    a.rows.count = count_on_device;
    MUST(cudaDeviceSynchronize());
    MUST(op_matmul(&a, stream));
    MUST(cudaStreamSynchronize(stream));
    y = download(a.y, size, c.y);
    MUST(cudaFree(a.y));
    MUST(cudaFree(count_on_device));
    return y;
}

static void check_case(const case_of &c, random_state &random)
{
    if (!check_is_ours())
        return;
    enum dtype w_dtype = c.x;
    struct matmul_args a = {};
    uint32_t pad = c.k % 8 ? 0 : 8;
    a.x_stride = c.k + pad;
    a.y_stride = c.n + SPARE;
    std::vector<float> w((size_t)c.n * c.k), x((size_t)c.max * a.x_stride), bias(c.n);
    auto draw = [&](std::vector<float> &to) {
        for (float &value : to)
            value = c.x == half_t ? to_half(random.normal()) : random.normal();
    };
    draw(w);
    draw(x);
    for (float &value : bias)
        value = c.y == half_t ? to_half(random.normal() * 9) : random.normal() * 9;
    void *on_device[3] = {upload(w, w_dtype), upload(x, c.x), upload(bias, c.y)};
    a.w = {on_device[0], format_plain(w_dtype), c.n, c.k};
    a.x = on_device[1];
    a.bias = c.bias ? on_device[2] : NULL;
    a.x_dtype = c.x;
    a.y_dtype = a.bias_dtype = c.y;
    a.rows.max = c.max;
    a.workspace = workspace();
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    std::vector<float> y = run_case(c, a, c.count);
    struct distance far;
    uint32_t every = 1 + (uint32_t)((uint64_t)c.n * c.k * c.count / 40000000);
    bool spilled = false;
    for (uint32_t r = 0; r < c.max; r++) {
        for (uint32_t n = r % every; n < c.n && r < c.count; n += every) {
            double want = c.bias ? bias[n] : 0;
            for (uint32_t k = 0; k < c.k; k++)
                want += (double)w[(size_t)n * c.k + k] * x[(size_t)r * a.x_stride + k];
            far.add(y[(size_t)r * a.y_stride + n], want);
        }
        for (uint32_t n = c.n; n < a.y_stride; n++)
            spilled = spilled || !isnan(y[(size_t)r * a.y_stride + n]);
        if (r >= c.count && c.max <= GEMV_ROWS_MAX)
            spilled = spilled || !isnan(y[(size_t)r * a.y_stride]);
    }
    char text[128];
    snprintf(text, sizeof(text), "product %u of %u rows, %u x %u, %s to %s%s", c.count, c.max, c.n,
             c.k, dtype_name(c.x), dtype_name(c.y), c.bias ? ", bias" : "");
    verdict(text, spilled ? INFINITY : far.value(),
            c.y == DTYPE_F32    ? 2e-6
            : c.y == DTYPE_BF16 ? 3e-3
                                : 4e-4);
    if (c.max <= GEMV_ROWS_MAX && c.count > 1) { /* a row alone has the bits it has in company */
        std::vector<float> alone = run_case(c, a, 1);
        a.rows.max = 1;
        std::vector<float> bound = run_case(c, a, 1);
        if (memcmp(alone.data(), y.data(), c.n * 4) || memcmp(bound.data(), y.data(), c.n * 4))
            verdict("    a row alone has the same bits", 1, 0);
    }
    for (void *pointer : on_device)
        MUST(cudaFree(pointer));
}

/* A file of anything may pick among candidates, and break nothing. */
static void check_tune()
{
    if (!check_is_ours())
        return;
    const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    struct matmul_args a = {};
    uint32_t count = 64;
    a.w = {NULL, format_plain(half_t), 1024, 2048};
    void *w, *x;
    MUST(cudaMalloc(&w, 1024 * 2048 * 2));
    MUST(cudaMalloc(&x, 64 * 2048 * 2));
    MUST(cudaMalloc(&a.y, 64 * 1024 * 2));
    fill_random(w, 1024 * 2048 * 2);
    fill_random(x, 64 * 2048 * 2);
    a.w.data = w;
    a.x = x;
    a.rows = {to_device(std::vector<uint32_t>(1, count)), 0, 64};
    a.x_stride = 2048;
    a.y_stride = 1024;
    a.x_dtype = a.y_dtype = a.bias_dtype = half_t;
    a.workspace = workspace();
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    MUST(tune_matmul(&a, &a.w.data, 1, stream));
    int saved = tune_save(dir), loaded = tune_load(dir);
    verdict("tune: saved and loaded again", saved == 0 && loaded >= 1 ? 0 : 1, 0);
    verdict("tune: a directory that is not there is an error to save to",
            tune_save("/nonexistent") < 0 && tune_load("/nonexistent") >= 0 ? 0 : 1, 0);
    MUST(op_matmul(&a, stream));
    a.rows.max = 40; /* served by what was timed for 64 */
    MUST(op_matmul(&a, stream));
    MUST(cudaStreamSynchronize(stream));
}

void matmul_check()
{
    random_state random = {3};
    for (uint32_t max : {1u, 2u, 4u, 7u, 8u, 9u, 16u})
        for (bool bias : {false, true})
            check_case({max, max > 3 ? max - 1 : max, 4096 / 8 + 5, 4096, half_t,
                        bias ? DTYPE_F32 : half_t, bias},
                       random);
    const uint32_t shapes[][2] = {{6144, 4096}, {4096, 14336}, {40, 11008}, {1, 8},  {7, 40},
                                  {130, 200},   {2048, 2048},  {33, 4104},  {9, 31}, {3000, 576}};
    for (auto &shape : shapes) {
        check_case({3, 2, shape[0], shape[1], half_t, half_t, true}, random);
        check_case({16, 13, shape[0], shape[1], half_t, DTYPE_F32, false}, random);
        check_case({61, 50, shape[0], shape[1], half_t, half_t, true}, random);
    }
    check_case({5, 4, 100, 96, DTYPE_F32, DTYPE_F32, true}, random);
    check_case({50, 44, 333, 77, DTYPE_F32, DTYPE_F32, true}, random);
    check_case({200, 200, 512, 512, half_t, DTYPE_F32, false}, random);
    check_tune();
}

/* ---- figures --------------------------------------------------------------------------------- */

static const uint32_t LAYER[4][2] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
static const uint32_t HEAD[2] = {128256, 4096};

struct step {
    char *weights;
    void *x, *y;
    uint32_t *count;
    void *workspace; /* one per concurrent stream */
};

static void product(const struct step &s, const uint32_t shape[2], size_t *at, uint32_t rows,
                    bool logits)
{
    struct matmul_args a = {};
    a.rows = {s.count, 0, rows};
    a.w = {s.weights + *at, format_plain(half_t), shape[0], shape[1]};
    a.x = s.x;
    a.y = s.y;
    a.x_stride = shape[1];
    a.y_stride = shape[0];
    a.x_dtype = half_t;
    a.y_dtype = a.bias_dtype = logits ? DTYPE_F32 : half_t;
    a.workspace = s.workspace;
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    MUST(op_matmul(&a, stream));
    *at += (size_t)shape[0] * shape[1] * 2;
}

static void tune(const struct step &s, const uint32_t shape[2], uint32_t rows)
{
    struct matmul_args a = {};
    a.rows = {s.count, 0, rows};
    a.w = {s.weights, format_plain(half_t), shape[0], shape[1]};
    a.x = s.x;
    a.y = s.y;
    a.x_stride = shape[1];
    a.y_stride = shape[0];
    a.x_dtype = a.y_dtype = a.bias_dtype = half_t;
    a.workspace = workspace();
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    std::vector<const void *> weights;
    for (int i = 0; i < 16; i++)
        weights.push_back(s.weights + (size_t)i * shape[0] * shape[1] * 2);
    MUST(tune_matmul(&a, weights.data(), 16, stream));
}

/* ---- prompts beside decode rows ----------------------------------------------------------------
 */

static cudaGraphExec_t capture(const struct step &s, uint32_t rows, int layers, cudaStream_t on)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    std::swap(stream, on);
    for (int turn = 0; turn < 2; turn++) { /* eagerly first: algorithms are chosen */
        size_t at = 0;
        if (turn)
            MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int l = 0; l < layers; l++)
            for (auto &shape : LAYER)
                product(s, shape, &at, rows, false);
    }
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    std::swap(stream, on);
    return exec;
}

/* `count` of one graph and one of the other at the same time: milliseconds until the first kind has
 * ended, and until both have. */
static void race(cudaGraphExec_t many, int count, cudaStream_t on, cudaGraphExec_t one,
                 cudaStream_t other, double *ret_many, double *ret_both)
{
    cudaEvent_t begin, many_end, one_end;
    float many_ms = 0, one_ms = 0;
    for (cudaEvent_t *event : {&begin, &many_end, &one_end})
        MUST(cudaEventCreate(event));
    for (int turn = 0; turn < 2; turn++) {
        MUST(cudaEventRecord(begin, on));
        MUST(cudaStreamWaitEvent(other, begin, 0));
        if (one)
            MUST(cudaGraphLaunch(one, other));
        for (int i = 0; i < count; i++)
            MUST(cudaGraphLaunch(many, on));
        MUST(cudaEventRecord(many_end, on));
        MUST(cudaEventRecord(one_end, other));
        MUST(cudaDeviceSynchronize());
        MUST(cudaEventElapsedTime(&many_ms, begin, many_end));
        MUST(cudaEventElapsedTime(&one_ms, begin, one_end));
    }
    *ret_many = many_ms;
    *ret_both = std::max(many_ms, one_ms);
    for (cudaEvent_t event : {begin, many_end, one_end})
        MUST(cudaEventDestroy(event));
}

/* The products of decode steps on a stream of the greatest priority while those of a prompt's chunk
 * run on one of the least; beside both in one step. */
void mix_bench()
{
    const uint32_t decode = 64;
    const int layers = 32, steps = 6;
    struct step s[2];
    size_t layer = 0;
    for (auto &shape : LAYER)
        layer += (size_t)shape[0] * shape[1] * 2;
    int least, greatest;
    cudaStream_t first, last;
    MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    MUST(cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, greatest));
    MUST(cudaStreamCreateWithPriority(&last, cudaStreamNonBlocking, least));
    char *weights;
    MUST(cudaMalloc(&weights, layers * layer));
    fill_random(weights, layers * layer);
    for (struct step &one : s) {
        one.weights = weights;
        MUST(cudaMalloc(&one.x, (size_t)4160 * 14336 * 2));
        MUST(cudaMalloc(&one.y, (size_t)4160 * 28672 * 2));
        MUST(cudaMalloc(&one.workspace, MATMUL_WORKSPACE_BYTES));
        fill_random(one.x, (size_t)4160 * 14336 * 2);
        one.count = to_device(std::vector<uint32_t>(1, 1u << 20));
    }
    for (uint32_t chunk : {128u, 256u, 512u, 1024u, 4096u}) {
        cudaGraphExec_t alone = capture(s[0], decode, layers, first);
        cudaGraphExec_t prompt = capture(s[1], chunk, layers, last);
        cudaGraphExec_t mixed = capture(s[0], decode + chunk, layers, first);
        double alone_ms, prompt_ms, mixed_ms, both_ms, all_ms, ignored;
        race(alone, steps, first, NULL, last, &alone_ms, &ignored);
        race(prompt, 1, last, NULL, first, &prompt_ms, &ignored);
        race(mixed, 1, first, NULL, last, &mixed_ms, &ignored);
        race(alone, steps, first, prompt, last, &both_ms, &all_ms);
        printf(
            "products of %u rows beside a chunk of %4u: apart %.2f + %.2f ms; in one step %.2f ms; "
            "on two streams %d steps in %.2f instead of %.2f ms, all done after %.2f\n",
            decode, chunk, alone_ms / steps, prompt_ms, mixed_ms, steps, both_ms, alone_ms, all_ms);
        fflush(stdout);
        for (cudaGraphExec_t exec : {alone, prompt, mixed})
            MUST(cudaGraphExecDestroy(exec));
    }
}

void matmul_bench()
{
    struct step s = {};
    s.workspace = workspace();
    size_t weights = (size_t)128256 * 4096 * 2, layer = 0;
    for (auto &shape : LAYER)
        layer += (size_t)shape[0] * shape[1] * 2;
    weights += 32 * layer;
    size_t x_bytes = (size_t)4096 * 14336 * 2, y_bytes = (size_t)4096 * 28672 * 4;
    MUST(cudaMalloc(&s.weights, weights));
    MUST(cudaMalloc(&s.x, x_bytes));
    MUST(cudaMalloc(&s.y, y_bytes));
    fill_random(s.weights, weights);
    fill_random(s.x, x_bytes);
    for (uint32_t rows : {1u, 2u, 4u, 8u, 12u, 16u}) {
        s.count = to_device(std::vector<uint32_t>(1, rows));
        double ms = time_graph_ms([&] {
            size_t at = 0;
            for (int l = 0; l < 32; l++)
                for (auto &shape : LAYER)
                    product(s, shape, &at, rows, false);
            product(s, HEAD, &at, rows, true);
        });
        printf("products of an 8B step, %2u rows: %.3f ms %5.0f GB/s = %4.1f %% of read\n", rows,
               ms, weights / ms / 1e6, 100 * weights / ms / 1e6 / read_rate);
        for (auto &shape : LAYER) {
            int copies = (int)(((size_t)2 << 30) / ((size_t)shape[0] * shape[1] * 2));
            double one = time_graph_ms([&] {
                size_t at = 0;
                for (int i = 0; i < copies; i++)
                    product(s, shape, &at, rows, false);
            });
            printf("    %u x %u: %.0f GB/s\n", shape[0], shape[1],
                   (double)copies * shape[0] * shape[1] * 2 / one / 1e6);
        }
        fflush(stdout);
    }
    for (uint32_t rows : {32u, 64u, 128u, 256u, 512u, 4096u}) {
        double ms[2];
        s.count = to_device(std::vector<uint32_t>(1, rows));
        for (int tuned = 0; tuned < 2; tuned++) {
            if (tuned)
                for (auto &shape : LAYER)
                    tune(s, shape, rows);
            int layers = rows > 1000 ? 2 : 8;
            ms[tuned] = time_graph_ms([&] {
                            size_t at = 0;
                            for (int l = 0; l < layers; l++)
                                for (auto &shape : LAYER)
                                    product(s, shape, &at, rows, false);
                        }) /
                        layers;
        }
        double work = (double)rows * layer;
        printf("products of an 8B layer, %4u rows: first choice %.1f us, timed %.1f us, %.0f "
               "TFLOP/s, %.0f "
               "GB/s\n",
               rows, ms[0] * 1e3, ms[1] * 1e3, work / ms[1] / 1e9, layer / ms[1] / 1e6);
        fflush(stdout);
    }
    MUST(cudaFree(s.weights));
    MUST(cudaFree(s.x));
    MUST(cudaFree(s.y));
}
