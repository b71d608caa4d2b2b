/* Figures of a layer's experts, of the shapes of real models, in 16, 8 and 4 bits: how long routes
 * become a sum, beside reading the matrices of those experts that some row needs, and beside a
 * dense product of as much work. Routes are drawn uniformly, by Zipf's law, or are all rows' the
 * same. */
#include <set>
#include <string>

#include "gpu/kernels/experts/combine.h"
#include "gpu/kernels/experts/experts.h"
#include "gpu/kernels/matmul/matmul.h"
#include "tests/bench/kernels.cuh"

static const struct mixture {
    const char *name;
    uint32_t experts, top, hidden, inner;
} mixtures[] = {{"qwen3-30b-a3b", 128, 8, 2048, 768},
                {"mixtral-8x7b", 8, 2, 4096, 14336},
                {"gpt-oss-20b", 32, 4, 2880, 2880}};

enum skew { UNIFORM, ZIPF, ALIKE };
static const char *const skews[] = {"uniform", "zipf", "alike"};

/* How experts' weights are: scales of a row and of `k` columns, 0: of all. */
static const struct kind {
    const char *name;
    enum format format;
    uint32_t n, k;
    enum weight_rounding rounding;
    uint32_t group;
} kinds[] = {{"16 bits", FORMAT_BF16, 0, 0, ROUNDING_NONE, 0}, /* or F16, as is timed */
             {"e4m3", FORMAT_E4M3, 1, 0, ROUNDING_TOKEN, 0},
             {"blocks", FORMAT_E4M3, 128, 128, ROUNDING_GROUP, 128},
             {"u4", FORMAT_U4, 1, 128, ROUNDING_NONE, 0},
             {"mxfp4", FORMAT_E2M1, 1, 32, ROUNDING_NONE, 0}};

#define ROWS_MAX 8192
#define DRAWS 8 /* of routes, in turns: what one has read, the next finds in no cache */

struct layer {
    struct mixture of;
    void *up, *down, *x, *pairs, *given, *router;
    void *scales, *scratch;
    size_t scratch_bytes;
    float *out;
    uint32_t *count, *segments;
    struct route *made; /* by the router */
};

static enum format format_of(const kind &of)
{
    return of.format <= FORMAT_F16 ? format_plain(half_t) : of.format;
}

static struct weight weight_make(const layer &l, const kind &of, bool up)
{
    struct weight w = {};
    w.data = up ? l.up : l.down;
    w.format = format_of(of);
    w.n = up ? 2 * l.of.inner : l.of.hidden;
    w.k = up ? l.of.hidden : l.of.inner;
    w.scales = {of.format <= FORMAT_F16 ? NULL : l.scales, DTYPE_F32, of.n, of.k,
                of.format == FORMAT_E2M1};
    w.input = {of.rounding, of.group, 0, NULL};
    return w;
}

static size_t scratch_most(const layer &l)
{
    size_t most = 0;
    for (const kind &of : kinds)
        for (bool up : {true, false}) {
            struct weight w = weight_make(l, of, up);
            most = std::max(most, experts_scratch_bytes(&w, l.of.experts, ROWS_MAX, l.of.top,
                                                        up, half_t));
        }
    return most;
}

static size_t scales_most(const layer &l)
{
    size_t most = 0;
    for (const kind &of : kinds)
        for (bool up : {true, false}) {
            struct weight w = weight_make(l, of, up);
            most = std::max(most, (size_t)l.of.experts * weight_scale_count(&w) *
                                      weight_scale_bytes(&w.scales));
        }
    return most;
}

static layer layer_make(const mixture &of)
{
    layer l = {};
    l.of = of;
    size_t matrix = (size_t)of.hidden * of.inner * 2, pairs = (size_t)ROWS_MAX * of.top;
    size_t sizes[] = {
        of.experts * matrix * 2, of.experts * matrix,   (size_t)ROWS_MAX * of.hidden * 2,
        pairs * of.inner * 2,    pairs * of.hidden * 2, (size_t)of.experts * of.hidden * 2};
    void **places[] = {&l.up, &l.down, &l.x, &l.pairs, &l.given, &l.router};
    for (int i = 0; i < 6; i++) {
        MUST(cudaMalloc(places[i], sizes[i]));
        fill_random(*places[i], sizes[i]);
    }
    size_t scales = scales_most(l);
    MUST(cudaMalloc(&l.scales, scales));
    MUST(cudaMemset(l.scales, 0, scales));
    l.scratch_bytes = scratch_most(l);
    MUST(cudaMalloc(&l.scratch, l.scratch_bytes));
    MUST(cudaMalloc(&l.out, (size_t)ROWS_MAX * of.hidden * 4));
    MUST(cudaMalloc(&l.count, 4));
    MUST(cudaMalloc(&l.segments, (of.experts + 1 + pairs) * 4));
    MUST(cudaMalloc(&l.made, pairs * sizeof *l.made));
    return l;
}

static void layer_free(const layer &l)
{
    void *all[] = {l.up,  l.down,  l.x,        l.pairs, l.given,  l.router,
                   l.out, l.count, l.segments, l.made,  l.scales, l.scratch};
    for (void *one : all)
        MUST(cudaFree(one));
}

/* `top` different experts of each row; *ret_touched: how many there are in all. */
static struct route *routes_make(const mixture &of, uint32_t rows, enum skew skew,
                                 random_state &random, double *ret_touched)
{
    std::vector<struct route> routes;
    std::vector<double> shares(of.experts);
    std::set<uint32_t> touched;
    double sum = 0;
    for (uint32_t e = 0; e < of.experts; e++)
        sum = shares[e] = sum + (skew == ZIPF ? 1.0 / (e + 1) : 1.0);
    for (uint32_t row = 0; row < rows; row++) {
        std::set<uint32_t> taken;
        if (skew == ALIKE && row > 0) {
            for (uint32_t i = 0; i < of.top; i++)
                routes.push_back(routes[i]);
            continue;
        }
        while (taken.size() < of.top) {
            double at = (random.next() & 0xffffff) / 16777216.0 * sum;
            uint32_t e =
                (uint32_t)(std::upper_bound(shares.begin(), shares.end(), at) - shares.begin());
            if (e < of.experts && taken.insert(e).second)
                routes.push_back({e, 1.0f / of.top});
        }
        touched.insert(taken.begin(), taken.end());
    }
    *ret_touched += (double)touched.size();
    return to_device(routes);
}

static void route_run(const layer &l, uint32_t rows)
{
    struct route_args a = {};
    a.rows = {l.count, 0, rows};
    a.w = {l.router, format_plain(half_t), l.of.experts, l.of.hidden};
    a.x = l.x;
    a.routes = l.made;
    a.x_stride = l.of.hidden;
    a.x_dtype = half_t;
    a.count = l.of.experts;
    a.top = l.of.top;
    a.normalised = true;
    a.scale = 1;
    MUST(op_route(&a, stream));
}

static void segments_run(const layer &l, const struct route *routes, uint32_t rows)
{
    struct segments_args a = {};
    a.rows = {l.count, 0, rows};
    a.routes = routes;
    a.stride = a.top = l.of.top;
    a.own = {0, l.of.experts};
    a.segments = l.segments;
    MUST(op_segments(&a, stream));
}

static void experts_run(const layer &l, const kind &of, const struct route *routes, uint32_t rows,
                        bool up)
{
    struct experts_args a = {};
    a.rows = {l.count, 0, rows};
    a.w = weight_make(l, of, up);
    a.scratch = l.scratch;
    a.scratch_bytes = l.scratch_bytes;
    a.segments = l.segments;
    a.routes = routes;
    a.route_stride = a.top = l.of.top;
    a.own = {0, l.of.experts};
    a.x = up ? l.x : l.pairs;
    a.y = up ? l.pairs : l.given;
    a.x_stride = a.w.k;
    a.y_stride = up ? l.of.inner : l.of.hidden;
    a.dtype = half_t;
    a.spread = a.gated = up;
    a.activation = ACTIVATE_SILU;
    MUST(op_experts(&a, stream));
}

static void combine_run(const layer &l, const struct route *routes, uint32_t rows)
{
    struct combine_args a = {};
    a.rows = {l.count, 0, rows};
    a.routes = routes;
    a.x = l.given;
    a.out = l.out;
    a.size = l.of.hidden;
    a.top = l.of.top;
    a.own = {0, l.of.experts};
    a.dtype = half_t;
    a.out_dtype = DTYPE_F32;
    MUST(op_combine(&a, stream));
}

/* TFLOP/s of a plain product of as many rows as there are pairs, by the first expert's gate and up.
 */
static double dense_rate(const layer &l, uint32_t pairs)
{
    struct matmul_args a = {};
    void *workspace;
    MUST(cudaMalloc(&workspace, MATMUL_WORKSPACE_BYTES));
    MUST(cudaMemcpy(l.count, &pairs, 4, cudaMemcpyHostToDevice));
    a.rows = {l.count, 0, pairs};
    a.w = {l.up, format_plain(half_t), 2 * l.of.inner, l.of.hidden};
    a.x = l.given; /* rows of hidden elements */
    a.x_stride = l.of.hidden;
    MUST(cudaMalloc(&a.y, (size_t)pairs * 2 * l.of.inner * 2));
    a.y_stride = 2 * l.of.inner;
    a.x_dtype = a.y_dtype = a.bias_dtype = half_t;
    a.workspace = workspace;
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    double ms = time_ms([&] { MUST(op_matmul(&a, stream)); });
    MUST(cudaFree(a.y));
    MUST(cudaFree(workspace));
    return 2.0 * pairs * 2 * l.of.inner * l.of.hidden / ms / 1e9;
}

static void layer_bench(const layer &l, const kind &of, uint32_t rows, enum skew skew)
{
    random_state random = {rows + 7};
    const struct route *draws[DRAWS];
    double touched = 0;
    MUST(cudaMemcpy(l.count, &rows, 4, cudaMemcpyHostToDevice));
    for (const struct route *&draw : draws)
        draw = routes_make(l.of, rows, skew, random, &touched);
    touched /= DRAWS;
    auto each = [&](auto call) {
        return time_graph_ms([&] {
                   for (const struct route *draw : draws)
                       call(draw);
               }) /
               DRAWS * 1000;
    };
    double route = each([&](const struct route *) { route_run(l, rows); });
    double segments = each([&](const struct route *draw) { segments_run(l, draw, rows); });
    double sums = each([&](const struct route *draw) { combine_run(l, draw, rows); });
    double all = each([&](const struct route *draw) {
        segments_run(l, draw, rows);
        experts_run(l, of, draw, rows, true);
        experts_run(l, of, draw, rows, false);
    });
    double products = all - segments, weight = 3.0 * l.of.hidden * l.of.inner;
    double bytes = touched * 3 * (double)format_bytes(format_of(of), l.of.hidden, l.of.inner);
    printf(
        "%-14s %-7s %5u rows, %-8s %5.1f experts: route %7.1f, segments %6.1f, products %9.1f, sum "
        "%6.1f us; "
        "%5.0f GB/s = %4.1f %% of the read rate, %4.0f TFLOP/s\n",
        l.of.name, of.name, rows, skews[skew], touched, route, segments, products, sums,
        bytes / products / 1e3, bytes / products / 10 / read_rate,
        2.0 * rows * l.of.top * weight / products / 1e6);
    fflush(stdout);
    for (const struct route *draw : draws)
        MUST(cudaFree(const_cast<struct route *>(draw)));
}

/* "SHAPE:KIND:ROWS", what is left out: all. */
static bool is_named(const std::string &name, const mixture &of, const char *kind, uint32_t rows)
{
    const std::string parts[] = {of.name, kind, std::to_string(rows)};
    size_t at = 0;
    for (const std::string &part : parts) {
        size_t end = std::min(name.find(':', at), name.size());
        if (end > at && name.substr(at, end - at) != part)
            return false;
        at = std::min(end + 1, name.size());
    }
    return true;
}

void experts_bench(const char *name)
{
    for (const mixture &of : mixtures) {
        if (*name && *name != ':' && strncmp(name, of.name, strcspn(name, ":")))
            continue;
        layer l = layer_make(of);
        for (const kind &how : kinds)
            for (uint32_t rows : {1u, 2u, 4u, 8u, 16u, 64u, 256u, 2048u, 8192u})
                for (enum skew skew : {UNIFORM, ZIPF, ALIKE})
                    if (is_named(name, of, how.name, rows))
                        layer_bench(l, how, rows, skew);
        printf("%-14s a dense product of %u rows: %.0f TFLOP/s\n", of.name, ROWS_MAX * of.top,
               dense_rate(l, ROWS_MAX * of.top));
        layer_free(l);
    }
}
