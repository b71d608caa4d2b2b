/* JOB as the daemon reads it, and TENSORS. */
#include "protocol/message_job.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "protocol/head.h"

#define JOB_DEPTH 8

/* ---- what is common ----------------------------------------------------------------------------
 */

static int read_memory(const json *head, struct message_job *job, struct error *error)
{
    static const char *const names[] = {"inputs", "outputs", NULL};
    const json *memory = json_get(head, "memory");
    if (!memory)
        return 0;
    if (!json_is_object(memory))
        return error_set(error, ERR_BAD_VALUE, "memory is no object");
    int rc = head_fields(memory, names, error);
    if (!rc && json_get(memory, "inputs"))
        rc = head_uint64(memory, "inputs", 1, HEAD_INTEGER_MAX, &job->input_memory, error);
    if (!rc && json_get(memory, "outputs"))
        rc = head_uint64(memory, "outputs", 1, HEAD_INTEGER_MAX, &job->output_memory, error);
    return rc;
}

static int read_params(const json *head, struct message_job *job, struct error *error)
{
    const json *priority = json_get(head, "priority"), *deadline = json_get(head, "deadline_ms");
    job->params = (struct request_params){.job = JOB_PROGRAM};
    int rc = priority ? message_priority(priority, &job->params.priority, error) : 0;
    if (!rc && deadline)
        rc = message_deadline(deadline, &job->params.deadline_ms, error);
    return rc;
}

static int read_items(const json *head, uint32_t batch_max, struct message_job *job,
                      struct error *error)
{
    const json *items = json_get(head, "items");
    if (!items || !json_is_array(items))
        return error_set(error, ERR_BAD_VALUE, "items is missing, or no list");
    size_t count = json_count(items);
    if (count == 0)
        return error_set(error, ERR_EMPTY, "items is empty");
    if (count > batch_max)
        return error_limit(error, ERR_TOO_LARGE, batch_max, count,
                           "the request has %zu items, the limit is %" PRIu32 " (batch-max)", count,
                           batch_max);
    job->item_count = (uint32_t)count;
    job->next = json_child(items);
    return 0;
}

int message_decode_job(const struct frame *frame, uint32_t batch_max, struct message_job *ret_job,
                       struct error *error)
{
    static const char *const names[] = {"program",     "items",  "priority",
                                        "deadline_ms", "memory", NULL};
    struct message_job job = {.payload = frame->payload, .payload_length = frame->payload_length};
    assert(frame->type == FRAME_JOB);
    int rc = head_open(frame, JOB_DEPTH, &job.document, error);
    if (rc)
        return rc;
    rc = head_fields(job.document, names, error);
    if (!rc)
        rc = head_string(job.document, "program", job.program, sizeof(job.program), error);
    if (!rc)
        rc = read_params(job.document, &job, error);
    if (!rc)
        rc = read_memory(job.document, &job, error);
    if (!rc)
        rc = read_items(job.document, batch_max, &job, error);
    if (!rc && job.input_memory && job.payload_length > 0)
        rc = error_set(error, ERR_BAD_FRAME, "a payload beside shared memory for the inputs");
    if (rc) {
        json_free(job.document);
        return rc;
    }
    *ret_job = job;
    return 0;
}

void message_job_free(struct message_job *job)
{
    json_free(job->document);
    job->document = NULL;
}

/* ---- items -------------------------------------------------------------------------------------
 */

static int read_shape(const json *shape, struct message_tensor *tensor, struct error *error)
{
    if (!shape || !json_is_array(shape))
        return error_set(error, ERR_BAD_VALUE, "%.63s: shape is missing, or no list", tensor->name);
    if (json_count(shape) > TENSOR_RANK_MAX)
        return error_limit(error, ERR_BAD_VALUE, TENSOR_RANK_MAX, json_count(shape),
                           "%.63s has %zu dimensions, at most %d are possible", tensor->name,
                           json_count(shape), TENSOR_RANK_MAX);
    for (const json *at = json_child(shape); at; at = json_next(at)) {
        int64_t dimension;
        int rc = json_integer(at, "a dimension of shape", 1, (int64_t)HEAD_INTEGER_MAX, &dimension,
                              error);
        if (rc)
            return rc;
        tensor->shape[tensor->rank++] = (uint64_t)dimension;
    }
    return 0;
}

static int read_tensor(const json *said, struct message_tensor *tensor, struct error *error)
{
    static const char *const names[] = {"dtype", "shape", NULL};
    *tensor = (struct message_tensor){.name = json_key(said)};
    if (!json_is_object(said))
        return error_set(error, ERR_BAD_VALUE, "%.63s is no object with dtype and shape",
                         tensor->name);
    int rc = head_fields(said, names, error);
    const json *dtype = json_get(said, "dtype");
    tensor->dtype = dtype && json_is_string(dtype) ? tensor_dtype_find(json_string(dtype)) : 0;
    if (!rc && tensor->dtype == 0)
        rc = error_set(error, ERR_BAD_VALUE,
                       "%.63s: dtype is none of bool, u8 to u64, i8 to i64, f16, bf16, f32, f64",
                       tensor->name);
    if (!rc)
        rc = read_shape(json_get(said, "shape"), tensor, error);
    if (!rc && tensor_bytes(tensor->dtype, tensor->rank, tensor->shape, &tensor->bytes))
        rc = error_limit(error, ERR_TOO_LARGE, HEAD_INTEGER_MAX, 0,
                         "%.63s would have more than 2^53 bytes", tensor->name);
    return rc;
}

/* Where it lies, and that it is there. */
static int place(struct message_job *job, struct message_tensor *tensor, struct error *error)
{
    const uint64_t room = job->input_memory ? job->input_memory : job->payload_length;
    const uint64_t left = room - job->at;
    if (tensor->bytes > left)
        return error_limit(error, ERR_BAD_VALUE, left, tensor->bytes,
                           "%.63s takes %" PRIu64 " bytes, and %" PRIu64 " are left of %s",
                           tensor->name, tensor->bytes, left,
                           job->input_memory ? "memory.inputs" : "the payload");
    tensor->at = job->at;
    job->at += tensor_pad(tensor->bytes) < left ? tensor_pad(tensor->bytes) : left;
    return 0;
}

static int read_inputs(struct message_job *job, const json *inputs, struct message_item *item,
                       struct error *error)
{
    if (!inputs || !json_is_object(inputs) || json_count(inputs) == 0)
        return error_set(error, ERR_BAD_VALUE, "inputs is missing, or no object of tensors");
    if (json_count(inputs) > MESSAGE_TENSORS_MAX)
        return error_limit(error, ERR_BAD_VALUE, MESSAGE_TENSORS_MAX, json_count(inputs),
                           "there are %zu inputs, at most %d are possible", json_count(inputs),
                           MESSAGE_TENSORS_MAX);
    int rc = 0;
    for (const json *at = json_child(inputs); at && !rc; at = json_next(at)) {
        struct message_tensor *tensor = &item->inputs[item->input_count++];
        rc = read_tensor(at, tensor, error);
        if (!rc)
            rc = place(job, tensor, error);
    }
    return rc;
}

static int read_value(const json *said, struct message_value *value, struct error *error)
{
    *value = (struct message_value){.name = json_key(said)};
    if (json_is_bool(said)) {
        value->type = VALUE_BOOL;
        value->integer = json_bool(said);
        return 0;
    }
    if (!json_is_number(said))
        return error_set(error, ERR_BAD_VALUE, "parameter %.63s is neither number nor boolean",
                         value->name);
    value->number = json_number(said);
    bool whole =
        fabs(value->number) <= (double)HEAD_INTEGER_MAX && trunc(value->number) == value->number;
    value->type = whole ? VALUE_INTEGER : VALUE_NUMBER;
    value->integer = whole ? (int64_t)value->number : 0;
    return 0;
}

static int read_values(const json *values, struct message_item *item, struct error *error)
{
    int rc = 0;
    if (!values)
        return 0;
    if (!json_is_object(values))
        return error_set(error, ERR_BAD_VALUE, "parameters is no object");
    if (json_count(values) > MESSAGE_PARAMETERS_MAX)
        return error_limit(error, ERR_BAD_VALUE, MESSAGE_PARAMETERS_MAX, json_count(values),
                           "there are %zu parameters, at most %d are possible", json_count(values),
                           MESSAGE_PARAMETERS_MAX);
    for (const json *at = json_child(values); at && !rc; at = json_next(at))
        rc = read_value(at, &item->values[item->value_count++], error);
    return rc;
}

static int read_item(struct message_job *job, struct message_item *item, struct error *error)
{
    static const char *const names[] = {"inputs", "parameters", NULL};
    item->input_count = item->value_count = 0;
    if (!json_is_object(job->next))
        return error_set(error, ERR_BAD_VALUE, "it is no object");
    int rc = head_fields(job->next, names, error);
    if (!rc)
        rc = read_inputs(job, json_get(job->next, "inputs"), item, error);
    return rc ? rc : read_values(json_get(job->next, "parameters"), item, error);
}

int message_job_item(struct message_job *job, struct message_item *ret_item, struct error *error)
{
    struct error found;
    assert(job->index < job->item_count);
    if (read_item(job, ret_item, &found))
        return error_limit(error, found.code, found.limit, found.value, "item %" PRIu32 ": %s",
                           job->index, found.text);
    job->next = json_next(job->next);
    job->index++;
    return 0;
}

int message_job_end(const struct message_job *job, struct error *error)
{
    const uint64_t room = job->input_memory ? job->input_memory : job->payload_length;
    assert(job->index == job->item_count);
    if (job->at == room)
        return 0;
    return error_limit(error, ERR_BAD_VALUE, job->at, room,
                       "the tensors take %" PRIu64 " bytes, %s has %" PRIu64, job->at,
                       job->input_memory ? "memory.inputs" : "the payload", room);
}

/* ---- writing -----------------------------------------------------------------------------------
 */

static void put_item(struct json_writer *writer, const struct message_item *item)
{
    json_open(writer, NULL, '{');
    json_open(writer, "inputs", '{');
    for (uint32_t i = 0; i < item->input_count; i++) {
        const struct message_tensor *tensor = &item->inputs[i];
        json_open(writer, tensor->name, '{');
        json_put_text(writer, "dtype", tensor_dtype_name(tensor->dtype));
        json_open(writer, "shape", '[');
        for (uint32_t j = 0; j < tensor->rank; j++)
            json_put_uint(writer, NULL, tensor->shape[j]);
        json_close(writer, ']');
        json_close(writer, '}');
    }
    json_close(writer, '}');
    if (item->value_count > 0)
        json_open(writer, "parameters", '{');
    for (uint32_t i = 0; i < item->value_count; i++) {
        const struct message_value *value = &item->values[i];
        if (value->type == VALUE_BOOL)
            json_put_bool(writer, value->name, value->integer != 0);
        else if (value->type == VALUE_INTEGER)
            json_put_int(writer, value->name, value->integer);
        else
            json_put_exact(writer, value->name, value->number);
    }
    if (item->value_count > 0)
        json_close(writer, '}');
    json_close(writer, '}');
}

size_t message_job_size_bound(const struct message_job_out *job)
{
    /* An input takes 8 numbers and 100 bytes beside its name, a parameter a number and its name. */
    const uint64_t tensor = 100 + TENSOR_NAME_MAX + TENSOR_RANK_MAX * 21;
    const uint64_t value = TENSOR_NAME_MAX + 40;
    const uint64_t item = 64 + MESSAGE_TENSORS_MAX * tensor + MESSAGE_PARAMETERS_MAX * value;
    uint64_t head = 512 + job->item_count * item;
    if (head > FRAME_HEAD_MAX)
        head = FRAME_HEAD_MAX;
    return FRAME_HEADER_SIZE + (size_t)head + (size_t)job->payload_length;
}

size_t message_encode_job(void *buffer, size_t size, uint64_t id, const struct message_job_out *job)
{
    struct json_writer writer;
    head_begin(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_text(&writer, "program", job->program);
    if (job->priority)
        json_put_int(&writer, "priority", job->priority);
    if (job->deadline_ms)
        head_put_uint64(&writer, "deadline_ms", job->deadline_ms);
    if (job->input_memory || job->output_memory) {
        json_open(&writer, "memory", '{');
        if (job->input_memory)
            head_put_uint64(&writer, "inputs", job->input_memory);
        if (job->output_memory)
            head_put_uint64(&writer, "outputs", job->output_memory);
        json_close(&writer, '}');
    }
    json_open(&writer, "items", '[');
    for (uint32_t i = 0; i < job->item_count; i++)
        put_item(&writer, job->item(job->context, i));
    json_close(&writer, ']');
    json_close(&writer, '}');
    return head_end(&writer, buffer, size, FRAME_JOB, 0, id, (size_t)job->payload_length);
}

/* ---- TENSORS -----------------------------------------------------------------------------------
 */

size_t message_encode_tensors(void *buffer, size_t size, uint64_t id,
                              const struct message_tensors *tensors)
{
    const uint64_t payload = TENSORS_HEADER_SIZE + tensor_pad(tensors->bytes);
    unsigned char *out = buffer, *at = out + FRAME_HEADER_SIZE;
    if (payload > UINT32_MAX || size < FRAME_HEADER_SIZE || size - FRAME_HEADER_SIZE < payload)
        return 0;
    frame_encode_header(out, FRAME_TENSORS, 0, id, 0, (uint32_t)payload);
    memcpy(at, &tensors->sequence, 4);
    memcpy(at + 4, &tensors->output, 4);
    memcpy(at + 8, &tensors->at, 8);
    memcpy(at + 16, &tensors->bytes, 8);
    if (tensors->bytes > 0)
        memcpy(at + TENSORS_HEADER_SIZE, tensors->data, tensors->bytes);
    memset(at + TENSORS_HEADER_SIZE + tensors->bytes, 0,
           payload - TENSORS_HEADER_SIZE - tensors->bytes);
    return FRAME_HEADER_SIZE + (size_t)payload;
}

int message_decode_tensors(const struct frame *frame, struct message_tensors *ret_tensors,
                           struct error *error)
{
    struct message_tensors tensors = {.data = frame->payload + TENSORS_HEADER_SIZE};
    assert(frame->type == FRAME_TENSORS);
    if (frame->head_length > 0)
        return error_set(error, ERR_BAD_FRAME, "tensors: a head where none belongs");
    if (frame->payload_length < TENSORS_HEADER_SIZE)
        return error_set(error, ERR_BAD_FRAME, "tensors: cut short");
    memcpy(&tensors.sequence, frame->payload, 4);
    memcpy(&tensors.output, frame->payload + 4, 4);
    memcpy(&tensors.at, frame->payload + 8, 8);
    memcpy(&tensors.bytes, frame->payload + 16, 8);
    if (tensors.bytes > frame->payload_length ||
        TENSORS_HEADER_SIZE + tensor_pad(tensors.bytes) != frame->payload_length)
        return error_set(error, ERR_BAD_FRAME,
                         "tensors: %" PRIu64 " bytes in a payload of %" PRIu32, tensors.bytes,
                         frame->payload_length);
    int rc = head_padding(frame, TENSORS_HEADER_SIZE + tensors.bytes, error);
    if (rc)
        return rc;
    *ret_tensors = tensors;
    return 0;
}

/* ---- PROGRAMS ----------------------------------------------------------------------------------
 */

static int read_programs(const json *head, void *message, struct error *error)
{
    return head_string(head, "enable", message, TENSOR_NAME_MAX + 1, error);
}

int message_decode_programs(const struct frame *frame, char ret_enable[TENSOR_NAME_MAX + 1],
                            struct error *error)
{
    static const char *const names[] = {"enable", NULL};
    ret_enable[0] = '\0';
    if (frame->head_length == 0 && frame->payload_length == 0)
        return 0;
    return head_read(frame, names, read_programs, ret_enable, error);
}

/* ---- TIMELINE ----------------------------------------------------------------------------------
 */

static int read_timeline(const json *head, void *message, struct error *error)
{
    return head_uint64(head, "from", 0, HEAD_INTEGER_MAX, message, error);
}

int message_decode_timeline(const struct frame *frame, uint64_t *ret_from, struct error *error)
{
    static const char *const names[] = {"from", NULL};
    uint64_t from = MESSAGE_TIMELINE_FROM_NOW;
    bool bare = frame->head_length == 0 && frame->payload_length == 0;
    int rc = bare ? 0 : head_read(frame, names, read_timeline, &from, error);
    if (!rc)
        *ret_from = from;
    return rc;
}
