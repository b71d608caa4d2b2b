/* TOKENS and RESULT: records in memory of their very size, whole, cut and damaged. */
#include <stdlib.h>
#include <string.h>

#include "protocol/message.h"
#include "tests/protocol/protocol_suites.h"

static struct error error;

static struct frame frame_of(uint8_t type, const void *payload, size_t length)
{
    return (struct frame){.type = type, .payload = payload, .payload_length = (uint32_t)length};
}

static const int32_t tokens[] = {5, 6, 7};
static const float logprobs[] = {-1, -2, -3};
static const struct message_top top[] = {{1, -1}, {2, -2}, {3, -3}, {4, -4}, {5, -5}, {6, -6}};

/* Bits 0 to 2 are the flags, then the count; with 3 tokens the alignment of all parts shifts. */
static struct message_tokens record_of(int variant)
{
    uint16_t flags = (uint16_t)(variant & 7), count = (uint16_t)(variant >> 3);
    return (struct message_tokens){.sequence = 4000000000u,
                                   .count = count,
                                   .flags = flags,
                                   .tokens = tokens,
                                   .logprobs = logprobs,
                                   .top_count = flags & TOKENS_TOP ? 2 : 0,
                                   .top = top,
                                   .text = "h\xc3\xa9llo",
                                   .text_length = flags & TOKENS_TEXT ? 6 : 0};
}

START_TEST(a_record_of_any_shape_is_read_back)
{
    struct message_tokens record = record_of(_i), read;
    size_t size = message_tokens_size(&record), offset = 0;
    unsigned char *payload = malloc(size);
    ck_assert_uint_eq(size % 8, 0);
    for (size_t small = 0; small < size; small++)
        ck_assert_uint_eq(message_put_tokens(payload, small, &record), 0);
    ck_assert_uint_eq(message_put_tokens(payload, size, &record), size);
    struct frame frame = frame_of(FRAME_TOKENS, payload, size);
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &read, &error), 0);
    ck_assert_uint_eq(offset, size);
    ck_assert_uint_eq(read.sequence, record.sequence);
    ck_assert_uint_eq(read.count, record.count);
    ck_assert_uint_eq(read.flags, record.flags);
    ck_assert_mem_eq(read.tokens, tokens, 4 * (size_t)record.count);
    if (record.flags & TOKENS_LOGPROBS)
        ck_assert_mem_eq(read.logprobs, logprobs, 4 * (size_t)record.count);
    ck_assert_uint_eq(read.top_count, record.top_count);
    if (record.flags & TOKENS_TOP)
        ck_assert_mem_eq(read.top, top, 16 * (size_t)record.count);
    ck_assert_uint_eq(read.text_length, record.text_length);
    if (record.flags & TOKENS_TEXT)
        ck_assert_mem_eq(read.text, record.text, record.text_length);
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &read, &error), 1);
    free(payload);
}
END_TEST

START_TEST(a_record_cut_short_is_refused)
{
    struct message_tokens record = record_of(_i), read;
    size_t size = message_tokens_size(&record);
    unsigned char *payload = malloc(size);
    message_put_tokens(payload, size, &record);
    for (size_t cut = 8; cut < size; cut += 8) {
        unsigned char *part = malloc(cut);
        memcpy(part, payload, cut);
        struct frame frame = frame_of(FRAME_TOKENS, part, cut);
        size_t offset = 0;
        ck_assert_int_eq(message_next_tokens(&frame, &offset, &read, &error), -ERR_BAD_FRAME);
        ck_assert_uint_eq(offset, 0);
        free(part);
    }
    free(payload);
}
END_TEST

struct damage {
    uint32_t words[6];
    const char *text;
};

static const struct damage damages[] = {
    {{0, 0x00080000}, "flags not known"}, /* flag 8 */
    {{0, 0x80000000}, "flags not known"},
    {{0, 0x00008000}, "too many tokens"}, /* 32768 tokens */
    {{0, 0x00007fff}, "cut short"},
    {{0, 0x00020001, 5, 21}, "too many likeliest tokens"},
    {{0, 0x00020001, 5, UINT32_MAX}, "too many likeliest tokens"},
    {{0, 0x00020001, 5, 20}, "cut short"},
    {{0, 0x00040001, 5, UINT32_MAX}, "cut short"},
    {{0, 0x00040001, 5, 9}, "cut short"},
};

#define DAMAGES ((int)(sizeof(damages) / sizeof(damages[0])))

START_TEST(a_damaged_record_is_refused)
{
    struct message_tokens read;
    size_t offset = 0;
    struct frame frame = frame_of(FRAME_TOKENS, damages[_i].words, sizeof(damages[_i].words));
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &read, &error), -ERR_BAD_FRAME);
    ck_assert_msg(strstr(error.text, damages[_i].text), "%s", error.text);
}
END_TEST

START_TEST(tokens_have_no_head)
{
    struct frame frame = {.type = FRAME_TOKENS, .head = "{}      ", .head_length = 8};
    struct message_tokens read;
    size_t offset = 0;
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &read, &error), -ERR_BAD_FRAME);
}
END_TEST

START_TEST(an_error_names_the_records_place)
{
    struct message_tokens record = record_of(1 << 3), read;
    uint64_t payload[3] = {0, 0, 0x0008000000000000u};
    size_t offset = 0;
    ck_assert_uint_eq(message_put_tokens(payload, sizeof(payload), &record), 16);
    struct frame frame = frame_of(FRAME_TOKENS, payload, sizeof(payload));
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &read, &error), 0);
    ck_assert_int_eq(message_next_tokens(&frame, &offset, &read, &error), -ERR_BAD_FRAME);
    ck_assert_str_eq(error.text, "token record at byte 16: flags not known");
}
END_TEST

START_TEST(results_of_any_size_are_read_back)
{
    static unsigned char bytes[4096];
    static const struct message_score scores[] = {{-1, 2, -3, 0}, {-4, 5, -6, 0}, {-7, 8, -9, 0}};
    static const float rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct message_result result = {.sequence = 3,
                                    .kind = _i % 2 ? RESULT_EMBED : RESULT_SCORE,
                                    .first = 17,
                                    .count = (uint32_t)_i / 2,
                                    .width = _i % 2 ? 3 : 0,
                                    .scores = scores,
                                    .rows = rows},
                          read;
    size_t size = message_encode_result(bytes, sizeof(bytes), 12, &result), used;
    ck_assert_uint_gt(size, 0);
    for (size_t small = 0; small < size; small++)
        ck_assert_uint_eq(message_encode_result(bytes, small, 12, &result), 0);
    struct frame frame;
    ck_assert_int_eq(frame_decode(bytes, size, size, &frame, &used, &error), FRAME_OK);
    ck_assert_int_eq(message_decode_result(&frame, &read, &error), 0);
    ck_assert(read.sequence == 3 && read.first == 17 && read.count == result.count);
    if (_i % 2)
        ck_assert_mem_eq(read.rows, rows, 12 * (size_t)read.count);
    else
        ck_assert_mem_eq(read.scores, scores, 16 * (size_t)read.count);
    for (uint32_t cut = 0; cut < frame.payload_length; cut += 8) {
        struct frame part = frame_of(FRAME_RESULT, frame.payload, cut);
        ck_assert_int_eq(message_decode_result(&part, &read, &error), -ERR_BAD_FRAME);
    }
}
END_TEST

static const struct damage result_damages[] = {
    {{0, 3, 0, 0, 0, 0}, "kind not known"},
    {{0, 0, 0, 0, 0, 0}, "kind not known"},
    {{0, 0x10001, 0, 0, 0, 0}, "flags not known"},
    {{0, 1, 0, 0, 0, 1}, "flags not known"},
    {{0, 1, 1, 1, 0, 0}, "its counts and its length differ"},
    {{0, 2, 0, 1, 1, 0}, "its counts and its length differ"},
    /* Products that wrap to 0 in 64 and in 32 bits. */
    {{0, 2, 0, 0x80000000, 0x80000000, 0}, "its counts and its length differ"},
    {{0, 2, 0, 0x10000, 0x4000, 0}, "its counts and its length differ"},
    {{0, 2, 0, 0x80000000, 2, 0}, "its counts and its length differ"},
    {{0, 1, 0, 0x10000000, 0, 0}, "its counts and its length differ"},
};

#define RESULT_DAMAGES ((int)(sizeof(result_damages) / sizeof(result_damages[0])))

START_TEST(a_damaged_result_is_refused)
{
    const struct damage *damage = &result_damages[_i];
    struct message_result read;
    struct frame frame = frame_of(FRAME_RESULT, damage->words, sizeof(damage->words));
    ck_assert_int_eq(message_decode_result(&frame, &read, &error), -ERR_BAD_FRAME);
    ck_assert_msg(strstr(error.text, damage->text), "%s", error.text);
}
END_TEST

Suite *records_suite(void)
{
    Suite *suite = suite_create("records");
    TCase *tcase = tcase_create("records");
    tcase_add_loop_test(tcase, a_record_of_any_shape_is_read_back, 0, 32);
    tcase_add_loop_test(tcase, a_record_cut_short_is_refused, 0, 32);
    tcase_add_loop_test(tcase, a_damaged_record_is_refused, 0, DAMAGES);
    tcase_add_test(tcase, tokens_have_no_head);
    tcase_add_test(tcase, an_error_names_the_records_place);
    tcase_add_loop_test(tcase, results_of_any_size_are_read_back, 0, 8);
    tcase_add_loop_test(tcase, a_damaged_result_is_refused, 0, RESULT_DAMAGES);
    suite_add_tcase(suite, tcase);
    return suite;
}
