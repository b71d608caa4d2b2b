#include "gpu/weights/turned.h"

#include <stdlib.h>
#include <string.h>

#define LINES                                                                                      \
    32 /* of the checkpoint, that are read before they are turned: rows get some at once */

/* Elements of `count` lines, of which each has one for every row. */
static void turn(char *to, const char *lines, uint32_t count, uint32_t rows, uint64_t stride,
                 uint32_t element)
{
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < count; i++)
            memcpy(to + row * stride + (uint64_t)i * element,
                   lines + ((uint64_t)i * rows + row) * element, element);
}

int turned_rows(const struct checkpoint *checkpoint, const struct weights_part *part, uint32_t row,
                uint32_t rows, char *to, struct error *error)
{
    const struct checkpoint_tensor *tensor = checkpoint_tensor(checkpoint, part->tensor);
    const struct tensor_slice *place = &part->place;
    uint32_t element = model_dtype_bytes(tensor->dtype), columns = place->columns;
    uint64_t width = tensor->shape.columns, bytes = (uint64_t)rows * element; /* of a line */
    uint64_t matrix = (place->row + row) / width, at = (place->row + row) % width;
    uint64_t line = matrix * tensor->shape.rows + place->column,
             stride = (uint64_t)columns * element;
    char *lines = malloc(LINES * bytes);
    int status = lines ? 0 : error_set(error, ERR_NO_MEMORY, "no memory to turn weights");
    for (uint32_t first = 0; !status && first < columns; first += LINES) {
        uint32_t count = columns - first < LINES ? columns - first : LINES;
        for (uint32_t i = 0; !status && i < count; i++)
            status =
                checkpoint_read(checkpoint, tensor, ((line + first + i) * width + at) * element,
                                bytes, lines + i * bytes, error);
        if (!status)
            turn(to + (uint64_t)first * element, lines, count, rows, stride, element);
    }
    free(lines);
    return status;
}
