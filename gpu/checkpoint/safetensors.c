#include "gpu/checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/checkpoint/config_field.h"
#include "gpu/checkpoint/file.h"

#define LENGTH_BYTES 8
#define DEPTH_MAX 4

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[] = {
    {"BF16", 16},   {"F16", 16},    {"F32", 32}, {"F64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"BOOL", 8},    {"I8", 8},      {"U8", 8},   {"I16", 16},    {"U16", 16},
    {"I32", 32},    {"U32", 32},    {"I64", 64}, {"U64", 64},    {"C64", 64},
};

/* What every check of one header needs to know. */
struct reader {
    const char *file;
    uint64_t data_offset, data_bytes;
    struct error *error;
};

static int refuse(const struct reader *reader, const char *tensor, const char *field,
                  const json *value, const char *wanted)
{
    char shown[FIELD_SHOWN_MAX] = "nothing";
    if (value)
        field_show(value, shown);
    return error_set(reader->error, ERR_BAD_MODEL, "%s: tensor %s: %s: %s is not %s", reader->file,
                     tensor, field, shown, wanted);
}

static int read_count(const struct reader *reader, const char *tensor, const char *field,
                      const json *value, uint64_t *ret)
{
    double number = json_number(value);
    if (!json_is_number(value) || !(number >= 0 && number <= 9007199254740992.0) ||
        number != (double)(uint64_t)number)
        return refuse(reader, tensor, field, value, "a whole number from 0 to 2^53");
    *ret = (uint64_t)number;
    return 0;
}

static int read_dtype(const struct reader *reader, const json *value,
                      struct safetensors_tensor *tensor, uint32_t *ret_bits)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (strcmp(json_string(value), dtypes[i].name) == 0) {
            tensor->dtype = dtypes[i].name;
            *ret_bits = dtypes[i].bits;
            return 0;
        }
    return refuse(reader, tensor->name, "dtype", value, "a dtype of safetensors");
}

/* The shape, and the bytes that it takes at that many bits an element. */
static int read_shape(const struct reader *reader, const json *value, uint32_t bits,
                      struct safetensors_tensor *tensor, uint64_t *ret_bytes)
{
    if (!json_is_array(value) || json_count(value) > SAFETENSORS_RANK_MAX)
        return refuse(reader, tensor->name, "shape", value, "a list of at most 8 sizes");
    uint64_t elements = 1, total_bits = 0;
    for (const json *size = json_child(value); size; size = json_next(size)) {
        uint64_t count = 0;
        int rc = read_count(reader, tensor->name, "shape", size, &count);
        if (rc)
            return rc;
        tensor->shape[tensor->rank++] = count;
        if (__builtin_mul_overflow(elements, count, &elements))
            return refuse(reader, tensor->name, "shape", value,
                          "a shape of less than 2^64 elements");
    }
    if (__builtin_mul_overflow(elements, (uint64_t)bits, &total_bits) || total_bits % 8)
        return refuse(reader, tensor->name, "shape", value, "a shape of whole bytes below 2^61");
    *ret_bytes = total_bits / 8;
    return 0;
}

static int read_offsets(const struct reader *reader, const json *value, uint64_t bytes,
                        struct safetensors_tensor *tensor)
{
    if (!json_is_array(value) || json_count(value) != 2)
        return refuse(reader, tensor->name, "data_offsets", value, "a list of two numbers");
    uint64_t begin = 0, end = 0;
    int rc = read_count(reader, tensor->name, "data_offsets", json_child(value), &begin);
    if (rc == 0)
        rc = read_count(reader, tensor->name, "data_offsets", json_next(json_child(value)), &end);
    if (rc)
        return rc;
    if (end < begin || end - begin != bytes)
        return error_set(reader->error, ERR_BAD_MODEL,
                         "%s: tensor %s: data_offsets: %" PRIu64 " to %" PRIu64
                         " are not the %" PRIu64 " bytes of its shape",
                         reader->file, tensor->name, begin, end, bytes);
    if (end > reader->data_bytes)
        return error_set(reader->error, ERR_BAD_MODEL,
                         "%s: tensor %s: data_offsets: ends at byte %" PRIu64
                         " of the data, but the file holds %" PRIu64 " (truncated?)",
                         reader->file, tensor->name, end, reader->data_bytes);
    tensor->offset = reader->data_offset + begin;
    tensor->bytes = bytes;
    return 0;
}

static int read_tensor(const struct reader *reader, const json *member,
                       struct safetensors_tensor *tensor)
{
    if (!json_is_object(member))
        return refuse(reader, tensor->name, "entry", member, "an object");
    uint32_t bits = 0;
    uint64_t bytes = 0;
    int rc = read_dtype(reader, json_get(member, "dtype"), tensor, &bits);
    if (rc == 0)
        rc = read_shape(reader, json_get(member, "shape"), bits, tensor, &bytes);
    if (rc == 0)
        rc = read_offsets(reader, json_get(member, "data_offsets"), bytes, tensor);
    return rc;
}

static bool is_tensor(const json *member)
{
    return strcmp(json_key(member), "__metadata__") != 0;
}

/* Two passes: the sizes first, so that names and table are one allocation each. */
static int read_tensors(const struct reader *reader, const json *document,
                        struct safetensors *safetensors)
{
    size_t count = 0, name_bytes = 0;
    for (const json *member = json_child(document); member; member = json_next(member)) {
        if (!is_tensor(member))
            continue;
        size_t length = strlen(json_key(member));
        if (length == 0 || length > SAFETENSORS_NAME_MAX)
            return error_set(reader->error, ERR_BAD_MODEL,
                             "%s: a tensor's name of %zu bytes, 1 to %d are accepted", reader->file,
                             length, SAFETENSORS_NAME_MAX);
        name_bytes += length + 1;
        count++;
    }
    safetensors->tensors = calloc(count + 1, sizeof(*safetensors->tensors));
    safetensors->names = malloc(name_bytes + 1);
    if (!safetensors->tensors || !safetensors->names)
        return error_set(reader->error, ERR_NO_MEMORY, "no memory for the tensors of %s",
                         reader->file);
    char *name = safetensors->names;
    for (const json *member = json_child(document); member; member = json_next(member)) {
        if (!is_tensor(member))
            continue;
        struct safetensors_tensor *tensor = &safetensors->tensors[safetensors->count];
        size_t length = strlen(json_key(member)) + 1;
        tensor->name = memcpy(name, json_key(member), length);
        name += length;
        int rc = read_tensor(reader, member, tensor);
        if (rc)
            return rc;
        safetensors->count++;
    }
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_tensor *left = a, *right = b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    /* An empty tensor may stand where another begins. */
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static int refuse_overlap(const struct reader *reader, struct safetensors *safetensors)
{
    if (safetensors->count == 0)
        return 0;
    qsort(safetensors->tensors, safetensors->count, sizeof(*safetensors->tensors), by_offset);
    const struct safetensors_tensor *last = &safetensors->tensors[0];
    for (size_t i = 1; i < safetensors->count; i++) {
        const struct safetensors_tensor *tensor = &safetensors->tensors[i];
        if (tensor->bytes && last->offset + last->bytes > tensor->offset)
            return error_set(reader->error, ERR_BAD_MODEL,
                             "%s: tensor %s: data_offsets: begins at byte %" PRIu64
                             " of the data, inside tensor %s",
                             reader->file, tensor->name, tensor->offset - reader->data_offset,
                             last->name);
        if (tensor->bytes)
            last = tensor;
    }
    qsort(safetensors->tensors, safetensors->count, sizeof(*safetensors->tensors), by_name);
    return 0;
}

int safetensors_json(const char *text, size_t length, const char *file, json **ret_document,
                     struct error *error)
{
    uint64_t values = 1;
    for (size_t i = 0; i < length; i++)
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (values > SAFETENSORS_VALUES_MAX)
        return error_limit(error, ERR_BAD_MODEL, SAFETENSORS_VALUES_MAX, values,
                           "%s: about %" PRIu64 " JSON values, at most %u are read", file, values,
                           SAFETENSORS_VALUES_MAX);
    struct json_bounds bounds = {.bytes_max = SAFETENSORS_HEADER_MAX, .depth_max = DEPTH_MAX};
    struct error inner = {0};
    json *document = NULL;
    if (json_parse(text, length, bounds, &document, &inner))
        return error_set(error, inner.code == ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_BAD_MODEL,
                         "%s: %.400s", file, inner.text);
    if (!json_is_object(document)) {
        json_free(document);
        return error_set(error, ERR_BAD_MODEL, "%s: not a JSON object", file);
    }
    *ret_document = document;
    return 0;
}

int safetensors_parse(const char *header, size_t length, const char *file, uint64_t file_bytes,
                      struct safetensors *ret, struct error *error)
{
    if (length > SAFETENSORS_HEADER_MAX || file_bytes < LENGTH_BYTES + length)
        return error_limit(error, ERR_BAD_MODEL, SAFETENSORS_HEADER_MAX, length,
                           "%s: header: %zu bytes are over 16 MiB or the file's end", file, length);
    if (length == 0 || header[0] != '{')
        return error_set(error, ERR_BAD_MODEL, "%s: header: does not begin with '{'", file);
    json *document = NULL;
    int rc = safetensors_json(header, length, file, &document, error);
    if (rc)
        return rc;
    struct reader reader = {file, LENGTH_BYTES + length, file_bytes - LENGTH_BYTES - length, error};
    struct safetensors made = {0};
    rc = read_tensors(&reader, document, &made);
    if (rc == 0)
        rc = refuse_overlap(&reader, &made);
    json_free(document);
    if (rc) {
        safetensors_free(&made);
        return rc;
    }
    *ret = made;
    return 0;
}

int safetensors_read(int fd, const char *file, uint64_t file_bytes, struct safetensors *ret,
                     struct error *error)
{
    unsigned char first[LENGTH_BYTES];
    int rc = file_read(fd, file, 0, first, sizeof(first), error);
    if (rc)
        return rc;
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | first[i];
    if (length > SAFETENSORS_HEADER_MAX || length > file_bytes - LENGTH_BYTES)
        return error_limit(error, ERR_BAD_MODEL, SAFETENSORS_HEADER_MAX, length,
                           "%s: header: its length, %" PRIu64 " bytes, is over %s", file, length,
                           length > SAFETENSORS_HEADER_MAX ? "16 MiB" : "the file's end");
    char *header = malloc((size_t)length + 1);
    if (!header)
        return error_set(error, ERR_NO_MEMORY, "no memory for the header of %s", file);
    rc = file_read(fd, file, LENGTH_BYTES, header, (size_t)length, error);
    if (rc == 0)
        rc = safetensors_parse(header, (size_t)length, file, file_bytes, ret, error);
    free(header);
    return rc;
}

void safetensors_free(struct safetensors *safetensors)
{
    free(safetensors->tensors);
    free(safetensors->names);
    *safetensors = (struct safetensors){0};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *safetensors,
                                                  const char *name)
{
    if (safetensors->count == 0)
        return NULL;
    struct safetensors_tensor key = {.name = name};
    return bsearch(&key, safetensors->tensors, safetensors->count, sizeof(*safetensors->tensors),
                   by_name);
}
