/* What both bodies of relevance compute, operation by operation, so that they agree to the bit:
 * products and sums are rounded one by one (-ffp-contract=off, -fmad=false), roots are Newton's,
 * and logarithms whole numbers. Divisions and square roots are the correctly rounded ones of IEEE
 * 754. */
#pragma once

#include <math.h>
#include <string.h>

#include "gpu/programs/relevance/relevance.h"

#ifdef __CUDACC__
#define RELEVANCE_CALL static __device__ __forceinline__
#else
#define RELEVANCE_CALL static inline
#endif

#define RELEVANCE_ONE 65536 /* 1 in fixed point */

/* ---- where things are --------------------------------------------------------------------------
 */

struct relevance_patch {
    uint32_t x, y, width, height;
};

/* Patches share the pixels out evenly: neighbours differ by one row, and one column, at most. */
RELEVANCE_CALL struct relevance_patch relevance_patch(const struct sluice_item *item,
                                                      uint32_t number)
{
    const uint32_t height = (uint32_t)item->sizes[0], width = (uint32_t)item->sizes[1];
    const uint32_t rows = (uint32_t)item->sizes[2], columns = (uint32_t)item->sizes[3];
    const uint32_t row = number / columns, column = number % columns;
    struct relevance_patch patch;
    patch.x = column * width / columns;
    patch.y = row * height / rows;
    patch.width = (column + 1) * width / columns - patch.x;
    patch.height = (row + 1) * height / rows - patch.y;
    return patch;
}

RELEVANCE_CALL uint32_t relevance_patches(const struct sluice_item *item)
{
    return (uint32_t)(item->sizes[2] * item->sizes[3]);
}

RELEVANCE_CALL uint64_t relevance_pixels(const struct sluice_item *item)
{
    return item->sizes[0] * item->sizes[1];
}

RELEVANCE_CALL float *relevance_plane(const struct sluice_item *item, int channel)
{
    return (float *)item->scratch + (uint64_t)channel * relevance_pixels(item);
}

RELEVANCE_CALL struct relevance_slice *relevance_slices(const struct sluice_item *item)
{
    const uint64_t planes = CHANNELS * relevance_pixels(item) * sizeof(float);
    return (struct relevance_slice *)(void *)((unsigned char *)item->scratch +
                                              (planes + SLUICE_ALIGN - 1) / SLUICE_ALIGN *
                                                  SLUICE_ALIGN);
}

/* ---- channels ----------------------------------------------------------------------------------
 */

/* sRGB's curve, IEC 61966-2-1: x^2.4 = x^2 (x^(1/5))^2. */
RELEVANCE_CALL float relevance_linear(uint32_t byte)
{
    const double c = byte / 255.0;
    if (c <= 0.04045)
        return (float)(c / 12.92);
    const double x = (c + 0.055) / 1.055;
    double root = 0.55 + 0.45 * x;
    for (int i = 0; i < 5; i++) {
        const double square = root * root;
        root = (4 * root + x / (square * square)) / 5;
    }
    return (float)(x * x * (root * root));
}

/* Of what is above 0.008: a third of the exponent, and three steps of Newton's. */
RELEVANCE_CALL float relevance_cube_root(float x)
{
    uint32_t bits;
    float root;
    memcpy(&bits, &x, sizeof(bits));
    bits = bits / 3 + 709921077u;
    memcpy(&root, &bits, sizeof(root));
    for (int i = 0; i < 3; i++)
        root = (2 * root + x / (root * root)) / 3;
    return root;
}

RELEVANCE_CALL float relevance_lab_curve(float t)
{
    return t > 216.0f / 24389 ? relevance_cube_root(t) : t * (841.0f / 108) + 4.0f / 29;
}

struct relevance_lab {
    float l, a, b;
};

/* Linear sRGB to XYZ (its primaries, white D65), and to CIE 1976 L*a*b* for that white. */
RELEVANCE_CALL struct relevance_lab relevance_lab(float red, float green, float blue)
{
    const float x = 0.4124564f * red + 0.3575761f * green + 0.1804375f * blue;
    const float y = 0.2126729f * red + 0.7151522f * green + 0.0721750f * blue;
    const float z = 0.0193339f * red + 0.1191920f * green + 0.9503041f * blue;
    const float fx = relevance_lab_curve(x / 0.95047f), fy = relevance_lab_curve(y);
    const float fz = relevance_lab_curve(z / 1.08883f);
    struct relevance_lab lab;
    lab.l = (116 * fy - 16) / 100;
    lab.a = 500 * (fx - fy) / 128;
    lab.b = 200 * (fy - fz) / 128;
    return lab;
}

struct relevance_slope {
    float x, y;
};

/* Sobel, of 3 x 3 in rows; a step from 0 to 1 is 1. */
RELEVANCE_CALL struct relevance_slope relevance_sobel(const float at[9])
{
    struct relevance_slope slope;
    slope.x = (at[2] - at[0] + 2 * (at[5] - at[3]) + (at[8] - at[6])) / 4;
    slope.y = (at[6] - at[0] + 2 * (at[7] - at[1]) + (at[8] - at[2])) / 4;
    return slope;
}

/* The channels of slopes, into planes. `around`: lightness, a and b, each 3 x 3. */
RELEVANCE_CALL void relevance_edges(const float around[3][9], float *const planes, uint64_t pixels,
                                    uint64_t pixel)
{
    const struct relevance_slope l = relevance_sobel(around[0]), a = relevance_sobel(around[1]);
    const struct relevance_slope b = relevance_sobel(around[2]);
    planes[CHANNEL_EDGE_X * pixels + pixel] = l.x;
    planes[CHANNEL_EDGE_Y * pixels + pixel] = l.y;
    planes[CHANNEL_EDGE * pixels + pixel] = sqrtf(l.x * l.x + l.y * l.y);
    planes[CHANNEL_COLOUR_EDGE * pixels + pixel] =
        sqrtf(a.x * a.x + a.y * a.y + (b.x * b.x + b.y * b.y));
}

RELEVANCE_CALL void relevance_place(const struct sluice_item *item, uint32_t x, uint32_t y,
                                    float *const planes, uint64_t pixels, uint64_t pixel)
{
    const float across = (float)(2 * x + 1) / (float)item->sizes[1] - 1;
    const float down = (float)(2 * y + 1) / (float)item->sizes[0] - 1;
    planes[CHANNEL_X * pixels + pixel] = across;
    planes[CHANNEL_Y * pixels + pixel] = down;
    planes[CHANNEL_ECCENTRICITY * pixels + pixel] = sqrtf((across * across + down * down) / 2);
}

/* ---- sums --------------------------------------------------------------------------------------
 */

RELEVANCE_CALL int32_t relevance_fixed(float value)
{
    return (int32_t)floorf(value * RELEVANCE_ONE + 0.5f);
}

RELEVANCE_CALL uint32_t relevance_bin(float lightness)
{
    const int bin = (int)(lightness * RELEVANCE_BINS);
    return bin < 0 ? 0 : bin < RELEVANCE_BINS ? (uint32_t)bin : RELEVANCE_BINS - 1;
}

/* The image's mean colour, of the sums of its lightness, a and b. */
RELEVANCE_CALL struct relevance_lab relevance_mean(const int64_t sums[3], uint64_t pixels)
{
    const double unit = (double)pixels * RELEVANCE_ONE;
    struct relevance_lab mean;
    mean.l = (float)((double)sums[0] / unit);
    mean.a = (float)((double)sums[1] / unit);
    mean.b = (float)((double)sums[2] / unit);
    return mean;
}

/* How much a pixel stands out: by its colour from the image's mean, by edges; half in a corner. */
RELEVANCE_CALL int32_t relevance_salience(const float *planes, uint64_t pixels, uint64_t pixel,
                                          struct relevance_lab mean)
{
    const float l = planes[CHANNEL_LIGHTNESS * pixels + pixel] - mean.l;
    const float a = planes[CHANNEL_A * pixels + pixel] - mean.a;
    const float b = planes[CHANNEL_B * pixels + pixel] - mean.b;
    const float edges =
        planes[CHANNEL_EDGE * pixels + pixel] + planes[CHANNEL_COLOUR_EDGE * pixels + pixel];
    const float near = 1 - planes[CHANNEL_ECCENTRICITY * pixels + pixel] / 2;
    return relevance_fixed((sqrtf(l * l + a * a + b * b) + edges) * near);
}

/* ---- scores, in fixed point --------------------------------------------------------------------
 */

/* log2 of a number that is not 0, digit by digit: squaring doubles the logarithm. */
RELEVANCE_CALL uint32_t relevance_log2(uint32_t number)
{
    uint32_t whole = 31;
    while (!(number >> whole))
        whole--;
    uint64_t rest = (uint64_t)number << (31 - whole); /* 2^31 is 1 */
    uint32_t log = whole;
    for (int i = 0; i < 16; i++) {
        rest = rest * rest >> 31;
        const uint32_t digit = (uint32_t)(rest >> 32);
        rest >>= digit;
        log = log << 1 | digit;
    }
    return log;
}

/* Shannon's, of counts that sum to `pixels`: log2 n - (sum of c log2 c) / n, of the 6 bits that 64
 * bins may have. */
RELEVANCE_CALL uint32_t relevance_entropy(uint64_t count_logs, uint32_t pixels)
{
    const uint64_t all = (uint64_t)pixels * relevance_log2(pixels);
    return all > count_logs ? (uint32_t)((all - count_logs) / pixels / 6) : 0;
}

/* The angle between the patch's mean channels and the query: 0 opposite, 1 alike. A query of zeros,
 * which has no opinion, is half of either. */
RELEVANCE_CALL uint32_t relevance_similarity(const int64_t sums[CHANNELS], uint32_t pixels,
                                             const union sluice_value *query)
{
    double product = 0, own = 0, asked = 0;
    for (int i = 0; i < CHANNELS; i++) {
        const double mean = (double)sums[i] / ((double)pixels * RELEVANCE_ONE);
        product = product + mean * query[i].number;
        own = own + mean * mean;
        asked = asked + query[i].number * query[i].number;
    }
    if (!(own > 0) || !(asked > 0))
        return RELEVANCE_ONE / 2;
    const double score = (1 + product / (sqrt(own) * sqrt(asked))) / 2;
    return score <= 0   ? 0
           : score >= 1 ? RELEVANCE_ONE
                        : (uint32_t)floor(score * RELEVANCE_ONE + 0.5);
}

/* ---- budgets -----------------------------------------------------------------------------------
 */

#define RELEVANCE_ROOM (RELEVANCE_BUDGET_MAX - RELEVANCE_BUDGET_MIN)

/* Where a score stands between the image's least and greatest: each of the three has the same say.
 */
RELEVANCE_CALL uint32_t relevance_balanced(uint32_t score, uint32_t least, uint32_t greatest)
{
    return greatest > least
               ? (uint32_t)((uint64_t)(score - least) * RELEVANCE_ONE / (greatest - least))
               : 0;
}
