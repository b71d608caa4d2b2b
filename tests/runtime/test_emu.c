/* What only the emulation promises: where it is stricter than a device, its faults, its counters,
 * its stepper, several devices. Each test in a process of its own, as some end by a signal. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "gpu/emu/emu.h"
#include "tests/runner.h"
#include "tests/runtime/check.h"

#define MIB ((uint64_t)1 << 20)

static void setup(struct emu_options options)
{
    options.memory_bytes = options.memory_bytes ? options.memory_bytes : 128 * MIB;
    OK(emu_setup(&options));
}

static void setup_strict(void)
{
    setup((struct emu_options){.poison = true, .strict = true, .devices = 2});
}

static cudaMemPool_t pool_new(int device)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice, .id = device}};
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    return pool;
}

static void nothing(const void *args, uint32_t index)
{
    (void)args;
    (void)index;
}

static void read_through(const void *args, uint32_t index)
{
    volatile const uint32_t *data = dev(*(void *const *)args);
    (void)data[index];
}

static void call_cuda(void *unused)
{
    (void)unused;
    cudaGetLastError();
}

static void count_up(void *data)
{
    ++*(uint32_t *)data;
}

/* --- stricter than a device ------------------------------------------------------------------ */

START_TEST(memory_is_poisoned_when_allocated_and_when_freed)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(0);
    void *pointer;
    OK(cudaMallocFromPoolAsync(&pointer, 1024, pool, stream));
    OK(cudaStreamSynchronize(stream));
    const uint8_t *bytes = dev(pointer);
    ck_assert_uint_eq(bytes[0], 0xff);
    ck_assert_uint_eq(bytes[1023], 0xff);
    OK(cudaMemsetAsync(pointer, 7, 1024, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(bytes[1023], 7);
    OK(cudaFreeAsync(pointer, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(bytes[0], 0xff);
    ck_assert_uint_eq(bytes[1023], 0xff);
}
END_TEST

START_TEST(host_code_that_reads_a_device_address_dies)
{
    setup_strict();
    volatile uint32_t *device = device_new(1);
    (void)*device;
}
END_TEST

START_TEST(a_kernel_that_is_handed_a_host_address_dies)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    void *host = pinned_new(1);
    OK(emu_launch(stream, "read", read_through, &host, sizeof(host), 1));
    OK(cudaStreamSynchronize(stream));
}
END_TEST

START_TEST(a_kernel_that_reads_released_memory_dies)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    void *device = device_new(1);
    OK(cudaFree(device));
    OK(emu_launch(stream, "read", read_through, &device, sizeof(device), 1));
    OK(cudaStreamSynchronize(stream));
}
END_TEST

START_TEST(the_legacy_stream_aborts)
{
    setup_strict();
    cudaMemsetAsync(device_new(1), 0, 4, NULL);
}
END_TEST

START_TEST(a_call_inside_a_host_function_aborts)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    OK(cudaLaunchHostFunc(stream, call_cuda, NULL));
    OK(cudaStreamSynchronize(stream));
}
END_TEST

START_TEST(a_pageable_copy_on_a_created_stream_aborts_when_strict)
{
    setup_strict();
    uint32_t pageable = 1;
    cudaMemcpyAsync(device_new(1), &pageable, 4, cudaMemcpyHostToDevice, stream_new(0));
}
END_TEST

START_TEST(pageable_copies_are_counted_and_done_on_return)
{
    setup_strict();
    uint32_t *device = device_new(1), pageable = 1, back = 0;
    OK(cudaMemcpyAsync(device, &pageable, 4, cudaMemcpyHostToDevice, cudaStreamPerThread));
    pageable = 2;
    OK(cudaMemcpyAsync(&back, device, 4, cudaMemcpyDeviceToHost, cudaStreamPerThread));
    ck_assert_uint_eq(back, 1);
    ck_assert_uint_eq(emu_pageable_copies(), 2);
    OK(cudaFree(device));
}
END_TEST

/* --- faults and counters --------------------------------------------------------------------- */

START_TEST(a_fault_strikes_the_nth_call_once)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    uint32_t *device = device_new(1);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        emu_fault_set(EMU_cudaMemsetAsync, nth, cudaErrorInvalidValue);
        for (uint64_t i = 1; i <= 4; i++) {
            cudaError_t expected = i == nth ? cudaErrorInvalidValue : cudaSuccess;
            GIVES(expected, cudaMemsetAsync(device, 0, 4, stream));
        }
    }
    ck_assert_uint_eq(emu_calls(EMU_cudaMemsetAsync), 12);
    OK(cudaStreamSynchronize(stream));
}
END_TEST

START_TEST(a_sticky_fault_stays_and_drops_what_is_queued)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    uint32_t calls = 0;
    struct gate gate = GATE_INIT;
    OK(cudaLaunchHostFunc(stream, gate_pass, &gate));
    OK(cudaLaunchHostFunc(stream, count_up, &calls));
    emu_fault_set(EMU_launch, 1, cudaErrorIllegalAddress);
    GIVES(cudaErrorIllegalAddress, emu_launch(stream, "nothing", nothing, NULL, 0, 1));
    GIVES(cudaErrorIllegalAddress, cudaStreamQuery(stream));
    gate_open(&gate);
    GIVES(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    setup_strict(); /* waits for the stream, and heals */
    ck_assert_uint_eq(calls, 0);
    OK(cudaGetLastError());
    OK(cudaStreamDestroy(stream_new(0)));
}
END_TEST

START_TEST(every_call_can_fail)
{
    setup_strict();
    int value;
    for (int call = 0; call < EMU_CALLS; call++)
        emu_fault_set((enum emu_call)call, 1, cudaErrorUnknown);
#define FAILS(call) GIVES(cudaErrorUnknown, call)
    FAILS(cudaGetDeviceCount(&value));
    FAILS(cudaSetDevice(0));
    FAILS(cudaStreamCreateWithPriority(NULL, 0, 0));
    FAILS(cudaStreamWaitEvent(NULL, NULL, 0));
    FAILS(cudaEventRecord(NULL, NULL));
    FAILS(cudaMemcpyAsync(NULL, NULL, 1, cudaMemcpyDefault, NULL));
    FAILS(cudaHostAlloc(NULL, 1, 0));
    FAILS(cudaMallocFromPoolAsync(NULL, 1, NULL, NULL));
    FAILS(cudaFreeAsync(NULL, NULL));
    FAILS(cudaMemPoolTrimTo(NULL, 0));
    FAILS(cudaGraphLaunch(NULL, NULL));
    FAILS(emu_launch(NULL, "nothing", nothing, NULL, 0, 1));
#undef FAILS
}
END_TEST

START_TEST(faults_come_from_the_environment_only_when_asked_for)
{
    setenv("SLUICE_EMU_FAULT", "cudaMemsetAsync:2:memory-allocation,cudaSetDevice:1:invalid-device",
           1);
    setup((struct emu_options){.faults_from_environment = true});
    uint32_t *device = device_new(1);
    OK(cudaMemsetAsync(device, 0, 4, cudaStreamPerThread));
    GIVES(cudaErrorMemoryAllocation, cudaMemsetAsync(device, 0, 4, cudaStreamPerThread));
    GIVES(cudaErrorInvalidDevice, cudaSetDevice(0));
    setup((struct emu_options){.faults_from_environment = false});
    OK(cudaSetDevice(0));
}
END_TEST

START_TEST(a_fault_that_cannot_be_read_aborts)
{
    setenv("SLUICE_EMU_FAULT", "cudaMemsetAsync:2:no-such-error", 1);
    setup((struct emu_options){.faults_from_environment = true});
}
END_TEST

START_TEST(a_kernel_that_hangs_holds_up_its_own_stream_only)
{
    setup_strict();
    cudaStream_t hung = stream_new(-5), other = stream_new(0);
    uint32_t calls = 0;
    emu_fault_hang(2);
    OK(emu_launch(hung, "nothing", nothing, NULL, 0, 1));
    OK(emu_launch(hung, "nothing", nothing, NULL, 0, 1));
    for (uint32_t i = 1; i <= 20; i++) {
        OK(cudaLaunchHostFunc(other, count_up, &calls));
        OK(cudaStreamSynchronize(other));
        ck_assert_uint_eq(calls, i);
    }
    GIVES(cudaErrorNotReady, cudaStreamQuery(hung));
    emu_fault_set(EMU_cudaGetDevice, 1, cudaErrorLaunchFailure);
    int device;
    GIVES(cudaErrorLaunchFailure, cudaGetDevice(&device));
    setup_strict(); /* comes back: a sticky error ended the kernel */
}
END_TEST

START_TEST(a_skipped_wait_lets_the_stream_go_on)
{
    setup_strict();
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    cudaEvent_t event = event_new();
    struct gate gate = GATE_INIT;
    OK(cudaLaunchHostFunc(stream, gate_pass, &gate));
    OK(cudaEventRecord(event, stream));
    emu_fault_skip_wait(1);
    OK(cudaStreamWaitEvent(other, event, 0));
    OK(cudaStreamSynchronize(other));
    OK(cudaStreamWaitEvent(other, event, 0));
    GIVES(cudaErrorNotReady, cudaStreamQuery(other));
    gate_open(&gate);
    OK(cudaStreamSynchronize(other));
}
END_TEST

START_TEST(memory_that_others_hold_is_not_given_and_not_shown)
{
    setup_strict();
    cudaMemPool_t pool = pool_new(0);
    size_t free_bytes, total;
    void *first, *second;
    OK(cudaMallocFromPoolAsync(&first, 8 * MIB, pool, cudaStreamPerThread));
    emu_memory_limit(8 * MIB);
    OK(cudaMemGetInfo(&free_bytes, &total));
    ck_assert_uint_eq(free_bytes, 0);
    ck_assert_uint_eq(total, 128 * MIB);
    GIVES(cudaErrorMemoryAllocation,
          cudaMallocFromPoolAsync(&second, MIB, pool, cudaStreamPerThread));
    emu_memory_limit(UINT64_MAX);
    OK(cudaMallocFromPoolAsync(&second, MIB, pool, cudaStreamPerThread));
    OK(cudaFreeAsync(first, cudaStreamPerThread));
    OK(cudaFreeAsync(second, cudaStreamPerThread));
    OK(cudaStreamSynchronize(cudaStreamPerThread));
}
END_TEST

static uint64_t resident_bytes(void)
{
    unsigned long long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%llu %llu", &size, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

START_TEST(trimmed_memory_goes_back_to_the_system)
{
    setup((struct emu_options){.memory_bytes = 512 * MIB});
    cudaMemPool_t pool = pool_new(0);
    void *pointer;
    uint64_t before = resident_bytes();
    OK(cudaMallocFromPoolAsync(&pointer, 200 * MIB, pool, cudaStreamPerThread));
    OK(cudaMemsetAsync(pointer, 1, 200 * MIB, cudaStreamPerThread));
    OK(cudaStreamSynchronize(cudaStreamPerThread));
    ck_assert_uint_ge(resident_bytes(), before + 200 * MIB);
    uint64_t held = resident_bytes();
    OK(cudaFreeAsync(pointer, cudaStreamPerThread));
    OK(cudaStreamSynchronize(cudaStreamPerThread));
    OK(cudaMemPoolTrimTo(pool, 0));
    ck_assert_uint_le(resident_bytes(), held - 190 * MIB);
}
END_TEST

/* --- the stepper ----------------------------------------------------------------------------- */

struct order {
    uint32_t count;
    char name[64];
};

struct mark {
    struct order *order;
    char name;
};

static void put_down(void *data)
{
    struct mark *mark = data;
    mark->order->name[mark->order->count++] = mark->name;
}

/* Three streams of five marks each, the third behind an event of the first. */
static struct order stepped(uint64_t seed)
{
    struct order order = {0};
    struct mark mark[3];
    cudaStream_t stream[3];
    setup((struct emu_options){.engine = EMU_STEPPER, .seed = seed});
    cudaEvent_t event = event_new();
    for (int i = 0; i < 3; i++) {
        mark[i] = (struct mark){&order, (char)('a' + i)};
        stream[i] = stream_new(0);
        if (i == 2)
            OK(cudaStreamWaitEvent(stream[i], event, 0));
        for (int j = 0; j < 5; j++)
            OK(cudaLaunchHostFunc(stream[i], put_down, &mark[i]));
        if (i == 0)
            OK(cudaEventRecord(event, stream[i]));
    }
    for (int i = 0; i < 15; i++)
        ck_assert(emu_step());
    ck_assert(!emu_step());
    return order;
}

START_TEST(the_stepper_repeats_an_order_by_its_seed)
{
    uint32_t different = 0;
    struct order first = stepped(1);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct order one = stepped(seed), again = stepped(seed);
        ck_assert_str_eq(one.name, again.name);
        different += strcmp(one.name, first.name) != 0;
        ck_assert(strrchr(one.name, 'a') < strchr(one.name, 'c'));
    }
    ck_assert_uint_ge(different, 15);
}
END_TEST

START_TEST(a_lazy_stepper_leaves_streams_of_the_least_priority_for_the_end)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct order order = {0};
        struct mark least = {&order, 'a'}, greatest = {&order, 'b'}, own = {&order, 'c'};
        setup((struct emu_options){.engine = EMU_STEPPER, .seed = seed, .lazy = true});
        cudaStream_t stream[2] = {stream_new(0), stream_new(-1)};
        for (int j = 0; j < 3; j++) {
            OK(cudaLaunchHostFunc(stream[0], put_down, &least));
            OK(cudaLaunchHostFunc(stream[1], put_down, &greatest));
            OK(cudaLaunchHostFunc(cudaStreamPerThread, put_down, &own));
        }
        while (emu_step())
            continue;
        ck_assert_uint_eq(order.count, 9);
        ck_assert_str_eq(strchr(order.name, 'a'), "aaa");
    }
}
END_TEST

START_TEST(a_wait_that_could_never_end_aborts_when_stepped)
{
    setup((struct emu_options){.engine = EMU_STEPPER});
    emu_fault_hang(1);
    OK(emu_launch(cudaStreamPerThread, "nothing", nothing, NULL, 0, 1));
    ck_assert(!emu_step());
    GIVES(cudaErrorNotReady, cudaStreamQuery(cudaStreamPerThread));
    cudaStreamSynchronize(cudaStreamPerThread);
}
END_TEST

/* --- several devices ------------------------------------------------------------------------- */

START_TEST(streams_of_two_devices_are_ordered_by_events)
{
    setup_strict();
    uint32_t *device[2], *host = pinned_new(100);
    cudaStream_t stream[2];
    cudaEvent_t event[2];
    int can = 0;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    ck_assert_int_eq(can, 1);
    for (int i = 0; i < 2; i++) {
        OK(cudaSetDevice(i));
        OK(cudaDeviceEnablePeerAccess(1 - i, 0));
        GIVES(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1 - i, 0));
        device[i] = device_new(100);
        stream[i] = stream_new(0);
        event[i] = event_new();
    }
    GIVES(cudaErrorInvalidResourceHandle, cudaEventRecord(event[0], stream[1]));
    GIVES(cudaErrorInvalidResourceHandle, kernel_fill(stream[0], device[0], 100, 1));
    for (uint32_t round = 0; round < 20; round++) {
        OK(cudaSetDevice(0));
        OK(kernel_fill(stream[0], device[0], 100, round));
        OK(cudaMemcpyPeerAsync(device[1], 1, device[0], 0, 400, stream[0]));
        OK(cudaEventRecord(event[0], stream[0]));
        OK(cudaSetDevice(1));
        OK(cudaStreamWaitEvent(stream[1], event[0], 0));
        OK(kernel_add(stream[1], device[1], 100, 5));
        OK(cudaMemcpyAsync(host, device[1], 400, cudaMemcpyDeviceToHost, stream[1]));
        OK(cudaEventRecord(event[1], stream[1]));
        OK(cudaStreamWaitEvent(stream[0], event[1], 0));
        OK(cudaStreamSynchronize(stream[1]));
        ck_assert_uint_eq(host[99], round + 5);
    }
    GIVES(cudaErrorInvalidValue, cudaMemcpyPeerAsync(device[1], 0, device[0], 0, 400, stream[0]));
}
END_TEST

static void *current_device(void *result)
{
    cudaGetDevice(result);
    return NULL;
}

START_TEST(the_current_device_is_the_threads_own)
{
    setup_strict();
    pthread_t thread;
    int device = -1;
    char id[2][16];
    struct cudaDeviceProp prop;
    OK(cudaSetDevice(1));
    ck_assert_int_eq(pthread_create(&thread, NULL, current_device, &device), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(device, 0);
    OK(cudaGetDevice(&device));
    ck_assert_int_eq(device, 1);
    GIVES(cudaErrorInvalidDevice, cudaSetDevice(2));
    for (int i = 0; i < 2; i++)
        OK(cudaDeviceGetPCIBusId(id[i], sizeof(id[i]), i));
    ck_assert_str_ne(id[0], id[1]);
    OK(cudaGetDeviceProperties(&prop, 1));
    ck_assert_uint_eq(prop.totalGlobalMem, 128 * MIB);
}
END_TEST

/* --- graphs ---------------------------------------------------------------------------------- */

struct set_args {
    uint32_t *data;
    uint32_t value;
};

static void set_value(const void *params, uint32_t index)
{
    const struct set_args *args = params;
    ((uint32_t *)dev(args->data))[index] = args->value;
}

START_TEST(a_captured_kernels_parameters_can_be_replaced)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    uint32_t *host = pinned_new(4);
    struct set_args args = {device_new(4), 1};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t node[2];
    size_t count = 2;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(emu_launch(stream, "set", set_value, &args, sizeof(args), 4));
    OK(cudaMemcpyAsync(host, args.data, 16, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, node, &count));
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(emu_graph_node_name(node[0]), "set");
    ck_assert_ptr_null(emu_graph_node_name(node[1]));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (uint32_t i = 1; i <= 5; i++) {
        OK(cudaGraphLaunch(exec, stream)); /* with the parameters of the round before */
        OK(cudaStreamSynchronize(stream));
        ck_assert_uint_eq(host[3], i);
        args.value = i + 1;
        OK(emu_graph_set_args(exec, node[0], &args, sizeof(args)));
    }
    GIVES(cudaErrorInvalidValue, emu_graph_set_args(exec, node[1], &args, sizeof(args)));
    GIVES(cudaErrorInvalidValue, emu_graph_set_args(exec, node[0], &args, 4));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
}
END_TEST

START_TEST(allocating_while_capturing_is_refused)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(0);
    cudaGraph_t graph;
    void *pointer;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    GIVES(cudaErrorStreamCaptureUnsupported, cudaMallocFromPoolAsync(&pointer, 4096, pool, stream));
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
}
END_TEST

START_TEST(what_is_alive_is_counted)
{
    setup_strict();
    cudaStream_t stream = stream_new(0);
    cudaEvent_t event = event_new();
    cudaMemPool_t pool = pool_new(1);
    void *host = pinned_new(4), *device = device_new(4);
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.streams, 1);
    ck_assert_uint_eq(live.events, 1);
    ck_assert_uint_eq(live.pools, 1);
    ck_assert_uint_eq(live.host_ranges, 1);
    ck_assert_uint_ge(live.device_bytes, 16);
    OK(cudaStreamDestroy(stream));
    OK(cudaEventDestroy(event));
    OK(cudaMemPoolDestroy(pool));
    OK(cudaFreeHost(host));
    OK(cudaFree(device));
    ck_assert(device_clean());
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("emulation");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, memory_is_poisoned_when_allocated_and_when_freed);
    tcase_add_test_raise_signal(tcase, host_code_that_reads_a_device_address_dies, SIGSEGV);
    tcase_add_test_raise_signal(tcase, a_kernel_that_is_handed_a_host_address_dies, SIGSEGV);
    tcase_add_test_raise_signal(tcase, a_kernel_that_reads_released_memory_dies, SIGSEGV);
    tcase_add_test_raise_signal(tcase, the_legacy_stream_aborts, SIGABRT);
    tcase_add_test_raise_signal(tcase, a_call_inside_a_host_function_aborts, SIGABRT);
    tcase_add_test_raise_signal(tcase, a_pageable_copy_on_a_created_stream_aborts_when_strict,
                                SIGABRT);
    tcase_add_test(tcase, pageable_copies_are_counted_and_done_on_return);
    tcase_add_test(tcase, a_fault_strikes_the_nth_call_once);
    tcase_add_test(tcase, a_sticky_fault_stays_and_drops_what_is_queued);
    tcase_add_test(tcase, every_call_can_fail);
    tcase_add_test(tcase, faults_come_from_the_environment_only_when_asked_for);
    tcase_add_test_raise_signal(tcase, a_fault_that_cannot_be_read_aborts, SIGABRT);
    tcase_add_test(tcase, a_kernel_that_hangs_holds_up_its_own_stream_only);
    tcase_add_test(tcase, a_skipped_wait_lets_the_stream_go_on);
    tcase_add_test(tcase, memory_that_others_hold_is_not_given_and_not_shown);
    tcase_add_test(tcase, trimmed_memory_goes_back_to_the_system);
    tcase_add_test(tcase, the_stepper_repeats_an_order_by_its_seed);
    tcase_add_test(tcase, a_lazy_stepper_leaves_streams_of_the_least_priority_for_the_end);
    tcase_add_test_raise_signal(tcase, a_wait_that_could_never_end_aborts_when_stepped, SIGABRT);
    tcase_add_test(tcase, streams_of_two_devices_are_ordered_by_events);
    tcase_add_test(tcase, the_current_device_is_the_threads_own);
    tcase_add_test(tcase, a_captured_kernels_parameters_can_be_replaced);
    tcase_add_test(tcase, allocating_while_capturing_is_refused);
    tcase_add_test(tcase, what_is_alive_is_counted);
    Suite *suite = suite_create("runtime: the emulation alone");
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_FORK);
    return runner_run(runner);
}
