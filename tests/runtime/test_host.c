#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/runtime/check.h"

#define CALLS 200

struct record {
    uint32_t count;
    uint32_t order[CALLS];
};

struct note {
    struct record *record;
    uint32_t number;
};

static void put_down(void *data)
{
    struct note *note = data;
    note->record->order[note->record->count++] = note->number;
}

START_TEST(host_functions_of_a_stream_are_called_once_each_and_in_order)
{
    cudaStream_t stream = stream_new(0);
    struct record record = {0};
    struct note note[CALLS];
    for (uint32_t i = 0; i < CALLS; i++) {
        note[i] = (struct note){&record, i};
        OK(cudaLaunchHostFunc(stream, put_down, &note[i]));
    }
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(record.count, CALLS);
    for (uint32_t i = 0; i < CALLS; i++)
        ck_assert_uint_eq(record.order[i], i);
    OK(cudaStreamDestroy(stream));
}
END_TEST

struct look {
    const uint32_t *host;
    uint32_t seen;
};

static void look_at(void *data)
{
    struct look *look = data;
    look->seen = *look->host;
}

START_TEST(a_host_function_sees_the_work_before_it_and_not_the_work_after)
{
    cudaStream_t stream = stream_new(0);
    uint32_t *device = device_new(1), *host = pinned_new(1);
    struct look look[2] = {{host, 0}, {host, 0}};
    for (uint32_t i = 0; i < 2; i++) {
        OK(kernel_fill(stream, device, 1, 10 + i));
        OK(cudaMemcpyAsync(host, device, 4, cudaMemcpyDeviceToHost, stream));
        OK(cudaLaunchHostFunc(stream, look_at, &look[i]));
    }
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(look[0].seen, 10);
    ck_assert_uint_eq(look[1].seen, 11);
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(work_behind_a_host_function_waits_for_it)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    cudaEvent_t event = event_new();
    struct gate gate = GATE_INIT;
    OK(cudaLaunchHostFunc(stream, gate_pass, &gate));
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    GIVES(cudaErrorNotReady, cudaStreamQuery(other));
    GIVES(cudaErrorNotReady, cudaEventQuery(event));
    gate_open(&gate);
    OK(cudaStreamSynchronize(other));
    cudaGetLastError();
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
}
END_TEST

static int completed;

static void tell(void *unused)
{
    (void)unused;
    uint64_t one = 1;
    if (write(completed, &one, sizeof(one)) != sizeof(one))
        abort();
}

START_TEST(a_side_stream_tells_completion_through_an_eventfd)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    cudaStream_t compute = stream_new(-5), notify = stream_new(0);
    cudaEvent_t event = event_new();
    uint32_t *device = device_new(100), *host = pinned_new(100);
    completed = eventfd(0, EFD_CLOEXEC);
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t ended;
        OK(kernel_fill(compute, device, 100, i));
        OK(cudaMemcpyAsync(host, device, 400, cudaMemcpyDeviceToHost, compute));
        OK(cudaEventRecord(event, compute));
        OK(cudaStreamWaitEvent(notify, event, 0));
        OK(cudaLaunchHostFunc(notify, tell, NULL));
        ck_assert_int_eq(read(completed, &ended, sizeof(ended)), sizeof(ended));
        ck_assert_uint_eq(host[99], i);
    }
    close(completed);
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(compute));
    OK(cudaStreamDestroy(notify));
}
END_TEST

START_TEST(registered_memory_is_pinned_until_it_is_unregistered)
{
    cudaStream_t stream = stream_new(0);
    uint32_t *device = device_new(1024), *host = aligned_alloc(4096, 4096);
    OK(cudaHostRegister(host, 4096, cudaHostRegisterDefault));
    GIVES(cudaErrorHostMemoryAlreadyRegistered,
          cudaHostRegister(host, 4096, cudaHostRegisterDefault));
    OK(kernel_fill(stream, device, 1024, 6));
    OK(cudaMemcpyAsync(host, device, 4096, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(host[1023], 6);
    OK(cudaHostUnregister(host));
    GIVES(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(host));
    cudaGetLastError();
    free(host);
    OK(cudaFree(device));
    OK(cudaStreamDestroy(stream));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("host");
    tcase_add_checked_fixture(tcase, device_begin, check_end);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, host_functions_of_a_stream_are_called_once_each_and_in_order);
    tcase_add_test(tcase, a_host_function_sees_the_work_before_it_and_not_the_work_after);
    tcase_add_test(tcase, work_behind_a_host_function_waits_for_it);
    tcase_add_test(tcase, a_side_stream_tells_completion_through_an_eventfd);
    tcase_add_test(tcase, registered_memory_is_pinned_until_it_is_unregistered);
    return check_run("runtime: host functions and memory", tcase);
}
