/* Whatever tokenizer.json is taken encodes any text and decodes what it gave, within the limits. */
#include <string.h>

#include "daemon/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#define IDS_MAX 512
#define TEXT_MAX 65536

static const char text[] =
    " The\tcaf\xc3\xa9 a\xcc\x81\xcc\xa3  12345 <s> ab abab \xe2\x96\x81\n\r\n"
    "\xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb I'm ''";

static void use(const struct tokenizer *tokenizer)
{
    static char back[TEXT_MAX];
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    int32_t ids[IDS_MAX], again[IDS_MAX];
    size_t count, warm, length;
    struct error error;
    FUZZ_CHECK(scratch);
    int code = tokenizer_encode(tokenizer, scratch, text, sizeof(text) - 1, true, ids, IDS_MAX,
                                &count, &error);
    FUZZ_CHECK(code == 0 || code == -ERR_TOO_LARGE);
    if (code == 0) {
        code = tokenizer_encode(tokenizer, scratch, text, sizeof(text) - 1, true, again, IDS_MAX,
                                &warm, &error);
        FUZZ_CHECK(code == 0 && warm == count && memcmp(ids, again, count * sizeof(*ids)) == 0);
        for (size_t i = 0; i < count; i++)
            FUZZ_CHECK(tokenizer_token_text(tokenizer, ids[i], &length));
        code = tokenizer_decode(tokenizer, ids, count, false, back, sizeof(back), &length, &error);
        FUZZ_CHECK(code == 0 || code == -ERR_TOO_LARGE);
    }
    tokenizer_scratch_free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *tokenizer;
    struct error error = {0};
    int code = tokenizer_load((const char *)data, size, &tokenizer, &error);
    if (code < 0) {
        FUZZ_CHECK(error.code == -code && error.text[0]);
        return 0;
    }
    use(tokenizer);
    tokenizer_free(tokenizer);
    return 0;
}
