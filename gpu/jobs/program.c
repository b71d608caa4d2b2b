#include "gpu/jobs/program.h"

#include <math.h>
#include <string.h>

#include "protocol/base/tensor.h"
#include "protocol/base/utf8.h"

_Static_assert((int)SLUICE_BOOL == TENSOR_BOOL && (int)SLUICE_F16 == TENSOR_F16 &&
                   (int)SLUICE_F64 == TENSOR_F64,
               "the same numbers");

static int bad(struct error *error, const char *what, const char *why)
{
    return error_set(error, ERR_BAD_CONFIG, "the program's %s: %s", what, why);
}

static int read_name(const char *said, const char *what, char ret[SLUICE_NAME_MAX + 1],
                     struct error *error)
{
    size_t length = said ? strnlen(said, SLUICE_NAME_MAX + 1) : 0;
    if (length == 0 || length > SLUICE_NAME_MAX)
        return bad(error, what, "a name has 1 to 63 bytes");
    if (strspn(said, "abcdefghijklmnopqrstuvwxyz0123456789_-") != length)
        return bad(error, what, "a name is made of a-z, 0-9, _ and -");
    memcpy(ret, said, length + 1);
    return 0;
}

static int read_line(const char *said, const char *what, char ret[PROGRAM_SUMMARY_MAX + 1],
                     struct error *error)
{
    size_t length = said ? strnlen(said, PROGRAM_SUMMARY_MAX + 1) : 0;
    if (length > PROGRAM_SUMMARY_MAX || utf8_valid(said ? said : "", length) != length)
        return bad(error, what, "a line has at most 255 bytes of UTF-8");
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)said[i] < ' ')
            return bad(error, what, "a line has no control characters");
    if (length > 0)
        memcpy(ret, said, length);
    ret[length] = '\0';
    return 0;
}

/* ---- sizes and tensors -------------------------------------------------------------------------
 */

static int read_sizes(const struct sluice_program *said, struct program *program,
                      struct error *error)
{
    for (uint32_t i = 0; i < program->size_count; i++) {
        struct program_size *size = &program->sizes[i];
        *size = (struct program_size){.min = said->sizes[i].min, .max = said->sizes[i].max};
        int rc = read_name(said->sizes[i].name, "size", size->name, error);
        if (rc)
            return rc;
        if (size->min < 1 || size->min > size->max || size->max > PROGRAM_SIZE_MAX)
            return bad(error, size->name, "a size is from at least 1 to at most 2^40");
    }
    return 0;
}

static int read_tensor(const struct sluice_tensor *said, const struct program *program,
                       struct program_tensor *tensor, struct error *error)
{
    int rc = read_name(said->name, "tensor", tensor->name, error);
    if (rc)
        return rc;
    if (tensor_dtype_bytes(said->dtype) == 0)
        return bad(error, tensor->name, "its dtype is none that there is");
    if (said->rank < 1 || said->rank > SLUICE_RANK_MAX)
        return bad(error, tensor->name, "a tensor has 1 to 6 dimensions");
    tensor->dtype = (enum sluice_dtype)said->dtype;
    tensor->rank = said->rank;
    uint64_t fixed = tensor_dtype_bytes(said->dtype);
    for (uint32_t i = 0; i < said->rank; i++) {
        int64_t dimension = tensor->shape[i] = said->shape[i];
        if (dimension == 0 || dimension < SLUICE_SIZE(program->size_count) + 1)
            return bad(error, tensor->name, "a dimension is 0, or a size that there is not");
        if (dimension > 0 && (uint64_t)dimension > PROGRAM_SIZE_MAX / fixed)
            return bad(error, tensor->name, "its fixed dimensions are more than 2^40 bytes");
        fixed *= dimension > 0 ? (uint64_t)dimension : 1;
    }
    return 0;
}

static bool names_size(const struct program_tensor *tensor, uint32_t size, uint32_t from)
{
    for (uint32_t i = from; i < tensor->rank; i++)
        if (tensor->shape[i] == SLUICE_SIZE(size))
            return true;
    return false;
}

static int read_tensors(const struct sluice_program *said, struct program *program,
                        struct error *error)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < program->input_count; i++)
        rc = read_tensor(&said->inputs[i], program, &program->inputs[i], error);
    for (uint32_t i = 0; !rc && i < program->output_count; i++)
        rc = read_tensor(&said->outputs[i], program, &program->outputs[i], error);
    return rc;
}

/* Of one kind: sizes, inputs, and so on. */
static int check_twice(const void *names, size_t stride, uint32_t count, const char *what,
                       struct error *error)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (!strcmp((const char *)names + i * stride, (const char *)names + j * stride))
                return error_set(error, ERR_BAD_CONFIG, "the program has two %s named %.63s", what,
                                 (const char *)names + i * stride);
    return 0;
}

static int check_names(const struct program *program, struct error *error)
{
    int rc = check_twice(program->sizes[0].name, sizeof(program->sizes[0]), program->size_count,
                         "sizes", error);
    if (!rc)
        rc = check_twice(program->inputs[0].name, sizeof(program->inputs[0]), program->input_count,
                         "inputs", error);
    if (!rc)
        rc = check_twice(program->outputs[0].name, sizeof(program->outputs[0]),
                         program->output_count, "outputs", error);
    if (!rc)
        rc = check_twice(program->parameters[0].name, sizeof(program->parameters[0]),
                         program->parameter_count, "parameters", error);
    return rc;
}

/* What cut_rows promises of the shapes. */
static int check_cut(const struct program *program, struct error *error)
{
    bool input = false;
    if (program->cut_rows == 0)
        return 0;
    for (uint32_t i = 0; i < program->input_count; i++) {
        input |= program->inputs[i].shape[0] == SLUICE_SIZE(0);
        if (names_size(&program->inputs[i], 0, 1))
            return bad(error, "cut_rows", "size 0 is the first dimension or none");
    }
    for (uint32_t i = 0; i < program->output_count; i++)
        if (program->outputs[i].shape[0] != SLUICE_SIZE(0) ||
            names_size(&program->outputs[i], 0, 1))
            return bad(error, "cut_rows", "size 0 is the first dimension of every output");
    if (program->size_count == 0 || !input || program->cut_rows > PROGRAM_SIZE_MAX)
        return bad(error, "cut_rows", "there is an input whose first dimension is size 0");
    return 0;
}

/* ---- parameters --------------------------------------------------------------------------------
 */

static bool within(const struct program_parameter *parameter)
{
    const union sluice_value low = parameter->min, high = parameter->max, own = parameter->standard;
    switch (parameter->type) {
    case SLUICE_SWITCH:
        return own.integer == 0 || own.integer == 1;
    case SLUICE_INTEGER:
        return low.integer >= -PROGRAM_INTEGER_MAX && high.integer <= PROGRAM_INTEGER_MAX &&
               low.integer <= own.integer && own.integer <= high.integer;
    case SLUICE_NUMBER:
        return isfinite(low.number) && isfinite(high.number) && low.number <= own.number &&
               own.number <= high.number;
    }
    return false;
}

static int read_parameters(const struct sluice_program *said, struct program *program,
                           struct error *error)
{
    for (uint32_t i = 0; i < program->parameter_count; i++) {
        const struct sluice_parameter *from = &said->parameters[i];
        struct program_parameter *parameter = &program->parameters[i];
        *parameter = (struct program_parameter){.type = (enum sluice_parameter_type)from->type,
                                                .required = from->required != 0,
                                                .standard = from->standard,
                                                .min = from->min,
                                                .max = from->max};
        int rc = read_name(from->name, "parameter", parameter->name, error);
        if (!rc)
            rc = read_line(from->help, parameter->name, parameter->help, error);
        if (!rc && parameter->required)
            parameter->standard = parameter->min;
        if (!rc && !within(parameter))
            rc = bad(error, parameter->name, "its type, bounds and standard do not go together");
        if (rc)
            return rc;
    }
    return 0;
}

/* The parameter that gives the size its value; -1: there is none. */
static int32_t parameter_of(const struct program *program, const struct program_size *size)
{
    for (uint32_t i = 0; i < program->parameter_count; i++) {
        const struct program_parameter *parameter = &program->parameters[i];
        if (strcmp(parameter->name, size->name) == 0 && parameter->type == SLUICE_INTEGER &&
            parameter->min.integer >= (int64_t)size->min &&
            parameter->max.integer <= (int64_t)size->max)
            return (int32_t)i;
    }
    return -1;
}

static int place_sizes(struct program *program, struct error *error)
{
    for (uint32_t number = 0; number < program->size_count; number++) {
        struct program_size *size = &program->sizes[number];
        bool found = false;
        for (uint32_t i = 0; i < program->input_count; i++)
            found |= names_size(&program->inputs[i], number, 0);
        size->parameter = found ? -1 : parameter_of(program, size);
        if (!found && size->parameter < 0)
            return bad(error, size->name,
                       "a size is a dimension of an input, or a parameter with its bounds");
    }
    return 0;
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static int check_counts(const struct sluice_program *said, struct error *error)
{
    if (said->input_count < 1 || said->input_count > SLUICE_TENSORS_MAX || said->output_count < 1 ||
        said->output_count > SLUICE_TENSORS_MAX || !said->inputs || !said->outputs)
        return bad(error, "tensors", "there are 1 to 8 inputs and 1 to 8 outputs");
    if (said->size_count > SLUICE_SIZES_MAX || (said->size_count > 0 && !said->sizes))
        return bad(error, "sizes", "there are at most 4");
    if (said->parameter_count > SLUICE_PARAMETERS_MAX ||
        (said->parameter_count > 0 && !said->parameters))
        return bad(error, "parameters", "there are at most 16");
    if (said->stream_count > SLUICE_STREAMS_MAX || said->event_count > SLUICE_EVENTS_MAX)
        return bad(error, "streams", "there are at most 4, and at most 8 events");
    if (said->flags & ~SLUICE_WRITES_ALL || said->reserved != 0)
        return bad(error, "flags", "one is set that is not known");
    if (said->batch_scratch > PROGRAM_SIZE_MAX)
        return bad(error, "batch_scratch", "it is at most 2^40 bytes");
    return said->enqueue ? 0 : bad(error, "enqueue", "there is none");
}

int program_read(const struct sluice_program *said, struct program *ret, struct error *error)
{
    if (said->abi < SLUICE_PROGRAM_ABI_OLDEST || said->abi > SLUICE_PROGRAM_ABI)
        return error_limit(error, ERR_BAD_CONFIG, SLUICE_PROGRAM_ABI, said->abi,
                           "the program has interface version %u, this daemon knows %u to %u",
                           said->abi, SLUICE_PROGRAM_ABI_OLDEST, SLUICE_PROGRAM_ABI);
    int rc = check_counts(said, error);
    if (rc)
        return rc;
    struct program program = {.size_count = said->size_count,
                              .input_count = said->input_count,
                              .output_count = said->output_count,
                              .parameter_count = said->parameter_count,
                              .stream_count = said->stream_count ? said->stream_count : 1,
                              .event_count = said->event_count,
                              .writes_all = said->flags & SLUICE_WRITES_ALL,
                              .cut_rows = said->cut_rows,
                              .batch_items_max = said->batch_items_max,
                              .batch_scratch = said->batch_scratch,
                              .scratch = said->scratch,
                              .enqueue = said->enqueue,
                              .check = said->abi >= 2 ? said->check : NULL};
    rc = read_name(said->name, "name", program.name, error);
    if (!rc)
        rc = read_line(said->summary, "summary", program.summary, error);
    if (!rc)
        rc = read_sizes(said, &program, error);
    if (!rc)
        rc = read_tensors(said, &program, error);
    if (!rc)
        rc = read_parameters(said, &program, error);
    if (!rc)
        rc = place_sizes(&program, error);
    if (!rc)
        rc = check_names(&program, error);
    if (!rc)
        rc = check_cut(&program, error);
    if (!rc)
        *ret = program;
    return rc;
}
