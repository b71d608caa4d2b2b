#include <stdlib.h>

#include "gpu/adapters/adapters.h"
#include "gpu/checkpoint/number.h"

#define PIECE (1u << 20) /* bytes that are read at a time */

/* Bits of the greatest magnitude: they are in the order of the numbers, then infinity, then what is
 * none, in each of MODEL_NUMBERS. Aligned as elements are. */
static uint32_t greatest(const void *elements, enum model_dtype dtype, size_t bytes)
{
    uint32_t most = 0;
    if (dtype == MODEL_F32) {
        const uint32_t *words = elements;
        for (size_t i = 0; i < bytes / sizeof *words; i++) {
            uint32_t magnitude = words[i] & 0x7fffffffu;
            most = magnitude > most ? magnitude : most;
        }
        return most;
    }
    const uint16_t *halves = elements;
    for (size_t i = 0; i < bytes / sizeof *halves; i++) {
        uint32_t magnitude = halves[i] & 0x7fffu;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

static int tensor_check(const struct adapter *adapter, tensor_id number, float most, void *buffer,
                        struct error *error)
{
    const struct checkpoint_tensor *tensor = checkpoint_tensor(adapter->checkpoint, number);
    for (uint64_t at = 0; at < tensor->bytes; at += PIECE) {
        size_t bytes = tensor->bytes - at < PIECE ? tensor->bytes - at : PIECE;
        int rc = checkpoint_read(adapter->checkpoint, tensor, at, bytes, buffer, error);
        if (rc)
            return rc;
        uint32_t bits = greatest(buffer, tensor->dtype, bytes);
        uint16_t half = (uint16_t)bits;
        float value;
        number_read(&value, tensor->dtype == MODEL_F32 ? (const void *)&bits : &half, tensor->dtype,
                    1);
        if (!(value <= most))
            return error_set(error, ERR_BAD_MODEL,
                             "tensor %.150s: an element is %g: at most %g in the device's dtype",
                             adapter->list.tensors[number].name, (double)value, (double)most);
    }
    return 0;
}

int adapter_numbers_check(const struct adapter *adapter, float most, struct error *error)
{
    const struct op_list *list = &adapter->list;
    void *buffer = malloc(PIECE);
    int rc = buffer ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for %u bytes", PIECE);
    tensor_id before = LIST_NONE;
    for (uint32_t i = 0; !rc && i < list->op_count; i++) {
        tensor_id b = list->weights[list->ops[i].bias].parts[0].tensor;
        if (b != before)
            rc = tensor_check(adapter, b, most, buffer, error);
        before = b;
    }
    free(buffer);
    return rc;
}
