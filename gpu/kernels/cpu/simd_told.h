/* Part of simd_body.h: what an inner loop reads and writes, told to ThreadSanitizer once for each
 * call; nothing in other builds.
 *
 * One thread runs a call from its begin to its end, so what is told first races as the loads
 * themselves would. These are compiled without -fsanitize=thread then: each load seen for itself,
 * the same rows of x again beside each row of w, took two thirds of all time of tests with a model.
 * SIMD_TSAN comes from the build.
 */
#ifdef SIMD_TSAN
#ifdef __SANITIZE_THREAD__
#error "this file must be compiled with -fno-sanitize=thread"
#endif
void __tsan_read_range(void *from, unsigned long size);
void __tsan_write_range(void *from, unsigned long size);

static void told_read(const void *base, enum dtype dtype, size_t stride, size_t rows, size_t count)
{
    for (size_t row = 0; row < rows && count; row++)
        __tsan_read_range((void *)number_at(base, dtype, row * stride), count * dtype_bytes(dtype));
}

static void told_write(float *to, size_t stride, size_t rows, size_t count)
{
    for (size_t row = 0; row < rows && count; row++)
        __tsan_write_range(to + row * stride, count * sizeof *to);
}
#else
#define told_read(base, dtype, stride, rows, count) ((void)(base))
#define told_write(to, stride, rows, count) ((void)(to))
#endif
