#include "client/tensor/npy.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "protocol/base/tensor.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_LENGTH 6
#define HEADER_ALIGN 64u

static const struct {
    const char *descr;
    int dtype;
} kinds[] = {
    {"|b1", SLUICE_DTYPE_BOOL}, {"|u1", SLUICE_DTYPE_U8},   {"<u2", SLUICE_DTYPE_U16},
    {"<u4", SLUICE_DTYPE_U32},  {"<u8", SLUICE_DTYPE_U64},  {"|i1", SLUICE_DTYPE_I8},
    {"<i2", SLUICE_DTYPE_I16},  {"<i4", SLUICE_DTYPE_I32},  {"<i8", SLUICE_DTYPE_I64},
    {"<f2", SLUICE_DTYPE_F16},  {"<V2", SLUICE_DTYPE_BF16}, {"<f4", SLUICE_DTYPE_F32},
    {"<f8", SLUICE_DTYPE_F64},  {"|V2", SLUICE_DTYPE_BF16},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Where in the header's text it is read: [at, end). */
struct cursor {
    const char *at, *end;
};

static int bad(struct error *error, const char *what)
{
    return error_set(error, ERR_BAD_VALUE, "the header: %s", what);
}

static void skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end &&
           (*cursor->at == ' ' || *cursor->at == '\n' || *cursor->at == '\t'))
        cursor->at++;
}

static bool take(struct cursor *cursor, char c)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != c)
        return false;
    cursor->at++;
    return true;
}

static bool take_word(struct cursor *cursor, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(cursor);
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, word, length) != 0)
        return false;
    cursor->at += length;
    return true;
}

/* A string in either quotes, without escapes; cut to the room. False: there is none. */
static bool take_string(struct cursor *cursor, char *out, size_t size)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || (*cursor->at != '\'' && *cursor->at != '"'))
        return false;
    const char quote = *cursor->at++;
    const char *end = memchr(cursor->at, quote, (size_t)(cursor->end - cursor->at));
    if (!end || memchr(cursor->at, '\\', (size_t)(end - cursor->at)))
        return false;
    size_t length = (size_t)(end - cursor->at) < size - 1 ? (size_t)(end - cursor->at) : size - 1;
    memcpy(out, cursor->at, length);
    out[length] = '\0';
    cursor->at = end + 1;
    return strlen(out) == length;
}

static int read_descr(struct cursor *cursor, sluice_array *array, struct error *error)
{
    char descr[32];
    if (!take_string(cursor, descr, sizeof(descr)))
        return bad(error, "descr is no string: arrays of records are not taken");
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].descr, descr) == 0) {
            array->dtype = kinds[i].dtype;
            return 0;
        }
    if (descr[0] == '>')
        return bad(error,
                   "its numbers are big-endian; give little-endian ones (newbyteorder('<'))");
    if (strchr(descr, 'O'))
        return bad(error, "it holds Python objects");
    return error_set(error, ERR_BAD_VALUE, "the header: there is no dtype for %.31s", descr);
}

static int read_dimension(struct cursor *cursor, uint64_t *ret, struct error *error)
{
    uint64_t number = 0;
    bool any = false;
    skip_blanks(cursor);
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++) {
        if (number > (UINT64_MAX - 9) / 10)
            return bad(error, "a dimension is beyond 2^64");
        number = number * 10 + (uint64_t)(*cursor->at - '0');
        any = true;
    }
    if (!any)
        return bad(error, "a dimension is no whole number");
    take(cursor, 'L'); /* as Python 2 wrote them */
    *ret = number;
    return 0;
}

static int read_shape(struct cursor *cursor, sluice_array *array, struct error *error)
{
    if (!take(cursor, '('))
        return bad(error, "shape is no tuple");
    while (!take(cursor, ')')) {
        if (array->rank == SLUICE_ARRAY_RANK_MAX)
            return bad(error, "shape has more than 6 dimensions");
        int rc = read_dimension(cursor, &array->shape[array->rank++], error);
        if (rc)
            return rc;
        if (!take(cursor, ',')) {
            if (array->rank == 1 || !take(cursor, ')'))
                return bad(error, "shape is no tuple");
            return 0;
        }
    }
    return 0;
}

static int read_order(struct cursor *cursor, bool *ret_fortran, struct error *error)
{
    *ret_fortran = take_word(cursor, "True");
    return *ret_fortran || take_word(cursor, "False")
               ? 0
               : bad(error, "fortran_order is neither True nor False");
}

/* Each of the three keys once, in any order. */
static int read_fields(struct cursor *cursor, sluice_array *array, struct error *error)
{
    static const char *const names[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {false}, fortran = false;
    char key[32];
    if (!take(cursor, '{'))
        return bad(error, "it is no dictionary");
    while (!take(cursor, '}')) {
        if (!take_string(cursor, key, sizeof(key)) || !take(cursor, ':'))
            return bad(error, "a key is no string");
        int which = 0, rc = 0;
        while (which < 3 && strcmp(names[which], key) != 0)
            which++;
        if (which == 3 || seen[which])
            return error_set(error, ERR_BAD_VALUE, "the header: %s is not expected%s", key,
                             which == 3 ? "" : " twice");
        seen[which] = true;
        rc = which == 0   ? read_descr(cursor, array, error)
             : which == 1 ? read_order(cursor, &fortran, error)
                          : read_shape(cursor, array, error);
        if (rc)
            return rc;
        if (!take(cursor, ',') && (cursor->at == cursor->end || *cursor->at != '}'))
            return bad(error, "it is no dictionary");
    }
    if (!seen[0] || !seen[1] || !seen[2])
        return bad(error, "descr, fortran_order or shape is missing");
    if (fortran && array->rank > 1)
        return bad(error, "it is in Fortran's order (give numpy.ascontiguousarray of it)");
    skip_blanks(cursor);
    return cursor->at == cursor->end ? 0 : bad(error, "something follows the dictionary");
}

int npy_parse(const void *bytes, size_t length, sluice_array *ret_array, size_t *ret_used,
              struct error *error)
{
    const unsigned char *in = bytes;
    sluice_array array = {.name = NULL};
    if (length < MAGIC_LENGTH + 4 || memcmp(in, MAGIC, MAGIC_LENGTH) != 0)
        return error_set(error, ERR_BAD_VALUE, "it is no file of NumPy's (.npy)");
    if (in[6] < 1 || in[6] > 3 || in[7] != 0)
        return error_set(error, ERR_BAD_VALUE, "it is of format version %u.%u, which is not known",
                         in[6], in[7]);
    const size_t before = MAGIC_LENGTH + 2 + (in[6] == 1 ? 2u : 4u);
    if (length < before)
        return error_set(error, ERR_BAD_VALUE, "its header is cut short");
    uint64_t header = in[8] | (uint32_t)in[9] << 8;
    if (in[6] > 1)
        header |= (uint32_t)in[10] << 16 | (uint64_t)in[11] << 24;
    if (header > NPY_HEADER_MAX - before)
        return error_limit(error, ERR_TOO_LARGE, NPY_HEADER_MAX, header,
                           "its header has %" PRIu64 " bytes", header);
    if (header > length - before)
        return error_set(error, ERR_BAD_VALUE, "its header is cut short");
    struct cursor cursor = {(const char *)in + before, (const char *)in + before + header};
    int rc = read_fields(&cursor, &array, error);
    if (!rc && sluice_array_bytes(&array) == 0)
        rc = error_set(error, ERR_BAD_VALUE, "its array has no elements, or more than 2^53 bytes");
    if (rc)
        return rc;
    *ret_array = array;
    *ret_used = before + (size_t)header;
    return 0;
}

size_t npy_format(const sluice_array *array, char out[NPY_HEADER_WRITTEN_MAX])
{
    char text[NPY_HEADER_WRITTEN_MAX / 2];
    const char *descr = "";
    for (size_t i = KINDS; i-- > 0;)
        if (kinds[i].dtype == array->dtype)
            descr = kinds[i].descr;
    int length =
        snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t i = 0; i < array->rank; i++)
        length +=
            snprintf(text + length, sizeof(text) - (size_t)length, "%" PRIu64 "%s", array->shape[i],
                     array->rank == 1      ? ","
                     : i + 1 < array->rank ? ", "
                                           : "");
    length += snprintf(text + length, sizeof(text) - (size_t)length, "), }");
    const size_t before = MAGIC_LENGTH + 4;
    size_t all = (before + (size_t)length + 1 + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    memset(out, ' ', all);
    memcpy(out, MAGIC "\x01\x00", MAGIC_LENGTH + 2);
    out[8] = (char)((all - before) & 0xff);
    out[9] = (char)((all - before) >> 8);
    memcpy(out + before, text, (size_t)length);
    out[all - 1] = '\n';
    return all;
}
