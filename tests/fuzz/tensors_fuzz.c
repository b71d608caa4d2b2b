/* Bodies of tensors (daemon/http/query/query_tensors.h): the first two bytes say how many bytes of
 * the rest are JSON. What is accepted has tensors that lie in their memory one behind the other,
 * and numbers that are written and read again. */
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query/query_tensors.h"
#include "daemon/http/query/tensor_text.h"
#include "tests/fuzz/fuzz.h"

static void check_elements(const struct query_tensors *query, const struct query_input *input)
{
    const uint32_t size = tensor_dtype_bytes(input->dtype);
    const uint64_t one[] = {1}, count = input->bytes / size;
    for (uint64_t i = 0; i < count && i < 64 && tensor_text_has(input->dtype); i++) {
        char text[TENSOR_TEXT_MAX + 2] = "[";
        uint64_t back = 0;
        struct error error;
        size_t length = tensor_text_write(input->dtype, query->data + input->at, i, text + 1);
        FUZZ_CHECK(length > 0 && length < TENSOR_TEXT_MAX);
        text[1 + length] = ']';
        FUZZ_CHECK(tensor_text_read(text, length + 2, "x", input->dtype, 1, one, &back, &error) ==
                   0);
        bool bits = text[1] != 'N' && input->dtype != TENSOR_BOOL;
        FUZZ_CHECK(!bits || memcmp(&back, query->data + input->at + i * size, size) == 0);
    }
}

static void check(const struct query_tensors *query)
{
    uint64_t at = 0;
    FUZZ_CHECK(query->input_count > 0 && query->input_count <= MESSAGE_TENSORS_MAX);
    FUZZ_CHECK(query->output_count <= MESSAGE_TENSORS_MAX);
    FUZZ_CHECK(query->value_count <= MESSAGE_PARAMETERS_MAX);
    FUZZ_CHECK(query->params.priority >= -8 && query->params.priority <= 7);
    for (uint32_t i = 0; i < query->input_count; i++) {
        const struct query_input *input = &query->inputs[i];
        FUZZ_CHECK(input->at == at && input->bytes > 0 && input->name[0]);
        at += tensor_pad(input->bytes);
        check_elements(query, input);
    }
    FUZZ_CHECK(at == query->data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct query_tensors query;
    struct error error;
    if (size < 2)
        return 0;
    size_t behind = (size_t)data[0] << 8 | data[1], length = size - 2;
    size_t json_length = behind <= length ? length - behind : length;
    char *body =
        malloc(length > 0 ? length : 1); /* its own, so that what is read behind it is seen */
    FUZZ_CHECK(body != NULL);
    memcpy(body, data + 2, length);
    if (query_tensors_read(&query, body, length, json_length, &error)) {
        FUZZ_CHECK(error.code > 0 && error.text[0]);
    } else {
        check(&query);
        query_tensors_free(&query);
    }
    free(body);
    return 0;
}
