/* What a sum over GPUs costs inside a captured step: ours, with the residual add and the norm in
 * it, and NCCL's, alone and with a norm behind it.
 *
 *     sums [GPUS]     2 and all of them, if not told
 *
 * A graph of SUMS sums per GPU, each captured and launched by its own thread, as the engine does;
 * microseconds per sum, median of RUNS. The result of ours is checked. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/base/cuda_error.h"
#include "gpu/comm/comm.h"
#include "gpu/kernels/norm/norm.h"

#define SUMS 64 /* an even number, as in a step */
#define RUNS 15
#define SIZE 4096 /* values of a row */
#define BYTES_MAX (1u << 20)
#define VOCAB 128256

enum way { WAY_POST, WAY_NCCL, WAY_NCCL_NORM, WAYS };

struct bench {
    uint32_t ranks, rows;
    enum way way;
    struct comm_group *group;
    pthread_barrier_t barrier;
    double us[RUNS];
    bool wrong;
};

struct member {
    struct bench *bench;
    uint32_t rank;
    pthread_t thread;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    struct mem mem;
    struct comm comm;
    float *residual;
    void *part, *out;
    uint32_t *count;
};

static void must(int status, const struct error *error)
{
    if (!status)
        return;
    printf("FAILED  %s\n", error->text);
    fflush(stdout);
    _Exit(1);
}

static void must_cuda(cudaError_t failed, const char *what)
{
    struct error error;
    must(failed == cudaSuccess ? 0 : cuda_fail(failed, what, &error), &error);
}
#define MUST(call) must_cuda(call, #call)

static void enqueue(struct member *member)
{
    const struct bench *bench = member->bench;
    struct error error;
    struct norm_args norm = {
        .rows = {.count = member->count, .max = bench->rows},
        .residual = member->residual,
        .delta = member->part,
        .out = member->out,
        .size = SIZE,
        .residual_stride = SIZE,
        .delta_stride = SIZE,
        .out_stride = SIZE,
        .residual_dtype = DTYPE_F32,
        .delta_dtype = DTYPE_BF16,
        .weight_dtype = DTYPE_BF16,
        .out_dtype = DTYPE_BF16,
        .eps = 1e-5f,
    };
    comm_begin(&member->comm);
    for (int i = 0; i < SUMS; i++) {
        if (bench->way == WAY_POST) {
            must(p2p_allreduce_norm(&member->comm.p2p, &norm, member->stream, &error), &error);
            continue;
        }
        must(comm_sum(&member->comm, member->part, (uint64_t)bench->rows * SIZE, DTYPE_BF16,
                      member->stream, &error),
             &error);
        must(comm_join(&member->comm, member->stream, &error), &error);
        if (bench->way == WAY_NCCL_NORM)
            MUST(op_norm(&norm, member->stream));
    }
}

/* Every rank's part is its number plus one, each SUMS times in every run. */
static void check(struct member *member, uint32_t runs)
{
    uint64_t count = (uint64_t)member->bench->rows * SIZE;
    float *host = malloc(count * sizeof *host), want = 0;
    MUST(cudaMemcpyAsync(host, member->residual, count * sizeof *host, cudaMemcpyDeviceToHost,
                         member->stream));
    MUST(cudaStreamSynchronize(member->stream));
    for (uint32_t r = 0; r < member->bench->ranks; r++)
        want += (float)(r + 1) * SUMS * (float)runs;
    for (uint64_t i = 0; i < count; i++)
        member->bench->wrong = member->bench->wrong || host[i] != want;
    free(host);
}

static cudaGraphExec_t capture(struct member *member)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enqueue(member); /* eagerly first: modules load */
    MUST(cudaStreamSynchronize(member->stream));
    MUST(cudaStreamBeginCapture(member->stream, cudaStreamCaptureModeThreadLocal));
    enqueue(member);
    MUST(cudaStreamEndCapture(member->stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphUpload(exec, member->stream));
    MUST(cudaStreamSynchronize(member->stream));
    MUST(cudaGraphDestroy(graph));
    return exec;
}

static void fill(struct member *member)
{
    uint64_t count = (uint64_t)member->bench->rows * SIZE;
    union {
        float value;
        uint32_t bits;
    } number = {.value = (float)(member->rank + 1)};
    uint16_t *host = malloc(count * sizeof *host);
    for (uint64_t i = 0; i < count; i++)
        host[i] = (uint16_t)(number.bits >> 16);
    MUST(cudaMemcpyAsync(member->part, host, count * sizeof *host, cudaMemcpyHostToDevice,
                         member->stream));
    MUST(cudaMemcpyAsync(member->count, &member->bench->rows, sizeof(uint32_t),
                         cudaMemcpyHostToDevice, member->stream));
    MUST(cudaMemsetAsync(member->residual, 0, count * sizeof(float), member->stream));
    MUST(cudaStreamSynchronize(member->stream));
    free(host);
}

static void *work(void *data)
{
    struct member *member = data;
    struct bench *bench = member->bench;
    MUST(cudaSetDevice((int)member->rank));
    fill(member);
    pthread_barrier_wait(&bench->barrier);
    cudaGraphExec_t exec = capture(member);
    for (int run = 0; run < RUNS; run++) {
        float ms;
        pthread_barrier_wait(&bench->barrier);
        MUST(cudaGraphLaunch(exec, member->stream)); /* in step with the others from here on */
        MUST(cudaEventRecord(member->begin, member->stream));
        MUST(cudaGraphLaunch(exec, member->stream));
        MUST(cudaEventRecord(member->end, member->stream));
        MUST(cudaStreamSynchronize(member->stream));
        MUST(cudaEventElapsedTime(&ms, member->begin, member->end));
        if (member->rank == 0)
            bench->us[run] = (double)ms * 1e3 / SUMS;
    }
    MUST(cudaGraphExecDestroy(exec));
    pthread_barrier_wait(&bench->barrier);
    if (bench->way == WAY_POST)
        check(member, 2 * RUNS + 1);
    return NULL;
}

static void open_member(struct member *member)
{
    struct error error;
    int least, greatest;
    void *memory[4];
    static const uint64_t bytes[4] = {2 * BYTES_MAX, BYTES_MAX, BYTES_MAX, 256};
    MUST(cudaSetDevice((int)member->rank));
    MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    MUST(cudaStreamCreateWithPriority(&member->stream, cudaStreamNonBlocking, greatest));
    MUST(cudaEventCreateWithFlags(&member->begin, cudaEventDefault));
    MUST(cudaEventCreateWithFlags(&member->end, cudaEventDefault));
    must(mem_open(&member->mem, (int)member->rank, member->stream, &(struct mem_limits){0}, &error),
         &error);
    must(comm_open(&member->comm, member->bench->group, member->rank,
                   (struct p2p_model){.vocab = VOCAB}, &member->mem, &error),
         &error);
    MUST(cudaStreamSynchronize(cudaStreamPerThread));
    for (int i = 0; i < 4; i++)
        must(mem_fixed(&member->mem, bytes[i], &memory[i], &error), &error);
    member->residual = memory[0];
    member->part = memory[1];
    member->out = memory[2];
    member->count = memory[3];
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double run(struct bench *bench, struct member *members, enum way way)
{
    bench->way = way;
    for (uint32_t i = 0; i < bench->ranks; i++)
        pthread_create(&members[i].thread, NULL, work, &members[i]);
    for (uint32_t i = 0; i < bench->ranks; i++)
        pthread_join(members[i].thread, NULL);
    qsort(bench->us, RUNS, sizeof bench->us[0], ascending);
    return bench->us[RUNS / 2];
}

static bool measure(uint32_t ranks)
{
    struct bench bench = {.ranks = ranks};
    struct member members[GPU_DEVICES_MAX] = {{0}};
    int devices[GPU_DEVICES_MAX];
    struct error error;
    for (uint32_t i = 0; i < ranks; i++)
        devices[i] = (int)i;
    pthread_barrier_init(&bench.barrier, NULL, ranks);
    must(comm_group_make(ranks, devices, &bench.group, &error), &error);
    for (uint32_t i = 0; i < ranks; i++) {
        members[i] = (struct member){.bench = &bench, .rank = i};
        open_member(&members[i]);
    }
    printf("%u GPUs: us per sum; ours with residual and norm, NCCL's alone, and with a norm\n",
           ranks);
    for (uint32_t bytes = 8192; bytes <= BYTES_MAX; bytes *= 2) {
        bench.rows = bytes / SIZE / 2;
        double ours = run(&bench, members, WAY_POST);
        double nccl = run(&bench, members, WAY_NCCL);
        printf("%8u bytes %7.1f %7.1f %7.1f %s\n", bytes, ours, nccl,
               run(&bench, members, WAY_NCCL_NORM), bench.wrong ? "WRONG" : "ok");
        fflush(stdout);
    }
    return bench.wrong;
}

int main(int argc, char **argv)
{
    int all = 0;
    MUST(cudaGetDeviceCount(&all));
    if (argc > 1)
        return measure((uint32_t)atoi(argv[1]));
    bool wrong = false;
    for (int ranks = 2; ranks <= all; ranks *= 2)
        wrong = measure((uint32_t)ranks) || wrong;
    return wrong;
}
