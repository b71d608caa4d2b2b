#include "daemon/request/job_builder.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/request/server.h"
#include "gpu/jobs/shape.h"

_Static_assert(MESSAGE_TENSORS_MAX == SLUICE_TENSORS_MAX, "what a message carries fits a program");
_Static_assert(MESSAGE_PARAMETERS_MAX == SLUICE_PARAMETERS_MAX, "likewise");
_Static_assert(TENSOR_RANK_MAX == SLUICE_RANK_MAX, "likewise");
_Static_assert(TENSOR_NAME_MAX == SLUICE_NAME_MAX, "likewise");

void request_tensors_free(struct request_tensors *tensors)
{
    if (!tensors)
        return;
    free(tensors->copy);
    job_mappings_give(tensors->mappings, tensors->inputs);
    job_mappings_give(tensors->mappings, tensors->outputs);
    tensors->inputs = tensors->outputs = NULL;
    tensors->copy = NULL;
    tensors->bytes = 0;
}

void job_builder_drop(struct job_builder *builder)
{
    request_builder_drop(&builder->base); /* and all that it keeps */
}

int job_builder_open(struct job_builder *builder, struct server *server, struct response_sink *sink,
                     const char *program, uint32_t items, const struct request_params *params,
                     time_us arrived_us, struct error *error)
{
    *builder = (struct job_builder){.base.server = server,
                                    .program = programs_find(server->jobs.programs, program)};
    if (!server->jobs.programs)
        return error_set(error, ERR_UNSUPPORTED, "this daemon serves no programs");
    if (!builder->program)
        return error_set(error, ERR_NOT_FOUND, "there is no program %s", program);
    if (builder->program->off)
        return error_set(error, ERR_PROGRAM_OFF, "program %s is off until an admin enables it: %s",
                         program, builder->program->reason);
    int rc =
        request_builder_open(&builder->base, server, NULL, sink, items, params, arrived_us, error);
    if (rc)
        return rc;
    struct request *request = builder->base.request;
    builder->jobs = request_keep(request, items * sizeof(*builder->jobs));
    builder->at = request_keep(request, items * sizeof(*builder->at));
    request->tensors = request_keep(request, sizeof(*request->tensors));
    if (!builder->jobs || !builder->at || !request->tensors) {
        request->tensors = NULL;
        request_builder_drop(&builder->base);
        return error_set(error, ERR_NO_MEMORY, "no memory for %" PRIu32 " jobs", items);
    }
    *request->tensors = (struct request_tensors){.bytes = 0};
    return 0;
}

/* ---- items -------------------------------------------------------------------------------------
 */

static const struct message_tensor *find_tensor(const struct message_item *item, const char *name)
{
    for (uint32_t i = 0; i < item->input_count; i++)
        if (strcmp(item->inputs[i].name, name) == 0)
            return &item->inputs[i];
    return NULL;
}

static bool knows_input(const struct program *program, const char *name)
{
    for (uint32_t i = 0; i < program->input_count; i++)
        if (strcmp(program->inputs[i].name, name) == 0)
            return true;
    return false;
}

static int check_inputs(const struct program *program, const struct message_item *item,
                        struct tensor_job *job, uint64_t at[SLUICE_TENSORS_MAX],
                        struct error *error)
{
    int rc = 0;
    for (uint32_t i = 0; i < item->input_count; i++)
        if (!knows_input(program, item->inputs[i].name))
            return error_set(error, ERR_UNKNOWN_FIELD, "program %s has no input %.63s",
                             program->name, item->inputs[i].name);
    for (uint32_t i = 0; !rc && i < program->input_count; i++) {
        const struct program_tensor *tensor = &program->inputs[i];
        const struct message_tensor *given = find_tensor(item, tensor->name);
        if (!given)
            return error_set(error, ERR_BAD_VALUE, "input %s is missing", tensor->name);
        if (given->dtype != tensor->dtype)
            return error_set(error, ERR_BAD_VALUE, "input %s is %s, it must be %s", tensor->name,
                             tensor_dtype_name(given->dtype), tensor_dtype_name(tensor->dtype));
        rc = shape_match(program, tensor, given->rank, given->shape, job->sizes, error);
        job->in_bytes += tensor_pad(given->bytes);
        at[i] = given->at;
    }
    return rc;
}

static int check_value(const struct program_parameter *parameter, const struct message_value *given,
                       union sluice_value *ret_value, struct error *error)
{
    switch (parameter->type) {
    case SLUICE_SWITCH:
        if (given->type != VALUE_BOOL)
            return error_set(error, ERR_BAD_VALUE, "parameter %s is true or false",
                             parameter->name);
        ret_value->integer = given->integer;
        return 0;
    case SLUICE_INTEGER:
        if (given->type != VALUE_INTEGER || given->integer < parameter->min.integer ||
            given->integer > parameter->max.integer)
            return error_set(error, ERR_BAD_VALUE,
                             "parameter %s is a whole number from %" PRId64 " to %" PRId64,
                             parameter->name, parameter->min.integer, parameter->max.integer);
        ret_value->integer = given->integer;
        return 0;
    case SLUICE_NUMBER:
        break;
    }
    if (given->type == VALUE_BOOL || !(given->number >= parameter->min.number) ||
        !(given->number <= parameter->max.number))
        return error_set(error, ERR_BAD_VALUE, "parameter %s is a number from %g to %g",
                         parameter->name, parameter->min.number, parameter->max.number);
    ret_value->number = given->number;
    return 0;
}

static int check_values(const struct program *program, const struct message_item *item,
                        struct tensor_job *job, struct error *error)
{
    uint32_t used = 0;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < program->parameter_count; i++) {
        const struct program_parameter *parameter = &program->parameters[i];
        const struct message_value *given = NULL;
        for (uint32_t j = 0; j < item->value_count; j++)
            if (strcmp(item->values[j].name, parameter->name) == 0)
                given = &item->values[j];
        job->values[i] = parameter->standard;
        used += given != NULL;
        if (given)
            rc = check_value(parameter, given, &job->values[i], error);
        else if (parameter->required)
            rc = error_set(error, ERR_BAD_VALUE, "parameter %s is missing", parameter->name);
    }
    for (uint32_t j = 0; !rc && used < item->value_count && j < item->value_count; j++) {
        bool known = false;
        for (uint32_t i = 0; i < program->parameter_count; i++)
            known |= strcmp(item->values[j].name, program->parameters[i].name) == 0;
        if (!known)
            rc = error_set(error, ERR_UNKNOWN_FIELD, "program %s has no parameter %.63s",
                           program->name, item->values[j].name);
    }
    return rc;
}

/* What all sizes are by now, and whether the program takes them together. */
static int check_sizes(const struct program *program, struct tensor_job *job, struct error *error)
{
    struct sluice_item item = {.sizes = {0}};
    shape_values(program, job->values, job->sizes);
    memcpy(item.sizes, job->sizes, sizeof(item.sizes));
    memcpy(item.values, job->values, sizeof(item.values));
    item.whole = item.sizes[0];
    return shape_check(program, &item, error);
}

static int measure_outputs(const struct program *program, struct tensor_job *job,
                           struct error *error)
{
    uint64_t bytes = 0;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < program->output_count; i++) {
        rc = shape_bytes(&program->outputs[i], job->sizes, &bytes, error);
        job->out_bytes += rc ? 0 : tensor_pad(bytes);
    }
    return rc;
}

static int add_item(struct job_builder *builder, const struct message_item *item,
                    struct error *error)
{
    struct request *request = builder->base.request;
    const struct program *program = &builder->program->program;
    struct tensor_job *job = &builder->jobs[request->seq_count];
    *job = (struct tensor_job){.program = builder->program};
    int rc = check_inputs(program, item, job, builder->at[request->seq_count], error);
    if (!rc)
        rc = check_values(program, item, job, error);
    if (!rc)
        rc = check_sizes(program, job, error);
    if (!rc)
        rc = measure_outputs(program, job, error);
    if (!rc)
        rc = chunk_check(job, &builder->base.server->jobs.limits, error);
    if (!rc)
        rc = request_add_job(request, job, error);
    if (rc)
        return rc;
    builder->in_bytes += job->in_bytes;
    builder->out_bytes += job->out_bytes;
    return 0;
}

int job_builder_item(struct job_builder *builder, const struct message_item *item,
                     struct error *error)
{
    struct error found;
    if (add_item(builder, item, &found))
        return error_limit(error, found.code, found.limit, found.value, "item %" PRIu32 ": %s",
                           builder->base.request->seq_count, found.text);
    return 0;
}

/* ---- admission ---------------------------------------------------------------------------------
 */

int job_builder_admit(struct job_builder *builder, const struct response_sink *sink,
                      const struct job_source *source, struct error *error)
{
    struct server *server = builder->base.server;
    struct request *request = builder->base.request;
    const bool shared = source->outputs_bytes > 0;
    if (shared && source->outputs_bytes < builder->out_bytes)
        return error_limit(error, ERR_BAD_VALUE, builder->out_bytes, source->outputs_bytes,
                           "memory.outputs has %" PRIu64 " bytes, the outputs take %" PRIu64,
                           source->outputs_bytes, builder->out_bytes);
    for (uint32_t i = 0; i < request->seq_count; i++)
        request->seqs[i].job->shared = shared;
    request->tensors->user = sink->user->id;
    request->tensors->bytes = source->inputs_bytes + (shared ? builder->out_bytes : 0);
    int rc = admission_tensors(&server->limits, &server->load, &sink->user->load,
                               request->tensors->bytes, server_retry_ms(server), error);
    return rc ? rc : request_builder_admit(&builder->base, sink, error);
}

void job_place_outputs(struct tensor_job *job, void *from)
{
    const struct program *program = &job->program->program;
    unsigned char *at = from;
    uint64_t bytes = 0;
    struct error ignored;
    for (uint32_t i = 0; i < program->output_count; i++) {
        job->outputs[i] = at;
        (void)shape_bytes(&program->outputs[i], job->sizes, &bytes, &ignored); /* it was measured */
        at += tensor_pad(bytes);
    }
}

static int take_memory(struct request_tensors *tensors, const struct job_builder *builder,
                       const struct job_source *source, struct error *error)
{
    int rc = 0;
    tensors->mappings = &builder->base.server->jobs.mappings;
    if (source->owned) {
        tensors->copy = source->owned;
    } else if (!source->payload) {
        rc = job_mappings_take(tensors->mappings, tensors->user, source->inputs_fd, source->inputs_bytes,
                               false, "inputs", &tensors->inputs, error);
    } else {
        tensors->copy = malloc(source->inputs_bytes);
        if (!tensors->copy)
            return error_set(error, ERR_NO_MEMORY, "no memory for %" PRIu64 " bytes of tensors",
                             source->inputs_bytes);
        memcpy(tensors->copy, source->payload, source->inputs_bytes);
    }
    if (!rc && source->outputs_bytes > 0)
        rc = job_mappings_take(tensors->mappings, tensors->user, source->outputs_fd, builder->out_bytes,
                               true, "outputs", &tensors->outputs, error);
    return rc;
}

int job_builder_place(struct job_builder *builder, const struct job_source *source,
                      struct error *error)
{
    struct request *request = builder->base.request;
    struct request_tensors *tensors = request->tensors;
    const struct program *program = &builder->program->program;
    int rc = take_memory(tensors, builder, source, error);
    if (rc)
        return rc;
    const unsigned char *inputs = tensors->copy ? tensors->copy : job_mapping_address(tensors->inputs);
    unsigned char *outputs = job_mapping_address(tensors->outputs);
    for (uint32_t i = 0; i < request->seq_count; i++) {
        struct tensor_job *job = request->seqs[i].job;
        for (uint32_t j = 0; j < program->input_count; j++)
            job->inputs[j] = inputs + builder->at[i][j];
        if (outputs)
            job_place_outputs(job, outputs);
        outputs += outputs ? job->out_bytes : 0;
    }
    return 0;
}
