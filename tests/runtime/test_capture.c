#include "tests/runtime/check.h"

#define COUNT 300

static void begin(cudaStream_t stream)
{
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static cudaGraphExec_t end(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

/* Ends a capture that an error made invalid. */
static void end_invalid(cudaStream_t stream)
{
    cudaGraph_t graph;
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
    ck_assert_ptr_null(graph);
    cudaGetLastError();
}

START_TEST(captured_work_runs_when_launched_and_not_before)
{
    cudaStream_t stream = stream_new(0);
    uint32_t *device = device_new(COUNT), *host = pinned_new(COUNT);
    OK(kernel_fill(stream, device, COUNT, 0));
    begin(stream);
    OK(kernel_add(stream, device, COUNT, 2));
    OK(cudaMemcpyAsync(host, device, COUNT * 4, cudaMemcpyDeviceToHost, stream));
    cudaGraphExec_t exec = end(stream);
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(host[0], 0);
    OK(cudaGraphUpload(exec, stream));
    for (uint32_t i = 1; i <= 10; i++) {
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        ck_assert_uint_eq(host[COUNT - 1], 2 * i);
    }
    for (int i = 0; i < 50; i++)
        OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(host[0], 120);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_capture_spreads_over_streams_by_events)
{
    cudaStream_t stream = stream_new(0), left = stream_new(0), right = stream_new(-5);
    cudaEvent_t fork = event_new(), join_left = event_new(), join_right = event_new();
    uint32_t *device = device_new(3 * COUNT), *host = pinned_new(3 * COUNT);
    begin(stream);
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(left, fork, 0));
    OK(cudaStreamWaitEvent(right, fork, 0));
    OK(kernel_add(left, device, COUNT, 1));
    OK(kernel_add(right, device + COUNT, COUNT, 2));
    OK(cudaEventRecord(join_left, left));
    OK(cudaEventRecord(join_right, right));
    OK(cudaStreamWaitEvent(stream, join_left, 0));
    OK(cudaStreamWaitEvent(stream, join_right, 0));
    OK(kernel_copy(stream, device + 2 * COUNT, device + COUNT, COUNT));
    OK(cudaMemcpyAsync(host, device, 12 * COUNT, cudaMemcpyDeviceToHost, stream));
    cudaGraphExec_t exec = end(stream);
    OK(cudaMemsetAsync(device, 0, 12 * COUNT, stream));
    for (int i = 0; i < 40; i++)
        OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(host[COUNT - 1], 40);
    ck_assert_uint_eq(host[2 * COUNT - 1], 80);
    ck_assert_uint_eq(host[3 * COUNT - 1], 80);
    /* The streams that took part are free again. */
    OK(kernel_fill(left, device, COUNT, 5));
    OK(cudaStreamSynchronize(left));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join_left));
    OK(cudaEventDestroy(join_right));
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(left));
    OK(cudaStreamDestroy(right));
}
END_TEST

START_TEST(a_graph_runs_in_the_order_of_the_stream_that_it_is_launched_in)
{
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    uint32_t *device = device_new(COUNT), *host = pinned_new(COUNT);
    begin(stream);
    OK(kernel_add(stream, device, COUNT, 1));
    cudaGraphExec_t exec = end(stream);
    OK(kernel_fill(other, device, COUNT, 100));
    OK(cudaGraphLaunch(exec, other));
    OK(kernel_add(other, device, COUNT, 1000));
    OK(cudaMemcpyAsync(host, device, COUNT * 4, cudaMemcpyDeviceToHost, other));
    OK(cudaStreamSynchronize(other));
    ck_assert_uint_eq(host[COUNT - 1], 1101);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
}
END_TEST

static void count_up(void *data)
{
    ++*(uint32_t *)data;
}

START_TEST(host_functions_are_captured_too)
{
    cudaStream_t stream = stream_new(0);
    uint32_t calls = 0;
    begin(stream);
    OK(cudaLaunchHostFunc(stream, count_up, &calls));
    cudaGraphExec_t exec = end(stream);
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(calls, 3);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_capturing_stream_cannot_be_asked_or_waited_for)
{
    cudaStream_t stream = stream_new(0);
    enum cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(stream, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusNone);
    begin(stream);
    OK(cudaStreamIsCapturing(stream, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
    GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
    OK(cudaStreamIsCapturing(stream, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusInvalidated);
    end_invalid(stream);
    begin(stream);
    GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamQuery(stream));
    end_invalid(stream);
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_capturing_thread_cannot_allocate_or_synchronise)
{
    cudaStream_t stream = stream_new(0);
    void *memory;
    begin(stream);
    GIVES(cudaErrorStreamCaptureUnsupported, cudaMalloc(&memory, 4096));
    end_invalid(stream);
    begin(stream);
    GIVES(cudaErrorStreamCaptureUnsupported, cudaDeviceSynchronize());
    end_invalid(stream);
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(the_relaxed_mode_of_a_thread_allows_what_would_break_its_capture)
{
    cudaStream_t stream = stream_new(0);
    void *memory;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    begin(stream);
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    ck_assert_int_eq(mode, cudaStreamCaptureModeGlobal);
    OK(cudaMalloc(&memory, 4096));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    ck_assert_int_eq(mode, cudaStreamCaptureModeRelaxed);
    OK(cudaMemsetAsync(memory, 0, 4096, stream));
    OK(cudaGraphExecDestroy(end(stream)));
    OK(cudaFree(memory));
    OK(cudaStreamDestroy(stream));
}
END_TEST

static void *allocate(void *result)
{
    void *memory = NULL;
    if (cudaMalloc(&memory, 4096) == cudaSuccess && cudaFree(memory) == cudaSuccess)
        *(bool *)result = true;
    return NULL;
}

START_TEST(a_thread_local_capture_leaves_other_threads_alone)
{
    cudaStream_t stream = stream_new(0);
    pthread_t thread;
    bool worked = false;
    begin(stream);
    ck_assert_int_eq(pthread_create(&thread, NULL, allocate, &worked), 0);
    pthread_join(thread, NULL);
    ck_assert(worked);
    OK(cudaGraphExecDestroy(end(stream)));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(asking_for_a_captured_event_spoils_the_capture)
{
    cudaStream_t stream = stream_new(0);
    cudaEvent_t event = event_new();
    begin(stream);
    OK(cudaEventRecord(event, stream));
    GIVES(cudaErrorCapturedEvent, cudaEventQuery(event));
    end_invalid(stream);
    begin(stream);
    OK(cudaEventRecord(event, stream));
    GIVES(cudaErrorCapturedEvent, cudaEventSynchronize(event));
    end_invalid(stream);
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(an_event_from_outside_cannot_be_waited_for)
{
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    cudaEvent_t event = event_new();
    uint32_t *device = device_new(COUNT);
    OK(kernel_fill(other, device, COUNT, 1));
    OK(cudaEventRecord(event, other));
    begin(stream);
    GIVES(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(stream, event, 0));
    end_invalid(stream);
    OK(cudaStreamSynchronize(other));
    OK(cudaFree(device));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
}
END_TEST

START_TEST(a_branch_that_is_not_joined_spoils_the_capture)
{
    cudaStream_t stream = stream_new(0), branch = stream_new(0);
    cudaEvent_t event = event_new();
    uint32_t *device = device_new(COUNT);
    cudaGraph_t graph;
    begin(stream);
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(branch, event, 0));
    OK(kernel_fill(branch, device, COUNT, 1));
    GIVES(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(stream, &graph));
    ck_assert_ptr_null(graph);
    cudaGetLastError();
    OK(cudaFree(device));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(branch));
}
END_TEST

START_TEST(a_capture_ends_in_the_stream_where_it_began)
{
    cudaStream_t stream = stream_new(0), branch = stream_new(0), idle = stream_new(0);
    cudaEvent_t event = event_new();
    cudaGraph_t graph = NULL;
    GIVES(cudaErrorIllegalState, cudaStreamEndCapture(idle, &graph));
    begin(stream);
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(branch, event, 0));
    GIVES(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(branch, &graph));
    end_invalid(stream);
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(branch));
    OK(cudaStreamDestroy(idle));
}
END_TEST

START_TEST(two_captures_do_not_merge)
{
    cudaStream_t first = stream_new(0), second = stream_new(0);
    cudaEvent_t event = event_new();
    begin(first);
    begin(second);
    OK(cudaEventRecord(event, first));
    GIVES(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(second, event, 0));
    cudaGraph_t graph;
    cudaStreamEndCapture(first, &graph);
    cudaStreamEndCapture(second, &graph);
    cudaGetLastError();
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("capture");
    tcase_add_checked_fixture(tcase, device_begin, check_end);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, captured_work_runs_when_launched_and_not_before);
    tcase_add_test(tcase, a_capture_spreads_over_streams_by_events);
    tcase_add_test(tcase, a_graph_runs_in_the_order_of_the_stream_that_it_is_launched_in);
    tcase_add_test(tcase, host_functions_are_captured_too);
    tcase_add_test(tcase, a_capturing_stream_cannot_be_asked_or_waited_for);
    tcase_add_test(tcase, a_capturing_thread_cannot_allocate_or_synchronise);
    tcase_add_test(tcase, the_relaxed_mode_of_a_thread_allows_what_would_break_its_capture);
    tcase_add_test(tcase, a_thread_local_capture_leaves_other_threads_alone);
    tcase_add_test(tcase, asking_for_a_captured_event_spoils_the_capture);
    tcase_add_test(tcase, an_event_from_outside_cannot_be_waited_for);
    tcase_add_test(tcase, a_branch_that_is_not_joined_spoils_the_capture);
    tcase_add_test(tcase, a_capture_ends_in_the_stream_where_it_began);
    tcase_add_test(tcase, two_captures_do_not_merge);
    return check_run("runtime: capture and graphs", tcase);
}
