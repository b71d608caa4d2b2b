/* Figures of adapters beside the products that they stand behind, of an 8B's decode step: its rows
 * over some adapters of rank 16, on all matrices and on q and v alone, with a set of A and B for
 * each of the layers, as one graph. A site's microseconds are the difference to the same graph of
 * products alone, whose gate and up are activated, and whose o and down add to the residual, too:
 * in the product where it can be so (adapted.h), and apart. */
#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/adapted/adapted.h"
#include "tests/bench/kernels.cuh"

#define LAYERS 32
#define ROWS_MAX 512
#define ADAPTERS 64
#define RANK 16

static const struct site {
    const char *name;
    uint32_t k, parts, ends[ADAPT_PARTS];
    bool gated, adds;
} sites[] = {{"qkv", 4096, 3, {4096, 5120, 6144}, false, false},
             {"o", 4096, 1, {4096}, false, true},
             {"gate_up", 4096, 2, {14336, 28672}, true, false},
             {"down", 14336, 1, {4096}, false, true}};
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
    MUST(cudaMalloc(&d.y, (size_t)ROWS_MAX * 28672 * 2)); /* or 4096 floats a row */
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

/* `apart`: gate and up are activated behind their adapters. */
static struct matmul_args product_of(const adapted &d, const site &s, const void *weight,
                                     bool apart)
{
    bool gated = s.gated && !apart;
    struct matmul_args a = {};
    a.rows = {d.count, 0, step_rows};
    a.w = {weight, format_plain(half_t), width_of(s), s.k};
    a.x = d.x;
    a.y = gated ? d.out : d.y;
    a.x_stride = s.k;
    a.y_stride = gated ? s.ends[0] : width_of(s);
    a.x_dtype = a.bias_dtype = half_t;
    a.y_dtype = s.adds ? DTYPE_F32 : half_t;
    a.workspace = d.workspace;
    a.workspace_bytes = MATMUL_WORKSPACE_BYTES;
    a.gated = gated;
    a.adds = s.adds && !apart;
    a.activation = ACTIVATE_SILU;
    return a;
}

static struct adapt_args adapts_of(const adapted &d, const site &s,
                                   const struct adapt_place *places, uint32_t adapters,
                                   uint32_t number, bool first)
{
    struct adapt_args a = {};
    a.number = number;
    a.rows = {d.count, 0, step_rows};
    a.token_row = d.token_row;
    a.batch_rows = d.rows;
    a.places = places;
    a.x = d.x;
    a.y = d.y;
    a.inner = d.inner;
    a.list = d.list;
    a.sums = d.sums;
    a.spreads = adapt_spread(step_rows, adapters) != ADAPT_SHARED;
    a.k = a.x_stride = s.k;
    a.y_stride = width_of(s);
    a.rank_max = RANK;
    a.part_count = s.parts;
    for (uint32_t p = 0; p < s.parts; p++)
        a.ends[p] = s.ends[p];
    a.x_dtype = half_t;
    a.y_dtype = s.adds ? DTYPE_F32 : half_t;
    a.lists = first;
    a.alike = true;
    a.gated = s.gated;
    a.activation = ACTIVATE_SILU;
    a.out = d.out;
    a.out_stride = s.ends[0];
    return a;
}

static bool ways_apart; /* also where a product can do it */

/* The product, and what adapters add to it. */
static void adapted_run(const adapted &d, const site &s, const void *weight,
                        const struct adapt_place *places, uint32_t adapters, uint32_t number,
                        bool first)
{
    struct matmul_args product = product_of(d, s, weight, false);
    struct adapt_args adapts = adapts_of(d, s, places, adapters, number, first);
    if (!ways_apart && adapted_fuses(&product, &adapts)) {
        MUST(op_adapted(&product, &adapts, stream));
        return;
    }
    product = product_of(d, s, weight, true);
    adapts = adapts_of(d, s, places, adapters, number, first);
    MUST(op_matmul(&product, stream));
    MUST(op_adapt(&adapts, stream));
}

/* Products of a bit mask, of which those of another have adapters. */
static double step_ms(const adapted &d, uint32_t which, uint32_t adapters, uint32_t adapts)
{
    return time_graph_ms([&] {
        const char *weight = d.weights;
        bool first = true;
        for (uint32_t i = 0; i < LAYERS * SITES; i++) {
            const site &s = sites[i % SITES];
            bool with = adapts >> i % SITES & 1;
            if (with && (which >> i % SITES & 1)) {
                adapted_run(d, s, weight, d.places + (size_t)i * adapters, adapters, i + 1, first);
                first = false;
            } else if (which >> i % SITES & 1) {
                struct matmul_args product = product_of(d, s, weight, false);
                MUST(op_matmul(&product, stream));
            }
            weight += (size_t)width_of(s) * s.k * 2;
        }
    });
}

void adapt_bench(uint32_t rows)
{
    step_rows = std::min<uint32_t>(rows, ROWS_MAX);
    adapted d = adapted_make();
    double base = step_ms(d, 15, 1, 0), alone[SITES];
    printf("products of 32 layers of an 8B, %u rows: %.3f ms;", step_rows, base);
    for (uint32_t site = 0; site < SITES; site++) {
        alone[site] = step_ms(d, 1u << site, 1, 0);
        printf(" %s %.1f us", sites[site].name, alone[site] * 1e3 / LAYERS);
    }
    printf("\n");
    for (bool all : {true, false})
        for (uint32_t adapters : {1u, 8u, 64u}) {
            if (adapters > step_rows)
                continue;
            places_fill(d, adapters, all);
            rows_fill(d, adapters);
            for (bool apart : {false, true}) {
                ways_apart = apart;
                double ms = step_ms(d, 15, adapters, all ? 15 : 1);
                printf("%2u adapters of rank %d on %s%s: %.3f ms = %.1f us a site;", adapters, RANK,
                       all ? "all matrices" : "q and v", apart ? ", apart" : "", ms,
                       (ms - base) * 1e3 / LAYERS / (all ? 4 : 1));
                for (uint32_t site = 0; site < (all ? SITES : 1); site++)
                    printf(" %s %.1f", sites[site].name,
                           (step_ms(d, 1u << site, adapters, 1u << site) - alone[site]) * 1e3 /
                               LAYERS);
                printf("\n");
                fflush(stdout);
            }
        }
}
