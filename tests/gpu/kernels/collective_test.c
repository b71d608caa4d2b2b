/* Ops by which ranks exchange numbers: reduce, collect. Every rank is a stream of one device here.
 */
#include <math.h>
#include <unistd.h>

#include "gpu/kernels/collective/all_gather.h"
#include "gpu/kernels/collective/allreduce_norm.h"
#include "gpu/kernels/collective/allreduce_wide_norm.h"
#include "gpu/kernels/cpu/number.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

#define TURNS 6
#define ROWS 9
#define WIDEST 9216

struct ranks {
    uint32_t count;
    uint64_t part_bytes;
    cudaStream_t stream[INBOX_RANKS_MAX], tally[INBOX_RANKS_MAX];
    char *memory[INBOX_RANKS_MAX]; /* two inboxes */
    uint32_t *let_go;
};

static struct ranks ranks;

static void ranks_begin(uint32_t count, uint64_t part_bytes)
{
    int least, greatest;
    void *word;
    ranks = (struct ranks){.count = count, .part_bytes = part_bytes};
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaHostAlloc(&word, sizeof(uint32_t), cudaHostAllocDefault));
    ranks.let_go = word;
    *ranks.let_go = 0;
    for (uint32_t r = 0; r < count; r++) {
        OK(cudaStreamCreateWithPriority(&ranks.stream[r], cudaStreamNonBlocking, greatest));
        ranks.tally[r] = rig_tally_make();
        ranks.memory[r] = rig_new(NULL, 2 * count * part_bytes);
        OK(cudaMemsetAsync(ranks.memory[r], INBOX_EMPTY, 2 * count * part_bytes, rig_stream));
    }
    rig_wait();
}

static void ranks_wait(void)
{
    for (uint32_t r = 0; r < ranks.count; r++)
        OK(cudaStreamSynchronize(ranks.stream[r]));
}

/* Everything that was put has been taken. */
static void ranks_end(void)
{
    uint64_t bytes = 2 * ranks.count * ranks.part_bytes;
    unsigned char *seen = malloc(bytes);
    for (uint32_t r = 0; r < ranks.count; r++) {
        rig_read(seen, ranks.memory[r], bytes);
        uint64_t empty = 0;
        while (empty < bytes && seen[empty] == INBOX_EMPTY)
            empty++;
        ck_assert_uint_eq(empty, bytes);
        OK(cudaStreamDestroy(ranks.stream[r]));
        rig_tally_free(ranks.tally[r]);
    }
    free(seen);
    OK(cudaFreeHost(ranks.let_go));
}

static struct inboxes inboxes_of(uint32_t rank, uint32_t turn)
{
    struct inboxes inboxes = {
        .rank = rank, .ranks = ranks.count, .part_bytes = ranks.part_bytes, .let_go = ranks.let_go};
    for (uint32_t r = 0; r < ranks.count; r++) {
        inboxes.at[r] = ranks.memory[r] + turn % 2 * ranks.count * ranks.part_bytes;
        inboxes.tally[r] = ranks.tally[r];
    }
    return inboxes;
}

/* Numbers without gaps, on the device and here. */
static void *numbers(enum dtype dtype, size_t count, float *host)
{
    void *stored = malloc(count * dtype_bytes(dtype));
    for (size_t i = 0; i < count; i++)
        host[i] = rig_normal();
    number_round(stored, host, dtype, count);
    number_widen(host, stored, dtype, count);
    void *device = rig_new(stored, count * dtype_bytes(dtype));
    free(stored);
    return device;
}

static const struct reduce_case {
    uint32_t ranks, size;
    enum dtype dtype;
    float offset;       /* of the norm's weight */
    bool behind, round; /* what is added is normed before; the residual is not */
} reduce_cases[] = {
    {2, 64, DTYPE_F32, 0, false, false},    {2, 4096, DTYPE_BF16, 0, false, false},
    {3, 1000, DTYPE_BF16, 0, false, false}, {4, 2048, DTYPE_BF16, 1, false, false},
    {4, 520, DTYPE_F32, 0, false, false},   {8, 256, DTYPE_BF16, 0, false, false},
    {2, 9216, DTYPE_BF16, 0, false, false}, {5, 128, DTYPE_F16, 0, false, false},
    {1, 64, DTYPE_BF16, 0, false, false},   {2, 64, DTYPE_F32, 0, true, false},
    {2, 4096, DTYPE_BF16, 1, true, false},  {3, 1000, DTYPE_F16, 0, true, true},
    {8, 256, DTYPE_F32, 0, true, true},     {4, 9216, DTYPE_BF16, 0, true, false},
    {2, 9216, DTYPE_F32, 0, true, true},    {1, 64, DTYPE_BF16, 1, true, true},
};

static float part_host[INBOX_RANKS_MAX][ROWS * WIDEST];
static float residual_host[ROWS * WIDEST], weight_host[WIDEST], behind_host[WIDEST];
static float got[ROWS * WIDEST], first[ROWS * WIDEST];
static float out_host[2][ROWS * WIDEST];

static double parts_sum(const struct reduce_case *c, size_t at, double *ret_size)
{
    double sum = 0;
    *ret_size = 0;
    for (uint32_t r = 0; r < c->ranks; r++) {
        sum += (double)part_host[r][at];
        *ret_size += fabs((double)part_host[r][at]);
    }
    return sum;
}

/* What a norm scales the sums of a row by; 1 where there is none. */
static double behind_scale(const struct reduce_case *c, uint32_t row)
{
    double squares = 0, size;
    for (uint32_t i = 0; i < c->size; i++)
        squares += pow(parts_sum(c, (size_t)row * c->size + i, &size), 2);
    return c->behind ? 1 / sqrt(squares / c->size + 1e-4) : 1;
}

/* Sums over ranks, in their order, against doubles; the residual as it was before. */
static void reduce_check(const struct reduce_case *c, uint32_t count, const float *residual,
                         const float *out)
{
    double unit = c->dtype == DTYPE_F32 ? 0x1p-23 : c->dtype == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    for (uint32_t row = 0; row < count; row++) {
        const float *now = residual + (size_t)row * c->size;
        double squares = 0, behind = behind_scale(c, row);
        for (uint32_t i = 0; i < c->size; i++)
            squares += (double)now[i] * (double)now[i];
        double scale = c->round ? 1 : 1 / sqrt(squares / c->size + 1e-5);
        for (uint32_t i = 0; i < c->size; i++) {
            size_t at = (size_t)row * c->size + i;
            double size, before = (double)residual_host[at], add = parts_sum(c, at, &size);
            double by = c->behind ? behind * (double)(c->offset + behind_host[i]) : 1;
            double slack = (size * fabs(by) + fabs(before)) * c->ranks * 0x1p-23;
            if (c->behind) /* rounded as it is added, and its sum of squares in float32 */
                slack += fabs(add * by) * (unit + 0x1p-21);
            check_close((double)now[i], before + add * by, DTYPE_F32, slack);
            double weight = c->round ? 1 : (double)(c->offset + weight_host[i]);
            double want = (double)now[i] * scale * weight;
            check_close((double)out[at], want, c->dtype, fabs(want) * 1e-6);
        }
    }
}

START_TEST(ranks_add_their_parts_and_norm_the_residual)
{
    const struct reduce_case *c = &reduce_cases[_i];
    size_t all = (size_t)ROWS * c->size, bytes = all * dtype_bytes(c->dtype);
    rig_begin();
    ranks_begin(c->ranks, (bytes + 15) / 16 * 16);
    void *weight = numbers(DTYPE_BF16, c->size, weight_host);
    void *behind = numbers(DTYPE_BF16, c->size, behind_host);
    void *residual[INBOX_RANKS_MAX];
    residual[0] = numbers(DTYPE_F32, all, residual_host);
    for (uint32_t r = 1; r < c->ranks; r++)
        residual[r] = rig_new(residual_host, all * sizeof(float));
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        uint32_t count = (1 + 3 * turn) % (ROWS + 1);
        void *part[INBOX_RANKS_MAX], *stored = malloc(bytes);
        for (uint32_t r = 0; r < c->ranks; r++)
            part[r] = numbers(c->dtype, all, part_host[r]);
        struct allreduce_norm_args args = {.norm = {.rows = rig_span(count, 0, ROWS),
                                                    .weight = weight,
                                                    .size = c->size,
                                                    .residual_stride = c->size,
                                                    .delta_stride = c->size,
                                                    .out_stride = c->size,
                                                    .residual_dtype = DTYPE_F32,
                                                    .delta_dtype = c->dtype,
                                                    .weight_dtype = DTYPE_BF16,
                                                    .out_dtype = c->dtype,
                                                    .eps = 1e-5f,
                                                    .form = c->round ? NORM_ROUNDED : NORM_SCALED,
                                                    .offset = c->offset,
                                                    .delta_normed = c->behind,
                                                    .delta_weight = behind,
                                                    .delta_eps = 1e-4f,
                                                    .delta_offset = c->offset}};
        for (uint32_t i = 0; i < c->ranks; i++) {
            uint32_t r = (i + turn) % c->ranks; /* who comes first changes */
            args.inboxes = inboxes_of(r, turn);
            args.norm.residual = residual[r];
            args.norm.delta = args.norm.out = part[r];
            OK(op_allreduce_norm(&args, ranks.stream[r]));
        }
        ranks_wait();
        for (uint32_t r = 0; r < c->ranks; r++) {
            rig_read(stored, part[r], bytes);
            number_widen(out_host[r > 0], stored, c->dtype, all);
            rig_read(got, residual[r], all * sizeof(float));
            if (r == 0) {
                reduce_check(c, count, got, out_host[0]);
                memcpy(first, got, all * sizeof(float));
            }
            ck_assert_mem_eq(got, first, all * sizeof(float)); /* the same bits on all ranks */
            ck_assert_mem_eq(out_host[r > 0], out_host[0], count * c->size * sizeof(float));
            ck_assert(count == ROWS || out_host[r > 0][(size_t)count * c->size] ==
                                           part_host[r][(size_t)count * c->size]);
        }
        memcpy(residual_host, got, all * sizeof(float));
        free(stored);
    }
    ranks_end();
    rig_end();
}
END_TEST

static const struct wide_case {
    uint32_t ranks, size[WIDE_VALUES]; /* of a rank */
    enum dtype dtype;
    float offset;
    uint32_t rows;
} wide_cases[] = {
    {2, {64, 32}, DTYPE_F32, 0, ROWS},    {2, {2048, 512}, DTYPE_BF16, 0, ROWS},
    {3, {1000, 100}, DTYPE_F16, 1, ROWS}, {4, {20, 12}, DTYPE_BF16, 0, ROWS},
    {8, {256, 256}, DTYPE_BF16, 1, ROWS}, {1, {64, 8}, DTYPE_F32, 0, ROWS},
    {2, {9000, 24}, DTYPE_BF16, 0, ROWS}, {2, {16, 17000}, DTYPE_F32, 0, ROWS},
    {2, {64, 32}, DTYPE_BF16, 0, 150}, /* more than a GPU has blocks for at once */
};

/* One row of one rank, against doubles over all ranks' columns. */
static void wide_check(const struct wide_case *c, struct tensor *was, struct tensor *now,
                       struct tensor (*weight)[WIDE_VALUES], uint32_t rank, uint32_t row)
{
    for (uint32_t v = 0, at = 0; v < WIDE_VALUES; at += c->size[v++]) {
        double squares = 0;
        for (uint32_t r = 0; r < c->ranks; r++)
            for (uint32_t i = 0; i < c->size[v]; i++)
                squares += pow((double)tensor_at(&was[r], row, at + i), 2);
        double scale = 1 / sqrt(squares / (c->size[v] * c->ranks) + 1e-5);
        for (uint32_t i = 0; i < c->size[v]; i++) {
            double w = (double)(c->offset + tensor_at(&weight[rank][v], 0, i));
            double want = (double)tensor_at(&was[rank], row, at + i) * scale * w;
            check_close((double)tensor_at(&now[rank], row, at + i), want, c->dtype,
                        fabs(want) * 2e-6);
        }
    }
}

/* Columns behind both values, and rows at and beyond the count, stay. */
static void wide_rest_check(const struct wide_case *c, const struct tensor *was,
                            const struct tensor *now, uint32_t count)
{
    uint32_t width = c->size[0] + c->size[1];
    for (uint32_t row = 0; row < now->rows; row++)
        for (uint32_t i = row < count ? width : 0; i < now->stride; i++)
            ck_assert(tensor_at(now, row, i) == tensor_at(was, row, i));
}

START_TEST(ranks_norm_two_values_over_all_their_columns)
{
    const struct wide_case *c = &wide_cases[_i];
    rig_begin();
    ranks_begin(c->ranks, c->rows * WIDE_VALUES * sizeof(float));
    struct tensor weight[INBOX_RANKS_MAX][WIDE_VALUES];
    for (uint32_t i = 0; i < c->ranks * WIDE_VALUES; i++)
        weight[i / WIDE_VALUES][i % WIDE_VALUES] =
            tensor_random(DTYPE_BF16, 1, c->size[i % WIDE_VALUES], 1);
    for (uint32_t turn = 0; turn < 3; turn++) {
        uint32_t count = (1 + c->rows / 2 * turn) % (c->rows + 1);
        struct tensor was[INBOX_RANKS_MAX], now[INBOX_RANKS_MAX];
        for (uint32_t r = 0; r < c->ranks; r++) {
            was[r] = now[r] = tensor_random(c->dtype, c->rows, c->size[0] + c->size[1] + 5, 2);
            now[r].host = malloc((size_t)c->rows * now[r].stride * sizeof(float));
        }
        for (uint32_t i = 0; i < c->ranks; i++) {
            uint32_t r = (i + turn) % c->ranks; /* who comes first changes */
            struct allreduce_wide_norm_args args = {
                .norm = {.rows = rig_span(count, 0, c->rows),
                         .at = was[r].device,
                         .stride = was[r].stride,
                         .dtype = c->dtype,
                         .weight_dtype = DTYPE_BF16,
                         .value = {{0, c->size[0], weight[r][0].device},
                                   {c->size[0], c->size[1], weight[r][1].device}},
                         .ranks = c->ranks,
                         .squares = rig_new(NULL, c->rows * WIDE_VALUES * sizeof(float)),
                         .eps = 1e-5f,
                         .offset = c->offset},
                .inboxes = inboxes_of(r, 0)}; /* the one: they have met in between */
            OK(op_allreduce_wide_norm(&args, ranks.stream[r]));
        }
        ranks_wait();
        for (uint32_t r = 0; r < c->ranks; r++) {
            tensor_read(&now[r]);
            for (uint32_t row = 0; row < count; row++)
                wide_check(c, was, now, weight, r, row);
            wide_rest_check(c, &was[r], &now[r], count);
        }
        for (uint32_t r = 0; r < c->ranks; r++)
            free(now[r].host);
    }
    ranks_end();
    rig_end();
}
END_TEST

static const struct collect_case {
    uint32_t ranks, width;
} collect_cases[] = {{2, 64}, {2, 3001}, {3, 10}, {4, 4096}, {4, 5}, {8, 9000}, {2, 8}};

START_TEST(slices_of_all_ranks_make_whole_rows)
{
    const struct collect_case *c = &collect_cases[_i];
    uint32_t share = (c->width + c->ranks - 1) / c->ranks;
    size_t all = (size_t)ROWS * c->width;
    rig_begin();
    ranks_begin(c->ranks, ((size_t)ROWS * share * sizeof(float) + 15) / 16 * 16);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        uint32_t count = (2 + 5 * turn) % (ROWS + 1);
        void *x[INBOX_RANKS_MAX];
        for (uint32_t i = 0; i < all; i++)
            residual_host[i] = rig_random() % 50 ? rig_normal() : NAN;
        struct all_gather_args args = {
            .rows = rig_span(count, 0, ROWS), .width = c->width, .share = share};
        for (uint32_t r = 0; r < c->ranks; r++) {
            for (uint32_t i = 0; i < all; i++)
                got[i] = i % c->width / share == r ? residual_host[i] : 1e30f;
            if (turn == 1) /* a NaN that looks like an empty word */
                memset(&got[r * share], INBOX_EMPTY, sizeof(float));
            x[r] = rig_new(got, all * sizeof(float));
        }
        for (uint32_t r = 0; r < c->ranks; r++) {
            args.x = x[r];
            args.inboxes = inboxes_of(r, turn);
            OK(op_all_gather(&args, ranks.stream[r]));
        }
        ranks_wait();
        for (uint32_t r = 0; r < c->ranks; r++) {
            rig_read(got, x[r], all * sizeof(float));
            uint32_t right = 0;
            for (; right < all; right++) {
                bool known = right / c->width < count || right % c->width / share == r;
                bool nan = turn == 1 && right < c->width && right % share == 0;
                float want = known ? nan ? NAN : residual_host[right] : 1e30f;
                if (isnan(want) ? !isnan(got[right]) : got[right] != want)
                    break;
            }
            ck_assert_uint_eq(right, all);
        }
    }
    ranks_end();
    rig_end();
}
END_TEST

/* Within five seconds. */
static bool ends(cudaStream_t stream)
{
    for (int i = 0; i < 500 && cudaStreamQuery(stream) == cudaErrorNotReady; i++)
        usleep(10000);
    return cudaStreamQuery(stream) == cudaSuccess;
}

START_TEST(who_waits_for_a_rank_that_failed_is_let_go)
{
    static const uint32_t size = 256;
    uint64_t bytes = ROWS * size * sizeof(float);
    rig_begin();
    ranks_begin(2, bytes);
    void *residual = numbers(DTYPE_F32, ROWS * size, residual_host);
    void *part = numbers(DTYPE_F32, ROWS * size, part_host[0]);
    struct allreduce_norm_args reduce = {.norm = {.rows = rig_span(ROWS, 0, ROWS),
                                                  .residual = residual,
                                                  .delta = part,
                                                  .size = size,
                                                  .residual_stride = size,
                                                  .delta_stride = size},
                                         .inboxes = inboxes_of(0, 0)};
    struct all_gather_args collect = {.rows = rig_span(ROWS, 0, ROWS),
                                      .x = residual,
                                      .width = size,
                                      .share = size / 2,
                                      .inboxes = inboxes_of(0, 1)};
    struct allreduce_wide_norm_args wide = {.norm = {.rows = rig_span(ROWS, 0, ROWS),
                                                     .at = residual,
                                                     .stride = size,
                                                     .value = {{0, 64, NULL}, {64, 64, NULL}},
                                                     .ranks = 2,
                                                     .squares = part},
                                            .inboxes = inboxes_of(0, 0)};
    wide.norm.dtype = DTYPE_F32;
    OK(_i == 2 ? op_allreduce_wide_norm(&wide, ranks.stream[0])
       : _i    ? op_all_gather(&collect, ranks.stream[0])
               : op_allreduce_norm(&reduce, ranks.stream[0]));
    usleep(50000);
    ck_assert_str_eq(cudaGetErrorName(cudaStreamQuery(ranks.stream[0])), "cudaErrorNotReady");
    *(volatile uint32_t *)ranks.let_go = 1;
    ck_assert(ends(ranks.stream[0]));
    for (uint32_t r = 0; r < 2; r++) /* what was put is not taken any more */
        OK(cudaMemsetAsync(ranks.memory[r], INBOX_EMPTY, 4 * bytes, rig_stream));
    ranks_end();
    rig_end();
}
END_TEST

Suite *exchange_suite(void)
{
    Suite *suite = suite_create("kernels: exchange");
    TCase *tcase = tcase_create("exchange");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, ranks_add_their_parts_and_norm_the_residual, 0,
                        sizeof reduce_cases / sizeof *reduce_cases);
    tcase_add_loop_test(tcase, ranks_norm_two_values_over_all_their_columns, 0,
                        sizeof wide_cases / sizeof *wide_cases);
    tcase_add_loop_test(tcase, slices_of_all_ranks_make_whole_rows, 0,
                        sizeof collect_cases / sizeof *collect_cases);
    if (rig_kernels_wait)
        tcase_add_loop_test(tcase, who_waits_for_a_rank_that_failed_is_let_go, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
