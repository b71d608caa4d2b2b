#include "tests/hostile/bad.h"

#include <assert.h>
#include <string.h>

#include "protocol/base/error.h"
#include "protocol/frame.h"

#define SUBMIT .type = FRAME_SUBMIT
#define GOOD "{\"job\":\"generate\",\"lengths\":[3],\"max_tokens\":4}"
#define PATCH(at, size, value) .patch_at = (at), .patch_size = (size), .patch = (value)

const struct bad bad_table[] = {
    {"text that is no JSON", ERR_BAD_HEAD, false, SUBMIT, "{\"job\":\"" BAD_CANARY "\",", 3, 1},
    {"text after the object", ERR_BAD_HEAD, false, SUBMIT, GOOD " " BAD_CANARY, 3, 1},
    {"bytes that are no UTF-8", ERR_BAD_HEAD, false, SUBMIT, "{\"job\":\"\xff" BAD_CANARY "\"}", 3,
     1},
    {"an overlong UTF-8 form", ERR_BAD_HEAD, false, SUBMIT, "{\"job\":\"\xc0\xaf" BAD_CANARY "\"}",
     3, 1},
    {"an escaped zero byte", ERR_BAD_HEAD, false, SUBMIT,
     "{\"job\":\"generate\\u0000" BAD_CANARY "\",\"lengths\":[3]}", 3, 1},
    {"half a surrogate pair", ERR_BAD_HEAD, false, SUBMIT,
     "{\"job\":\"\\ud800" BAD_CANARY "\",\"lengths\":[3]}", 3, 1},
    {"a key that occurs twice", ERR_BAD_HEAD, false, SUBMIT,
     "{\"job\":\"score\",\"job\":\"" BAD_CANARY "\",\"lengths\":[3]}", 3, 1},
    {"a key that occurs twice, once escaped", ERR_BAD_HEAD, false, SUBMIT,
     "{\"job\":\"score\",\"j\\u006fb\":\"" BAD_CANARY "\",\"lengths\":[3]}", 3, 1},
    {"an integer beyond 2^53", ERR_BAD_HEAD, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"seed\":9007199254740993}", 3, 1},
    {"too deep nesting", ERR_TOO_LARGE, false, SUBMIT,
     "{\"job\":[[[[[[[[[[[[\"" BAD_CANARY "\"]]]]]]]]]]]]}", 3, 1},
    {"a list for a head", ERR_BAD_HEAD, false, SUBMIT, "[\"" BAD_CANARY "\"]", 3, 1},
    {"no head", ERR_BAD_HEAD, false, SUBMIT, "", 3, 1},
    {"an unknown field", ERR_UNKNOWN_FIELD, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"" BAD_CANARY "\":1}", 3, 1},
    {"a field in the wrong case", ERR_UNKNOWN_FIELD, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"Max_tokens\":1}", 3, 1},
    {"a field of the wrong type", ERR_BAD_VALUE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"max_tokens\":\"" BAD_CANARY "\"}", 3, 1},
    {"an unknown job", ERR_BAD_VALUE, false, SUBMIT, "{\"job\":\"" BAD_CANARY "\",\"lengths\":[3]}",
     3, 1},
    {"no job", ERR_BAD_VALUE, false, SUBMIT, "{\"lengths\":[3]}", 3, 1},
    {"no prompts", ERR_BAD_HEAD, false, SUBMIT, "{\"job\":\"generate\"}", 3, 1},
    {"an empty batch", ERR_EMPTY, false, SUBMIT, "{\"job\":\"generate\",\"lengths\":[]}", 0, 0},
    {"an empty prompt", ERR_EMPTY, false, SUBMIT, "{\"job\":\"generate\",\"lengths\":[3,0]}", 3, 1},
    {"lengths beyond the payload", ERR_BAD_FRAME, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[300]}", 3, 1},
    {"a payload beyond the lengths", ERR_BAD_FRAME, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[1]}", 3, 1},
    {"a length that is no integer", ERR_BAD_VALUE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3.5]}", 3, 1},
    {"a token out of the vocabulary", ERR_BAD_TOKEN, false, SUBMIT, GOOD, 3, 257},
    {"a negative token", ERR_BAD_TOKEN, false, SUBMIT, GOOD, 3, -1},
    {"more than the context holds", ERR_TOO_LARGE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"max_tokens\":2000000000}", 3, 1},
    {"more results than a batch may have", ERR_TOO_LARGE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
     "1,1,"
     "1,1,1],\"n\":128,\"max_tokens\":1}",
     34, 1},
    {"an empty text", ERR_EMPTY, false, SUBMIT, "{\"job\":\"generate\",\"texts\":[\"\"]}", 0, 0},
    {"texts beside lengths", ERR_BAD_HEAD, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"texts\":[\"" BAD_CANARY "\"]}", 3, 1},
    {"a payload beside texts", ERR_BAD_FRAME, false, SUBMIT,
     "{\"job\":\"generate\",\"texts\":[\"" BAD_CANARY "\"]}", 3, 1},
    {"an empty stop string", ERR_BAD_VALUE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"stop\":[\"" BAD_CANARY "\",\"\"]}", 3, 1},
    {"a priority out of range", ERR_BAD_VALUE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"priority\":99}", 3, 1},
    {"a temperature out of range", ERR_BAD_VALUE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"temperature\":-1}", 3, 1},
    {"a sampling field of a job that samples nothing", ERR_BAD_VALUE, false, SUBMIT,
     "{\"job\":\"score\",\"lengths\":[3],\"max_tokens\":4}", 3, 1},
    {"a negative n", ERR_BAD_VALUE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"n\":-1}", 3, 1},
    {"more stop tokens than a sequence may have", ERR_TOO_LARGE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"stop_token_ids\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
     "1,1,1,1,"
     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"
     "}",
     3, 1},
    {"a bias for a token out of the vocabulary", ERR_BAD_TOKEN, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"max_tokens\":4,\"logit_bias\":{\"70000\":1}}", 3, 1},
    {"a bias for no token", ERR_BAD_TOKEN, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"max_tokens\":4,\"logit_bias\":{\"" BAD_CANARY
     "\":1}}",
     3, 1},
    {"fields of each for too few prompts", ERR_BAD_VALUE, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"each\":[]}", 3, 1},
    {"an unknown field of each", ERR_UNKNOWN_FIELD, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"each\":[{\"" BAD_CANARY "\":1}]}", 3, 1},
    {"cancelling what is not there", ERR_NOT_FOUND, false, .type = FRAME_CANCEL,
     "{\"request\":9007199254740991}", 0, 0},
    {"cancelling by a name", ERR_BAD_VALUE, false, .type = FRAME_CANCEL,
     "{\"request\":\"" BAD_CANARY "\"}", 0, 0},
    {"a field that STATS does not have", ERR_UNKNOWN_FIELD, false, .type = FRAME_STATS,
     "{\"" BAD_CANARY "\":true}", 0, 0},
    {"chats beside lengths", ERR_BAD_HEAD, false, SUBMIT,
     "{\"job\":\"generate\",\"lengths\":[3],\"chats\":[12]}", 3, 1},
    {"chats beyond the payload", ERR_BAD_FRAME, false, SUBMIT,
     "{\"job\":\"generate\",\"chats\":[1073741823,1073741823]}", 3, 1},
    {"a conversation that is no JSON", ERR_BAD_HEAD, false, SUBMIT,
     "{\"job\":\"generate\",\"chats\":[12]}", 3, 0x5b5b5b5b, .chat = true},
    {"a text that is no UTF-8", ERR_BAD_VALUE, false, .type = FRAME_TOKENIZE, "{\"bytes\":8}", 2,
     -1},
    {"a text with zero bytes", ERR_BAD_VALUE, false, .type = FRAME_TOKENIZE, "{\"bytes\":8}", 2,
     65},
    {"an empty text to tokenize", ERR_EMPTY, false, .type = FRAME_TOKENIZE, "{\"bytes\":0}", 0, 0},
    {"a text beyond the payload", ERR_BAD_FRAME, false, .type = FRAME_TOKENIZE,
     "{\"bytes\":4294967295}", 2, 0x41414141},
    {"a field that TOKENIZE does not have", ERR_UNKNOWN_FIELD, false, .type = FRAME_TOKENIZE,
     "{\"bytes\":8,\"" BAD_CANARY "\":1}", 2, 0x41414141},
    {"a conversation to tokenize that is no JSON", ERR_BAD_HEAD, false,
     .type = FRAME_TOKENIZE, "{\"bytes\":8,\"chat\":true}", 2, 0x5b5b5b5b, .chat = true},
    {"tokens to show that the vocabulary has not", ERR_BAD_TOKEN, false, .type = FRAME_DETOKENIZE,
     "{\"count\":2}", 2, 257},
    {"negative tokens to show", ERR_BAD_TOKEN, false, .type = FRAME_DETOKENIZE, "{\"count\":2}", 2,
     -2},
    {"tokens to show beyond the payload", ERR_BAD_FRAME, false, .type = FRAME_DETOKENIZE,
     "{\"count\":1073741823}", 2, 1},
    {"a name for a count", ERR_BAD_VALUE, false, .type = FRAME_DETOKENIZE,
     "{\"count\":\"" BAD_CANARY "\"}", 2, 1},
    {"a message that daemons send", ERR_BAD_STATE, false, .type = FRAME_TOKENS, "", 4, 1},
    {"another protocol", ERR_BAD_MAGIC, true, .raw = "GET /" BAD_CANARY " HTTP/1.1\r\n\r\n"},
    {"a wrong magic", ERR_BAD_MAGIC, true, SUBMIT, GOOD, 3, 1, PATCH(3, 1, 'X')},
    {"a wrong version", ERR_BAD_VERSION, true, SUBMIT, GOOD, 3, 1, PATCH(4, 1, 9)},
    {"a type that does not exist", ERR_BAD_FRAME, true, SUBMIT, GOOD, 3, 1, PATCH(5, 1, 200)},
    {"flags that do not exist", ERR_BAD_FRAME, true, SUBMIT, GOOD, 3, 1, PATCH(6, 2, 0x8000)},
    {"a head of 13 bytes", ERR_BAD_FRAME, true, SUBMIT, GOOD, 3, 1, PATCH(16, 4, 13)},
    {"a payload of 13 bytes", ERR_BAD_FRAME, true, SUBMIT, GOOD, 3, 1, PATCH(20, 4, 13)},
    {"a head of 2 MiB", ERR_TOO_LARGE, true, SUBMIT, GOOD, 3, 1, PATCH(16, 4, 2u << 20)},
    {"a payload of 4 GiB", ERR_TOO_LARGE, true, SUBMIT, GOOD, 3, 1, PATCH(20, 4, 0xfffffff8u)},
    {"a second HELLO", ERR_BAD_STATE, true, .type = FRAME_HELLO,
     "{\"versions\":[1,1],\"client\":\"" BAD_CANARY "\"}", 0, 0},
};
const uint32_t bad_count = sizeof(bad_table) / sizeof(bad_table[0]);

size_t bad_encode(const struct bad *bad, uint64_t id, unsigned char out[BAD_SIZE_MAX])
{
    if (bad->raw) {
        memcpy(out, bad->raw, strlen(bad->raw));
        return strlen(bad->raw);
    }
    size_t length = strlen(bad->head), head = frame_pad(length);
    size_t payload = frame_pad(bad->tokens * sizeof(int32_t));
    assert(FRAME_HEADER_SIZE + head + payload <= BAD_SIZE_MAX);
    frame_encode_header(out, bad->type, 0, id, (uint32_t)head, (uint32_t)payload);
    unsigned char *at = out + FRAME_HEADER_SIZE;
    memset(at, ' ', head);
    memcpy(at, bad->head, length);
    memset(at + head, 0, payload);
    for (uint32_t i = 0; i < bad->tokens; i++)
        memcpy(at + head + i * sizeof(int32_t), &bad->token, sizeof(int32_t));
    if (bad->patch_size)
        memcpy(out + bad->patch_at, &bad->patch, bad->patch_size); /* little endian, as we are */
    return FRAME_HEADER_SIZE + head + payload;
}
