/* Several host threads at once: streams and events made and destroyed, one pool shared. */
#include "tests/runtime/check.h"

enum { THREADS = 4, ROUNDS = 150, COUNT = 500 };

struct common {
    cudaMemPool_t pool;
    cudaEvent_t event[THREADS]; /* each recorded by one thread, waited for by its neighbour */
};

struct worker {
    struct common *common;
    uint32_t number, right;
};

static bool good(cudaError_t error)
{
    return error == cudaSuccess;
}

/* One round on a stream of its own; true when the value came out right. */
static bool round_trip(struct worker *worker, uint32_t value, uint32_t *host)
{
    struct common *common = worker->common;
    cudaStream_t stream;
    void *data = NULL;
    uint32_t neighbour = (worker->number + 1) % THREADS;
    if (!good(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0)))
        return false;
    bool ok = good(cudaStreamWaitEvent(stream, common->event[neighbour], 0)) &&
              good(cudaMallocFromPoolAsync(&data, COUNT * 4, common->pool, stream)) &&
              good(kernel_fill(stream, data, COUNT, value)) &&
              good(kernel_add(stream, data, COUNT, 1)) &&
              good(cudaMemcpyAsync(host, data, COUNT * 4, cudaMemcpyDeviceToHost, stream)) &&
              good(cudaFreeAsync(data, stream)) &&
              good(cudaEventRecord(common->event[worker->number], stream)) &&
              good(cudaStreamSynchronize(stream));
    return good(cudaStreamDestroy(stream)) && ok && host[0] == value + 1 &&
           host[COUNT - 1] == value + 1;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    void *host;
    if (!good(cudaHostAlloc(&host, COUNT * 4, cudaHostAllocDefault)))
        return NULL;
    for (uint32_t i = 0; i < ROUNDS; i++)
        worker->right += round_trip(worker, worker->number * ROUNDS + i, host);
    if (!good(cudaFreeHost(host)))
        worker->right = 0;
    return NULL;
}

START_TEST(threads_do_not_disturb_each_other)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    struct common common;
    struct worker worker[THREADS];
    pthread_t thread[THREADS];
    OK(cudaMemPoolCreate(&common.pool, &props));
    for (uint32_t i = 0; i < THREADS; i++) {
        common.event[i] = event_new();
        worker[i] = (struct worker){&common, i, 0};
    }
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &worker[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_uint_eq(worker[i].right, ROUNDS);
        OK(cudaEventDestroy(common.event[i]));
    }
    OK(cudaMemPoolDestroy(common.pool));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("threads");
    tcase_add_checked_fixture(tcase, device_begin, check_end);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, threads_do_not_disturb_each_other);
    return check_run("runtime: host threads", tcase);
}
