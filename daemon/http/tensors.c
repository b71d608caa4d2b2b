#include "daemon/http/tensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query/tensor_text.h"
#include "daemon/request/job_builder.h"
#include "daemon/request/server.h"
#include "gpu/jobs/shape.h"

/* What is written of an answer in a turn. */
#define TURN_ELEMENTS 2048u /* half a microsecond each */
#define TURN_BYTES ((uint64_t)1 << 20)

/* ---- in ----------------------------------------------------------------------------------------
 */

void tensors_free(struct exchange_tensors *tensors)
{
    if (!tensors)
        return;
    query_tensors_free(&tensors->query);
    free(tensors);
}

int tensors_read(struct exchange *exchange, size_t max, struct error *error)
{
    struct buffer *body = &exchange->body;
    struct exchange_tensors *tensors = calloc(1, sizeof(*tensors));
    exchange->tensors = tensors;
    if (!tensors)
        return error_set(error, ERR_NO_MEMORY, "no memory for a request");
    if (exchange->coding != CODING_NONE) {
        int rc = inflate_body(body, exchange->coding, max, error);
        if (rc)
            return rc;
    }
    return query_tensors_read(&tensors->query, body->length > 0 ? body->data : "", body->length,
                              exchange->body_json < SIZE_MAX ? exchange->body_json : body->length,
                              error);
}

struct job_program *tensors_program(const struct exchange *exchange, struct error *error)
{
    struct job_programs *programs = exchange->http->server->jobs.programs;
    char name[sizeof(exchange->object)];
    memcpy(name, exchange->object, sizeof(name));
    char *version = strchr(name, '/');
    if (version)
        *version = '\0';
    struct job_program *program = programs_find(programs, name);
    if (!programs)
        error_set(error, ERR_NOT_FOUND, "this daemon serves no programs");
    else if (!program)
        error_set(error, ERR_NOT_FOUND, "there is no program %.64s", name);
    else if (version && strcmp(version + 1, "versions/1") != 0)
        error_set(error, ERR_NOT_FOUND, "%s has version 1 alone", name);
    else
        return program;
    return NULL;
}

/* ---- the request -------------------------------------------------------------------------------
 */

/* A program with sizes that vary takes one item a request; of others the first dimension counts
 * items. */
static int count_items(struct exchange_tensors *tensors, uint32_t max, struct error *error)
{
    const struct query_tensors *query = &tensors->query;
    uint64_t items = 1;
    tensors->batched = tensors->program->program.size_count == 0;
    if (tensors->batched)
        items = query->inputs[0].shape[0];
    for (uint32_t i = 1; tensors->batched && i < query->input_count; i++)
        if (query->inputs[i].shape[0] != items)
            return error_set(error, ERR_BAD_VALUE,
                             "%s has %" PRIu64 " items (its first dimension), %s has %" PRIu64,
                             query->inputs[i].name, query->inputs[i].shape[0],
                             query->inputs[0].name, items);
    if (items > max)
        return error_limit(error, ERR_TOO_LARGE, max, items,
                           "the request has %" PRIu64 " items, at most %" PRIu32
                           " are accepted (batch-max)",
                           items, max);
    tensors->items = (uint32_t)items;
    return 0;
}

static int find_output(const struct program *program, const char *name, uint32_t *ret_output,
                       struct error *error)
{
    for (uint32_t i = 0; i < program->output_count; i++)
        if (strcmp(program->outputs[i].name, name) == 0) {
            *ret_output = i;
            return 0;
        }
    return error_set(error, ERR_UNKNOWN_FIELD, "program %s has no output %.63s", program->name,
                     name);
}

/* Those that are asked for, or all. */
static int choose_outputs(struct exchange_tensors *tensors, struct error *error)
{
    const struct query_tensors *query = &tensors->query;
    const struct program *program = &tensors->program->program;
    bool all = query->output_count == 0;
    tensors->output_count = all ? program->output_count : query->output_count;
    for (uint32_t i = 0; i < tensors->output_count; i++) {
        tensors->outputs[i].output = i;
        tensors->outputs[i].binary = all ? query->all_binary : query->outputs[i].binary;
        int rc =
            all ? 0
                : find_output(program, query->outputs[i].name, &tensors->outputs[i].output, error);
        if (rc)
            return rc;
        const struct program_tensor *tensor = &program->outputs[tensors->outputs[i].output];
        if (!tensors->outputs[i].binary && !tensor_text_has(tensor->dtype))
            return error_set(error, ERR_UNSUPPORTED,
                             "output %s is %s, which has no numbers in JSON: ask for it with "
                             "binary_data",
                             tensor->name, query_datatype_name(tensor->dtype));
    }
    return 0;
}

static int add_item(struct job_builder *builder, const struct exchange_tensors *tensors,
                    uint32_t number, struct error *error)
{
    const struct query_tensors *query = &tensors->query;
    struct message_item item = {.input_count = query->input_count,
                                .value_count = query->value_count};
    const uint32_t front = tensors->batched;
    memcpy(item.values, query->values, sizeof(item.values));
    for (uint32_t i = 0; i < query->input_count; i++) {
        const struct query_input *from = &query->inputs[i];
        struct message_tensor *to = &item.inputs[i];
        if (from->rank - front > TENSOR_RANK_MAX)
            return error_set(error, ERR_BAD_VALUE, "input %s has too many dimensions", from->name);
        *to = (struct message_tensor){.name = from->name,
                                      .dtype = from->dtype,
                                      .rank = from->rank - front,
                                      .bytes = from->bytes / tensors->items};
        to->at = from->at + number * to->bytes;
        memcpy(to->shape, from->shape + front, to->rank * sizeof(to->shape[0]));
    }
    return job_builder_item(builder, &item, error);
}

/* What an element takes in JSON at most, with its comma. */
static uint64_t element_text(uint32_t dtype)
{
    switch (dtype) {
    case TENSOR_F32:
        return 17;
    case TENSOR_F64:
    case TENSOR_U64:
    case TENSOR_I64:
        return 26;
    default:
        return 12;
    }
}

/* Of the answer, which is kept beside the results. */
static uint64_t answer_bytes(const struct exchange_tensors *tensors, const struct request *request)
{
    const struct program *program = &tensors->program->program;
    uint64_t all = 0, bytes = 0;
    struct error ignored;
    for (uint32_t i = 0; i < request->seq_count; i++)
        for (uint32_t j = 0; j < tensors->output_count; j++) {
            const struct program_tensor *tensor = &program->outputs[tensors->outputs[j].output];
            (void)shape_bytes(tensor, request->seqs[i].job->sizes, &bytes, &ignored);
            all += tensors->outputs[j].binary
                       ? bytes
                       : bytes / tensor_dtype_bytes(tensor->dtype) * element_text(tensor->dtype);
        }
    return all;
}

static int build(struct exchange *exchange, struct job_builder *builder, struct error *error)
{
    struct server *server = exchange->http->server;
    struct exchange_tensors *tensors = exchange->tensors;
    struct query_tensors *query = &tensors->query;
    const struct job_source source = {
        .owned = query->data, .inputs_bytes = query->data_bytes, .inputs_fd = -1, .outputs_fd = -1};
    int rc = request_builder_phase(server, error);
    if (!rc)
        rc = count_items(tensors, server->limits.batch_max, error);
    if (!rc)
        rc = choose_outputs(tensors, error);
    if (!rc)
        rc = job_builder_open(builder, server, &exchange->sink, tensors->program->program.name,
                              tensors->items, &query->params, exchange->arrived_us, error);
    for (uint32_t i = 0; !rc && i < tensors->items; i++)
        rc = add_item(builder, tensors, i, error);
    if (rc)
        return rc;
    builder->base.request->together = true;
    builder->base.request->answer_bytes = answer_bytes(tensors, builder->base.request);
    rc = job_builder_admit(builder, &exchange->sink, &source, error);
    if (rc)
        return rc;
    query->data = NULL;
    return job_builder_place(builder, &source, error);
}

void tensors_begin(struct exchange *exchange, time_us now_us)
{
    struct job_builder builder = {.program = NULL};
    struct error error;
    (void)now_us;
    exchange->tensors->program = tensors_program(exchange, &error);
    if (!exchange->tensors->program || build(exchange, &builder, &error)) {
        job_builder_drop(&builder);
        query_tensors_free(&exchange->tensors->query); /* not kept while the refusal is read */
        exchange_refuse(exchange, &error, "");
        return;
    }
    request_builder_name(&builder.base, 1, exchange->sink.user);
    exchange->request = builder.base.request;
    exchange->unended = exchange->request->seq_count;
    request_builder_enter(&builder.base, &exchange->sink);
}

/* ---- the answer --------------------------------------------------------------------------------
 */

static const struct program_tensor *output_of(const struct exchange_tensors *tensors)
{
    return &tensors->program->program.outputs[tensors->outputs[tensors->at_output].output];
}

static const struct tensor_job *job_of(const struct exchange *exchange)
{
    return exchange->request->seqs[exchange->tensors->at_item].job;
}

/* Bytes of an item's output. Items of a batch are alike. */
static uint64_t item_bytes(const struct exchange *exchange)
{
    uint64_t bytes = 0;
    struct error ignored;
    (void)shape_bytes(output_of(exchange->tensors), exchange->request->seqs[0].job->sizes, &bytes,
                      &ignored);
    return bytes;
}

static void put_begin(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct exchange_tensors *tensors = exchange->tensors;
    json_open(writer, NULL, '{');
    json_put_text(writer, "model_name", tensors->program->program.name);
    json_put_text(writer, "model_version", "1");
    if (tensors->query.id)
        json_put_text(writer, "id", tensors->query.id);
    json_open(writer, "outputs", '[');
    json_close(writer, ']');
    json_close(writer, '}');
}

static void put_output(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct exchange_tensors *tensors = exchange->tensors;
    const struct program_tensor *tensor = output_of(tensors);
    uint64_t shape[SLUICE_RANK_MAX];
    shape_of(tensor, exchange->request->seqs[0].job->sizes, shape);
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", tensor->name);
    json_put_text(writer, "datatype", query_datatype_name(tensor->dtype));
    json_open(writer, "shape", '[');
    if (tensors->batched)
        json_put_uint(writer, NULL, tensors->items);
    for (uint32_t i = 0; i < tensor->rank; i++)
        json_put_uint(writer, NULL, shape[i]);
    json_close(writer, ']');
    if (tensors->outputs[tensors->at_output].binary) {
        json_open(writer, "parameters", '{');
        json_put_uint(writer, "binary_data_size", item_bytes(exchange) * tensors->items);
        json_close(writer, '}');
    }
    json_close(writer, '}');
}

/* So many of the last letters are not written yet: what they close goes on. */
static void reopen(struct out *out, size_t letters)
{
    if (!out->failed)
        out->buffer.length -= letters;
}

/* At most `max` elements of the output; true at its end. */
static bool write_elements(struct exchange *exchange, uint32_t *max)
{
    struct exchange_tensors *tensors = exchange->tensors;
    const struct program_tensor *tensor = output_of(tensors);
    const uint64_t count = item_bytes(exchange) / tensor_dtype_bytes(tensor->dtype);
    const uint32_t output = tensors->outputs[tensors->at_output].output;
    char text[TENSOR_TEXT_MAX + 1];
    for (; tensors->at_item < tensors->items; tensors->at_item++, tensors->at = 0)
        for (; tensors->at < count; tensors->at++, (*max)--) {
            if (*max == 0)
                return false;
            bool first = tensors->at == 0 && tensors->at_item == 0;
            text[0] = ',';
            size_t length = tensor_text_write(tensor->dtype, job_of(exchange)->outputs[output],
                                              tensors->at, text + 1);
            out_bytes(&exchange->out, text + first, length + !first);
        }
    return true;
}

/* The JSON, with what stands in it; true at its end. */
static bool write_json(struct exchange *exchange)
{
    struct exchange_tensors *tensors = exchange->tensors;
    struct out *out = &exchange->out;
    uint32_t left = TURN_ELEMENTS;
    for (; tensors->at_output < tensors->output_count; tensors->at_output++) {
        bool binary = tensors->outputs[tensors->at_output].binary;
        if (!tensors->opened) {
            out_text(out, tensors->at_output > 0 ? "," : "");
            out_json(out, put_output, exchange);
            tensors->opened = true;
            tensors->at_item = 0;
            tensors->at = 0;
            if (!binary) {
                reopen(out, 1);
                out_text(out, ",\"data\":[");
            }
        }
        if (!binary && !write_elements(exchange, &left))
            return false;
        out_text(out, binary ? "" : "]}");
        tensors->opened = false;
    }
    out_text(out, "]}");
    return true;
}

/* The bytes behind it; true at their end. */
static bool write_bytes(struct exchange *exchange)
{
    struct exchange_tensors *tensors = exchange->tensors;
    uint64_t left = TURN_BYTES;
    for (; tensors->at_output < tensors->output_count; tensors->at_output++, tensors->at_item = 0) {
        const uint32_t output = tensors->outputs[tensors->at_output].output;
        if (!tensors->outputs[tensors->at_output].binary)
            continue;
        const uint64_t bytes = item_bytes(exchange);
        for (; tensors->at_item < tensors->items; tensors->at_item++, tensors->at = 0) {
            const char *from = job_of(exchange)->outputs[output];
            uint64_t piece = bytes - tensors->at < left ? bytes - tensors->at : left;
            out_bytes(&exchange->out, from + tensors->at, piece);
            tensors->at += piece;
            left -= piece;
            if (tensors->at < bytes)
                return false;
        }
    }
    return true;
}

static bool any_binary(const struct exchange_tensors *tensors)
{
    bool any = false;
    for (uint32_t i = 0; i < tensors->output_count; i++)
        any |= tensors->outputs[i].binary;
    return any;
}

/* The next piece of the answer; true at its end. */
static bool write_on(struct exchange *exchange)
{
    struct exchange_tensors *tensors = exchange->tensors;
    if (!tensors->begun) {
        out_json(&exchange->out, put_begin, exchange);
        reopen(&exchange->out, 2);
        tensors->begun = true;
    }
    if (!tensors->bytes) {
        if (!write_json(exchange))
            return false;
        tensors->bytes = true;
        tensors->at_output = tensors->at_item = 0;
        tensors->at = 0;
        if (any_binary(tensors))
            exchange->json_bytes = exchange->out.buffer.length;
    }
    return write_bytes(exchange);
}

void tensors_news(struct exchange *exchange, time_us now_us)
{
    struct error error;
    (void)now_us;
    if (!exchange->request || exchange->request->seq_unended > 0)
        return;
    int rc = exchange->tensors->begun ? 0 : generate_lost(exchange, &error);
    if (!rc && !write_on(exchange) && !exchange->out.failed) {
        exchange_touch(exchange);
        return;
    }
    if (!rc && exchange->out.failed) {
        out_clear(&exchange->out);
        exchange->json_bytes = 0;
        rc = error_set(&error, ERR_NO_MEMORY, "no memory for an answer");
    }
    if (rc) {
        exchange_refuse(exchange, &error, "");
    } else {
        exchange_status(exchange, 200,
                        exchange->json_bytes > 0 ? "application/octet-stream" : "application/json");
        exchange_finish(exchange);
        exchange_keep(exchange, exchange->out.buffer.room);
    }
    generate_release(exchange);
}
