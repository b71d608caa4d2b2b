#include <string.h>

#include "daemon/constrain/constraint.h"
#include "tests/fuzz/constrain_check.h"
#include "tests/fuzz/fuzz.h"

#define END_TOKEN 256
#define WORDS_MAX 16

static const char *const pieces[] = {"\":",  "\",\"",  "{\"", "\"}", "abc",      "ab\"",
                                     "\xc3", "\xa9\"", "12",  "\\u", "\xf0\x9f", "true"};

static struct vocabulary *vocabulary_of_pieces(void)
{
    static struct vocabulary *vocabulary;
    static char bytes[256];
    struct vocabulary_token tokens[END_TOKEN + 1 + sizeof(pieces) / sizeof(pieces[0])] = {0};
    int32_t end = END_TOKEN;
    uint32_t count = END_TOKEN + 1;
    if (vocabulary)
        return vocabulary;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct vocabulary_token){&bytes[i], 1};
    }
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        tokens[count++] = (struct vocabulary_token){pieces[i], strlen(pieces[i])};
    FUZZ_CHECK(vocabulary_new(tokens, count, &end, 1, &vocabulary, NULL) == 0);
    return vocabulary;
}

static bool may_come(struct constraint *constraint, const struct constraint_place *place,
                     uint32_t token)
{
    struct constraint_place copy;
    constraint_copy(constraint, place, &copy);
    int code = constraint_advance(constraint, &copy, (int32_t)token, NULL);
    FUZZ_CHECK(code == 0 || code == -ERR_BAD_TOKEN || code == -ERR_TOO_LARGE);
    constraint_drop(constraint, &copy);
    return code == 0;
}

static void draw(struct constraint *constraint, const struct vocabulary *vocabulary,
                 const uint8_t *data, size_t size)
{
    struct constraint_place place;
    constraint_start(constraint, &place);
    for (size_t i = 0; i < size && i < 64; i++) {
        uint32_t bits[WORDS_MAX], token = data[i] % vocabulary->tokens;
        struct constraint_allowed allowed;
        if (constraint_mask(constraint, &place, bits, &allowed, NULL))
            break;
        FUZZ_CHECK(allowed.count > 0);
        for (uint32_t at = 0; at < vocabulary->tokens; at += 1 + i % 7)
            FUZZ_CHECK(may_come(constraint, &place, at) == (bits[at / 32] >> at % 32 & 1));
        while (!(bits[token / 32] >> token % 32 & 1))
            token = (token + 1) % vocabulary->tokens;
        if (token == END_TOKEN)
            break;
        FUZZ_CHECK(constraint_advance(constraint, &place, (int32_t)token, NULL) == 0);
    }
    constraint_drop(constraint, &place);
}

void constrain_check(enum constraint_kind kind, const uint8_t *data, size_t size)
{
    struct vocabulary *vocabulary = vocabulary_of_pieces();
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t length = end ? (size_t)(end - data) : size;
    struct constraint *constraint = NULL;
    struct error error = {0};
    int code = constraint_new(kind, (const char *)data, length, vocabulary, &constraint, &error);
    if (code) {
        FUZZ_CHECK(code == -error.code && error.text[0]);
        return;
    }
    if (end)
        draw(constraint, vocabulary, end + 1, size - length - 1);
    constraint_free(constraint);
}
