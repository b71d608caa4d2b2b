/* Any template is refused or renders within its limits, to valid UTF-8, twice the same. */
#include <string.h>

#include "daemon/text/template/chat.h"
#include "protocol/base/utf8.h"
#include "tests/fuzz/fuzz.h"

static const char given[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\" s "
    "\"},{\"role\":\"user\",\"content\":\"\\u00e9 <x>\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"abcdefghi\",\"function\":{"
    "\"name\":\"f\","
    "\"arguments\":{\"a\":[1,2.5,true]}}}]}],\"tools\":[{\"function\":{\"name\":\"f\"}}],"
    "\"extra\":{\"n\":7,\"l\":[3,1,2],\"d\":{\"k\":\"v\"},\"t\":\"a b\\nc\"}}";

static const struct chat_limits limits = {
    .steps_max = 100000, .memory_max = 8 << 20, .output_max = 1 << 18};

static json *document;

static int render(const struct chat_template *template, char **ret_text, size_t *ret_length)
{
    struct chat_input input = {.messages = json_get(document, "messages"),
                               .tools = json_get(document, "tools"),
                               .extra = json_get(document, "extra"),
                               .bos_token = "<s>",
                               .add_generation_prompt = true,
                               .now = 1722000000};
    struct error error = {0};
    int code = chat_template_render(template, &input, &limits, ret_text, ret_length, &error);
    FUZZ_CHECK(code == 0 || (error.code == -code && error.text[0]));
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct json_bounds bounds = {.bytes_max = sizeof(given), .depth_max = 16};
    struct chat_template *template;
    struct error error = {0};
    char *first, *second;
    size_t length, again;
    if (!document)
        FUZZ_CHECK(json_parse(given, sizeof(given) - 1, bounds, &document, &error) == 0);
    int code = chat_template_load((const char *)data, size, &template, &error);
    if (code < 0) {
        FUZZ_CHECK(error.code == -code && error.text[0]);
        return 0;
    }
    code = render(template, &first, &length);
    FUZZ_CHECK((render(template, &second, &again) == 0) == (code == 0));
    if (code == 0) {
        FUZZ_CHECK(length == again && memcmp(first, second, length) == 0);
        for (size_t at = 0, step; at < length; at += step)
            FUZZ_CHECK((step = utf8_length((const unsigned char *)first + at, length - at)) > 0);
        free(first);
        free(second);
    }
    chat_template_free(template);
    return 0;
}
