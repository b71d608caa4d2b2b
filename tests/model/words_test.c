/* Whole numbers in 32-bit words: every element of every window is where the formats' definitions
 * put it. */
#include "gpu/checkpoint/words.h"

#include <stdlib.h>
#include <string.h>

#include "tests/model/model_suites.h"

#define ROWS 29
#define COLUMNS 43

static uint64_t state;

static uint32_t below(uint32_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % bound;
}

static uint8_t matrix[ROWS][COLUMNS];
static uint32_t packed[ROWS * COLUMNS];

/* As gptq, awq and compressed-tensors have weights and zeros, and what else there could be. */
static const struct words kinds[] = {
    {4, false, false, false}, {8, false, false, false}, {4, true, false, false},
    {8, true, false, false},  {4, true, true, true},    {4, true, true, false},
    {8, true, true, false},   {4, false, true, false},  {8, false, true, false},
    {4, false, false, true},
};

/* Element by element, into words that begin as zeros; *ret_columns of them a line. */
static void pack(struct words words, uint32_t *ret_lines, uint32_t *ret_columns)
{
    static const uint32_t places[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* of the element, in its word */
    uint32_t each = 32u / words.bits;
    words_count(words, ROWS, COLUMNS, ret_lines, ret_columns);
    ck_assert_uint_le(*ret_lines * *ret_columns, ROWS * COLUMNS);
    memset(packed, 0, sizeof packed);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t c = 0; c < COLUMNS; c++) {
            uint32_t row = words.along_rows ? r / each : r,
                     column = words.along_rows ? c : c / each;
            uint32_t number = (words.along_rows ? r : c) % each;
            uint32_t line = words.transposed ? column : row, at = words.transposed ? row : column;
            uint32_t place = words.interleaved ? places[number] : number;
            packed[line * *ret_columns + at] |= (uint32_t)matrix[r][c] << words.bits * place;
        }
}

static struct words_window window_draw(void)
{
    struct words_window window = {.row = below(ROWS), .column = below(COLUMNS)};
    window.rows = 1 + below(ROWS - window.row);
    window.columns = 1 + below(COLUMNS - window.column);
    return window;
}

START_TEST(a_window_has_the_elements_that_were_packed)
{
    struct words words = kinds[_i];
    uint32_t lines, columns;
    state = (uint64_t)_i + 1;
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
        matrix[i / COLUMNS][i % COLUMNS] = (uint8_t)below(words.bits == 4 ? 16 : 256);
    pack(words, &lines, &columns);
    for (int turn = 0; turn < 300; turn++) {
        struct words_window window = window_draw(), stored = words_of(words, &window);
        ck_assert_uint_le(stored.row + stored.rows, lines);
        ck_assert_uint_le(stored.column + stored.columns, columns);
        /* Exactly as large, so that what is read or written too far is seen. */
        uint32_t *from = malloc((size_t)stored.rows * stored.columns * sizeof *from);
        uint8_t *to = malloc((size_t)window.rows * window.columns);
        for (uint32_t i = 0; i < stored.rows; i++)
            memcpy(from + (size_t)i * stored.columns,
                   packed + (size_t)(stored.row + i) * columns + stored.column,
                   stored.columns * sizeof *from);
        words_unpack(words, &window, from, to);
        for (uint32_t r = 0; r < window.rows; r++)
            ck_assert_mem_eq(to + (size_t)r * window.columns,
                             &matrix[window.row + r][window.column], window.columns);
        free(from);
        free(to);
    }
}
END_TEST

Suite *words_suite(void)
{
    Suite *suite = suite_create("words");
    TCase *tcase = tcase_create("words");
    tcase_add_loop_test(tcase, a_window_has_the_elements_that_were_packed, 0,
                        (int)(sizeof kinds / sizeof *kinds));
    suite_add_tcase(suite, tcase);
    return suite;
}
