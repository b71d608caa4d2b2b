/* TOKENIZE and DETOKENIZE, as a daemon and as a client read them. */
#include <stdlib.h>
#include <string.h>

#include "protocol/message.h"
#include "tests/protocol/head_frame.h"
#include "tests/protocol/protocol_suites.h"

static struct head_frame in;
static struct error error;

struct refusal {
    const char *head;
    int code;
    const char *text;
    const char *payload; /* of 8 bytes */
};

#define ABC "abc\0\0\0\0\0"

static const struct refusal texts[] = {
    {"", ERR_BAD_HEAD, "the head is missing", ABC},
    {"[]", ERR_BAD_HEAD, "not a JSON object", ABC},
    {"{}", ERR_BAD_VALUE, "bytes", ABC},
    {"{\"bytes\":\"3\"}", ERR_BAD_VALUE, "bytes is not a whole number", ABC},
    {"{\"bytes\":-1}", ERR_BAD_VALUE, "bytes is -1", ABC},
    {"{\"bytes\":0}", ERR_EMPTY, "empty", ABC},
    {"{\"bytes\":9}", ERR_BAD_FRAME, "bytes is 9, the payload has 8 bytes", ABC},
    {"{\"bytes\":4294967295}", ERR_BAD_FRAME, "bytes is 4294967295", ABC},
    {"{\"bytes\":4294967296}", ERR_BAD_VALUE, "bytes is 4294967296", ABC},
    {"{\"bytes\":2}", ERR_BAD_FRAME, "the padding of the payload is not zero", ABC},
    {"{\"bytes\":4}", ERR_BAD_VALUE, "has a NUL, at byte 3", ABC},
    {"{\"bytes\":3}", ERR_BAD_VALUE, "not UTF-8, or has a NUL, at byte 1", "a\xc3\x28\0\0\0\0\0"},
    {"{\"bytes\":3}", ERR_BAD_VALUE, "at byte 0", "\xed\xa0\x80\0\0\0\0\0"},
    {"{\"bytes\":2}", ERR_BAD_VALUE, "at byte 0", "\xe2\x82\0\0\0\0\0\0"},
    {"{\"bytes\":3,\"special\":1}", ERR_BAD_VALUE, "special is neither true nor false", ABC},
    {"{\"bytes\":3,\"chat\":true,\"special\":true}", ERR_BAD_VALUE, "special does not belong", ABC},
    {"{\"bytes\":3,\"count\":3}", ERR_UNKNOWN_FIELD, "unknown field \"count\"", ABC},
    {"{\"bytes\":3,\"bytes\":3}", ERR_BAD_HEAD, "duplicate key", ABC},
};

START_TEST(a_bad_text_is_refused_with_what_is_wrong)
{
    const struct refusal *refusal = &texts[_i];
    struct message_tokenize question;
    head_frame_fill(&in, FRAME_TOKENIZE, refusal->head, refusal->payload, 8);
    ck_assert_int_eq(message_decode_tokenize(&in.frame, &question, &error), -refusal->code);
    ck_assert_msg(strstr(error.text, refusal->text) != NULL, "%s: %s", refusal->head, error.text);
}
END_TEST

static const struct refusal lists[] = {
    {"{}", ERR_BAD_VALUE, "count", "\1\0\0\0\2\0\0\0"},
    {"{\"count\":3}", ERR_BAD_FRAME, "count is 3", "\1\0\0\0\2\0\0\0"},
    {"{\"count\":1073741824}", ERR_BAD_VALUE, "at most 1073741823", "\1\0\0\0\2\0\0\0"},
    {"{\"count\":1073741823}", ERR_BAD_FRAME, "count is 1073741823", "\1\0\0\0\2\0\0\0"},
    {"{\"count\":1}", ERR_BAD_FRAME, "padding", "\1\0\0\0\2\0\0\0"},
    {"{\"count\":2}", ERR_BAD_TOKEN, "token 1 is outside the vocabulary of 100",
     "\1\0\0\0\x64\0\0\0"},
    {"{\"count\":2}", ERR_BAD_TOKEN, "token 0 is outside", "\xff\xff\xff\xff\1\0\0\0"},
    {"{\"count\":2,\"special\":\"no\"}", ERR_BAD_VALUE, "special is neither", "\1\0\0\0\2\0\0\0"},
    {"{\"count\":2,\"chat\":true}", ERR_UNKNOWN_FIELD, "unknown field", "\1\0\0\0\2\0\0\0"},
};

START_TEST(a_bad_list_of_tokens_is_refused_with_what_is_wrong)
{
    const struct refusal *refusal = &lists[_i];
    struct message_detokenize question;
    head_frame_fill(&in, FRAME_DETOKENIZE, refusal->head, refusal->payload, 8);
    ck_assert_int_eq(message_decode_detokenize(&in.frame, 100, &question, &error), -refusal->code);
    ck_assert_msg(strstr(error.text, refusal->text) != NULL, "%s: %s", refusal->head, error.text);
}
END_TEST

START_TEST(what_is_not_given_has_its_default)
{
    struct message_tokenize text;
    struct message_detokenize list;
    head_frame_fill(&in, FRAME_TOKENIZE, "{\"bytes\":3}", "abc", 3);
    ck_assert_int_eq(message_decode_tokenize(&in.frame, &text, &error), 0);
    ck_assert(text.special && !text.chat);
    head_frame_fill(&in, FRAME_TOKENIZE, "{\"chat\":true,\"bytes\":3}", "abc", 3);
    ck_assert_int_eq(message_decode_tokenize(&in.frame, &text, &error), 0);
    ck_assert(!text.special && text.chat);
    head_frame_fill(&in, FRAME_DETOKENIZE, "{\"count\":0}", NULL, 0);
    ck_assert_int_eq(message_decode_detokenize(&in.frame, 100, &list, &error), 0);
    ck_assert(list.special && list.count == 0);
}
END_TEST

START_TEST(what_does_not_fit_is_not_written)
{
    static const int32_t tokens[] = {1, 2, 3};
    const struct message_tokenize text = {.text = "abcdefghi", .length = 9, .special = true};
    const struct message_detokenize list = {.tokens = tokens, .count = 3};
    unsigned char *room = malloc(256);
    ck_assert_ptr_nonnull(room);
    for (size_t size = 0; size < 256; size += 8) {
        size_t used[] = {message_encode_tokenize(room, size, 1, &text),
                         message_encode_detokenize(room, size, 1, &list),
                         message_encode_tokenized(room, size, 1, tokens, 3),
                         message_encode_detokenized(room, size, 1, "abcdefghi", 9)};
        for (int i = 0; i < 4; i++)
            ck_assert(used[i] <= size && (used[i] > 0 || size < message_text_size(16)));
    }
    free(room);
}
END_TEST

Suite *text_suite(void)
{
    Suite *suite = suite_create("text frames");
    TCase *tcase = tcase_create("text frames");
    tcase_add_loop_test(tcase, a_bad_text_is_refused_with_what_is_wrong, 0,
                        sizeof(texts) / sizeof(texts[0]));
    tcase_add_loop_test(tcase, a_bad_list_of_tokens_is_refused_with_what_is_wrong, 0,
                        sizeof(lists) / sizeof(lists[0]));
    tcase_add_test(tcase, what_is_not_given_has_its_default);
    tcase_add_test(tcase, what_does_not_fit_is_not_written);
    suite_add_tcase(suite, tcase);
    return suite;
}
