#include "tests/runtime/check.h"

#define MIB ((size_t)1 << 20)

static cudaMemPool_t pool_new(uint64_t threshold)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    cudaMemPool_t pool;
    int off = 0;
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &off));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &off));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    return pool;
}

static uint64_t attribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr)
{
    uint64_t value = 0;
    OK(cudaMemPoolGetAttribute(pool, attr, &value));
    return value;
}

static void *take(cudaMemPool_t pool, size_t bytes, cudaStream_t stream)
{
    void *pointer = NULL;
    OK(cudaMallocFromPoolAsync(&pointer, bytes, pool, stream));
    return pointer;
}

START_TEST(allocated_memory_is_used_in_stream_order)
{
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(UINT64_MAX);
    uint32_t *host = pinned_new(100);
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t *data = take(pool, 400, stream);
        OK(kernel_fill(stream, data, 100, round));
        OK(kernel_add(stream, data, 100, 1));
        OK(cudaMemcpyAsync(host, data, 400, cudaMemcpyDeviceToHost, stream));
        OK(cudaFreeAsync(data, stream));
        OK(cudaStreamSynchronize(stream));
        ck_assert_uint_eq(host[99], round + 1);
    }
    OK(cudaMemPoolDestroy(pool));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_stream_gets_back_at_once_what_it_freed)
{
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(UINT64_MAX);
    void *first = take(pool, 4 * MIB, stream);
    OK(cudaFreeAsync(first, stream));
    void *second = take(pool, 4 * MIB, stream);
    ck_assert_ptr_eq(first, second);
    OK(cudaFreeAsync(second, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(another_stream_does_not_get_what_is_still_in_use)
{
    if (!device_threads())
        RUNNER_SKIP("all work is done by this thread");
    cudaStream_t stream = stream_new(0), other = stream_new(0);
    cudaMemPool_t pool = pool_new(UINT64_MAX);
    struct gate gate = GATE_INIT;
    void *first = take(pool, 4 * MIB, stream);
    OK(cudaLaunchHostFunc(stream, gate_pass, &gate));
    OK(cudaFreeAsync(first, stream));
    void *second = take(pool, 4 * MIB, other);
    ck_assert_ptr_ne(first, second);
    gate_open(&gate);
    OK(cudaFreeAsync(second, other));
    OK(cudaDeviceSynchronize());
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(other));
}
END_TEST

START_TEST(live_allocations_do_not_overlap)
{
    enum { PIECES = 40 };
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(UINT64_MAX);
    char *piece[PIECES];
    size_t bytes[PIECES];
    unsigned int seed = 7;
    for (int i = 0; i < PIECES; i++)
        piece[i] = NULL;
    for (int turn = 0; turn < 400; turn++) {
        int i = (int)((seed = seed * 1103515245 + 12345) >> 16) % PIECES;
        if (piece[i]) {
            OK(cudaFreeAsync(piece[i], stream));
            piece[i] = NULL;
            continue;
        }
        bytes[i] = (seed >> 8) % 300000 + 1;
        piece[i] = take(pool, bytes[i], stream);
        for (int j = 0; j < PIECES; j++)
            ck_assert(j == i || !piece[j] || piece[i] + bytes[i] <= piece[j] ||
                      piece[j] + bytes[j] <= piece[i]);
    }
    for (int i = 0; i < PIECES; i++) {
        if (piece[i])
            OK(cudaFreeAsync(piece[i], stream));
    }
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(attribute(pool, cudaMemPoolAttrUsedMemCurrent), 0);
    OK(cudaMemPoolTrimTo(pool, 0));
    ck_assert_uint_eq(attribute(pool, cudaMemPoolAttrReservedMemCurrent), 0);
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(threshold_zero_gives_memory_back_when_synchronised)
{
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(0);
    void *data = take(pool, 32 * MIB, stream);
    ck_assert_uint_ge(attribute(pool, cudaMemPoolAttrUsedMemCurrent), 32 * MIB);
    ck_assert_uint_ge(attribute(pool, cudaMemPoolAttrReservedMemCurrent), 32 * MIB);
    OK(cudaFreeAsync(data, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(attribute(pool, cudaMemPoolAttrUsedMemCurrent), 0);
    ck_assert_uint_eq(attribute(pool, cudaMemPoolAttrReservedMemCurrent), 0);
    ck_assert_uint_ge(attribute(pool, cudaMemPoolAttrReservedMemHigh), 32 * MIB);
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(a_high_threshold_keeps_memory_until_it_is_trimmed)
{
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(UINT64_MAX);
    size_t before, held, after, total;
    OK(cudaMemGetInfo(&before, &total));
    void *data = take(pool, 64 * MIB, stream);
    OK(cudaMemsetAsync(data, 1, 64 * MIB, stream));
    OK(cudaFreeAsync(data, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_ge(attribute(pool, cudaMemPoolAttrReservedMemCurrent), 64 * MIB);
    OK(cudaMemGetInfo(&held, &total));
    OK(cudaMemPoolTrimTo(pool, 0));
    ck_assert_uint_eq(attribute(pool, cudaMemPoolAttrReservedMemCurrent), 0);
    OK(cudaMemGetInfo(&after, &total));
    ck_assert_uint_ge(after, held + 64 * MIB);
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(trimming_spares_what_is_in_use)
{
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(UINT64_MAX);
    uint32_t *host = pinned_new(1);
    uint32_t *kept = take(pool, 32 * MIB, stream);
    void *freed = take(pool, 32 * MIB, stream);
    OK(kernel_fill(stream, kept, 1, 42));
    OK(cudaFreeAsync(freed, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolTrimTo(pool, 0));
    ck_assert_uint_ge(attribute(pool, cudaMemPoolAttrReservedMemCurrent), 32 * MIB);
    ck_assert_uint_lt(attribute(pool, cudaMemPoolAttrReservedMemCurrent), 64 * MIB);
    OK(cudaMemcpyAsync(host, kept, 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(kept, stream));
    OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(*host, 42);
    OK(cudaMemPoolDestroy(pool));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(too_much_is_out_of_memory_and_does_no_lasting_harm)
{
    cudaStream_t stream = stream_new(0);
    cudaMemPool_t pool = pool_new(0);
    size_t free_bytes, total;
    void *data = NULL;
    OK(cudaMemGetInfo(&free_bytes, &total));
    ck_assert_uint_le(free_bytes, total);
    GIVES(cudaErrorMemoryAllocation, cudaMallocFromPoolAsync(&data, total + MIB, pool, stream));
    GIVES(cudaErrorMemoryAllocation, cudaGetLastError());
    GIVES(cudaErrorMemoryAllocation, cudaMalloc(&data, total + MIB));
    GIVES(cudaErrorMemoryAllocation, cudaGetLastError());
    data = take(pool, MIB, stream);
    OK(cudaFreeAsync(data, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(attributes_read_back)
{
    cudaMemPool_t pool = pool_new(12345);
    int flag = 7;
    ck_assert_uint_eq(attribute(pool, cudaMemPoolAttrReleaseThreshold), 12345);
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &flag));
    ck_assert_int_eq(flag, 0);
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseFollowEventDependencies, &flag));
    ck_assert_int_eq(flag, 1);
    OK(cudaMemPoolDestroy(pool));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("pool");
    tcase_add_checked_fixture(tcase, device_begin, check_end);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, allocated_memory_is_used_in_stream_order);
    tcase_add_test(tcase, a_stream_gets_back_at_once_what_it_freed);
    tcase_add_test(tcase, another_stream_does_not_get_what_is_still_in_use);
    tcase_add_test(tcase, live_allocations_do_not_overlap);
    tcase_add_test(tcase, threshold_zero_gives_memory_back_when_synchronised);
    tcase_add_test(tcase, a_high_threshold_keeps_memory_until_it_is_trimmed);
    tcase_add_test(tcase, trimming_spares_what_is_in_use);
    tcase_add_test(tcase, too_much_is_out_of_memory_and_does_no_lasting_harm);
    tcase_add_test(tcase, attributes_read_back);
    return check_run("runtime: pools", tcase);
}
