#include "gpu/weights/packed.h"

#include <stdlib.h>

/* Lines of words, a window's each. */
static int words_get(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                     const struct words_window *stored, uint32_t *to, struct error *error)
{
    uint64_t width = tensor->shape.columns, bytes = (uint64_t)stored->columns * sizeof *to;
    uint64_t first = (stored->row * width + stored->column) * sizeof *to;
    if (stored->columns == width)
        return checkpoint_read(checkpoint, tensor, first, stored->rows * bytes, to, error);
    int status = 0;
    for (uint32_t i = 0; !status && i < stored->rows; i++)
        status = checkpoint_read(checkpoint, tensor, first + i * width * sizeof *to, bytes,
                                 to + (uint64_t)i * stored->columns, error);
    return status;
}

int packed_read(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                const struct words_window *window, uint8_t *to, struct error *error)
{
    struct words_window stored = words_of(tensor->words, window);
    uint32_t *words = malloc((uint64_t)stored.rows * stored.columns * sizeof *words);
    if (!words)
        return error_set(error, ERR_NO_MEMORY, "no memory to unpack weights");
    int status = words_get(checkpoint, tensor, &stored, words, error);
    if (!status)
        words_unpack(tensor->words, window, words, to);
    free(words);
    return status;
}

/* One row; an odd one's last half byte is 0. */
static void row_pack(const struct weights_part *part, const uint8_t *from, uint8_t *to)
{
    const uint32_t *order = part->order;
    uint32_t columns = part->place.columns;
    for (uint32_t i = 0; i < columns; i++) {
        uint8_t element = from[order ? order[i] : i];
        if (part->format == FORMAT_U8)
            to[i] = element;
        else if (i % 2)
            to[i / 2] |= (uint8_t)(element << 4);
        else
            to[i / 2] = element;
    }
}

int packed_rows(const struct checkpoint *checkpoint, const struct weights_part *part, uint32_t row,
                uint32_t rows, uint8_t *to, struct error *error)
{
    const struct tensor_slice *place = &part->place;
    struct words_window window = {(uint32_t)place->row + row, rows, place->column, place->columns};
    uint64_t width = format_bytes(part->format, 1, place->columns);
    uint8_t *elements = malloc((uint64_t)rows * place->columns);
    if (!elements)
        return error_set(error, ERR_NO_MEMORY, "no memory to unpack weights");
    int status = packed_read(checkpoint, checkpoint_tensor(checkpoint, part->tensor), &window,
                             elements, error);
    for (uint32_t i = 0; !status && i < rows; i++)
        row_pack(part, elements + (uint64_t)i * place->columns, to + i * width);
    free(elements);
    return status;
}
