#include "daemon/text/tokenizer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/text/file.h"
#include "tests/text/text_suites.h"

/* A file with one part replaced. */
static const char *const parts[] = {
    "\"version\":\"1.0\"",
    "\"added_tokens\":[]",
    "\"normalizer\":null",
    "\"pre_tokenizer\":null",
    "\"post_processor\":null",
    "\"decoder\":null",
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}",
};
enum { VERSION, ADDED, NORMALIZER, PRE, POST, DECODER, MODEL, PARTS };

static int load_with(size_t part, const char *text, struct tokenizer **ret, struct error *error)
{
    char file[8192] = "{";
    for (size_t i = 0; i < PARTS; i++) {
        strcat(file, i > 0 ? "," : "");
        strcat(file, i == part ? text : parts[i]);
    }
    strcat(file, "}");
    return tokenizer_load(file, strlen(file), ret, error);
}

struct refusal {
    size_t part;
    const char *text, *why;
};

#define MODEL_WITH(text) "\"model\":{\"type\":\"BPE\"," text "}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define SPLIT(text)                                                                                \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":" text "}"
#define TOKEN(text) "\"added_tokens\":[{\"id\":3,\"content\":\"<x>\"," text "}]"

#define DECODERS(text) "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" text "]}"
#define REPLACE(content)                                                                           \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"" content "\"}"
#define GROW REPLACE("0123456789")
#define FEW REPLACE("b") "," REPLACE("b") "," REPLACE("b")

static const struct refusal refusals[] = {
    {VERSION, "\"colour\":1", "top level: field \"colour\" is not supported"},
    {NORMALIZER, "\"normalizer\":{\"type\":\"BertNormalizer\"}",
     "normalizer: normalizer \"BertNormalizer\" is not supported"},
    {NORMALIZER, "\"normalizer\":{\"type\":\"NFC\",\"x\":1}", "normalizer: field \"x\""},
    {NORMALIZER, "\"normalizer\":{\"type\":\"NFKC\"}", "normalizer \"NFKC\" is not supported"},
    {NORMALIZER,
     "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Nmt\"}]"
     "}",
     "normalizer.normalizers[1]: normalizer \"Nmt\" is not supported"},
    {NORMALIZER,
     "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},\"content\":\"\"}",
     "normalizer.pattern: field \"Regex\" is not supported"},
    {NORMALIZER, "\"normalizer\":[]", "normalizer.type: a string expected"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Whitespace\"}", "pre-tokenizer \"Whitespace\""},
    {PRE,
     "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{"
     "\"type\":\"Digits\"}]}",
     "pre_tokenizer.pretokenizers[1]: a step after ByteLevel"},
    {PRE, SPLIT("{\"Regex\":\"(?<n>a)\"}"), "pre_tokenizer.pattern: this group is not supported"},
    {PRE, SPLIT("{\"Regex\":\"a\",\"String\":\"b\"}"), "either String or Regex"},
    {PRE, SPLIT("{}"), "either String or Regex"},
    {PRE,
     "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Odd\",\"pattern\":{\"String\":\"x\"}}",
     "behavior \"Odd\" is not supported"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", "one character"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"odd\"}",
     "prepend_scheme \"odd\" is not supported"},
    {POST, "\"post_processor\":{\"type\":\"RobertaProcessing\"}",
     "post_processor: post-processor \"RobertaProcessing\" is not supported"},
    {POST,
     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[],\"special_"
     "tokens\":{}}",
     "post_processor.single: the text A exactly once"},
    {POST,
     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
     "\"x\",\"type_id\":0}},"
     "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"x\":{\"id\":\"x\",\"ids\":"
     "[9],\"tokens\":[\"x\"]}}}",
     "an id that no token has"},
    {DECODER, "\"decoder\":{\"type\":\"WordPiece\"}", "decoder: decoder \"WordPiece\""},
    {DECODER, DECODERS("{\"type\":\"Fuse\"},{\"type\":\"ByteLevel\"}"),
     "decoder.decoders[1]: ByteLevel behind ByteFallback or Fuse"},
    {DECODER, DECODERS("{\"type\":\"ByteFallback\"},{\"type\":\"ByteFallback\"}"),
     "decoder.decoders[1]: ByteFallback twice"},
    {DECODER, DECODERS("{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":257}"),
     "0 to 256 expected"},
    {DECODER, DECODERS("{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0}"),
     "one character"},
    {DECODER, DECODERS(GROW "," GROW), "decoder.decoders[1]: a text may become 64 times"},
    {DECODER, DECODERS(FEW "," FEW "," FEW), "more than 8 steps"},
    {MODEL, "\"model\":{\"type\":\"WordPiece\"}", "model: model \"WordPiece\" is not supported"},
    {MODEL, "\"model\":null", "model: an object expected"},
    {MODEL, MODEL_WITH("\"merges\":[]"), "model.vocab: an object expected"},
    {MODEL, MODEL_WITH("\"vocab\":[],\"merges\":[]"), "model.vocab: an object expected"},
    {MODEL, MODEL_WITH(VOCAB), "model.merges: an array expected"},
    {MODEL, MODEL_WITH("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), "two tokens have id 0"},
    {MODEL, MODEL_WITH("\"vocab\":{\"a\":-1},\"merges\":[]"), "an id from 0 to 1048575"},
    {MODEL, MODEL_WITH("\"vocab\":{\"a\":1048576},\"merges\":[]"), "an id from 0 to 1048575"},
    {MODEL, MODEL_WITH("\"vocab\":{\"a\":0.5},\"merges\":[]"), "an id from 0 to 1048575"},
    {MODEL, MODEL_WITH("\"vocab\":{\"\":0},\"merges\":[]"), "token 0 has 0 bytes"},
    {MODEL, MODEL_WITH(VOCAB ",\"merges\":[\"a\"]"), "model.merges[0]: two texts expected"},
    {MODEL, MODEL_WITH(VOCAB ",\"merges\":[\"a b\",[\"a\",\"b\",\"a\"]]"), "model.merges[1]: two"},
    {MODEL, MODEL_WITH(VOCAB ",\"merges\":[\"a x\"]"), "model.merges[0]: the second text is no"},
    {MODEL, MODEL_WITH(VOCAB ",\"merges\":[\"b a\"]"), "model.merges[0]: what it makes is no"},
    {MODEL, MODEL_WITH(VOCAB ",\"merges\":[],\"dropout\":0.1"), "model.dropout: is not supported"},
    {MODEL, MODEL_WITH(VOCAB ",\"merges\":[],\"end_of_word_suffix\":\"</w>\""),
     "model.end_of_word_suffix: is not supported"},
    {MODEL, MODEL_WITH(VOCAB ",\"merges\":[],\"unk_token\":\"x\""), "model.unk_token: is no token"},
    {MODEL, MODEL_WITH(VOCAB ",\"merges\":[],\"ignore_merges\":1"), "true or false expected"},
    {ADDED, TOKEN("\"special\":\"yes\""), "added_tokens[0].special: true or false expected"},
    {ADDED, TOKEN("\"odd\":1"), "added_tokens[0]: field \"odd\" is not supported"},
    {ADDED, "\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]",
     "added_tokens[0].id: 1, but the text is token 0"},
    {ADDED, "\"added_tokens\":[{\"id\":1,\"content\":\"c\"}]", "two tokens have id 1"},
    {ADDED, "\"added_tokens\":[{\"content\":\"c\"}]", "added_tokens.id: an id from 0"},
};

/* Each byte has a token: the ids are those without. */
START_TEST(byte_fallback_beside_byte_level_has_nothing_to_do)
{
    static const char off[] = "\"byte_fallback\":false";
    static const char text[] = "caf\xc3\xa9 \xf0\x9f\x98\x80\x01 <0x41>";
    size_t length, counts[2];
    int32_t ids[2][64];
    char *file = file_read("gpt2.json", &length), *at = strstr(file, off);
    ck_assert_ptr_nonnull(at);
    for (int on = 0; on < 2; on++) {
        struct tokenizer *tokenizer;
        struct error error;
        struct tokenizer_scratch *scratch = tokenizer_scratch_new();
        memcpy(at, on ? "\"byte_fallback\":true " : off, strlen(off));
        ck_assert_int_eq(tokenizer_load(file, length, &tokenizer, &error), 0);
        ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, text, strlen(text), true, ids[on], 64,
                                          &counts[on], &error),
                         0);
        tokenizer_scratch_free(scratch);
        tokenizer_free(tokenizer);
    }
    ck_assert_uint_eq(counts[0], counts[1]);
    ck_assert_mem_eq(ids[0], ids[1], counts[0] * sizeof(int32_t));
    free(file);
}
END_TEST

/* A byte that has none would be spelled by tokens <0xHH>: only then it means something. */
START_TEST(byte_fallback_beside_byte_level_is_refused_where_it_would_spell_a_byte)
{
    static const char form[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
                               "\"BPE\",\"byte_fallback\":true,\"merges\":[],\"vocab\":{%s}}}";
    static const struct {
        const char *vocab;
        bool good;
    } cases[] = {
        {"\"a\":0,\"<0x61>\":1", true}, /* a has a token */
        {"\"a\":0,\"<0x62>\":1", false},
        {"\"a\":0,\"<0xC4>\":1", true}, /* no character in the alphabet is that byte alone */
        {"\"a\":0,\"<0xC4>\":1,\"<0x80>\":2", false},
    };
    char file[512];
    struct tokenizer *tokenizer;
    struct error error;
    int length = snprintf(file, sizeof(file), form, cases[_i].vocab);
    int code = tokenizer_load(file, (size_t)length, &tokenizer, &error);
    ck_assert_msg((code == 0) == cases[_i].good, "%s", code ? error.text : "taken");
    if (code == 0)
        tokenizer_free(tokenizer);
    else
        ck_assert_ptr_nonnull(strstr(error.text, "byte_fallback"));
}
END_TEST

START_TEST(what_is_not_known_or_wrong_is_refused_by_name)
{
    struct tokenizer *tokenizer = NULL;
    struct error error = {0};
    const struct refusal *refusal = &refusals[_i];
    ck_assert_int_lt(load_with(refusal->part, refusal->text, &tokenizer, &error), 0);
    ck_assert_msg(strstr(error.text, refusal->why), "%s", error.text);
    ck_assert_int_eq(load_with(PARTS, NULL, &tokenizer, &error), 0);
    tokenizer_free(tokenizer);
}
END_TEST

static size_t encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                     int32_t *ids, size_t max)
{
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    struct error error = {0};
    size_t count = 0;
    int code = tokenizer_encode(tokenizer, scratch, text, length, false, ids, max, &count, &error);
    ck_assert_msg(code == 0, "%s", error.text);
    tokenizer_scratch_free(scratch);
    return count;
}

/* The vocabulary of bytes and nothing else. */
static struct tokenizer *bytes_only(void)
{
    char model[8192] = "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{";
    struct tokenizer *tokenizer = NULL;
    char file[16384];
    struct error error = {0};
    for (unsigned byte = 0, other = 0x100; byte < 256; byte++) {
        bool prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        unsigned code = prints ? byte : other++;
        size_t used = strlen(model);
        snprintf(model + used, sizeof(model) - used, "%s\"\\u%04x\":%u", byte ? "," : "", code,
                 byte);
    }
    snprintf(file, sizeof(file),
             "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
             "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},%s}}}",
             model);
    int code = tokenizer_load(file, strlen(file), &tokenizer, &error);
    ck_assert_msg(code == 0, "%s", error.text);
    return tokenizer;
}

START_TEST(a_vocabulary_of_bytes_without_merges_gives_bytes)
{
    static const char text[] = "417+385=\n\0 \xc3\xa9 \xf0\x9f\x98\x80";
    struct tokenizer *tokenizer = bytes_only();
    int32_t ids[64];
    char back[64];
    size_t count = encode(tokenizer, text, sizeof(text) - 1, ids, 64), length = 0;
    ck_assert_uint_eq(count, sizeof(text) - 1);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(ids[i], (unsigned char)text[i]);
    ck_assert_int_eq(
        tokenizer_decode(tokenizer, ids, count, true, back, sizeof(back), &length, NULL), 0);
    ck_assert_uint_eq(length, count);
    ck_assert_mem_eq(back, text, count);
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(limits_are_met_with_an_error_that_names_them)
{
    struct tokenizer *tokenizer = bytes_only();
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    struct error error = {0};
    int32_t ids[4];
    size_t count = 99;
    char text[4];
    ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, "abcde", 5, true, ids, 4, &count, &error),
                     -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, 4);
    ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, "a\xff", 2, true, ids, 4, &count, &error),
                     -ERR_BAD_VALUE);
    ck_assert_str_eq(error.text, "the text is no UTF-8 at byte 1");
    ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, "", TOKENIZER_TEXT_MAX + 1, true, ids, 4,
                                      &count, &error),
                     -ERR_TOO_LARGE);
    ck_assert_uint_eq(count, 99);
    ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, "abcd", 4, true, ids, 4, &count, &error),
                     0);
    ck_assert_uint_eq(count, 4);
    ck_assert_int_eq(tokenizer_decode(tokenizer, ids, 4, true, text, 3, &count, &error),
                     -ERR_TOO_LARGE);
    tokenizer_scratch_free(scratch);
    tokenizer_free(tokenizer);
}
END_TEST

struct hostile {
    const char *style, *unit;
};

static const struct hostile hostiles[] = {
    {"gpt2", "a"},
    {"gpt2", " "},
    {"gpt2", "ab"},
    {"llama3", "\n"},
    {"llama3", "A"},
    {"llama3", "1"},
    {"qwen2", "\xcc\x81\xcc\xa3"}, /* marks out of order */
    {"qwen2", "'"},
    {"llama2", " "},
    {"llama2", "a"},
    {"llama2", "\xf0\x9f\x98\x80"},
    {"mixed", "A"},
    {"mistral", "\xe2\x96\x81"},
    {"qwen2", "<|im_"},
    {"qwen2", " <l>"},
    {"llama3", " \r"},
    {"gemma", " "},
    {"gemma", "\n"},
    {"gemma", "wouldthen"},
    {"phi3", "<|tag|> "},
    {"phi4", " <|im_start|>"},
    {"starcoder2", "1"},
    {"phi4mini", "aA"},
};

/* A megabyte of what is worst for some part takes its time by length and not by its square, which
 * the suite's time limit tells; and it comes back as it was. */
START_TEST(a_megabyte_of_one_thing_is_tokenized)
{
    const size_t size = 1 << 20;
    const struct hostile *hostile = &hostiles[_i];
    char name[32], *text = malloc(size + 8), *back = malloc(4 * size);
    int32_t *ids = malloc((size + 8) * sizeof(*ids));
    size_t unit = strlen(hostile->unit), length = 0, count, used = 0;
    snprintf(name, sizeof(name), "%s.json", hostile->style);
    struct tokenizer *tokenizer = file_tokenizer(name);
    while (length + unit <= size) {
        memcpy(text + length, hostile->unit, unit);
        length += unit;
    }
    count = encode(tokenizer, text, length, ids, size + 8);
    ck_assert_int_eq(tokenizer_decode(tokenizer, ids, count, false, back, 4 * size, &used, NULL),
                     0);
    if (strcmp(hostile->style, "gpt2") == 0 || strcmp(hostile->style, "llama3") == 0) {
        ck_assert_uint_eq(used, length);
        ck_assert_mem_eq(back, text, length);
    }
    tokenizer_free(tokenizer);
    free(ids);
    free(back);
    free(text);
}
END_TEST

#define THREADS 4

struct share {
    const struct tokenizer *tokenizer;
    const char *text;
    size_t length, count;
    int32_t ids[4096];
    bool failed;
};

static void *encode_share(void *argument)
{
    struct share *share = argument;
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    share->failed = !scratch;
    for (int i = 0; i < 8 && !share->failed; i++)
        share->failed = tokenizer_encode(share->tokenizer, scratch, share->text, share->length,
                                         true, share->ids, 4096, &share->count, NULL) < 0;
    tokenizer_scratch_free(scratch);
    return NULL;
}

START_TEST(threads_share_a_tokenizer)
{
    static struct share shares[THREADS];
    pthread_t threads[THREADS];
    char text[4096];
    struct tokenizer *tokenizer = file_tokenizer("qwen2.json");
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "the quick brown fox, 12 <tool_call>\n"[i % 36];
    for (int i = 0; i < THREADS; i++) {
        shares[i] = (struct share){.tokenizer = tokenizer, .text = text, .length = sizeof(text)};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_share, &shares[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        ck_assert(!shares[i].failed);
        ck_assert_uint_eq(shares[i].count, shares[0].count);
        ck_assert_mem_eq(shares[i].ids, shares[0].ids, shares[0].count * sizeof(int32_t));
    }
    tokenizer_free(tokenizer);
}
END_TEST

START_TEST(tokens_can_be_looked_up)
{
    struct tokenizer *tokenizer = file_tokenizer("llama2.json");
    size_t length = 0;
    int32_t end = tokenizer_token_id(tokenizer, "</s>");
    ck_assert_int_eq(end, 2);
    ck_assert(tokenizer_token_is_special(tokenizer, end));
    ck_assert(!tokenizer_token_is_special(tokenizer, 65));
    ck_assert_int_eq(tokenizer_token_id(tokenizer, "no such token"), -1);
    ck_assert_ptr_null(tokenizer_token_bytes(tokenizer, -1, &length));
    ck_assert_ptr_null(tokenizer_token_bytes(tokenizer, INT32_MAX, &length));
    const char *bytes = tokenizer_token_bytes(tokenizer, 3 + 0x41, &length);
    ck_assert_uint_eq(length, 1);
    ck_assert_mem_eq(bytes, "A", 1);
    bytes = tokenizer_token_text(tokenizer, 3 + 0x41, &length);
    ck_assert_uint_eq(length, 6);
    ck_assert_mem_eq(bytes, "<0x41>", 6);
    tokenizer_free(tokenizer);
}
END_TEST

Suite *tokenizer_suite(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *tests = tcase_create("tokenizer");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, byte_fallback_beside_byte_level_has_nothing_to_do);
    tcase_add_loop_test(
        tests, byte_fallback_beside_byte_level_is_refused_where_it_would_spell_a_byte, 0, 4);
    tcase_add_loop_test(tests, what_is_not_known_or_wrong_is_refused_by_name, 0,
                        (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tests, a_vocabulary_of_bytes_without_merges_gives_bytes);
    tcase_add_test(tests, limits_are_met_with_an_error_that_names_them);
    tcase_add_loop_test(tests, a_megabyte_of_one_thing_is_tokenized, 0,
                        (int)(sizeof(hostiles) / sizeof(hostiles[0])));
    tcase_add_test(tests, threads_share_a_tokenizer);
    tcase_add_test(tests, tokens_can_be_looked_up);
    suite_add_tcase(suite, tests);
    return suite;
}
