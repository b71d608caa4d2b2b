#include "daemon/http/query/tensor_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/tensor.h"

#define NUMBER_MAX 128u /* letters of a number; doubles are told apart by 17 digits */

/* ---- text --------------------------------------------------------------------------------------
 */

struct reader {
    const char *at, *end;
    const char *name;
    uint32_t dtype, rank;
    const uint64_t *shape;
    void *elements;
    uint64_t done, count;
    struct error *error;
};

static int wrong(const struct reader *reader, const char *what)
{
    return error_set(reader->error, ERR_BAD_VALUE, "%s: element %" PRIu64 " %s", reader->name,
                     reader->done, what);
}

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n' ||
                                        *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
}

/* Takes it if it is next, after white space. */
static bool take(struct reader *reader, char c)
{
    skip_space(reader);
    if (reader->at == reader->end || *reader->at != c)
        return false;
    reader->at++;
    return true;
}

static bool take_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Whether it is a number of JSON's grammar; *ret_whole: without fraction and exponent. */
static bool is_number(const char *text, bool *ret_whole)
{
    const char *at = text + (*text == '-');
    size_t whole = digits(at);
    if (whole == 0 || (whole > 1 && *at == '0'))
        return false;
    at += whole;
    *ret_whole = *at == '\0';
    if (*at == '.') {
        size_t fraction = digits(at + 1);
        if (fraction == 0)
            return false;
        at += 1 + fraction;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        size_t exponent = digits(at);
        if (exponent == 0)
            return false;
        at += exponent;
    }
    return *at == '\0';
}

/* The next number's letters, terminated. */
static int take_number(struct reader *reader, char text[NUMBER_MAX + 1], bool *ret_whole)
{
    size_t length = 0;
    while (reader->at < reader->end && *reader->at && strchr("+-.0123456789eE", *reader->at)) {
        if (length == NUMBER_MAX)
            return wrong(reader, "has more than 128 letters");
        text[length++] = *reader->at++;
    }
    text[length] = '\0';
    return is_number(text, ret_whole) ? 0 : wrong(reader, "is no number");
}

/* ---- elements ----------------------------------------------------------------------------------
 */

static int read_bool(struct reader *reader, uint8_t *to)
{
    if (take_word(reader, "true") || take_word(reader, "1"))
        *to = 1;
    else if (take_word(reader, "false") || take_word(reader, "0"))
        *to = 0;
    else
        return wrong(reader, "is neither true nor false");
    return 0;
}

static int read_float(struct reader *reader, double *ret_wide, float *ret_narrow)
{
    char text[NUMBER_MAX + 1];
    bool whole;
    if (take_word(reader, "NaN")) {
        *ret_wide = (double)NAN;
        *ret_narrow = NAN;
        return 0;
    }
    const bool minus = take_word(reader, "-Infinity");
    if (minus || take_word(reader, "Infinity")) {
        *ret_wide = minus ? -(double)INFINITY : (double)INFINITY;
        *ret_narrow = minus ? -INFINITY : INFINITY;
        return 0;
    }
    int rc = take_number(reader, text, &whole);
    if (rc)
        return rc;
    *ret_wide = strtod(text, NULL);
    *ret_narrow = strtof(text, NULL); /* not by way of the double: that would round twice */
    bool over =
        reader->dtype == TENSOR_F64 ? isinf(*ret_wide) != 0 : isinf((double)*ret_narrow) != 0;
    return over ? wrong(reader, "is more than its dtype holds") : 0;
}

static int read_signed(struct reader *reader, int64_t *ret_value)
{
    const uint32_t bits = 8 * tensor_dtype_bytes(reader->dtype);
    char text[NUMBER_MAX + 1];
    bool whole;
    int rc = take_number(reader, text, &whole);
    if (rc)
        return rc;
    if (!whole)
        return wrong(reader, "is no whole number");
    errno = 0;
    *ret_value = strtoll(text, NULL, 10);
    int64_t most = INT64_MAX >> (64 - bits);
    bool fits = errno == 0 && *ret_value <= most && *ret_value >= -most - 1;
    return fits ? 0 : wrong(reader, "is out of its dtype's range");
}

static int read_unsigned(struct reader *reader, uint64_t *ret_value)
{
    const uint32_t bits = 8 * tensor_dtype_bytes(reader->dtype);
    char text[NUMBER_MAX + 1];
    bool whole;
    int rc = take_number(reader, text, &whole);
    if (rc)
        return rc;
    if (!whole)
        return wrong(reader, "is no whole number");
    errno = 0;
    *ret_value = strtoull(text, NULL, 10); /* takes a minus, and turns around */
    bool negative = text[0] == '-' && *ret_value != 0;
    bool fits = errno == 0 && !negative && *ret_value <= UINT64_MAX >> (64 - bits);
    return fits ? 0 : wrong(reader, "is out of its dtype's range");
}

static int read_element(struct reader *reader)
{
    const uint32_t size = tensor_dtype_bytes(reader->dtype);
    unsigned char *to = (unsigned char *)reader->elements + reader->done * size;
    uint8_t flag = 0;
    int64_t value = 0;
    uint64_t natural = 0;
    double wide = 0;
    float narrow = 0;
    const void *from = &value; /* its low bytes: numbers are little-endian */
    int rc;
    switch (reader->dtype) {
    case TENSOR_BOOL:
        rc = read_bool(reader, &flag);
        from = &flag;
        break;
    case TENSOR_F32:
    case TENSOR_F64:
        rc = read_float(reader, &wide, &narrow);
        from = reader->dtype == TENSOR_F64 ? (const void *)&wide : &narrow;
        break;
    case TENSOR_U8:
    case TENSOR_U16:
    case TENSOR_U32:
    case TENSOR_U64:
        rc = read_unsigned(reader, &natural);
        from = &natural;
        break;
    default:
        rc = read_signed(reader, &value);
        break;
    }
    if (!rc) {
        memcpy(to, from, size);
        reader->done++;
    }
    return rc;
}

/* ---- arrays ------------------------------------------------------------------------------------
 */

/* `count` elements with commas between, and the bracket behind. */
static int read_row(struct reader *reader, uint64_t count)
{
    int rc = 0;
    for (uint64_t i = 0; !rc && i < count; i++) {
        if (i > 0 && !take(reader, ','))
            return wrong(reader, "is missing");
        skip_space(reader);
        rc = read_element(reader);
    }
    if (!rc && !take(reader, ']'))
        rc = wrong(reader, "is one too many, or no element");
    return rc;
}

/* Rows of a nested array, without recursion: `left` counts what each level still holds. */
static int read_nested(struct reader *reader)
{
    uint64_t left[TENSOR_RANK_MAX + 1];
    uint32_t level = 0;
    left[0] = reader->shape[0];
    while (level < reader->rank) { /* level 0 is open */
        if (level == reader->rank - 1) {
            int rc = read_row(reader, left[level]);
            if (rc)
                return rc;
        } else if (left[level] > 0) {
            if (left[level] < reader->shape[level] && !take(reader, ','))
                return wrong(reader, "is missing");
            if (!take(reader, '['))
                return wrong(reader, "is not nested as shape says");
            left[level]--;
            level++;
            left[level] = reader->shape[level];
            continue;
        } else if (!take(reader, ']')) {
            return wrong(reader, "is one too many, or no element");
        }
        if (level == 0)
            return 0;
        level--;
    }
    return 0;
}

int tensor_text_read(const char *text, size_t length, const char *name, uint32_t dtype,
                     uint32_t rank, const uint64_t *shape, void *elements, struct error *error)
{
    struct reader reader = {.at = text,
                            .end = text + length,
                            .name = name,
                            .dtype = dtype,
                            .rank = rank,
                            .shape = shape,
                            .elements = elements,
                            .count = 1,
                            .error = error};
    for (uint32_t i = 0; i < rank; i++)
        reader.count *= shape[i];
    if (!take(&reader, '['))
        return error_set(error, ERR_BAD_VALUE, "%s: data is no array", name);
    skip_space(&reader);
    bool nested = rank > 1 && reader.at < reader.end && *reader.at == '[';
    int rc = nested ? read_nested(&reader) : read_row(&reader, reader.count);
    skip_space(&reader);
    if (!rc && reader.at != reader.end)
        rc = wrong(&reader, "is one too many");
    return rc;
}

/* ---- writing -----------------------------------------------------------------------------------
 */

bool tensor_text_has(uint32_t dtype)
{
    return dtype != TENSOR_F16 && dtype != TENSOR_BF16;
}

static int write_float(char *text, double value, int digits_kept)
{
    if (isnan(value))
        return snprintf(text, TENSOR_TEXT_MAX, "NaN");
    if (isinf(value))
        return snprintf(text, TENSOR_TEXT_MAX, value < 0 ? "-Infinity" : "Infinity");
    return snprintf(text, TENSOR_TEXT_MAX, "%.*g", digits_kept, value);
}

static int write_signed(uint32_t dtype, const void *from, char *text)
{
    int64_t value = 0;
    uint32_t size = tensor_dtype_bytes(dtype);
    memcpy(&value, from, size);
    if (size < 8 && value >> (8 * size - 1)) /* the sign */
        value -= (int64_t)1 << 8 * size;
    return snprintf(text, TENSOR_TEXT_MAX, "%" PRId64, value);
}

size_t tensor_text_write(uint32_t dtype, const void *elements, uint64_t index,
                         char text[TENSOR_TEXT_MAX])
{
    const uint32_t size = tensor_dtype_bytes(dtype);
    const unsigned char *from = (const unsigned char *)elements + index * size;
    uint64_t natural = 0;
    double wide;
    float narrow;
    int length;
    switch (dtype) {
    case TENSOR_BOOL:
        length = snprintf(text, TENSOR_TEXT_MAX, *from ? "true" : "false");
        break;
    case TENSOR_F32:
        memcpy(&narrow, from, size);
        length = write_float(text, (double)narrow, 9);
        break;
    case TENSOR_F64:
        memcpy(&wide, from, size);
        length = write_float(text, wide, 17);
        break;
    case TENSOR_U8:
    case TENSOR_U16:
    case TENSOR_U32:
    case TENSOR_U64:
        memcpy(&natural, from, size);
        length = snprintf(text, TENSOR_TEXT_MAX, "%" PRIu64, natural);
        break;
    default:
        length = write_signed(dtype, from, text);
        break;
    }
    return (size_t)length;
}
