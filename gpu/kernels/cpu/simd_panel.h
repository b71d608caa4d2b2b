/* Part of simd_body.h: a panel of dot products, in tiles of up to SIMD_TILE_SUMS dot products, so
 * that what is read from memory is used several times: SIMD_TILE_ROWS rows of x as long as there
 * are so many, then 2 and 1. Neither the tile nor a row's place in it shows in the bits.
 */
#define PANEL_PIECE 512 /* of k that is widened at a time, where x is not float32 */

/* Sums of one tile: of row i of n of w and row r of x in sum[r * n + i]. */
struct tile {
    vf sum[SIMD_TILE_SUMS][PARTS];
};

/* What is left of a sum's lanes once those of other registers are added: 8 apart, then 4. */
ALWAYS vf add_parts(const vf sum[PARTS])
{
#if SIMD_WIDTH == 16
    return sum[0];
#elif SIMD_WIDTH == 8
    return sum[0] + sum[1];
#else
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
#endif
}

/* LOW_n: of each 2n lanes of two registers the first n, HIGH_n: the other n. */
#if SIMD_WIDTH == 16
#define LOW_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW_4 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define HIGH_4 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#define LOW_2 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29
#define HIGH_2 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31
#define LOW_1 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define HIGH_1 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif SIMD_WIDTH == 8
#define LOW_4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_4 4, 5, 6, 7, 12, 13, 14, 15
#define LOW_2 0, 1, 4, 5, 8, 9, 12, 13
#define HIGH_2 2, 3, 6, 7, 10, 11, 14, 15
#define LOW_1 0, 2, 4, 6, 8, 10, 12, 14
#define HIGH_1 1, 3, 5, 7, 9, 11, 13, 15
#else
#define LOW_2 0, 1, 4, 5
#define HIGH_2 2, 3, 6, 7
#define LOW_1 0, 2, 4, 6
#define HIGH_1 1, 3, 5, 7
#endif
#define ADD_APART(sums, count, low, high)                                                          \
    for (int i = 0; i < (count); i++)                                                              \
    sums[i] = __builtin_shufflevector(sums[2 * i], sums[2 * i + 1], low) +                         \
              __builtin_shufflevector(sums[2 * i], sums[2 * i + 1], high)

/* The sums over the lanes of SIMD_WIDTH registers, in their order: lanes 8 apart are added first,
 * then those 4 apart, 2 and 1. */
ALWAYS vf add_lanes(vf sums[SIMD_WIDTH])
{
#if SIMD_WIDTH > 8
    ADD_APART(sums, 8, LOW_8, HIGH_8);
#endif
#if SIMD_WIDTH > 4
    ADD_APART(sums, 4, LOW_4, HIGH_4);
#endif
    ADD_APART(sums, 2, LOW_2, HIGH_2);
    ADD_APART(sums, 1, LOW_1, HIGH_1);
    return sums[0];
}

/* To where a tile's outputs go. */
ALWAYS void tile_store(const struct tile *tile, const struct simd_panel *p, int n, int rows,
                       uint32_t first, uint32_t row)
{
    for (int at = 0; at < n * rows; at += SIMD_WIDTH) {
        vf sums[SIMD_WIDTH] = {{0}}, out;
        int count = n * rows - at < SIMD_WIDTH ? n * rows - at : SIMD_WIDTH;
        for (int i = 0; i < count; i++)
            sums[i] = add_parts(tile->sum[at + i]);
        out = add_lanes(sums);
        for (int i = 0; i < count; i++)
            p->y[(row + (size_t)((at + i) / n)) * p->y_stride + first + (size_t)((at + i) % n)] =
                out[i];
    }
}

/* One step of 16 elements of k. `fetch` asks for what is that many bytes ahead in w: the next
 * tile's rows come from memory while this tile is computed from the cache. */
ALWAYS void tile_step(struct tile *tile, int n, int rows, enum dtype dtype,
                      const void *const w[SIMD_TILE_N_MAX], size_t at,
                      const float *const x[SIMD_TILE_ROWS], size_t fetch)
{
    if (fetch)
        for (int i = 0; i < n; i++)
            __builtin_prefetch((char *)number_at(w[i], dtype, at) + fetch);
    for (int part = 0; part < PARTS; part++) {
        vf value[SIMD_TILE_N_MAX];
        for (int i = 0; i < n; i++)
            value[i] = load_as(w[i], dtype, at + (size_t)(part * SIMD_WIDTH));
        for (int r = 0; r < rows; r++) {
            vf other = load(x[r] + part * SIMD_WIDTH);
            for (int i = 0; i < n; i++)
                tile->sum[r * n + i][part] += value[i] * other;
        }
    }
}

/* The last, partial step, padded with zeros. */
ALWAYS void tile_tail(struct tile *tile, int n, int rows, enum dtype dtype,
                      const void *const w[SIMD_TILE_N_MAX], size_t at,
                      const float *const x[SIMD_TILE_ROWS], size_t left)
{
    float wide[SIMD_TILE_N_MAX][SIMD_LANES] = {{0}}, other[SIMD_TILE_ROWS][SIMD_LANES] = {{0}};
    const void *w_tail[SIMD_TILE_N_MAX];
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
    const void *w[SIMD_TILE_N_MAX];
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
    tile_store(&tile, p, n, rows, first, row);
}

/* `count` rows of x from `row`, a multiple of `rows`, beside n rows of w at a time. */
ALWAYS void panel_rows(const struct simd_panel *p, int rows, enum dtype dtype, uint32_t row,
                       uint32_t count)
{
    int n = SIMD_TILE_SUMS / rows < SIMD_TILE_N_MAX ? SIMD_TILE_SUMS / rows : SIMD_TILE_N_MAX;
    uint32_t first = 0, end = row + count;
    for (; first + (uint32_t)n <= p->n; first += (uint32_t)n)
        for (uint32_t at = row; at < end; at += (uint32_t)rows)
            tile_run(p, n, rows, dtype, first, at, at + (uint32_t)rows == end);
    for (; first < p->n; first++)
        for (uint32_t at = row; at < end; at += (uint32_t)rows)
            tile_run(p, 1, rows, dtype, first, at, at + (uint32_t)rows == end);
}

ALWAYS void panel_of(const struct simd_panel *p, enum dtype dtype)
{
    uint32_t row = p->rows / SIMD_TILE_ROWS * SIMD_TILE_ROWS;
    if (row)
        panel_rows(p, SIMD_TILE_ROWS, dtype, 0, row);
    if (SIMD_TILE_ROWS > 2 && row + 2 <= p->rows) {
        panel_rows(p, 2, dtype, row, 2);
        row += 2;
    }
    if (row < p->rows)
        panel_rows(p, 1, dtype, row, 1);
}

static void panel(const struct simd_panel *p)
{
    told_read(p->w, p->w_dtype, p->w_stride, p->n, p->k);
    told_read(p->x, p->x_dtype, p->x_stride, p->rows, p->k);
    told_write(p->y, p->y_stride, p->rows, p->n);
    if (p->w_dtype == DTYPE_F32)
        panel_of(p, DTYPE_F32);
    else if (p->w_dtype == DTYPE_BF16)
        panel_of(p, DTYPE_BF16);
    else
        panel_of(p, DTYPE_F16);
}
