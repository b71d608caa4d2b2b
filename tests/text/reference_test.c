/* Ids and texts equal those of the reference, on strings and id sequences whose checksums
 * reference/make.py committed. `reference/make.py show STYLE INDEX` prints what is right. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/detokenizer.h"
#include "daemon/text/tokenizer.h"
#include "protocol/base/json.h"
#include "tests/text/file.h"
#include "tests/text/text_suites.h"

#define IDS_MAX 16384
#define TEXT_MAX 65536

static const struct {
    const char *name, *strings;
    uint32_t sequences;
} styles[] = {
    {"gpt2", "strings.bin", 2000},    {"llama3", "strings.bin", 2000},
    {"qwen2", "strings.bin", 2000},   {"llama2", "strings.bin", 2000},
    {"mistral", "strings.bin", 2000}, {"mixed", "strings.bin", 2000},
    {"gemma", "later.bin", 250},      {"phi3", "later.bin", 250},
    {"phi4", "later.bin", 250},       {"phi4mini", "later.bin", 250},
    {"olmo2", "later.bin", 250},      {"starcoder2", "later.bin", 250},
    {"smollm3", "later.bin", 250},    {"glm4", "later.bin", 250},
    {"harmony", "later.bin", 250},
};
#define STYLES ((int)(sizeof(styles) / sizeof(styles[0])))

struct reference {
    struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    char *sums;
    const char *style;
};

static uint32_t crc(const void *bytes, size_t count)
{
    const unsigned char *c = bytes;
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        sum ^= c[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (0xedb88320u & -(sum & 1));
    }
    return ~sum;
}

static uint32_t sum_at(const struct reference *reference, size_t index)
{
    uint32_t sum;
    memcpy(&sum, reference->sums + index * sizeof(sum), sizeof(sum));
    return sum;
}

static struct reference open_reference(int style, size_t sums)
{
    char name[64];
    size_t length;
    struct reference reference = {.style = styles[style].name};
    snprintf(name, sizeof(name), "%s.json", styles[style].name);
    reference.tokenizer = file_tokenizer(name);
    reference.scratch = tokenizer_scratch_new();
    ck_assert_ptr_nonnull(reference.scratch);
    snprintf(name, sizeof(name), "%s.crc", styles[style].name);
    reference.sums = file_read(name, &length);
    ck_assert_uint_eq(length, sums * sizeof(uint32_t));
    return reference;
}

static void close_reference(struct reference *reference)
{
    tokenizer_scratch_free(reference->scratch);
    tokenizer_free(reference->tokenizer);
    free(reference->sums);
}

/* All at once and a token at a time; both must be the same. */
static size_t decode(const struct reference *reference, const int32_t *ids, size_t count, bool skip,
                     char *text)
{
    static char streamed[TEXT_MAX];
    struct detokenizer detokenizer;
    struct error error;
    size_t length = 0, used = 0;
    ck_assert_int_eq(
        tokenizer_decode(reference->tokenizer, ids, count, skip, text, TEXT_MAX, &length, &error),
        0);
    ck_assert_uint_lt(length + detokenizer_room(reference->tokenizer), TEXT_MAX);
    detokenizer_init(&detokenizer, reference->tokenizer, skip);
    for (size_t i = 0; i < count; i++)
        used += detokenizer_push(&detokenizer, ids[i], streamed + used);
    used += detokenizer_finish(&detokenizer, streamed + used);
    ck_assert_uint_eq(used, length);
    ck_assert_mem_eq(streamed, text, length);
    return length;
}

static uint32_t count_strings(const char *strings)
{
    uint32_t count;
    memcpy(&count, strings, sizeof(count));
    return count;
}

START_TEST(strings_have_the_ids_and_the_text_of_the_reference)
{
    static int32_t ids[IDS_MAX];
    static char text[TEXT_MAX];
    size_t length, at = sizeof(uint32_t);
    char *strings = file_read(styles[_i].strings, &length);
    uint32_t count = count_strings(strings);
    struct reference reference = open_reference(_i, 2 * (count + styles[_i].sequences));
    struct error error = {0};
    for (uint32_t i = 0; i < count; i++) {
        uint16_t bytes;
        size_t found = 0;
        memcpy(&bytes, strings + at, sizeof(bytes));
        at += sizeof(bytes);
        int code = tokenizer_encode(reference.tokenizer, reference.scratch, strings + at, bytes,
                                    true, ids, IDS_MAX, &found, &error);
        ck_assert_msg(code == 0, "%s %u: %s", reference.style, i, error.text);
        ck_assert_msg(crc(ids, found * sizeof(*ids)) == sum_at(&reference, 2 * i),
                      "ids differ: make.py show %s %u", reference.style, i);
        size_t decoded = decode(&reference, ids, found, false, text);
        ck_assert_msg(crc(text, decoded) == sum_at(&reference, 2 * i + 1),
                      "text differs: make.py show %s %u", reference.style, i);
        at += bytes;
    }
    ck_assert_uint_eq(at, length);
    close_reference(&reference);
    free(strings);
}
END_TEST

/* The generator of make.py's sequences(). */
static size_t next_sequence(uint32_t *state, uint32_t bound, int32_t *ids)
{
    *state = *state * 1664525u + 1013904223u;
    size_t count = 1 + (*state >> 16) % 24;
    for (size_t i = 0; i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        uint32_t range = *state >> 31 ? (bound < 300 ? bound : 300) : bound + 2;
        ids[i] = (int32_t)((*state >> 9) % range);
    }
    return count;
}

START_TEST(any_sequence_of_ids_has_the_text_of_the_reference)
{
    static char text[TEXT_MAX];
    int32_t ids[32];
    size_t length;
    char *strings = file_read(styles[_i].strings, &length);
    uint32_t count = count_strings(strings), state = 1;
    struct reference reference = open_reference(_i, 2 * (count + styles[_i].sequences));
    for (uint32_t i = 0; i < styles[_i].sequences; i++) {
        size_t found = next_sequence(&state, tokenizer_bound(reference.tokenizer), ids);
        for (uint32_t skip = 0; skip < 2; skip++) {
            size_t decoded = decode(&reference, ids, found, skip, text);
            ck_assert_msg(crc(text, decoded) == sum_at(&reference, 2 * (count + i) + skip),
                          "%s: sequence %u, special tokens %s", reference.style, i,
                          skip ? "skipped" : "kept");
        }
    }
    close_reference(&reference);
    free(strings);
}
END_TEST

#define DECODER_SEQUENCES 250
static const char decoder_key[] = "\"decoder\":", model_key[] = ",\"model\":";

/* The style's file with another decoder. */
static struct tokenizer *with_decoder(const char *style, const char *decoder, size_t length)
{
    char name[64];
    size_t size;
    struct error error = {0};
    struct tokenizer *tokenizer;
    snprintf(name, sizeof(name), "%s.json", style);
    char *file = file_read(name, &size), *made = malloc(size + length);
    char *key = strstr(file, decoder_key), *rest = strstr(file, model_key);
    ck_assert(key && rest && key < rest);
    key += strlen(decoder_key);
    int written = snprintf(made, size + length, "%.*s%.*s%s", (int)(key - file), file, (int)length,
                           decoder, rest);
    int code = tokenizer_load(made, (size_t)written, &tokenizer, &error);
    ck_assert_msg(code == 0, "%.*s: %s", (int)length, decoder, error.text);
    free(file);
    free(made);
    return tokenizer;
}

static bool is_broken(const json *line, uint32_t number)
{
    const json *broken = json_child(json_get(line, "broken"));
    while (broken && json_number(broken) != number)
        broken = json_next(broken);
    return broken != NULL;
}

/* One sum over all texts, each with a line's end. */
static void check_decoder(const char *text, size_t length)
{
    static const struct json_bounds bounds = {.bytes_max = 1 << 16, .depth_max = 16};
    static char texts[2 * TEXT_MAX];
    json *line;
    int32_t ids[32];
    size_t used = 0;
    uint32_t state = 1;
    ck_assert_int_eq(json_parse(text, length, bounds, &line, NULL), 0);
    const char *decoder = strstr(text, decoder_key) + strlen(decoder_key);
    const char *end = strstr(decoder, ", \"sum\":");
    struct reference reference = {.style = json_string(json_get(line, "style"))};
    reference.tokenizer = with_decoder(reference.style, decoder, (size_t)(end - decoder));
    for (uint32_t i = 0; i < DECODER_SEQUENCES; i++) {
        size_t found = next_sequence(&state, tokenizer_bound(reference.tokenizer), ids);
        if (is_broken(line, i))
            continue;
        used += decode(&reference, ids, found, i % 2 == 0, texts + used);
        texts[used++] = '\n';
        ck_assert_uint_lt(used, TEXT_MAX);
    }
    ck_assert_msg(crc(texts, used) == (uint32_t)json_number(json_get(line, "sum")),
                  "%s: text differs with %.*s", reference.style, (int)(end - decoder), decoder);
    tokenizer_free(reference.tokenizer);
    json_free(line);
}

/* make.py decoders: as transformers writes them, and drawn. */
START_TEST(decoders_of_known_parts_in_any_order_have_the_text_of_the_reference)
{
    size_t length, count = 0;
    char *file = file_read("decoders.jsonl", &length), *line = file;
    for (char *end; (end = strchr(line, '\n')); line = end + 1, count++)
        if (count % 8 == (size_t)_i)
            check_decoder(line, (size_t)(end - line));
    ck_assert_uint_ge(count, 80);
    free(file);
}
END_TEST

Suite *reference_suite(void)
{
    Suite *suite = suite_create("reference");
    TCase *tests = tcase_create("styles");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, strings_have_the_ids_and_the_text_of_the_reference, 0, STYLES);
    tcase_add_loop_test(tests, any_sequence_of_ids_has_the_text_of_the_reference, 0, STYLES);
    tcase_add_loop_test(tests, decoders_of_known_parts_in_any_order_have_the_text_of_the_reference,
                        0, 8);
    suite_add_tcase(suite, tests);
    return suite;
}
