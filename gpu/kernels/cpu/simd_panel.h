/* Part of simd_body.h: a panel of dot products, in tiles of SIMD_TILE_N rows of w by SIMD_TILE_ROWS
 * rows of x, so that what is read from memory is used several times. Neither the tile nor a row's
 * place in it shows in the bits.
 */
#define PANEL_PIECE 512 /* of k that is widened at a time, where x is not float32 */

/* Sums of one tile. */
struct tile {
    vf sum[SIMD_TILE_N][SIMD_TILE_ROWS][PARTS];
};

/* Lanes 8 apart, 4 apart, 2 and 1. */
ALWAYS float add_lanes(const vf sum[PARTS])
{
#if SIMD_WIDTH == 16
    typedef float v8 __attribute__((vector_size(32)));
    v8 half = __builtin_shufflevector(sum[0], sum[0], 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(sum[0], sum[0], 8, 9, 10, 11, 12, 13, 14, 15);
#elif SIMD_WIDTH == 8
    vf half = sum[0] + sum[1];
#endif
#if SIMD_WIDTH == 4
    v4 quarter = (sum[0] + sum[2]) + (sum[1] + sum[3]);
#else
    v4 quarter = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
                 __builtin_shufflevector(half, half, 4, 5, 6, 7);
#endif
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* One step of 16 elements of k. `fetch` asks for what is that many bytes ahead in w: the next
 * tile's rows come from memory while this tile is computed from the cache. */
ALWAYS void tile_step(struct tile *tile, int n, int rows, enum dtype dtype,
                      const void *const w[SIMD_TILE_N], size_t at,
                      const float *const x[SIMD_TILE_ROWS], size_t fetch)
{
    if (fetch)
        for (int i = 0; i < n; i++)
            __builtin_prefetch((char *)number_at(w[i], dtype, at) + fetch);
    for (int part = 0; part < PARTS; part++) {
        vf value[SIMD_TILE_N];
        for (int i = 0; i < n; i++)
            value[i] = load_as(w[i], dtype, at + (size_t)(part * SIMD_WIDTH));
        for (int r = 0; r < rows; r++) {
            vf other = load(x[r] + part * SIMD_WIDTH);
            for (int i = 0; i < n; i++)
                tile->sum[i][r][part] += value[i] * other;
        }
    }
}

/* The last, partial step, padded with zeros. */
ALWAYS void tile_tail(struct tile *tile, int n, int rows, enum dtype dtype,
                      const void *const w[SIMD_TILE_N], size_t at,
                      const float *const x[SIMD_TILE_ROWS], size_t left)
{
    float wide[SIMD_TILE_N][SIMD_LANES] = {{0}}, other[SIMD_TILE_ROWS][SIMD_LANES] = {{0}};
    const void *w_tail[SIMD_TILE_N];
    const float *x_tail[SIMD_TILE_ROWS];
    for (int i = 0; i < n; i++) {
        widen(wide[i], w[i], dtype, at, left);
        w_tail[i] = wide[i];
    }
    for (int r = 0; r < rows; r++) {
        memcpy(other[r], x[r], left * sizeof other[r][0]);
        x_tail[r] = other[r];
    }
    tile_step(tile, n, rows, DTYPE_F32, w_tail, 0, x_tail, 0);
}

ALWAYS void tile_run(const struct simd_panel *p, int n, int rows, enum dtype dtype, uint32_t first,
                     uint32_t row, bool last)
{
    struct tile tile = {0};
    float buffer[SIMD_TILE_ROWS][PANEL_PIECE];
    const void *w[SIMD_TILE_N];
    const float *x[SIMD_TILE_ROWS], *at[SIMD_TILE_ROWS];
    for (int i = 0; i < n; i++)
        w[i] = number_at(p->w, dtype, (first + (size_t)i) * p->w_stride);
    size_t fetch = last ? (size_t)n * p->w_stride * dtype_bytes(dtype) : 0;
    size_t piece = p->x_dtype == DTYPE_F32 ? p->k : PANEL_PIECE;
    for (size_t start = 0; start < p->k; start += piece) {
        size_t count = p->k - start < piece ? p->k - start : piece, j = 0;
        for (int r = 0; r < rows; r++) {
            size_t from = (row + (size_t)r) * p->x_stride + start;
            x[r] = (const float *)p->x + from;
            if (p->x_dtype != DTYPE_F32) {
                widen(buffer[r], p->x, p->x_dtype, from, count);
                x[r] = buffer[r];
            }
        }
        for (; j + SIMD_LANES <= count; j += SIMD_LANES) {
            for (int r = 0; r < rows; r++)
                at[r] = x[r] + j;
            tile_step(&tile, n, rows, dtype, w, start + j, at, fetch);
        }
        if (j < count) {
            for (int r = 0; r < rows; r++)
                at[r] = x[r] + j;
            tile_tail(&tile, n, rows, dtype, w, start + j, at, count - j);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++)
            p->y[(row + (size_t)r) * p->y_stride + first + (size_t)i] = add_lanes(tile.sum[i][r]);
}

ALWAYS void panel_column(const struct simd_panel *p, int n, enum dtype dtype, uint32_t first)
{
    uint32_t row = 0;
    for (; row + SIMD_TILE_ROWS < p->rows; row += SIMD_TILE_ROWS)
        tile_run(p, n, SIMD_TILE_ROWS, dtype, first, row, false);
    if (row + SIMD_TILE_ROWS == p->rows)
        tile_run(p, n, SIMD_TILE_ROWS, dtype, first, row, true);
    else
        for (; row < p->rows; row++)
            tile_run(p, n, 1, dtype, first, row, row + 1 == p->rows);
}

ALWAYS void panel_of(const struct simd_panel *p, enum dtype dtype)
{
    uint32_t first = 0;
    for (; first + SIMD_TILE_N <= p->n; first += SIMD_TILE_N)
        panel_column(p, SIMD_TILE_N, dtype, first);
    for (; first < p->n; first++)
        panel_column(p, 1, dtype, first);
}

static void panel(const struct simd_panel *p)
{
    if (p->w_dtype == DTYPE_F32)
        panel_of(p, DTYPE_F32);
    else if (p->w_dtype == DTYPE_BF16)
        panel_of(p, DTYPE_BF16);
    else
        panel_of(p, DTYPE_F16);
}
