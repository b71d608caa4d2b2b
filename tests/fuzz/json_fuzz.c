/* What json_parse accepts, it also accepts when it has been written again; and writing that once
 * more gives the same bytes. */
#include <math.h>
#include <string.h>

#include "protocol/base/json.h"
#include "tests/fuzz/fuzz.h"

static const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 32};

static void write_value(struct json_writer *writer, const char *key, const json *value)
{
    if (json_is_object(value) || json_is_array(value)) {
        json_open(writer, key, json_is_object(value) ? '{' : '[');
        for (const json *child = json_child(value); child; child = json_next(child))
            write_value(writer, json_is_object(value) ? json_key(child) : NULL, child);
        json_close(writer, json_is_object(value) ? '}' : ']');
    } else if (json_is_string(value)) {
        json_put_text(writer, key, json_string(value));
    } else if (json_is_number(value)) {
        FUZZ_CHECK(isfinite(json_number(value)));
        /* Rounding to nine digits could pass the bound on numbers. */
        double number = json_number(value);
        json_put_double(writer, key, fabs(number) < 9e307 ? number : 0);
    } else if (json_is_bool(value)) {
        json_put_bool(writer, key, json_bool(value));
    } else {
        FUZZ_CHECK(json_is_null(value));
        json_put_null(writer, key);
    }
}

static char *write_again(const json *value, size_t *ret_length)
{
    struct json_writer writer;
    json_writer_init(&writer, NULL, 0);
    write_value(&writer, NULL, value);
    char *text = malloc(writer.used);
    FUZZ_CHECK(text);
    json_writer_init(&writer, text, writer.used);
    write_value(&writer, NULL, value);
    FUZZ_CHECK(writer.used == writer.size);
    *ret_length = writer.used;
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    json *first, *second;
    size_t first_length, second_length;
    struct json_bounds again = {.bytes_max = SIZE_MAX, .depth_max = bounds.depth_max};
    if (json_parse((const char *)data, size, bounds, &first, &error)) {
        FUZZ_CHECK(error.code == ERR_BAD_HEAD || error.code == ERR_TOO_LARGE);
        return 0;
    }
    char *first_text = write_again(first, &first_length);
    FUZZ_CHECK(json_parse(first_text, first_length, again, &second, &error) == 0);
    char *second_text = write_again(second, &second_length);
    FUZZ_CHECK(first_length == second_length);
    FUZZ_CHECK(memcmp(first_text, second_text, first_length) == 0);
    free(first_text);
    free(second_text);
    json_free(first);
    json_free(second);
    return 0;
}
