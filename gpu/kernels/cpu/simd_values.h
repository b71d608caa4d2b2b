/* Part of simd_body.h: attention's weighted sum of values. The sums of up to 4 heads stay in
 * registers while positions pass, VALUES_REGISTERS at a time: each position waits for the sum of
 * the one before, so many sums must be on their way.
 */
#define VALUES_HEADS 4
#define VALUES_REGISTERS (SIMD_WIDTH == 16 ? 16 : 8)

/* `registers` of dimensions from d, of `heads` heads from `head`. */
ALWAYS void values_tile(const struct simd_values *a, int heads, int registers, enum dtype dtype,
                        uint32_t head, size_t d)
{
    const float *p = a->p + head * a->stride;
    float *sum = a->sum + head * a->stride + d;
    vf total[VALUES_REGISTERS];
    for (int i = 0; i < heads * registers; i++)
        total[i] =
            load(sum + (size_t)(i / registers) * a->stride + (size_t)(i % registers * SIMD_WIDTH));
    for (size_t i = 0; i < a->count; i++)
        for (int r = 0; r < registers; r++) {
            vf value = load_as(a->v, dtype, i * a->head_dim + d + (size_t)r * SIMD_WIDTH);
            for (int h = 0; h < heads; h++)
                total[h * registers + r] += p[(size_t)h * a->stride + i] * value;
        }
    for (int i = 0; i < heads * registers; i++)
        store(sum + (size_t)(i / registers) * a->stride + (size_t)(i % registers * SIMD_WIDTH),
              total[i]);
}

ALWAYS void values_run(const struct simd_values *a, int heads, enum dtype dtype, uint32_t head)
{
    const int registers = VALUES_REGISTERS / VALUES_HEADS;
    size_t d = 0;
    for (; d + (size_t)(registers * SIMD_WIDTH) <= a->head_dim; d += (size_t)registers * SIMD_WIDTH)
        values_tile(a, heads, registers, dtype, head, d);
    for (; d + SIMD_WIDTH <= a->head_dim; d += SIMD_WIDTH)
        values_tile(a, heads, 1, dtype, head, d);
    for (; d < a->head_dim; d++)
        for (size_t i = 0; i < a->count; i++) {
            float value;
            widen(&value, a->v, dtype, i * a->head_dim + d, 1);
            for (int h = 0; h < heads; h++)
                a->sum[(head + (size_t)h) * a->stride + d] +=
                    a->p[(head + (size_t)h) * a->stride + i] * value;
        }
}

ALWAYS void values_of(const struct simd_values *a, enum dtype dtype)
{
    uint32_t head = 0;
    for (; head + VALUES_HEADS <= a->heads; head += VALUES_HEADS)
        values_run(a, VALUES_HEADS, dtype, head);
    if (head + 2 <= a->heads) {
        values_run(a, 2, dtype, head);
        head += 2;
    }
    if (head < a->heads)
        values_run(a, 1, dtype, head);
}

static void values(const struct simd_values *a)
{
    told_read(a->v, a->v_dtype, a->head_dim, a->count, a->head_dim);
    told_read(a->p, DTYPE_F32, a->stride, a->heads, a->count);
    told_write(a->sum, a->stride, a->heads, a->head_dim);
    if (a->v_dtype == DTYPE_F32)
        values_of(a, DTYPE_F32);
    else if (a->v_dtype == DTYPE_BF16)
        values_of(a, DTYPE_BF16);
    else
        values_of(a, DTYPE_F16);
}
