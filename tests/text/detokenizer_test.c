#include "daemon/text/detokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/tokenizer.h"
#include "tests/text/file.h"
#include "tests/text/text_suites.h"

#define STEPS_MAX 16
#define LLAMA2(byte) (3 + (byte)) /* the id of <0xHH> */

/* What comes out at each token, and at the end. */
struct stream {
    const char *style;
    bool skip_special;
    const char *tokens[STEPS_MAX]; /* texts of tokens */
    const char *out[STEPS_MAX + 1];
};

static const struct stream streams[] = {
    /* A character of four bytes comes with its last one. */
    {"gpt2",
     true,
     {"\xc3\xb0", "\xc5\x81", "\xc4\xba", "\xc4\xa2", "a"},
     {"", "", "", "\xf0\x9f\x98\x80", "a", ""}},
    /* What cannot become one is replaced as soon as that is certain. */
    {"gpt2",
     true,
     {"\xc3\xb0", "a"},
     {"",
      "\xef\xbf\xbd"
      "a",
      ""}},
    {"gpt2", true, {"\xc3\xb0", "\xc3\xb0"}, {"", "\xef\xbf\xbd", "\xef\xbf\xbd"}},
    {"gpt2", true, {"\xc3\xbf", "\xc4\xa2"}, {"\xef\xbf\xbd", "\xef\xbf\xbd", ""}},
    {"gpt2", true, {"\xc4\xa0", "a", "<|endoftext|>"}, {" ", "a", "", ""}},
    {"gpt2", false, {"a", "<|endoftext|>"}, {"a", "<|endoftext|>", ""}},
    /* A special token within a character that is left out does not break it. */
    {"gpt2", true, {"\xc3\x83", "<|endoftext|>", "\xc2\xa9"}, {"", "", "\xc3\xa9", ""}},
    /* One space of the start is dropped, wherever it comes from. */
    {"llama2", true, {"<s>", "\xe2\x96\x81", "\xe2\x96\x81", "a"}, {"", "", " ", "a", ""}},
    {"llama2", false, {"<s>", "\xe2\x96\x81", "a"}, {"<s>", " ", "a", ""}},
    {"llama2", true, {"<0x20>", "a"}, {"", "a", ""}},
    /* A run of bytes is decided on as a whole: held until it ends, or is known to be wrong. */
    {"llama2",
     true,
     {"<0xC3>", "<0xA9>", "a"},
     {"", "",
      "\xc3\xa9"
      "a",
      ""}},
    {"llama2", true, {"<0xC3>", "<0xA9>"}, {"", "", "\xc3\xa9"}},
    {"llama2",
     true,
     {"<0xC3>", "<0xA9>", "<0xC3>", "a"},
     {"", "", "",
      "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
      "a",
      ""}},
    {"llama2",
     true,
     {"<0xC3>", "<0x41>", "<0x42>", "a", "<0x43>"},
     {"", "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd", "a", "", "C"}},
    /* The first token loses all its marks, later ones become spaces. */
    {"mixed", true, {"\xe2\x96\x81", "\xe2\x96\x81", "a"}, {"", " ", "a", ""}},
};

START_TEST(each_character_comes_as_soon_as_it_is_certain)
{
    const struct stream *stream = &streams[_i];
    struct detokenizer detokenizer;
    char name[32], *out;
    size_t i = 0;
    snprintf(name, sizeof(name), "%s.json", stream->style);
    struct tokenizer *tokenizer = file_tokenizer(name);
    out = malloc(detokenizer_room(tokenizer) + 1);
    detokenizer_init(&detokenizer, tokenizer, stream->skip_special);
    for (; i < STEPS_MAX && stream->tokens[i]; i++) {
        int32_t id = tokenizer_token_id(tokenizer, stream->tokens[i]);
        ck_assert_msg(id >= 0, "no token %s", stream->tokens[i]);
        out[detokenizer_push(&detokenizer, id, out)] = 0;
        ck_assert_msg(strcmp(out, stream->out[i]) == 0, "token %zu: \"%s\"", i, out);
    }
    out[detokenizer_finish(&detokenizer, out)] = 0;
    ck_assert_str_eq(out, stream->out[i]);
    free(out);
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(a_run_of_bytes_without_end_is_let_go)
{
    struct tokenizer *tokenizer = file_tokenizer("llama2.json");
    struct detokenizer detokenizer;
    char *out = malloc(detokenizer_room(tokenizer));
    size_t written = 0, pushed = 0;
    detokenizer_init(&detokenizer, tokenizer, true);
    for (int i = 0; i < 1000; i++) {
        size_t length = detokenizer_push(&detokenizer, LLAMA2(i % 2 ? 0xa9 : 0xc3), out);
        pushed++;
        ck_assert_uint_eq(length % 2, 0);
        for (size_t at = 0; at < length; at += 2)
            ck_assert_mem_eq(out + at, "\xc3\xa9", 2);
        written += length;
        ck_assert_uint_le(pushed - written, DETOKENIZER_RUN_MAX + 1);
    }
    written += detokenizer_finish(&detokenizer, out);
    ck_assert_uint_eq(written, 1000);
    free(out);
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(ids_that_no_token_has_give_no_text)
{
    struct tokenizer *tokenizer = file_tokenizer("llama2.json");
    struct detokenizer detokenizer;
    char *out = malloc(detokenizer_room(tokenizer));
    detokenizer_init(&detokenizer, tokenizer, true);
    ck_assert_uint_eq(detokenizer_push(&detokenizer, -1, out), 0);
    ck_assert_uint_eq(detokenizer_push(&detokenizer, INT32_MAX, out), 0);
    ck_assert_uint_eq(detokenizer_push(&detokenizer, (int32_t)tokenizer_bound(tokenizer), out), 0);
    free(out);
    tokenizer_free(tokenizer);
}
END_TEST

/* Leftmost, without overlap, over a text at hand. */
static size_t replaced(const struct decode_step *step, const char *text, size_t length, char *out)
{
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        if (length - at >= step->pattern_length &&
            memcmp(text + at, step->pattern, step->pattern_length) == 0) {
            memcpy(out + used, step->content, step->content_length);
            used += step->content_length;
            at += step->pattern_length;
        } else {
            out[used++] = text[at++];
        }
    }
    return used;
}

/* Patterns that overlap themselves, texts of two letters, cut anywhere; one step into another. */
START_TEST(a_pattern_is_replaced_wherever_the_text_is_cut)
{
    srand((unsigned)_i);
    for (int round = 0; round < 2000; round++) {
        struct decode_step steps[2] = {{.kind = DECODE_REPLACE}, {.kind = DECODE_REPLACE}};
        struct decode_state states[2] = {{0}};
        char text[64], once[256], twice[1024], out[8192];
        size_t length = (size_t)rand() % sizeof(text);
        for (size_t i = 0; i < length; i++)
            text[i] = (char)('a' + rand() % 2);
        for (int i = 0; i < 2; i++) {
            steps[i].pattern_length = (uint8_t)(1 + rand() % 5);
            steps[i].content_length = (uint8_t)(rand() % 3);
            for (int b = 0; b < 5; b++)
                steps[i].pattern[b] = steps[i].content[b] = (char)('a' + rand() % 2);
            decode_step_ready(&steps[i]);
        }
        struct decode_run run = {.steps = steps, .states = states, .end = 2, .out = out};
        for (size_t at = 0, part; at < length; at += part) {
            part = 1 + (size_t)rand() % (length - at);
            decode_push(&run, 0, text + at, part);
        }
        decode_end(&run, 0, 2);
        size_t count = replaced(&steps[0], text, length, once);
        count = replaced(&steps[1], once, count, twice);
        ck_assert_uint_le(count, decode_room(steps, 2, length));
        ck_assert_uint_eq(run.used, count);
        ck_assert_mem_eq(out, twice, count);
    }
}
END_TEST

Suite *detokenizer_suite(void)
{
    Suite *suite = suite_create("detokenizer");
    TCase *tests = tcase_create("streams");
    tcase_add_loop_test(tests, each_character_comes_as_soon_as_it_is_certain, 0,
                        (int)(sizeof(streams) / sizeof(streams[0])));
    tcase_add_test(tests, a_run_of_bytes_without_end_is_let_go);
    tcase_add_loop_test(tests, a_pattern_is_replaced_wherever_the_text_is_cut, 0, 4);
    tcase_add_test(tests, ids_that_no_token_has_give_no_text);
    suite_add_tcase(suite, tests);
    return suite;
}
