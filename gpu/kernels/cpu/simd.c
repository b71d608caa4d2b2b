#include "gpu/kernels/cpu/simd.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Not every compiler's __builtin_cpu_supports knows this one. */
static bool has_f16c(void)
{
    unsigned int a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const struct simd *simd_variant(uint32_t index)
{
    const struct simd *found[3] = {&simd_base};
    uint32_t count = 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && has_f16c())
        found[count++] = &simd_avx2;
    if (count == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        found[count++] = &simd_avx512;
#endif
    return index < count ? found[index] : NULL;
}

/* Asking the processor is slow, above all in a virtual machine; every thread finds the same. */
const struct simd *simd_best(void)
{
    static const struct simd *_Atomic cached;
    const struct simd *best = atomic_load_explicit(&cached, memory_order_relaxed);
    if (best)
        return best;
    for (uint32_t i = 0; simd_variant(i); i++)
        best = simd_variant(i);
    atomic_store_explicit(&cached, best, memory_order_relaxed);
    return best;
}

float simd_add_lanes(const float lanes[SIMD_LANES])
{
    float sum[SIMD_LANES];
    memcpy(sum, lanes, sizeof sum);
    for (int apart = SIMD_LANES / 2; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++)
            sum[i] += sum[i + apart];
    return sum[0];
}

float simd_exp(float x)
{
    float lanes[SIMD_LANES] = {0}, out;
    simd_base.exps(lanes, &out, &x, 0.0f, 1);
    return out;
}

#define SOFTCAP_PIECE 256

void simd_softcap(float *x, float cap, size_t count)
{
    float power[SOFTCAP_PIECE];
    for (size_t first = 0; first < count; first += SOFTCAP_PIECE) {
        float lanes[SIMD_LANES] = {0}, *at = x + first;
        size_t some = count - first < SOFTCAP_PIECE ? count - first : SOFTCAP_PIECE;
        for (size_t i = 0; i < some; i++)
            power[i] = 2 * (at[i] / cap);
        simd_best()->exps(lanes, power, power, 0, some);
        for (size_t i = 0; i < some; i++)
            at[i] = cap * (1 - 2 / (power[i] + 1)) + (at[i] - at[i]);
    }
}
