#include "daemon/jobs/programs.h"

#include <stdio.h>
#include <string.h>

#include "daemon/jobs/record.h"
#include "gpu/jobs/module.h"
#include "protocol/base/log.h"
#include "protocol/base/tensor.h"

static int load_one(struct job_programs *programs, struct option_word word, const char *device,
                    const char *folder, struct error *error)
{
    struct job_program *program = &programs->list[programs->count];
    if (programs->count == JOB_PROGRAMS_MAX)
        return error_limit(error, ERR_BAD_CONFIG, JOB_PROGRAMS_MAX, JOB_PROGRAMS_MAX + 1,
                           "program: at most %d are served", JOB_PROGRAMS_MAX);
    if (word.length == 0 || word.length >= sizeof(program->path))
        return error_set(error, ERR_BAD_CONFIG, "program: a file's name is empty or too long");
    snprintf(program->path, sizeof(program->path), "%.*s", (int)word.length, word.text);
    int rc = module_load(program->path, device, &program->program, error);
    if (rc)
        return rc;
    if (programs_find(programs, program->program.name))
        return error_set(error, ERR_BAD_CONFIG, "program %.200s: there is one named %s already",
                         program->path, program->program.name);
    record_name(folder, program->program.name, program->record, sizeof(program->record));
    program->off = record_read(program->record, program->reason);
    if (program->off)
        log_line(LOG_ERROR, "jobs",
                 "program %s is off: %s (an admin enables it: sluice programs --enable %s)",
                 program->program.name, program->reason, program->program.name);
    programs->count++;
    return 0;
}

int programs_load(struct job_programs *programs, const struct options *options, const char *device,
                  bool serve, struct error *error)
{
    char folder[JOB_PATH_MAX - SLUICE_NAME_MAX - 16];
    const char *list = options->program;
    struct option_word word;
    programs->count = 0;
    if (!list[0])
        return 0;
    int rc = record_folder(options->state_dir, serve, folder, sizeof(folder), error);
    while (!rc && option_next(&list, &word))
        rc = load_one(programs, word, device, folder, error);
    return rc;
}

void programs_streams(const struct job_programs *programs, uint32_t *ret_streams,
                      uint32_t *ret_events)
{
    *ret_streams = 1;
    *ret_events = 0;
    for (unsigned i = 0; i < programs->count; i++) {
        const struct program *program = &programs->list[i].program;
        if (program->stream_count > *ret_streams)
            *ret_streams = program->stream_count;
        if (program->event_count > *ret_events)
            *ret_events = program->event_count;
    }
}

struct job_program *programs_find(struct job_programs *programs, const char *name)
{
    for (unsigned i = 0; programs && i < programs->count; i++)
        if (strcmp(programs->list[i].program.name, name) == 0)
            return &programs->list[i];
    return NULL;
}

int programs_enable(struct job_program *program, struct error *error)
{
    int rc = record_clear(program->record, error);
    if (!rc)
        program->off = false;
    return rc;
}

/* ---- what clients are told ---------------------------------------------------------------------
 */

static void put_tensors(struct json_writer *writer, const char *key, const struct program *program,
                        const struct program_tensor *tensors, uint32_t count)
{
    json_open(writer, key, '[');
    for (uint32_t i = 0; i < count; i++) {
        json_open(writer, NULL, '{');
        json_put_text(writer, "name", tensors[i].name);
        json_put_text(writer, "dtype", tensor_dtype_name(tensors[i].dtype));
        json_open(writer, "shape", '[');
        for (uint32_t j = 0; j < tensors[i].rank; j++) {
            int64_t dimension = tensors[i].shape[j];
            if (dimension > 0)
                json_put_int(writer, NULL, dimension);
            else
                json_put_text(writer, NULL, program->sizes[-dimension - 1].name);
        }
        json_close(writer, ']');
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

static void put_value(struct json_writer *writer, const char *key, enum sluice_parameter_type type,
                      union sluice_value value)
{
    if (type == SLUICE_SWITCH)
        json_put_bool(writer, key, value.integer != 0);
    else if (type == SLUICE_INTEGER)
        json_put_int(writer, key, value.integer);
    else
        json_put_exact(writer, key, value.number);
}

static void put_parameter(struct json_writer *writer, const struct program_parameter *parameter)
{
    static const char *const types[] = {
        [SLUICE_INTEGER] = "integer", [SLUICE_NUMBER] = "number", [SLUICE_SWITCH] = "boolean"};
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", parameter->name);
    json_put_text(writer, "help", parameter->help);
    json_put_text(writer, "type", types[parameter->type]);
    json_put_bool(writer, "required", parameter->required);
    if (!parameter->required)
        put_value(writer, "default", parameter->type, parameter->standard);
    if (parameter->type != SLUICE_SWITCH) {
        put_value(writer, "min", parameter->type, parameter->min);
        put_value(writer, "max", parameter->type, parameter->max);
    }
    json_close(writer, '}');
}

void programs_describe(const struct job_program *program, struct json_writer *writer)
{
    const struct program *said = &program->program;
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", said->name);
    json_put_text(writer, "summary", said->summary);
    json_put_bool(writer, "off", program->off);
    if (program->off)
        json_put_text(writer, "reason", program->reason);
    json_open(writer, "sizes", '[');
    for (uint32_t i = 0; i < said->size_count; i++) {
        json_open(writer, NULL, '{');
        json_put_text(writer, "name", said->sizes[i].name);
        json_put_uint(writer, "min", said->sizes[i].min);
        json_put_uint(writer, "max", said->sizes[i].max);
        json_close(writer, '}');
    }
    json_close(writer, ']');
    put_tensors(writer, "inputs", said, said->inputs, said->input_count);
    put_tensors(writer, "outputs", said, said->outputs, said->output_count);
    json_open(writer, "parameters", '[');
    for (uint32_t i = 0; i < said->parameter_count; i++)
        put_parameter(writer, &said->parameters[i]);
    json_close(writer, ']');
    json_put_uint(writer, "live", program->live);
    json_put_uint(writer, "jobs", program->jobs_total);
    json_put_uint(writer, "failed", program->failed_total);
    json_put_uint(writer, "bytes_in", program->bytes_in_total);
    json_put_uint(writer, "bytes_out", program->bytes_out_total);
    json_close(writer, '}');
}
