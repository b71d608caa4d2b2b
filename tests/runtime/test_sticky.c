/* A process of its own: the context does not come back. */
#include "tests/runtime/check.h"

static void count_up(void *data)
{
    ++*(uint32_t *)data;
}

START_TEST(a_trap_breaks_every_later_call_and_calls_no_host_function)
{
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    uint32_t *device = device_new(1), calls = 0;
    void *memory;
    OK(kernel_trap(stream));
    cudaError_t error = cudaLaunchHostFunc(stream, count_up, &calls);
    error = cudaStreamSynchronize(stream);
    GIVES(cudaErrorLaunchFailure, error);
    GIVES(error, cudaStreamQuery(stream));
    GIVES(error, cudaStreamQuery(other));
    GIVES(error, cudaStreamSynchronize(other));
    GIVES(error, cudaMalloc(&memory, 16));
    GIVES(error, kernel_fill(other, device, 1, 1));
    GIVES(error, cudaDeviceSynchronize());
    GIVES(error, cudaGetLastError());
    OK(cudaGetLastError());
    GIVES(error, cudaStreamQuery(stream));
    ck_assert_uint_eq(calls, 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("sticky");
    tcase_add_checked_fixture(tcase, device_begin, NULL);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_trap_breaks_every_later_call_and_calls_no_host_function);
    return check_run("runtime: sticky errors", tcase);
}
