#include "tests/runtime/check.h"

#define COUNT 500

START_TEST(a_stream_waits_for_an_event_of_another)
{
    cudaStream_t first = stream_new(0), second = stream_new(0);
    cudaEvent_t event = event_new();
    uint32_t *device = device_new(COUNT), *host = pinned_new(COUNT);
    for (uint32_t round = 0; round < 50; round++) {
        OK(kernel_fill(first, device, COUNT, round));
        OK(cudaEventRecord(event, first));
        OK(cudaStreamWaitEvent(second, event, 0));
        OK(kernel_add(second, device, COUNT, 1000));
        OK(cudaMemcpyAsync(host, device, COUNT * 4, cudaMemcpyDeviceToHost, second));
        OK(cudaEventRecord(event, second));
        OK(cudaStreamWaitEvent(first, event, 0));
        OK(cudaEventSynchronize(event));
        ck_assert_uint_eq(host[0], round + 1000);
        ck_assert_uint_eq(host[COUNT - 1], round + 1000);
    }
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
}
END_TEST

START_TEST(an_event_never_recorded_is_complete_and_holds_nobody)
{
    cudaStream_t stream = stream_new(0);
    cudaEvent_t event = event_new();
    OK(cudaEventQuery(event));
    OK(cudaEventSynchronize(event));
    OK(cudaStreamWaitEvent(stream, event, 0));
    OK(cudaStreamSynchronize(stream));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(an_event_is_a_place_in_the_stream_not_the_stream)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    cudaEvent_t early = event_new(), late = event_new();
    struct gate gate = GATE_INIT;
    OK(cudaEventRecord(early, stream));
    OK(cudaLaunchHostFunc(stream, gate_pass, &gate));
    OK(cudaEventRecord(late, stream));
    OK(cudaEventSynchronize(early));
    OK(cudaEventQuery(early));
    GIVES(cudaErrorNotReady, cudaEventQuery(late));
    OK(cudaStreamWaitEvent(other, early, 0));
    OK(cudaStreamSynchronize(other));
    OK(cudaStreamWaitEvent(other, late, 0));
    GIVES(cudaErrorNotReady, cudaStreamQuery(other));
    gate_open(&gate);
    OK(cudaStreamSynchronize(other));
    OK(cudaEventQuery(late));
    cudaGetLastError();
    OK(cudaEventDestroy(early));
    OK(cudaEventDestroy(late));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
}
END_TEST

START_TEST(a_wait_means_the_record_before_it_not_a_later_one)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    cudaEvent_t event = event_new();
    struct gate gate = GATE_INIT;
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    OK(cudaLaunchHostFunc(stream, gate_pass, &gate));
    OK(cudaEventRecord(event, stream)); /* the event now means behind the gate */
    OK(cudaStreamSynchronize(other));
    GIVES(cudaErrorNotReady, cudaEventQuery(event));
    gate_open(&gate);
    OK(cudaEventSynchronize(event));
    cudaGetLastError();
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
}
END_TEST

START_TEST(an_event_may_be_destroyed_and_outlive_its_stream)
{
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    cudaEvent_t event = event_new(), kept = event_new();
    uint32_t *device = device_new(COUNT), *host = pinned_new(COUNT);
    OK(kernel_fill(stream, device, COUNT, 3));
    OK(cudaEventRecord(event, stream));
    OK(cudaEventRecord(kept, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaMemcpyAsync(host, device, COUNT * 4, cudaMemcpyDeviceToHost, other));
    OK(cudaEventSynchronize(kept));
    OK(cudaStreamSynchronize(other));
    ck_assert_uint_eq(host[COUNT - 1], 3);
    OK(cudaEventDestroy(kept));
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(other));
}
END_TEST

START_TEST(timed_events_measure_forward_and_others_refuse)
{
    cudaStream_t stream = stream_new(0);
    cudaEvent_t begin, end, untimed = event_new();
    float ms = -1;
    OK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, begin, end));
    uint32_t *device = device_new(COUNT);
    OK(cudaEventRecord(begin, stream));
    OK(kernel_fill(stream, device, COUNT, 1));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventRecord(untimed, stream));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, begin, end));
    ck_assert(ms >= 0);
    OK(cudaEventSynchronize(untimed));
    GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, begin, untimed));
    cudaGetLastError();
    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    OK(cudaEventDestroy(untimed));
    OK(cudaFree(device));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_chain_over_many_streams_holds)
{
    enum { LINKS = 12 };
    cudaStream_t stream[LINKS];
    cudaEvent_t event = event_new();
    uint32_t *device = device_new(COUNT), *host = pinned_new(COUNT);
    for (int i = 0; i < LINKS; i++)
        stream[i] = stream_new(i % 2 ? -5 : 0);
    OK(kernel_fill(stream[0], device, COUNT, 0));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < LINKS; i++) {
            OK(kernel_add(stream[i], device, COUNT, 1));
            OK(cudaEventRecord(event, stream[i]));
            OK(cudaStreamWaitEvent(stream[(i + 1) % LINKS], event, 0));
        }
    }
    OK(cudaMemcpyAsync(host, device, COUNT * 4, cudaMemcpyDeviceToHost, stream[0]));
    OK(cudaStreamSynchronize(stream[0]));
    for (int i = 0; i < COUNT; i++)
        ck_assert_uint_eq(host[i], 20 * LINKS);
    for (int i = 0; i < LINKS; i++)
        OK(cudaStreamDestroy(stream[i]));
    OK(cudaEventDestroy(event));
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("event");
    tcase_add_checked_fixture(tcase, device_begin, check_end);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_stream_waits_for_an_event_of_another);
    tcase_add_test(tcase, an_event_never_recorded_is_complete_and_holds_nobody);
    tcase_add_test(tcase, an_event_is_a_place_in_the_stream_not_the_stream);
    tcase_add_test(tcase, a_wait_means_the_record_before_it_not_a_later_one);
    tcase_add_test(tcase, an_event_may_be_destroyed_and_outlive_its_stream);
    tcase_add_test(tcase, timed_events_measure_forward_and_others_refuse);
    tcase_add_test(tcase, a_chain_over_many_streams_holds);
    return check_run("runtime: events", tcase);
}
