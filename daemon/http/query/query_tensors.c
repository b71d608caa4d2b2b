#include "daemon/http/query/query_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query/tensor_cut.h"
#include "daemon/http/query/tensor_text.h"

#define DEPTH_MAX 8u
#define VALUES_MAX 4096u /* of the JSON without its data */
#define BYTES_MAX ((int64_t)1 << 53)
/* Triton's priorities: 1 is the highest, larger ones are lower; 0 says nothing. */
#define PRIORITY_LEVELS 16
#define PRIORITY_MIDDLE 8

static const struct {
    const char *name;
    uint32_t dtype;
} datatypes[] = {
    {"BOOL", TENSOR_BOOL},  {"UINT8", TENSOR_U8}, {"UINT16", TENSOR_U16}, {"UINT32", TENSOR_U32},
    {"UINT64", TENSOR_U64}, {"INT8", TENSOR_I8},  {"INT16", TENSOR_I16},  {"INT32", TENSOR_I32},
    {"INT64", TENSOR_I64},  {"FP16", TENSOR_F16}, {"BF16", TENSOR_BF16},  {"FP32", TENSOR_F32},
    {"FP64", TENSOR_F64},
};

const char *query_datatype_name(uint32_t dtype)
{
    for (size_t i = 0; i < sizeof(datatypes) / sizeof(datatypes[0]); i++)
        if (datatypes[i].dtype == dtype)
            return datatypes[i].name;
    return NULL;
}

uint32_t query_datatype_find(const char *name)
{
    for (size_t i = 0; i < sizeof(datatypes) / sizeof(datatypes[0]); i++)
        if (strcmp(datatypes[i].name, name) == 0)
            return datatypes[i].dtype;
    return 0;
}

/* ---- what is refused ---------------------------------------------------------------------------
 */

/* Members and parameters of the protocol that stand for something that is not done here. */
static int refuse(const char *name, struct error *error)
{
    static const struct {
        const char *name, *why;
    } known[] = {
        {"shared_memory_region", "Triton's shared memory by name is not taken: send the bytes, or "
                                 "share a memfd over the native protocol (sluice job)"},
        {"shared_memory_offset", "see shared_memory_region"},
        {"shared_memory_byte_size", "see shared_memory_region"},
        {"sequence_id", "no program keeps a state between requests"},
        {"sequence_start", "no program keeps a state between requests"},
        {"sequence_end", "no program keeps a state between requests"},
        {"classification", "outputs are told as they are: sort them where they are read"},
        {"headers", "headers are not handed to programs"},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i].name) == 0)
            return error_set(error, ERR_UNSUPPORTED, "%s is not supported: %s", name, known[i].why);
    return error_set(error, ERR_UNKNOWN_FIELD, "%.64s is not known here", name);
}

static int read_flag(const json *value, const char *name, bool *ret_flag, struct error *error)
{
    if (!json_is_bool(value))
        return error_set(error, ERR_BAD_VALUE, "%s must be true or false", name);
    *ret_flag = json_bool(value);
    return 0;
}

static int read_name(const json *value, const char *what, const char **ret_name,
                     struct error *error)
{
    if (!json_is_string(value) || !json_string(value)[0] ||
        strlen(json_string(value)) > TENSOR_NAME_MAX)
        return error_set(error, ERR_BAD_VALUE, "%s must be a string of 1 to %d bytes", what,
                         TENSOR_NAME_MAX);
    *ret_name = json_string(value);
    return 0;
}

/* ---- parameters of the request -----------------------------------------------------------------
 */

static int read_priority(struct query_tensors *query, const json *value, struct error *error)
{
    int64_t level;
    int rc = json_integer(value, "priority", 0, PRIORITY_LEVELS, &level, error);
    if (!rc)
        query->params.priority = level > 0 ? (int32_t)(PRIORITY_MIDDLE - level) : 0;
    return rc;
}

/* Microseconds, which become whole milliseconds. */
static int read_timeout(struct query_tensors *query, const json *value, struct error *error)
{
    int64_t us;
    int rc = json_integer(value, "timeout", 0, (int64_t)1 << 50, &us, error);
    if (!rc)
        query->params.deadline_ms = (uint64_t)(us + 999) / 1000;
    return rc;
}

/* What the protocol does not know is the program's, which is not known yet. */
static int add_value(struct query_tensors *query, const json *value, struct error *error)
{
    const char *name = json_key(value);
    if (query->value_count == MESSAGE_PARAMETERS_MAX)
        return error_limit(error, ERR_TOO_LARGE, MESSAGE_PARAMETERS_MAX, MESSAGE_PARAMETERS_MAX + 1,
                           "parameters has more than %d of programs", MESSAGE_PARAMETERS_MAX);
    struct message_value *to = &query->values[query->value_count];
    *to = (struct message_value){.name = name, .number = json_number(value)};
    if (json_is_bool(value)) {
        to->type = VALUE_BOOL;
        to->integer = json_bool(value);
    } else if (!json_is_number(value)) {
        return error_set(error, ERR_BAD_VALUE, "parameter %.64s is no number, true or false", name);
    } else if (to->number >= -(double)BYTES_MAX && to->number <= (double)BYTES_MAX &&
               to->number == (double)(int64_t)to->number) {
        to->type = VALUE_INTEGER;
        to->integer = (int64_t)to->number;
    }
    query->value_count++;
    return 0;
}

static int read_parameters(struct query_tensors *query, const json *object, struct error *error)
{
    static const char *const refused[] = {"sequence_id", "sequence_start", "sequence_end",
                                          "headers"};
    int rc = json_is_object(object)
                 ? 0
                 : error_set(error, ERR_BAD_VALUE, "parameters must be an object");
    for (const json *member = json_child(object); !rc && member; member = json_next(member)) {
        const char *name = json_key(member);
        for (size_t i = 0; !rc && i < sizeof(refused) / sizeof(refused[0]); i++)
            if (strcmp(name, refused[i]) == 0)
                rc = refuse(name, error);
        if (rc)
            return rc;
        if (strcmp(name, "priority") == 0)
            rc = read_priority(query, member, error);
        else if (strcmp(name, "timeout") == 0)
            rc = read_timeout(query, member, error);
        else if (strcmp(name, "binary_data_output") == 0)
            rc = read_flag(member, name, &query->all_binary, error);
        else
            rc = add_value(query, member, error);
    }
    return rc;
}

/* ---- inputs ------------------------------------------------------------------------------------
 */

/* An input as it is read. */
struct reading {
    struct query_input *input;
    const char *datatype;
    int64_t binary_bytes; /* -1: not given */
    bool has_data;
};

static int read_shape(struct query_input *input, const json *array, struct error *error)
{
    char what[32];
    int rc = 0;
    size_t rank = json_count(array);
    if (!json_is_array(array) || rank == 0 || rank > QUERY_TENSORS_RANK_MAX)
        return error_set(error, ERR_BAD_VALUE, "shape must be a list of 1 to %d dimensions",
                         QUERY_TENSORS_RANK_MAX);
    input->rank = 0;
    for (const json *item = json_child(array); !rc && item; item = json_next(item)) {
        int64_t dimension = 0;
        snprintf(what, sizeof(what), "shape[%" PRIu32 "]", input->rank);
        rc = json_integer(item, what, 1, (int64_t)1 << 40, &dimension, error);
        input->shape[input->rank++] = (uint64_t)dimension;
    }
    return rc;
}

static int read_input_parameters(struct reading *reading, const json *object, struct error *error)
{
    int rc = json_is_object(object)
                 ? 0
                 : error_set(error, ERR_BAD_VALUE, "parameters must be an object");
    for (const json *member = json_child(object); !rc && member; member = json_next(member))
        rc = strcmp(json_key(member), "binary_data_size") == 0
                 ? json_integer(member, "binary_data_size", 0, BYTES_MAX, &reading->binary_bytes,
                                error)
                 : refuse(json_key(member), error);
    return rc;
}

static int read_input_member(struct reading *reading, const json *member, struct error *error)
{
    const char *name = json_key(member);
    if (strcmp(name, "name") == 0)
        return read_name(member, "name", &reading->input->name, error);
    if (strcmp(name, "datatype") == 0)
        return read_name(member, "datatype", &reading->datatype, error);
    if (strcmp(name, "shape") == 0)
        return read_shape(reading->input, member, error);
    if (strcmp(name, "parameters") == 0)
        return read_input_parameters(reading, member, error);
    if (strcmp(name, "data") != 0)
        return refuse(name, error);
    /* What was cut out is null now. */
    reading->has_data = json_is_null(member);
    return reading->has_data ? 0 : error_set(error, ERR_BAD_VALUE, "data must be an array");
}

/* Bytes of a shape that is within bounds already. */
static int measure(struct query_input *input, struct error *error)
{
    input->bytes = tensor_dtype_bytes(input->dtype);
    for (uint32_t i = 0; i < input->rank; i++) {
        if (input->shape[i] > (uint64_t)BYTES_MAX / input->bytes)
            return error_set(error, ERR_TOO_LARGE, "shape takes more than 2^53 bytes");
        input->bytes *= input->shape[i];
    }
    return 0;
}

static int check_datatype(struct reading *reading, struct error *error)
{
    if (!reading->input->name)
        return error_set(error, ERR_BAD_VALUE, "name is missing");
    if (!reading->datatype)
        return error_set(error, ERR_BAD_VALUE, "datatype is missing");
    if (reading->input->rank == 0)
        return error_set(error, ERR_BAD_VALUE, "shape is missing");
    reading->input->dtype = query_datatype_find(reading->datatype);
    if (strcmp(reading->datatype, "BYTES") == 0)
        return error_set(error, ERR_UNSUPPORTED,
                         "datatype BYTES is not supported: programs take "
                         "numbers");
    if (reading->input->dtype == 0)
        return error_set(error, ERR_BAD_VALUE, "datatype %.63s is not known", reading->datatype);
    return measure(reading->input, error);
}

/* The shape against what came. cut: the text of its data, in order, if it has any. */
static int check_data(struct reading *reading, const struct tensor_cut *cut, struct error *error)
{
    const struct query_input *input = reading->input;
    const uint64_t elements = input->bytes / tensor_dtype_bytes(input->dtype);
    if (reading->binary_bytes >= 0 && reading->has_data)
        return error_set(error, ERR_BAD_VALUE, "data and binary_data_size exclude each other");
    if (reading->binary_bytes >= 0)
        return (uint64_t)reading->binary_bytes == input->bytes
                   ? 0
                   : error_limit(
                         error, ERR_BAD_VALUE, input->bytes, (uint64_t)reading->binary_bytes,
                         "binary_data_size is %" PRIi64 ", the shape takes %" PRIu64 " bytes",
                         reading->binary_bytes, input->bytes);
    if (!reading->has_data || !cut)
        return error_set(error, ERR_BAD_VALUE,
                         "data is missing: an array, or binary_data_size and the bytes");
    if (!tensor_text_has(input->dtype))
        return error_set(error, ERR_UNSUPPORTED,
                         "%s has no numbers in JSON: send it as "
                         "binary_data_size and the bytes",
                         reading->datatype);
    /* An element has a letter, and a comma or the bracket behind it. */
    return elements <= cut->length / 2 ? 0
                                       : error_set(error, ERR_BAD_VALUE,
                                                   "data has fewer elements than the shape's "
                                                   "%" PRIu64,
                                                   elements);
}

/* The tensors, as they came, with what the JSON says of them. */
struct source {
    const struct tensor_cut *cuts;
    uint32_t cut_count, cut_next;
    const char *binary;
    uint64_t binary_left;
    struct {
        const char *text;
        uint64_t length;
        bool binary;
    } of[MESSAGE_TENSORS_MAX];
};

static int read_input(struct query_tensors *query, struct source *source, const json *object,
                      struct error *error)
{
    struct query_input *input = &query->inputs[query->input_count];
    struct reading reading = {.input = input, .binary_bytes = -1};
    int rc = json_is_object(object) ? 0 : error_set(error, ERR_BAD_VALUE, "it is no object");
    for (const json *member = json_child(object); !rc && member; member = json_next(member))
        rc = read_input_member(&reading, member, error);
    if (!rc)
        rc = check_datatype(&reading, error);
    bool more = reading.has_data && source->cut_next < source->cut_count;
    const struct tensor_cut *cut = more ? &source->cuts[source->cut_next++] : NULL;
    if (!rc)
        rc = check_data(&reading, cut, error);
    for (uint32_t i = 0; !rc && i < query->input_count; i++)
        if (strcmp(query->inputs[i].name, input->name) == 0)
            rc = error_set(error, ERR_BAD_VALUE, "%s came already", input->name);
    if (!rc && !cut && input->bytes > source->binary_left)
        rc = error_limit(error, ERR_BAD_VALUE, input->bytes, source->binary_left,
                         "%" PRIu64 " bytes are announced, %" PRIu64 " are left behind the JSON",
                         input->bytes, source->binary_left);
    if (rc)
        return rc;
    source->of[query->input_count].text = cut ? cut->text : source->binary;
    source->of[query->input_count].length = cut ? cut->length : input->bytes;
    source->of[query->input_count].binary = !cut;
    source->binary += cut ? 0 : input->bytes;
    source->binary_left -= cut ? 0 : input->bytes;
    input->at = query->data_bytes;
    query->data_bytes += tensor_pad(input->bytes);
    query->input_count++;
    return 0;
}

static int read_inputs(struct query_tensors *query, struct source *source, const json *array,
                       struct error *error)
{
    struct error found;
    if (!json_is_array(array) || json_count(array) == 0 || json_count(array) > MESSAGE_TENSORS_MAX)
        return error_set(error, ERR_BAD_VALUE, "inputs must be a list of 1 to %d tensors",
                         MESSAGE_TENSORS_MAX);
    for (const json *item = json_child(array); item; item = json_next(item))
        if (read_input(query, source, item, &found)) {
            const char *name = json_string(json_get(item, "name"));
            return error_limit(error, found.code, found.limit, found.value,
                               "inputs[%" PRIu32 "] (%.63s): %s", query->input_count, name,
                               found.text);
        }
    return 0;
}

/* ---- outputs -----------------------------------------------------------------------------------
 */

static int read_output(struct query_tensors *query, const json *object, struct error *error)
{
    struct query_output *output = &query->outputs[query->output_count];
    *output = (struct query_output){.binary = query->all_binary};
    int rc = json_is_object(object)
                 ? 0
                 : error_set(error, ERR_BAD_VALUE, "outputs must be a list of objects");
    for (const json *member = json_child(object); !rc && member; member = json_next(member)) {
        if (strcmp(json_key(member), "name") == 0) {
            rc = read_name(member, "outputs: name", &output->name, error);
            continue;
        }
        if (strcmp(json_key(member), "parameters") != 0 || !json_is_object(member))
            return refuse(json_key(member), error);
        for (const json *item = json_child(member); !rc && item; item = json_next(item))
            rc = strcmp(json_key(item), "binary_data") == 0
                     ? read_flag(item, "binary_data", &output->binary, error)
                     : refuse(json_key(item), error);
    }
    if (!rc && !output->name)
        rc = error_set(error, ERR_BAD_VALUE, "outputs: name is missing");
    for (uint32_t i = 0; !rc && i < query->output_count; i++)
        if (strcmp(query->outputs[i].name, output->name) == 0)
            rc = error_set(error, ERR_BAD_VALUE, "outputs names %s twice", output->name);
    query->output_count += !rc;
    return rc;
}

static int read_outputs(struct query_tensors *query, const json *array, struct error *error)
{
    int rc = 0;
    if (!json_is_array(array) || json_count(array) > MESSAGE_TENSORS_MAX)
        return error_set(error, ERR_BAD_VALUE, "outputs must be a list of up to %d objects",
                         MESSAGE_TENSORS_MAX);
    for (const json *item = json_child(array); !rc && item; item = json_next(item))
        rc = read_output(query, item, error);
    return rc;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

static int read_members(struct query_tensors *query, struct source *source, struct error *error)
{
    const json *document = query->document, *outputs = json_get(document, "outputs");
    const json *parameters = json_get(document, "parameters"), *id = json_get(document, "id");
    int rc =
        json_is_object(document) ? 0 : error_set(error, ERR_BAD_HEAD, "the body is no JSON object");
    for (const json *member = json_child(document); !rc && member; member = json_next(member)) {
        const char *name = json_key(member);
        if (strcmp(name, "id") != 0 && strcmp(name, "inputs") != 0 &&
            strcmp(name, "outputs") != 0 && strcmp(name, "parameters") != 0)
            rc = refuse(name, error);
    }
    if (!rc && id && (!json_is_string(id) || strlen(json_string(id)) > QUERY_TENSORS_ID_MAX))
        rc = error_set(error, ERR_BAD_VALUE, "id must be a string of at most %d bytes",
                       QUERY_TENSORS_ID_MAX);
    query->id = id ? json_string(id) : NULL;
    if (!rc && parameters)
        rc = read_parameters(query, parameters, error);
    if (!rc && outputs)
        rc = read_outputs(query, outputs, error);
    if (!rc)
        rc = read_inputs(query, source, json_get(document, "inputs"), error);
    if (!rc && source->binary_left > 0)
        rc = error_set(error, ERR_BAD_VALUE, "%" PRIu64 " bytes behind the JSON belong to no input",
                       source->binary_left);
    return rc;
}

static int read_data(struct query_tensors *query, const struct source *source, struct error *error)
{
    int rc = 0;
    query->data = calloc(1, query->data_bytes);
    if (!query->data)
        return error_set(error, ERR_NO_MEMORY, "no memory for %" PRIu64 " bytes of tensors",
                         query->data_bytes);
    for (uint32_t i = 0; !rc && i < query->input_count; i++) {
        const struct query_input *input = &query->inputs[i];
        if (source->of[i].binary)
            memcpy(query->data + input->at, source->of[i].text, input->bytes);
        else
            rc = tensor_text_read(source->of[i].text, source->of[i].length, input->name,
                                  input->dtype, input->rank, input->shape, query->data + input->at,
                                  error);
    }
    return rc;
}

int query_tensors_read(struct query_tensors *query, const char *body, size_t length,
                       size_t json_length, struct error *error)
{
    struct tensor_cut cuts[MESSAGE_TENSORS_MAX];
    struct source source = {.cuts = cuts};
    char *text = NULL;
    size_t text_length = 0;
    *query = (struct query_tensors){.params.job = JOB_PROGRAM};
    if (json_length > length)
        return error_limit(error, ERR_BAD_VALUE, length, json_length,
                           "Inference-Header-Content-Length is %zu, the body has %zu bytes",
                           json_length, length);
    source.binary = body + json_length;
    source.binary_left = length - json_length;
    int rc = tensor_cut(body, json_length, cuts, MESSAGE_TENSORS_MAX, &source.cut_count, &text,
                        &text_length, error);
    if (rc)
        return rc;
    const struct json_bounds bounds = {
        .bytes_max = text_length, .depth_max = DEPTH_MAX, .values_max = VALUES_MAX};
    rc = json_parse(text, text_length, bounds, &query->document, error);
    free(text);
    if (!rc)
        rc = read_members(query, &source, error);
    if (!rc)
        rc = read_data(query, &source, error);
    if (rc)
        query_tensors_free(query);
    return rc;
}

void query_tensors_free(struct query_tensors *query)
{
    json_free(query->document);
    free(query->data);
    *query = (struct query_tensors){0};
}
