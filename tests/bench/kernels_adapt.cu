/* Figures of adapters beside the products that they stand behind, of an 8B's decode step: its rows
 * over some adapters of rank 16, on all matrices and on q and v alone, with a set of A and B for
 * each of the layers, as one graph. A site's microseconds are the difference to the same graph of
 * products alone, whose gate and up are activated, too. */
#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/adapt/adapt.h"
#include "gpu/kernels/matmul/matmul.h"
#include "tests/bench/kernels.cuh"

#define LAYERS 32
#define ROWS_MAX 512
#define ADAPTERS 64
#define RANK 16

static const struct site {
    const char *name;
    uint32_t k, parts, ends[ADAPT_PARTS];
    bool gated;
} sites[] = {{"qkv", 4096, 3, {4096, 5120, 6144}, false},
             {"o", 4096, 1, {4096}, false},
             {"gate_up", 4096, 2, {14336, 28672}, true},
             {"down", 14336, 1, {4096}, false}};
#define SITES 4

static uint32_t step_rows;

static uint32_t width_of(const site &s)
{
    return s.ends[s.parts - 1];
}

struct adapted {
    char *weights, *pairs;
    void *x, *y, *out, *workspace;
    float *inner, *sums;
    uint32_t *count, *token_row, *list;
    struct batch_row *rows;
    struct adapt_place *places; /* [layers][sites][adapters] */
};

static size_t pair_bytes(const site &s, uint32_t width)
{
    return (size_t)RANK * (s.k + width) * 2;
}

/* A and B of every layer, site and adapter. */
static void places_fill(adapted &d, uint32_t adapters, bool all)
{
    std::vector<struct adapt_place> places(LAYERS * SITES * adapters);
    size_t at = 0;
    for (size_t i = 0; i < places.size(); i++) {
        const site &s = sites[i / adapters % SITES];
        places[i].rank = RANK;
        places[i].scale = 0.001f;
        for (uint32_t p = 0; p < s.parts; p++) {
            uint32_t width = s.ends[p] - (p ? s.ends[p - 1] : 0);
            struct adapt_part &part = places[i].parts[p];
            part = {NULL, NULL, half_t, half_t, p, 0};
            if (!all && (i / adapters % SITES || p == 1))
                continue;
            part.a = d.pairs + at;
            part.b = d.pairs + at + (size_t)RANK * s.k * 2;
            at += pair_bytes(s, width);
        }
    }
    d.places = to_device(places);
}

static size_t pairs_bytes(uint32_t adapters)
{
    size_t bytes = 0;
    for (const site &s : sites)
        for (uint32_t p = 0; p < s.parts; p++)
            bytes += pair_bytes(s, s.ends[p] - (p ? s.ends[p - 1] : 0));
    return bytes * adapters * LAYERS;
}

static adapted adapted_make()
{
    adapted d = {};
    size_t layer = 0, pairs = pairs_bytes(ADAPTERS);
    for (const site &s : sites)
        layer += (size_t)width_of(s) * s.k * 2;
    MUST(cudaMalloc(&d.weights, LAYERS * layer));
    MUST(cudaMalloc(&d.pairs, pairs));
    MUST(cudaMalloc(&d.x, (size_t)ROWS_MAX * 14336 * 2));
    MUST(cudaMalloc(&d.y, (size_t)ROWS_MAX * 28672 * 2));
    MUST(cudaMalloc(&d.out, (size_t)ROWS_MAX * 14336 * 2));
    MUST(cudaMalloc(&d.inner, (size_t)ROWS_MAX * ADAPT_PARTS * RANK * 4));
    MUST(cudaMalloc(&d.list, (size_t)ROWS_MAX * ADAPT_LIST * 4));
    MUST(cudaMalloc(&d.sums, sizeof(float) * ADAPT_SUMS(RANK)));
    MUST(cudaMalloc(&d.workspace, MATMUL_WORKSPACE_BYTES));
    fill_random(d.weights, LAYERS * layer);
    fill_random(d.pairs, pairs);
    fill_random(d.x, (size_t)ROWS_MAX * 14336 * 2);
    d.count = to_device(std::vector<uint32_t>(1, step_rows));
    std::vector<uint32_t> rows(step_rows);
    for (uint32_t i = 0; i < step_rows; i++)
        rows[i] = i;
    d.token_row = to_device(rows);
    return d;
}

static void rows_fill(adapted &d, uint32_t adapters)
{
    std::vector<struct batch_row> rows(step_rows);
    for (uint32_t i = 0; i < step_rows; i++)
        rows[i].adapter = 1 + i % adapters;
    d.rows = to_device(rows);
}

/* With `adapts`, gate and up are activated behind their adapters. */
static void base_run(const adapted &d, const site &s, const void *weight, bool adapts)
{
    struct matmul_args a = {};
    a.rows = {d.count, 0, step_rows};
    a.w = {weight, format_plain(half_t), width_of(s), s.k};
    a.x = d.x;
    a.y = s.gated && !adapts ? d.out : d.y;
    a.x_stride = s.k;
    a.y_stride = s.gated && !adapts ? s.ends[0] : width_of(s);
    a.x_dtype = a.y_dtype = a.bias_dtype = half_t;
    a.workspace = d.workspace;
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    a.gated = s.gated && !adapts;
    a.activation = ACTIVATE_SILU;
    MUST(op_matmul(&a, stream));
}

static void adapt_run(const adapted &d, const site &s, const struct adapt_place *places,
                      uint32_t adapters, bool first)
{
    struct adapt_args a = {};
    a.rows = {d.count, 0, step_rows};
    a.token_row = d.token_row;
    a.batch_rows = d.rows;
    a.places = places;
    a.x = d.x;
    a.y = d.y;
    a.inner = d.inner;
    a.list = d.list;
    a.sums = adapt_spreads(step_rows, adapters) ? d.sums : NULL;
    a.k = a.x_stride = s.k;
    a.y_stride = width_of(s);
    a.rank_max = RANK;
    a.part_count = s.parts;
    for (uint32_t p = 0; p < s.parts; p++)
        a.ends[p] = s.ends[p];
    a.x_dtype = a.y_dtype = half_t;
    a.lists = first;
    a.alike = true;
    a.gated = s.gated;
    a.activation = ACTIVATE_SILU;
    a.out = d.out;
    a.out_stride = s.ends[0];
    MUST(op_adapt(&a, stream));
}

/* Sites of a bit mask; `base`: their products; `adapts`: those in `adapted_sites`. */
static double step_ms(const adapted &d, uint32_t which, uint32_t adapters, bool base,
                      uint32_t adapts)
{
    return time_graph_ms([&] {
        const char *weight = d.weights;
        bool first = true;
        for (uint32_t i = 0; i < LAYERS * SITES; i++) {
            const site &s = sites[i % SITES];
            bool with = adapts >> i % SITES & 1;
            if (base && (which >> i % SITES & 1))
                base_run(d, s, weight, with);
            if (with)
                adapt_run(d, s, d.places + (size_t)i * adapters, adapters, first);
            first = first && !with;
            weight += (size_t)width_of(s) * s.k * 2;
        }
    });
}

void adapt_bench(uint32_t rows)
{
    step_rows = std::min<uint32_t>(rows, ROWS_MAX);
    adapted d = adapted_make();
    double base = step_ms(d, 15, 1, true, 0), alone[SITES];
    printf("products of 32 layers of an 8B, %u rows: %.3f ms\n", step_rows, base);
    for (uint32_t site = 0; site < SITES; site++)
        alone[site] = step_ms(d, 1u << site, 1, true, 0);
    for (bool all : {true, false})
        for (uint32_t adapters : {1u, 8u, 64u}) {
            if (adapters > step_rows)
                continue;
            places_fill(d, adapters, all);
            rows_fill(d, adapters);
            double ms = step_ms(d, 15, adapters, true, all ? 15 : 1);
            printf("%2u adapters of rank %d on %s: %.3f ms = %.1f us a site;", adapters, RANK,
                   all ? "all matrices" : "q and v", ms,
                   (ms - base) * 1e3 / LAYERS / (all ? 4 : 1));
            for (uint32_t site = 0; site < (all ? SITES : 1); site++)
                printf(" %s %.1f behind its product, %.1f by itself;", sites[site].name,
                       (step_ms(d, 1u << site, adapters, true, 1u << site) - alone[site]) * 1e3 /
                           LAYERS,
                       step_ms(d, 1u << site, adapters, false, 1u << site) * 1e3 / LAYERS);
            printf("\n");
            fflush(stdout);
        }
}
