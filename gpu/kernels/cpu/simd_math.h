/* Part of simd_body.h: loads, the exponential, and what runs along one row. */

ALWAYS vf load(const float *from)
{
    vf value;
    memcpy(&value, from, sizeof value);
    return value;
}

ALWAYS void store(float *to, vf value)
{
    memcpy(to, &value, sizeof value);
}

ALWAYS vf splat(float value)
{
    return value - (vf){0};
}

/* Registers of one width to the next: gcc splits what __builtin_convertvector says. */
#if SIMD_WIDTH == 16
#define WIDEN_HALF(half) _mm512_cvtepu16_epi32((__m256i)(half))
#elif SIMD_WIDTH == 8
#define WIDEN_HALF(half) _mm256_cvtepu16_epi32((__m128i)(half))
#else
#define WIDEN_HALF(half) __builtin_convertvector(half, vu)
#endif

ALWAYS vf load_as(const void *base, enum dtype dtype, size_t index)
{
    if (dtype == DTYPE_F32)
        return load((const float *)base + index);
    vh half;
    memcpy(&half, (const uint16_t *)base + index, sizeof half);
#if SIMD_WIDTH == 16
    if (dtype == DTYPE_F16)
        return (vf)_mm512_cvtph_ps((__m256i)half);
#elif SIMD_WIDTH == 8
    if (dtype == DTYPE_F16)
        return (vf)_mm256_cvtph_ps((__m128i)half);
#endif
    vu wide = (vu)WIDEN_HALF(half);
    if (dtype == DTYPE_BF16)
        return (vf)(wide << 16);
    vu magnitude = wide & 0x7fffu; /* as f16_widen() */
    vu bits = (vu)((vf)(magnitude << 13) * 0x1p112f);
    bits |= (vu)(magnitude >= 0x7c00u) & 0x7f800000u;
    return (vf)(bits | (wide & 0x8000u) << 16);
}

/* For the rare paths, out of line so that they take no registers from the others. */
static __attribute__((noinline)) void widen(float *to, const void *base, enum dtype dtype,
                                            size_t index, size_t count)
{
    number_widen(to, number_at(base, dtype, index), dtype, count);
}

ALWAYS vf choose(vi mask, vf yes, vf no)
{
    return (vf)(((vu)mask & (vu)yes) | (~(vu)mask & (vu)no));
}

/* Cody and Waite's reduction to [-ln 2 / 2, ln 2 / 2] and a polynomial of degree 5 in the
 * remainder: within 2 units in the last place. Arguments above 88 are taken as 88. */
ALWAYS vf vexp(vf x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vi inside = x >= -87.0f;
    x = choose(x < 88.0f, x, splat(88.0f));
    x = choose(inside, x, splat(0.0f));
    vf shifted = x * 1.44269504f + magic;
    vf whole = shifted - magic;
    vf r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    vf y = p * (r * r) + r + 1.0f;
    vu power = ((vu)shifted - 0x4b400000u + 127u) << 23;
    return (vf)((vu)(y * (vf)power) & (vu)inside);
}

static void squares(float lanes[SIMD_LANES], const float *x, size_t count)
{
    vf sum[PARTS];
    size_t i = 0;
    told_read(x, DTYPE_F32, 0, 1, count);
    told_write(lanes, 0, 1, SIMD_LANES);
    for (int part = 0; part < PARTS; part++)
        sum[part] = load(lanes + part * SIMD_WIDTH);
    for (; i + SIMD_LANES <= count; i += SIMD_LANES)
        for (int part = 0; part < PARTS; part++) {
            vf value = load(x + i + part * SIMD_WIDTH);
            sum[part] += value * value;
        }
    for (int part = 0; part < PARTS; part++)
        store(lanes + part * SIMD_WIDTH, sum[part]);
    for (size_t lane = 0; i + lane < count; lane++)
        lanes[lane] += x[i + lane] * x[i + lane];
}

static void exps(float lanes[SIMD_LANES], float *out, const float *x, float shift, size_t count)
{
    vf sum[PARTS];
    told_read(x, DTYPE_F32, 0, 1, count);
    told_write(lanes, 0, 1, SIMD_LANES);
    if (out)
        told_write(out, 0, 1, count);
    for (int part = 0; part < PARTS; part++)
        sum[part] = load(lanes + part * SIMD_WIDTH);
    for (size_t i = 0; i < count; i += SIMD_LANES) {
        float padded[SIMD_LANES];
        const float *from = x + i;
        size_t left = count - i;
        if (left < SIMD_LANES) {
            for (size_t lane = 0; lane < SIMD_LANES; lane++)
                padded[lane] = lane < left ? from[lane] : -INFINITY;
            from = padded;
        }
        for (int part = 0; part < PARTS; part++) {
            vf term = vexp(load(from + part * SIMD_WIDTH) - shift);
            sum[part] += term;
            if (left >= SIMD_LANES && out)
                store(out + i + part * SIMD_WIDTH, term);
            else
                store(padded + part * SIMD_WIDTH, term);
        }
        if (left < SIMD_LANES && out)
            memcpy(out + i, padded, left * sizeof *out);
    }
    for (int part = 0; part < PARTS; part++)
        store(lanes + part * SIMD_WIDTH, sum[part]);
}

/* f(x) = x / (1 + exp(y)), see activation.h; y: */
ALWAYS vf silu_exponent(vf x)
{
    return -x;
}

ALWAYS vf gelu_exponent(vf x)
{
    return x * (x * x * -0.0713548163f - 1.59576912f);
}

typedef vf exponent_of(vf x);

/* In one place, so that all have the same loop and the same end; `up` may be NULL. */
ALWAYS void activate(float *out, const float *x, const float *up, size_t count, exponent_of *of)
{
    size_t i = 0;
    told_read(x, DTYPE_F32, 0, 1, count);
    if (up)
        told_read(up, DTYPE_F32, 0, 1, count);
    told_write(out, 0, 1, count);
    for (; i + SIMD_WIDTH <= count; i += SIMD_WIDTH) {
        vf value = load(x + i);
        value = value / (1.0f + vexp(of(value)));
        store(out + i, up ? value * load(up + i) : value);
    }
    if (i < count) {
        float padded[2][SIMD_WIDTH] = {{0}};
        memcpy(padded[0], x + i, (count - i) * sizeof *x);
        if (up)
            memcpy(padded[1], up + i, (count - i) * sizeof *up);
        vf value = load(padded[0]);
        value = value / (1.0f + vexp(of(value)));
        store(padded[0], up ? value * load(padded[1]) : value);
        memcpy(out + i, padded[0], (count - i) * sizeof *out);
    }
}

static void silu(float *out, const float *x, const float *up, size_t count)
{
    activate(out, x, up, count, silu_exponent);
}

static void gelu(float *out, const float *x, const float *up, size_t count)
{
    activate(out, x, up, count, gelu_exponent);
}
