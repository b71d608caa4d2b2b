/* Answers: the first byte says of which format, the second how they are cut. Cut or whole they say
 * the same, no special token's name gets through, and no more is told than was there. */
#include <string.h>

#include "tests/answer/answer_script.h"
#include "tests/fuzz/fuzz.h"

static size_t next_cut(void *context)
{
    unsigned *state = context;
    *state = *state * 1103515245u + 12345u;
    return 1 + (*state >> 16) % 7;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const templates[] = {
        "<tool_call><think></think>", "<|start_header_id|>\"parameters\": <think></think>",
        "[TOOL_CALLS][THINK][/THINK]", "[TOOL_CALLS][ARGS][THINK][/THINK]"};
    static const char *const more[] = {"<|channel|><|message|>", "<|tool_call|><think></think>",
                                       "functools[<think></think>", "<|channel|><|message|>"};
    static const char *const further[] = {
        "<tool_call><function=<think></think>", "<tool_call><arg_key><think></think>",
        "tools <｜tool▁calls▁begin｜><think></think>", "tools <｜tool▁calls▁begin｜>```json"};
    struct answer_script script;
    if (size < 2)
        return 0;
    const char *from = templates[data[0] & 3];
    if (data[0] >> 6 & 1) /* of these, the further ones */
        from = data[0] >> 7 ? further[data[0] & 3] : more[data[0] & 3];
    answer_script_make(&script, from, data[0] >> 2 & 1);
    script.thinks = data[0] >> 3 & 1;
    script.tools = !(data[0] >> 4 & 1);
    script.names = data[0] >> 5 & 1 ? "f\0" : NULL;
    script.types = data[1] & 1 ? "f\0s\0\x08"
                                 "f\0n\0\x37"
                                 "f\0a\0\x3f"
                                 "\0"
                               : NULL;
    unsigned state = data[1];
    const char *text = (const char *)data + 2;
    char *whole = answer_script_read(&script, text, size - 2, NULL, NULL);
    char *cut = answer_script_read(&script, text, size - 2, next_cut, &state);
    FUZZ_CHECK(strcmp(whole, cut) == 0);
    FUZZ_CHECK(!strchr(whole, ANSWER_SPECIAL));
    FUZZ_CHECK(strlen(whole) <= 7 * size + 8);
    free(whole);
    free(cut);
    return 0;
}
