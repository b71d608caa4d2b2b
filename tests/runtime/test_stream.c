#include "tests/runtime/check.h"

#define COUNT 1000

START_TEST(work_of_one_stream_runs_in_the_order_of_enqueue)
{
    cudaStream_t stream = stream_new(0);
    uint32_t *device = device_new(COUNT), *host = pinned_new(COUNT);
    OK(kernel_fill(stream, device, COUNT, 5));
    OK(kernel_add(stream, device, COUNT, 3));
    OK(cudaMemcpyAsync(host, device, COUNT * 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaMemsetAsync(device, 0, COUNT * 4, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        ck_assert_uint_eq(host[i], 8);
    OK(cudaMemcpyAsync(host, device, COUNT * 4, cudaMemcpyDefault, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        ck_assert_uint_eq(host[i], 0);
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_copy_reads_pinned_memory_when_it_runs_not_when_it_is_enqueued)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    cudaStream_t stream = stream_new(0);
    uint32_t *device = device_new(1), *host = pinned_new(2);
    struct gate gate = GATE_INIT;
    host[0] = 1;
    OK(cudaLaunchHostFunc(stream, gate_pass, &gate));
    OK(cudaMemcpyAsync(device, host, 4, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(host + 1, device, 4, cudaMemcpyDeviceToHost, stream));
    host[0] = 2;
    gate_open(&gate);
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(host[1], 2);
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_query_tells_whether_work_is_left)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    struct gate gate = GATE_INIT;
    OK(cudaStreamQuery(stream));
    OK(cudaLaunchHostFunc(stream, gate_pass, &gate));
    GIVES(cudaErrorNotReady, cudaStreamQuery(stream));
    OK(cudaGetLastError());
    OK(cudaStreamQuery(other));
    gate_open(&gate);
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamQuery(stream));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
}
END_TEST

START_TEST(a_stream_held_up_does_not_hold_up_another)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    cudaStream_t held = stream_new(0), free_stream = stream_new(0);
    uint32_t *device = device_new(1), *host = pinned_new(1);
    struct gate gate = GATE_INIT;
    OK(cudaLaunchHostFunc(held, gate_pass, &gate));
    /* Opens the gate only after the other stream's work: hangs if that waits for the gate. */
    for (uint32_t i = 1; i <= 20; i++) {
        OK(kernel_fill(free_stream, device, 1, i));
        OK(cudaMemcpyAsync(host, device, 4, cudaMemcpyDeviceToHost, free_stream));
        OK(cudaStreamSynchronize(free_stream));
        ck_assert_uint_eq(*host, i);
    }
    gate_open(&gate);
    OK(cudaStreamSynchronize(held));
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(held));
    OK(cudaStreamDestroy(free_stream));
}
END_TEST

static void set(void *flag)
{
    *(uint32_t *)flag = 1;
}

START_TEST(a_destroyed_stream_still_finishes_its_work)
{
    cudaStream_t stream = stream_new(0);
    uint32_t flag = 0;
    OK(cudaLaunchHostFunc(stream, set, &flag));
    OK(cudaStreamDestroy(stream));
    OK(cudaDeviceSynchronize());
    ck_assert_uint_eq(flag, 1);
}
END_TEST

START_TEST(priorities_of_the_whole_range_are_accepted)
{
    int least, greatest;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    ck_assert_int_le(greatest, least);
    uint32_t *device = device_new(COUNT), *host = pinned_new(COUNT);
    for (int priority = greatest - 1; priority <= least + 1; priority++) {
        cudaStream_t stream = stream_new(priority);
        OK(kernel_fill(stream, device, COUNT, 7));
        OK(kernel_add(stream, device, COUNT, 2));
        OK(cudaMemcpyAsync(host, device, COUNT * 4, cudaMemcpyDeviceToHost, stream));
        OK(cudaStreamSynchronize(stream));
        ck_assert_uint_eq(host[COUNT - 1], 9);
        OK(cudaStreamDestroy(stream));
    }
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
}
END_TEST

static void *use_default_stream(void *device)
{
    uint32_t *host;
    if (cudaHostAlloc((void **)&host, 4, cudaHostAllocDefault) != cudaSuccess ||
        kernel_fill(cudaStreamPerThread, device, 1, 11) != cudaSuccess ||
        cudaMemcpyAsync(host, device, 4, cudaMemcpyDeviceToHost, cudaStreamPerThread) !=
            cudaSuccess ||
        cudaStreamSynchronize(cudaStreamPerThread) != cudaSuccess)
        return NULL;
    bool right = *host == 11;
    return cudaFreeHost(host) == cudaSuccess && right ? device : NULL;
}

START_TEST(every_thread_has_a_default_stream_of_its_own)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    struct gate gate = GATE_INIT;
    uint32_t *device = device_new(1);
    OK(cudaLaunchHostFunc(cudaStreamPerThread, gate_pass, &gate));
    GIVES(cudaErrorNotReady, cudaStreamQuery(cudaStreamPerThread));
    pthread_t thread;
    void *result;
    ck_assert_int_eq(pthread_create(&thread, NULL, use_default_stream, device), 0);
    /* cudaFreeHost may wait for all streams, so the gate is opened beside it. */
    gate_open(&gate);
    pthread_join(thread, &result);
    ck_assert_ptr_eq(result, device);
    OK(cudaStreamSynchronize(cudaStreamPerThread));
    OK(cudaFree(device));
}
END_TEST

START_TEST(wrong_arguments_are_refused)
{
    cudaStream_t stream = stream_new(0);
    uint32_t *device = device_new(4), *host = pinned_new(4);
    GIVES(cudaErrorInvalidMemcpyDirection,
          cudaMemcpyAsync(host, device, 16, (enum cudaMemcpyKind)9, stream));
    GIVES(cudaErrorInvalidMemcpyDirection, cudaGetLastError());
    OK(cudaGetLastError());
    GIVES(cudaErrorInvalidValue, cudaLaunchHostFunc(stream, NULL, NULL));
    GIVES(cudaErrorInvalidValue, cudaMemsetAsync(NULL, 0, 16, stream));
    OK(cudaMemcpyAsync(NULL, NULL, 0, cudaMemcpyDefault, stream));
    cudaGetLastError();
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_long_queue_keeps_its_order)
{
    cudaStream_t stream = stream_new(0);
    uint32_t *device = device_new(1), *host = pinned_new(1);
    OK(kernel_fill(stream, device, 1, 0));
    for (int i = 0; i < 3000; i++)
        OK(kernel_add(stream, device, 1, 1));
    OK(cudaMemcpyAsync(host, device, 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(*host, 3000);
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("stream");
    tcase_add_checked_fixture(tcase, device_begin, check_end);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, work_of_one_stream_runs_in_the_order_of_enqueue);
    tcase_add_test(tcase, a_copy_reads_pinned_memory_when_it_runs_not_when_it_is_enqueued);
    tcase_add_test(tcase, a_query_tells_whether_work_is_left);
    tcase_add_test(tcase, a_stream_held_up_does_not_hold_up_another);
    tcase_add_test(tcase, a_destroyed_stream_still_finishes_its_work);
    tcase_add_test(tcase, priorities_of_the_whole_range_are_accepted);
    tcase_add_test(tcase, every_thread_has_a_default_stream_of_its_own);
    tcase_add_test(tcase, wrong_arguments_are_refused);
    tcase_add_test(tcase, a_long_queue_keeps_its_order);
    return check_run("runtime: streams", tcase);
}
