#include "gpu/jobs/shape.h"

#include <inttypes.h>

#include "protocol/base/tensor.h"

static uint64_t dimension_of(const struct program_tensor *tensor, uint32_t i, const uint64_t *sizes)
{
    int64_t said = tensor->shape[i];
    return said > 0 ? (uint64_t)said : sizes[-said - 1];
}

void shape_of(const struct program_tensor *tensor, const uint64_t *sizes,
              uint64_t ret_dimensions[SLUICE_RANK_MAX])
{
    for (uint32_t i = 0; i < tensor->rank; i++)
        ret_dimensions[i] = dimension_of(tensor, i, sizes);
}

static int match(const struct program *program, const struct program_tensor *tensor, uint32_t i,
                 uint64_t given, uint64_t *sizes, struct error *error)
{
    int64_t said = tensor->shape[i];
    if (said > 0)
        return given == (uint64_t)said
                   ? 0
                   : error_limit(error, ERR_BAD_VALUE, (uint64_t)said, given,
                                 "%s: dimension %" PRIu32 " is %" PRIu64 ", it must be %" PRId64,
                                 tensor->name, i, given, said);
    const struct program_size *size = &program->sizes[-said - 1];
    uint64_t *known = &sizes[-said - 1];
    if (given < size->min || given > size->max)
        return error_limit(error, given > size->max ? ERR_TOO_LARGE : ERR_BAD_VALUE, size->max,
                           given,
                           "%s: dimension %" PRIu32 " (%s) is %" PRIu64 ", it must be %" PRIu64
                           " to %" PRIu64,
                           tensor->name, i, size->name, given, size->min, size->max);
    if (*known && *known != given)
        return error_limit(error, ERR_BAD_VALUE, *known, given,
                           "%s: dimension %" PRIu32 " (%s) is %" PRIu64
                           ", in another place it is %" PRIu64,
                           tensor->name, i, size->name, given, *known);
    *known = given;
    return 0;
}

int shape_match(const struct program *program, const struct program_tensor *tensor, uint32_t rank,
                const uint64_t *dimensions, uint64_t sizes[SLUICE_SIZES_MAX], struct error *error)
{
    if (rank != tensor->rank)
        return error_limit(error, ERR_BAD_VALUE, tensor->rank, rank,
                           "%s has %" PRIu32 " dimensions, it must have %" PRIu32, tensor->name,
                           rank, tensor->rank);
    int rc = 0;
    for (uint32_t i = 0; !rc && i < rank; i++)
        rc = match(program, tensor, i, dimensions[i], sizes, error);
    return rc;
}

void shape_values(const struct program *program, const union sluice_value *values,
                  uint64_t sizes[SLUICE_SIZES_MAX])
{
    for (uint32_t i = 0; i < program->size_count; i++)
        if (program->sizes[i].parameter >= 0)
            sizes[i] = (uint64_t)values[program->sizes[i].parameter].integer;
}

int shape_check(const struct program *program, const struct sluice_item *item, struct error *error)
{
    const char *why = program->check ? program->check(item) : NULL;
    return why ? error_set(error, ERR_BAD_VALUE, "program %s: %.200s", program->name, why) : 0;
}

int shape_bytes(const struct program_tensor *tensor, const uint64_t *sizes, uint64_t *ret_bytes,
                struct error *error)
{
    uint64_t bytes = tensor_dtype_bytes(tensor->dtype);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint64_t dimension = dimension_of(tensor, i, sizes);
        if (dimension > PROGRAM_SIZE_MAX / bytes)
            return error_limit(error, ERR_TOO_LARGE, PROGRAM_SIZE_MAX, 0,
                               "%s would have more than 2^40 bytes", tensor->name);
        bytes *= dimension;
    }
    *ret_bytes = bytes;
    return 0;
}

static int sum(const struct program_tensor *tensors, uint32_t count, const uint64_t *sizes,
               uint64_t *ret_sum, struct error *error)
{
    uint64_t all = 0, bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        int rc = shape_bytes(&tensors[i], sizes, &bytes, error);
        if (rc)
            return rc;
        all += shape_align(bytes); /* at most eight times 2^40 */
    }
    *ret_sum = all;
    return 0;
}

int shape_room(const struct program *program, const struct sluice_item *item,
               struct shape_room *ret_room, struct error *error)
{
    struct shape_room room = {.in = 0};
    int rc = sum(program->inputs, program->input_count, item->sizes, &room.in, error);
    if (!rc)
        rc = sum(program->outputs, program->output_count, item->sizes, &room.out, error);
    if (rc)
        return rc;
    room.scratch = program->scratch ? program->scratch(item) : 0;
    if (room.scratch > PROGRAM_SIZE_MAX)
        return error_limit(error, ERR_TOO_LARGE, PROGRAM_SIZE_MAX, room.scratch,
                           "%s asks for more than 2^40 bytes of scratch", program->name);
    room.scratch = shape_align(room.scratch);
    *ret_room = room;
    return 0;
}

static bool fits(const struct program *program, const struct sluice_item *item, uint64_t rows,
                 uint64_t bytes, uint64_t all)
{
    struct sluice_item piece = *item;
    struct shape_room room;
    struct error ignored;
    piece.sizes[0] = rows;
    return !shape_room(program, &piece, &room, &ignored) && room.in <= bytes && room.out <= bytes &&
           room.in + room.out + room.scratch <= all;
}

uint64_t shape_rows(const struct program *program, const struct sluice_item *item, uint64_t bytes,
                    uint64_t all)
{
    const uint64_t cut = program->cut_rows, whole = item->sizes[0];
    if (fits(program, item, whole, bytes, all))
        return whole;
    if (cut == 0 || whole <= cut || !fits(program, item, cut, bytes, all))
        return 0;
    /* More rows take no less room: the last multiple that fits lies between. */
    uint64_t low = 1, high = whole / cut + 1;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (middle * cut < whole && fits(program, item, middle * cut, bytes, all))
            low = middle;
        else
            high = middle;
    }
    return low * cut;
}

uint64_t shape_offset(const struct program_tensor *tensor, const uint64_t *sizes, uint64_t first)
{
    uint64_t row = tensor_dtype_bytes(tensor->dtype);
    if (tensor->shape[0] != SLUICE_SIZE(0))
        return 0;
    for (uint32_t i = 1; i < tensor->rank; i++)
        row *= dimension_of(tensor, i, sizes);
    return row * first;
}
