/* Part of simd_body.h: attention's weighted sum of values. The sums of up to 4 heads stay in
 * registers while positions pass.
 */
#define VALUES_HEADS 4

ALWAYS void values_run(const struct simd_values *a, int heads, enum dtype dtype, uint32_t head)
{
    const float *p = a->p + head * a->stride;
    float *sum = a->sum + head * a->stride;
    size_t d = 0;
    for (; d + SIMD_WIDTH <= a->head_dim; d += SIMD_WIDTH) {
        vf total[VALUES_HEADS];
        for (int h = 0; h < heads; h++)
            total[h] = load(sum + (size_t)h * a->stride + d);
        for (size_t i = 0; i < a->count; i++) {
            vf value = load_as(a->v, dtype, i * a->head_dim + d);
            for (int h = 0; h < heads; h++)
                total[h] += p[(size_t)h * a->stride + i] * value;
        }
        for (int h = 0; h < heads; h++)
            store(sum + (size_t)h * a->stride + d, total[h]);
    }
    for (; d < a->head_dim; d++)
        for (size_t i = 0; i < a->count; i++) {
            float value;
            widen(&value, a->v, dtype, i * a->head_dim + d, 1);
            for (int h = 0; h < heads; h++)
                sum[(size_t)h * a->stride + d] += p[(size_t)h * a->stride + i] * value;
        }
}

ALWAYS void values_of(const struct simd_values *a, enum dtype dtype)
{
    uint32_t head = 0;
    for (; head + VALUES_HEADS <= a->heads; head += VALUES_HEADS)
        values_run(a, VALUES_HEADS, dtype, head);
    for (; head < a->heads; head++)
        values_run(a, 1, dtype, head);
}

static void values(const struct simd_values *a)
{
    if (a->v_dtype == DTYPE_F32)
        values_of(a, DTYPE_F32);
    else if (a->v_dtype == DTYPE_BF16)
        values_of(a, DTYPE_BF16);
    else
        values_of(a, DTYPE_F16);
}
