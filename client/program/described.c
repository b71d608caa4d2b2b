#include "client/program/described.h"

#include <stdio.h>
#include <string.h>

#include "protocol/base/tensor.h"

int described_find(const json *answer, const char *name, const json **ret_program,
                   struct error *error)
{
    char names[256] = "";
    size_t used = 0;
    for (const json *at = json_child(json_get(answer, "programs")); at; at = json_next(at)) {
        const char *own = json_string(json_get(at, "name"));
        if (strcmp(own, name) == 0) {
            *ret_program = at;
            return 0;
        }
        if (used < sizeof(names))
            used +=
                (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", own);
    }
    return error_set(error, ERR_NOT_FOUND, "the daemon has no program %.63s%s%.200s", name,
                     names[0] ? "; it has " : "", names);
}

static const json *nth(const json *list, uint32_t index)
{
    const json *at = json_child(list);
    while (at && index-- > 0)
        at = json_next(at);
    return at;
}

uint32_t described_outputs(const json *program)
{
    size_t count = json_count(json_get(program, "outputs"));
    return count < SLUICE_ARRAYS_MAX ? (uint32_t)count : SLUICE_ARRAYS_MAX;
}

const char *described_output(const json *program, uint32_t output)
{
    return json_string(json_get(nth(json_get(program, "outputs"), output), "name"));
}

/* What the item gives a parameter, else its default; 0: neither, or no size. */
static uint64_t value_of(const json *program, const char *name, const struct described_item *item)
{
    for (size_t i = 0; i < item->argument_count; i++)
        if (strcmp(item->arguments[i].name, name) == 0)
            return item->arguments[i].type == SLUICE_ARGUMENT_INTEGER &&
                           item->arguments[i].integer > 0
                       ? (uint64_t)item->arguments[i].integer
                       : 0;
    for (const json *at = json_child(json_get(program, "parameters")); at; at = json_next(at)) {
        const double own = json_number(json_get(at, "default"));
        if (strcmp(json_string(json_get(at, "name")), name) == 0 && own >= 1 && own <= 0x1p53)
            return (uint64_t)own;
    }
    return 0;
}

/* The size of that name, as the inputs or the parameters have it; 0: none has. */
static uint64_t size_of(const json *program, const char *size, const struct described_item *item)
{
    for (const json *at = json_child(json_get(program, "inputs")); at; at = json_next(at))
        for (size_t i = 0; i < item->input_count; i++) {
            const sluice_array *input = &item->inputs[i];
            size_t place = 0;
            if (strcmp(input->name, json_string(json_get(at, "name"))) != 0)
                continue;
            for (const json *dimension = json_child(json_get(at, "shape"));
                 dimension && place < input->rank; dimension = json_next(dimension), place++)
                if (json_is_string(dimension) && strcmp(json_string(dimension), size) == 0)
                    return input->shape[place];
        }
    return value_of(program, size, item);
}

int described_shape(const json *program, const struct described_item *item, uint32_t output,
                    sluice_array *ret_array, struct error *error)
{
    const json *said = nth(json_get(program, "outputs"), output);
    sluice_array array = {.name = json_string(json_get(said, "name")),
                          .dtype = (int)tensor_dtype_find(json_string(json_get(said, "dtype")))};
    for (const json *at = json_child(json_get(said, "shape")); at; at = json_next(at)) {
        if (array.rank == SLUICE_ARRAY_RANK_MAX)
            return error_set(error, ERR_BAD_VALUE, "output %s has too many dimensions", array.name);
        array.shape[array.rank++] = json_is_string(at) ? size_of(program, json_string(at), item)
                                                       : (uint64_t)json_number(at);
    }
    if (sluice_array_bytes(&array) == 0)
        return error_set(error, ERR_BAD_VALUE, "the inputs do not say what shape output %s has",
                         array.name);
    *ret_array = array;
    return 0;
}
