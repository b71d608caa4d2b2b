#include "client/tensor/png.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "protocol/base/tensor.h"

#define SIGNATURE "\x89PNG\r\n\x1a\n"
#define SIGNATURE_LENGTH 8
#define CHUNK_AROUND 12u /* length, type and checksum of a chunk */
#define HEADER_LENGTH 13u
#define ROWS_BEGUN 64u /* that there is room for at first */

_Static_assert(PNG_FILE_MAX <= UINT32_MAX, "a chunk's length is one that zlib takes");

enum colour { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGB_ALPHA = 6 };

struct chunk {
    uint32_t length;
    const unsigned char *type, *data;
};

struct decoder {
    uint32_t width, height, depth, colour;
    uint32_t row_bytes; /* of a row without its filter */
    uint32_t step;      /* from a byte to the same one of the pixel before */
    unsigned char palette[256][3];
    uint32_t palette_count;
    z_stream inflater;
    bool inflating, ended;
    uint32_t rows, filled;       /* whole ones; bytes of the one that is coming, with its filter */
    unsigned char *row, *before; /* with their filters */
    unsigned char *pixels;
    uint32_t rows_room;
};

static int bad(struct error *error, const char *what)
{
    return error_set(error, ERR_BAD_VALUE, "the PNG file: %s", what);
}

static int no_memory(struct error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for an image");
}

static uint32_t read_u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

bool png_begins(const void *bytes, size_t length)
{
    return length >= SIGNATURE_LENGTH && memcmp(bytes, SIGNATURE, SIGNATURE_LENGTH) == 0;
}

int png_fits(uint64_t length, struct error *error)
{
    if (length <= PNG_FILE_MAX)
        return 0;
    return error_limit(error, ERR_TOO_LARGE, PNG_FILE_MAX, length,
                       "the PNG file: %" PRIu64 " bytes or more, at most 1 GiB is read", length);
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

static bool is(const struct chunk *chunk, const char *type)
{
    return memcmp(chunk->type, type, 4) == 0;
}

static int read_chunk(const unsigned char **at, const unsigned char *end, struct chunk *chunk,
                      struct error *error)
{
    const size_t left = (size_t)(end - *at);
    if (left < CHUNK_AROUND)
        return bad(error, "it is cut short");
    chunk->length = read_u32(*at);
    chunk->type = *at + 4;
    chunk->data = *at + 8;
    if (chunk->length > left - CHUNK_AROUND)
        return bad(error, "a chunk is longer than the file");
    if (crc32(0, chunk->type, chunk->length + 4) != read_u32(chunk->data + chunk->length))
        return bad(error, "a chunk's checksum is wrong");
    *at = chunk->data + chunk->length + 4;
    return 0;
}

/* Samples of a pixel; 0: there is no such colour type, or not of this depth. */
static uint32_t samples_of(uint32_t colour, uint32_t depth)
{
    static const struct {
        uint32_t colour, samples, depths; /* each a bit */
    } types[] = {{GREY, 1, 1 | 2 | 4 | 8 | 16},
                 {RGB, 3, 8 | 16},
                 {PALETTE, 1, 1 | 2 | 4 | 8},
                 {GREY_ALPHA, 2, 8 | 16},
                 {RGB_ALPHA, 4, 8 | 16}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].colour == colour && (depth & (depth - 1)) == 0 && (types[i].depths & depth))
            return types[i].samples;
    return 0;
}

static int read_header(struct decoder *decoder, const struct chunk *chunk, struct error *error)
{
    const unsigned char *data = chunk->data;
    if (!is(chunk, "IHDR") || chunk->length != HEADER_LENGTH)
        return bad(error, "it has no header");
    decoder->width = read_u32(data);
    decoder->height = read_u32(data + 4);
    decoder->depth = data[8];
    decoder->colour = data[9];
    if (decoder->width == 0 || decoder->height == 0)
        return bad(error, "it has no pixels");
    if (decoder->width > PNG_SIDE_MAX || decoder->height > PNG_SIDE_MAX)
        return error_limit(error, ERR_TOO_LARGE, PNG_SIDE_MAX,
                           decoder->width > PNG_SIDE_MAX ? decoder->width : decoder->height,
                           "the PNG file: %" PRIu32 " x %" PRIu32 " pixels, at most %u each way",
                           decoder->width, decoder->height, PNG_SIDE_MAX);
    const uint32_t samples = decoder->depth ? samples_of(decoder->colour, decoder->depth) : 0;
    if (samples == 0)
        return bad(error, "it has a colour type and depth that there are not");
    if (data[10] != 0 || data[11] != 0)
        return bad(error, "its compression or its filters are not known");
    if (data[12] != 0)
        return bad(error, "it is interlaced, which is not read");
    decoder->row_bytes = (decoder->width * samples * decoder->depth + 7) / 8;
    decoder->step = samples * decoder->depth < 8 ? 1 : samples * decoder->depth / 8;
    return 0;
}

static int read_palette(struct decoder *decoder, const struct chunk *chunk, struct error *error)
{
    if (decoder->palette_count > 0 || decoder->inflating)
        return bad(error, "its palette comes twice, or too late");
    if (chunk->length == 0 || chunk->length % 3 != 0 || chunk->length > sizeof(decoder->palette))
        return bad(error, "its palette has not 1 to 256 colours");
    memcpy(decoder->palette, chunk->data, chunk->length);
    decoder->palette_count = chunk->length / 3;
    return 0;
}

/* ---- rows --------------------------------------------------------------------------------------
 */

/* What of the three neighbours is nearest to left + above - corner. */
static unsigned paeth(unsigned left, unsigned above, unsigned corner)
{
    const int to_left = abs((int)above - (int)corner), to_above = abs((int)left - (int)corner);
    const int to_corner = abs((int)left + (int)above - 2 * (int)corner);
    return to_left <= to_above && to_left <= to_corner ? left
           : to_above <= to_corner                     ? above
                                                       : corner;
}

static int undo_filter(struct decoder *decoder, struct error *error)
{
    unsigned char *row = decoder->row + 1;
    const unsigned char *before = decoder->before + 1;
    const unsigned filter = decoder->row[0];
    if (filter > 4)
        return bad(error, "a row's filter is not known");
    for (uint32_t i = 0; i < decoder->row_bytes; i++) {
        const bool first = i < decoder->step;
        const unsigned left = first ? 0 : row[i - decoder->step], above = before[i];
        const unsigned corner = first ? 0 : before[i - decoder->step];
        const unsigned by[] = {0, left, above, (left + above) / 2, paeth(left, above, corner)};
        row[i] = (unsigned char)(row[i] + by[filter]);
    }
    return 0;
}

/* The upper 8 bits of a sample, or all of fewer. */
static unsigned sample(const struct decoder *decoder, uint32_t number)
{
    const unsigned char *row = decoder->row + 1;
    const uint32_t bit = number * decoder->depth;
    if (decoder->depth >= 8)
        return row[bit / 8];
    return row[bit / 8] >> (8 - decoder->depth - bit % 8) & ((1u << decoder->depth) - 1);
}

static int convert_row(const struct decoder *decoder, unsigned char *out, struct error *error)
{
    const uint32_t samples = samples_of(decoder->colour, decoder->depth);
    const unsigned unit = decoder->depth < 8 ? 255 / ((1u << decoder->depth) - 1) : 1;
    for (uint32_t x = 0; x < decoder->width; x++, out += 3) {
        const unsigned first = sample(decoder, x * samples);
        if (decoder->colour == PALETTE && first >= decoder->palette_count)
            return bad(error, "a pixel has a colour that its palette has not");
        if (decoder->colour == PALETTE)
            memcpy(out, decoder->palette[first], 3);
        else if (samples < 3)
            memset(out, (int)(first * unit), 3);
        else
            for (uint32_t i = 0; i < 3; i++)
                out[i] = (unsigned char)sample(decoder, x * samples + i);
    }
    return 0;
}

static int make_room(struct decoder *decoder, struct error *error)
{
    uint32_t rows = decoder->rows_room ? 2 * decoder->rows_room : ROWS_BEGUN;
    if (decoder->rows < decoder->rows_room)
        return 0;
    rows = rows < decoder->height ? rows : decoder->height;
    unsigned char *grown = realloc(decoder->pixels, (size_t)rows * decoder->width * 3);
    if (!grown)
        return no_memory(error);
    decoder->pixels = grown;
    decoder->rows_room = rows;
    return 0;
}

static int end_row(struct decoder *decoder, struct error *error)
{
    unsigned char *row = decoder->row;
    int rc = undo_filter(decoder, error);
    if (!rc)
        rc = make_room(decoder, error);
    if (!rc)
        rc = convert_row(decoder, decoder->pixels + (size_t)decoder->rows * decoder->width * 3,
                         error);
    decoder->row = decoder->before;
    decoder->before = row;
    decoder->rows++;
    decoder->filled = 0;
    return rc;
}

static int begin_rows(struct decoder *decoder, struct error *error)
{
    if (decoder->colour == PALETTE && decoder->palette_count == 0)
        return bad(error, "it has no palette");
    decoder->row = calloc(1, decoder->row_bytes + 1);
    decoder->before = calloc(1, decoder->row_bytes + 1);
    if (!decoder->row || !decoder->before || inflateInit(&decoder->inflater) != Z_OK)
        return no_memory(error);
    decoder->inflating = true;
    return 0;
}

/* As much as comes, at most to the row's end. Behind the last row there must be nothing. */
static int inflate_some(struct decoder *decoder, struct error *error)
{
    z_stream *inflater = &decoder->inflater;
    const uint32_t room = decoder->rows < decoder->height ? decoder->row_bytes + 1 : 1;
    inflater->next_out = decoder->row + decoder->filled;
    inflater->avail_out = room - decoder->filled;
    const int told = inflate(inflater, Z_NO_FLUSH);
    if (told != Z_OK && told != Z_STREAM_END && told != Z_BUF_ERROR)
        return bad(error, "its pixels are not compressed as they must be");
    decoder->filled = room - inflater->avail_out;
    decoder->ended = told == Z_STREAM_END;
    if (decoder->filled > 0 && decoder->rows == decoder->height)
        return bad(error, "there are more pixels than its header announces");
    return decoder->filled == room ? end_row(decoder, error) : 0;
}

static int read_rows(struct decoder *decoder, const struct chunk *chunk, struct error *error)
{
    z_stream *inflater = &decoder->inflater;
    int rc = decoder->inflating ? 0 : begin_rows(decoder, error);
    inflater->next_in = (unsigned char *)(uintptr_t)chunk->data;
    inflater->avail_in = chunk->length;
    bool more = !rc && !decoder->ended; /* it may hold rows back for which there was no room */
    while (more) {
        rc = inflate_some(decoder, error);
        more = !rc && !decoder->ended && (inflater->avail_in > 0 || inflater->avail_out == 0);
    }
    if (!rc && inflater->avail_in > 0)
        rc = bad(error, "there is more data than its pixels");
    return rc;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

static int read_one(struct decoder *decoder, const struct chunk *chunk, bool *in_pixels,
                    struct error *error)
{
    const bool was_in = *in_pixels;
    *in_pixels = is(chunk, "IDAT");
    if (*in_pixels && decoder->inflating && !was_in)
        return bad(error, "something stands between its pixels");
    if (*in_pixels)
        return read_rows(decoder, chunk, error);
    if (is(chunk, "PLTE"))
        return read_palette(decoder, chunk, error);
    /* A small letter says that a chunk can be left out. */
    if (!(chunk->type[0] & 0x20))
        return bad(error, "it has a chunk that is not known and cannot be left out");
    return 0;
}

static int read_all(struct decoder *decoder, const unsigned char *at, const unsigned char *end,
                    struct error *error)
{
    struct chunk chunk;
    bool in_pixels = false;
    int rc = read_chunk(&at, end, &chunk, error);
    if (!rc)
        rc = read_header(decoder, &chunk, error);
    if (!rc)
        rc = read_chunk(&at, end, &chunk, error);
    while (!rc && !is(&chunk, "IEND")) {
        rc = read_one(decoder, &chunk, &in_pixels, error);
        if (!rc)
            rc = read_chunk(&at, end, &chunk, error);
    }
    if (!rc && (decoder->rows < decoder->height || !decoder->ended))
        rc = bad(error, "there are fewer pixels than its header announces");
    if (!rc && (chunk.length > 0 || at != end))
        rc = bad(error, "something follows its end");
    return rc;
}

int png_decode(const void *bytes, size_t length, sluice_array *ret_array, void **ret_data,
               struct error *error)
{
    struct decoder decoder = {.width = 0};
    if (!png_begins(bytes, length))
        return error_set(error, ERR_BAD_VALUE, "it is no PNG file");
    int rc = png_fits(length, error);
    if (rc)
        return rc;
    rc = read_all(&decoder, (const unsigned char *)bytes + SIGNATURE_LENGTH,
                      (const unsigned char *)bytes + length, error);
    if (decoder.inflating)
        (void)inflateEnd(&decoder.inflater);
    free(decoder.row);
    free(decoder.before);
    if (rc) {
        free(decoder.pixels);
        return rc;
    }
    *ret_array = (sluice_array){.dtype = TENSOR_U8,
                                .rank = 3,
                                .shape = {decoder.height, decoder.width, 3},
                                .data = decoder.pixels};
    *ret_data = decoder.pixels;
    return 0;
}

/* ---- writing -----------------------------------------------------------------------------------
 */

static void put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* The chunk's data lies 8 bytes behind `at` already; what follows it. */
static unsigned char *put_chunk(unsigned char *at, const char *type, uint32_t length)
{
    put_u32(at, length);
    memcpy(at + 4, type, 4);
    put_u32(at + 8 + length, (uint32_t)crc32(0, at + 4, length + 4));
    return at + CHUNK_AROUND + length;
}

/* Each row with the filter that leaves it as it is. */
static unsigned char *filtered(uint32_t width, uint32_t height, const unsigned char *pixels,
                               size_t *ret_length)
{
    const size_t row = (size_t)width * 3;
    unsigned char *rows = malloc((row + 1) * height);
    for (uint32_t y = 0; rows && y < height; y++) {
        rows[y * (row + 1)] = 0;
        memcpy(rows + y * (row + 1) + 1, pixels + y * row, row);
    }
    *ret_length = (row + 1) * height;
    return rows;
}

int png_encode(uint32_t width, uint32_t height, const unsigned char *pixels,
               unsigned char **ret_bytes, size_t *ret_length, struct error *error)
{
    size_t length;
    unsigned char *rows = filtered(width, height, pixels, &length);
    uLongf packed = compressBound(length);
    unsigned char *out = malloc(SIGNATURE_LENGTH + 3 * CHUNK_AROUND + HEADER_LENGTH + packed),
                  *at = out;
    if (!rows || !out || packed > PNG_FILE_MAX) {
        free(rows);
        free(out);
        return no_memory(error);
    }
    memcpy(at, SIGNATURE, SIGNATURE_LENGTH);
    at += SIGNATURE_LENGTH;
    put_u32(at + 8, width);
    put_u32(at + 12, height);
    memcpy(at + 16, "\x08\x02\x00\x00\x00", 5); /* RGB of 8 bits, not interlaced */
    at = put_chunk(at, "IHDR", HEADER_LENGTH);
    const int told = compress2(at + 8, &packed, rows, length, Z_BEST_SPEED);
    free(rows);
    if (told != Z_OK) {
        free(out);
        return no_memory(error);
    }
    at = put_chunk(at, "IDAT", (uint32_t)packed);
    at = put_chunk(at, "IEND", 0);
    *ret_bytes = out;
    *ret_length = (size_t)(at - out);
    return 0;
}
