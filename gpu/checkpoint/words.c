#include "gpu/checkpoint/words.h"

#define TILE 64 /* lines whose bytes stay near while words go by */

static uint32_t each_of(struct words words)
{
    return 32u / words.bits;
}

void words_count(struct words words, uint32_t rows, uint32_t columns, uint32_t *ret_rows,
                 uint32_t *ret_columns)
{
    uint32_t each = each_of(words);
    uint32_t down = words.along_rows ? (rows + each - 1) / each : rows;
    uint32_t across = words.along_rows ? columns : (columns + each - 1) / each;
    *ret_rows = words.transposed ? across : down;
    *ret_columns = words.transposed ? down : across;
}

static void range_of(uint32_t each, uint32_t first, uint32_t count, uint32_t *ret_first,
                     uint32_t *ret_count)
{
    *ret_first = first / each;
    *ret_count = (first + count + each - 1) / each - *ret_first;
}

struct words_window words_of(struct words words, const struct words_window *window)
{
    uint32_t each = each_of(words);
    struct words_window made, turned;
    range_of(words.along_rows ? each : 1, window->row, window->rows, &made.row, &made.rows);
    range_of(words.along_rows ? 1 : each, window->column, window->columns, &made.column,
             &made.columns);
    turned = (struct words_window){made.column, made.columns, made.row, made.rows};
    return words.transposed ? turned : made;
}

/* How far the element of that number is from the low bits. */
static uint32_t shift_of(struct words words, uint32_t number)
{
    static const uint8_t interleaved[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return words.bits * (words.interleaved ? interleaved[number] : number);
}

/* The elements of one word that the window has; (row, column) is its first. */
static void word_unpack(struct words words, const struct words_window *window, uint32_t word,
                        uint32_t row, uint32_t column, uint8_t *to)
{
    uint32_t mask = words.bits == 4 ? 15 : 255;
    for (uint32_t i = 0; i < each_of(words); i++) {
        uint32_t r = words.along_rows ? row + i : row, c = words.along_rows ? column : column + i;
        if (r < window->row || c < window->column || r - window->row >= window->rows ||
            c - window->column >= window->columns)
            continue;
        to[(uint64_t)(r - window->row) * window->columns + (c - window->column)] =
            (uint8_t)(word >> shift_of(words, i) & mask);
    }
}

/* Lines of words go by under tiles of their columns. */
void words_unpack(struct words words, const struct words_window *window, const uint32_t *from,
                  uint8_t *to)
{
    struct words_window stored = words_of(words, window);
    uint32_t each = each_of(words);
    for (uint32_t tile = 0; tile < stored.columns; tile += TILE)
        for (uint32_t i = 0; i < stored.rows; i++)
            for (uint32_t j = tile; j < stored.columns && j < tile + TILE; j++) {
                uint32_t down = stored.row + i, across = stored.column + j;
                uint32_t row = words.transposed ? across : down;
                uint32_t column = words.transposed ? down : across;
                word_unpack(words, window, from[(uint64_t)i * stored.columns + j],
                            words.along_rows ? row * each : row,
                            words.along_rows ? column : column * each, to);
            }
}
