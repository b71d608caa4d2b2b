/* Ops by which ranks exchange numbers: reduce, collect. Every rank is a stream of one device here.
 */
#include <math.h>
#include <unistd.h>

#include "gpu/kernels/collective/all_gather.h"
#include "gpu/kernels/collective/allreduce_norm.h"
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
} reduce_cases[] = {
    {2, 64, DTYPE_F32},    {2, 4096, DTYPE_BF16}, {3, 1000, DTYPE_BF16},
    {4, 2048, DTYPE_BF16}, {4, 520, DTYPE_F32},   {8, 256, DTYPE_BF16},
    {2, 9216, DTYPE_BF16}, {5, 128, DTYPE_F16},   {1, 64, DTYPE_BF16},
};

static float part_host[INBOX_RANKS_MAX][ROWS * WIDEST];
static float residual_host[ROWS * WIDEST], weight_host[WIDEST];
static float got[ROWS * WIDEST], first[ROWS * WIDEST];
static float out_host[2][ROWS * WIDEST];

/* Sums over ranks, in their order, against doubles; the residual as it was before. */
static void reduce_check(const struct reduce_case *c, uint32_t count, const float *residual,
                         const float *out)
{
    for (uint32_t row = 0; row < count; row++) {
        const float *now = residual + (size_t)row * c->size;
        double squares = 0;
        for (uint32_t i = 0; i < c->size; i++)
            squares += (double)now[i] * (double)now[i];
        double scale = 1 / sqrt(squares / c->size + 1e-5);
        for (uint32_t i = 0; i < c->size; i++) {
            size_t at = (size_t)row * c->size + i;
            double want = (double)residual_host[at], size = fabs(want);
            for (uint32_t r = 0; r < c->ranks; r++) {
                want += (double)part_host[r][at];
                size += fabs((double)part_host[r][at]);
            }
            check_close((double)now[i], want, DTYPE_F32, size * c->ranks * 0x1p-24);
            want = (double)now[i] * scale * (double)weight_host[i];
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
                                                    .eps = 1e-5f}};
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
    OK(_i ? op_all_gather(&collect, ranks.stream[0]) : op_allreduce_norm(&reduce, ranks.stream[0]));
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
    tcase_add_loop_test(tcase, slices_of_all_ranks_make_whole_rows, 0,
                        sizeof collect_cases / sizeof *collect_cases);
    if (rig_kernels_wait)
        tcase_add_loop_test(tcase, who_waits_for_a_rank_that_failed_is_let_go, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
