#include "protocol/frame.h"

#include <stdlib.h>
#include <string.h>

#include "tests/protocol/protocol_suites.h"
#include "tests/protocol/wire_page.h"

#define STREAM_MAX 8192
#define FRAMES_MAX 64

/* What a receiver has seen: it keeps its bytes aligned to 8 and takes frames from the front. */
struct receiver {
    _Alignas(8) unsigned char buffer[STREAM_MAX];
    size_t length;
    enum frame_status status;
    struct error error;
    size_t frames;
    struct frame frame[FRAMES_MAX];
    unsigned char bodies[STREAM_MAX]; /* heads and payloads, one after the other */
    size_t body_length;
};

static void keep(struct receiver *receiver, const struct frame *frame)
{
    ck_assert_uint_lt(receiver->frames, FRAMES_MAX);
    ck_assert_uint_eq((size_t)frame->head % 8, 0);
    ck_assert_uint_eq((size_t)frame->payload % 8, 0);
    receiver->frame[receiver->frames++] = *frame;
    memcpy(receiver->bodies + receiver->body_length, frame->head, frame->head_length);
    receiver->body_length += frame->head_length;
    memcpy(receiver->bodies + receiver->body_length, frame->payload, frame->payload_length);
    receiver->body_length += frame->payload_length;
}

static void receive(struct receiver *receiver, const unsigned char *bytes, size_t length)
{
    memcpy(receiver->buffer + receiver->length, bytes, length);
    receiver->length += length;
    while (receiver->status != FRAME_BAD && receiver->length > 0) {
        struct frame frame;
        size_t used = 0;
        receiver->status = frame_decode(receiver->buffer, receiver->length, STREAM_MAX, &frame,
                                        &used, &receiver->error);
        if (receiver->status == FRAME_MORE)
            ck_assert_uint_gt(used, receiver->length);
        if (receiver->status != FRAME_OK)
            return;
        ck_assert_uint_le(used, receiver->length);
        ck_assert_uint_eq(used, FRAME_HEADER_SIZE + frame.head_length + frame.payload_length);
        keep(receiver, &frame);
        receiver->length -= used;
        memmove(receiver->buffer, receiver->buffer + used, receiver->length);
    }
}

static void assert_same(const struct receiver *a, const struct receiver *b)
{
    ck_assert_int_eq(a->status, b->status);
    ck_assert_uint_eq(a->frames, b->frames);
    for (size_t i = 0; i < a->frames; i++) {
        ck_assert_uint_eq(a->frame[i].type, b->frame[i].type);
        ck_assert_uint_eq(a->frame[i].flags, b->frame[i].flags);
        ck_assert_uint_eq(a->frame[i].id, b->frame[i].id);
        ck_assert_uint_eq(a->frame[i].head_length, b->frame[i].head_length);
        ck_assert_uint_eq(a->frame[i].payload_length, b->frame[i].payload_length);
    }
    ck_assert_uint_eq(a->body_length, b->body_length);
    ck_assert_mem_eq(a->bodies, b->bodies, a->body_length);
    if (a->status == FRAME_BAD) {
        ck_assert_int_eq(a->error.code, b->error.code);
        ck_assert_str_eq(a->error.text, b->error.text);
    }
}

/* The same bytes whole, byte by byte and at every split are the same frames. */
static void assert_splits_agree(const unsigned char *bytes, size_t length, struct receiver *whole)
{
    static struct receiver parts;
    memset(whole, 0, sizeof(*whole));
    receive(whole, bytes, length);
    memset(&parts, 0, sizeof(parts));
    for (size_t i = 0; i < length; i++)
        receive(&parts, bytes + i, 1);
    assert_same(whole, &parts);
    for (size_t split = 1; split < length; split++) {
        memset(&parts, 0, sizeof(parts));
        receive(&parts, bytes, split);
        receive(&parts, bytes + split, length - split);
        assert_same(whole, &parts);
    }
}

static struct receiver whole;

START_TEST(every_example_of_the_page_is_one_frame_at_every_split)
{
    for (size_t i = 0; i < wire_count(); i++) {
        const struct wire_example *example = wire_at(i);
        assert_splits_agree(example->bytes, example->length, &whole);
        ck_assert_int_eq(whole.status, FRAME_OK);
        ck_assert_uint_eq(whole.frames, 1);
        ck_assert_uint_eq(whole.length, 0);
    }
}
END_TEST

START_TEST(frames_in_one_stream_are_told_apart_at_every_split)
{
    static unsigned char stream[STREAM_MAX];
    size_t length = 0;
    for (size_t i = 0; i < wire_count(); i++) {
        memcpy(stream + length, wire_at(i)->bytes, wire_at(i)->length);
        length += wire_at(i)->length;
    }
    assert_splits_agree(stream, length, &whole);
    ck_assert_uint_eq(whole.frames, wire_count());
    ck_assert_uint_eq(whole.length, 0);
}
END_TEST

START_TEST(an_unfinished_frame_says_how_much_it_needs)
{
    const struct wire_example *example = wire_named("submit");
    for (size_t length = 0; length < example->length; length++) {
        struct frame frame;
        struct error error;
        size_t used = 0;
        ck_assert_int_eq(frame_decode(example->bytes, length, STREAM_MAX, &frame, &used, &error),
                         FRAME_MORE);
        ck_assert_uint_eq(used, length < FRAME_HEADER_SIZE ? FRAME_HEADER_SIZE : example->length);
    }
}
END_TEST

struct bad {
    size_t offset; /* where the header of a good frame gets other bytes */
    unsigned char bytes[4];
    size_t length;
    int code;
    size_t seen_at; /* with so many bytes it is refused, with one less not yet */
    const char *text;
};

static const struct bad bads[] = {
    {0, "X", 1, ERR_BAD_MAGIC, 1, "not the Sluice protocol"},
    {3, "e", 1, ERR_BAD_MAGIC, 4, "not the Sluice protocol"},
    {0, "GET ", 4, ERR_BAD_MAGIC, 1, "not the Sluice protocol"},
    {4, "\x00", 1, ERR_BAD_VERSION, 5, "version 0, spoken here is version 1"},
    {4, "\x02", 1, ERR_BAD_VERSION, 5, "version 2, spoken here is version 1"},
    {5, "\x00", 1, ERR_BAD_FRAME, 24, "frame type 0 is not known"},
    {5, "\x15", 1, ERR_BAD_FRAME, 24, "frame type 21 is not known"},
    {5, "\xff", 1, ERR_BAD_FRAME, 24, "frame type 255 is not known"},
    {6, "\x04", 1, ERR_BAD_FRAME, 24, "frame flags 0x0004 are not known"},
    {6, "\x03\x80", 2, ERR_BAD_FRAME, 24, "frame flags 0x8000 are not known"},
    {16, "\x01", 1, ERR_BAD_FRAME, 24, "must be multiples of 8"},
    {20, "\x04", 1, ERR_BAD_FRAME, 24, "must be multiples of 8"},
    {16, "\x08\x00\x10\x00", 4, ERR_TOO_LARGE, 24, "head of 1048584 bytes, at most 1048576"},
    {16, "\xf8\xff\xff\xff", 4, ERR_TOO_LARGE, 24, "head of 4294967288 bytes"},
    {20, "\xf8\xff\xff\xff", 4, ERR_TOO_LARGE, 24, "bytes, at most 8192 are accepted"},
    {20, "\x00\x20\x00\x00", 4, ERR_TOO_LARGE, 24, "bytes, at most 8192 are accepted"},
};

#define BADS ((int)(sizeof(bads) / sizeof(bads[0])))

START_TEST(a_bad_header_is_refused_as_soon_as_it_can_be_seen)
{
    const struct bad *bad = &bads[_i];
    const struct wire_example *example = wire_named("hello");
    static unsigned char bytes[WIRE_EXAMPLE_SIZE_MAX];
    memcpy(bytes, example->bytes, example->length);
    memcpy(bytes + bad->offset, bad->bytes, bad->length);
    assert_splits_agree(bytes, example->length, &whole);
    ck_assert_int_eq(whole.status, FRAME_BAD);
    ck_assert_int_eq(whole.error.code, bad->code);
    ck_assert_msg(strstr(whole.error.text, bad->text), "%s", whole.error.text);
    for (size_t length = 0; length <= example->length; length++) {
        struct frame frame;
        size_t used = 12345;
        enum frame_status status =
            frame_decode(bytes, length, STREAM_MAX, &frame, &used, &whole.error);
        ck_assert_int_eq(status, length < bad->seen_at ? FRAME_MORE : FRAME_BAD);
    }
}
END_TEST

START_TEST(the_limit_holds_to_the_byte)
{
    const struct wire_example *example = wire_named("submit");
    struct frame frame;
    struct error error;
    size_t used;
    ck_assert_int_eq(
        frame_decode(example->bytes, example->length, example->length, &frame, &used, &error),
        FRAME_OK);
    ck_assert_int_eq(
        frame_decode(example->bytes, example->length, example->length - 1, &frame, &used, &error),
        FRAME_BAD);
    ck_assert_int_eq(error.code, ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, example->length - 1);
    ck_assert_uint_eq(error.value, example->length);
}
END_TEST

START_TEST(an_encoded_header_is_decoded_to_what_it_was)
{
    for (uint8_t type = 1; type <= FRAME_TYPE_MAX; type++) {
        unsigned char bytes[FRAME_HEADER_SIZE];
        uint64_t id = 0x0123456789abcdefu * type;
        struct frame frame;
        struct error error;
        size_t used = 0;
        frame_encode_header(bytes, type, type & FRAME_FLAGS_KNOWN, id, 0, 0);
        ck_assert_int_eq(frame_decode(bytes, sizeof(bytes), 24, &frame, &used, &error), FRAME_OK);
        ck_assert_uint_eq(used, FRAME_HEADER_SIZE);
        ck_assert_uint_eq(frame.type, type);
        ck_assert_uint_eq(frame.flags, type & FRAME_FLAGS_KNOWN);
        ck_assert_uint_eq(frame.id, id);
        ck_assert_uint_eq(frame.head_length + frame.payload_length, 0);
    }
}
END_TEST

Suite *frame_suite(void)
{
    Suite *suite = suite_create("frame");
    TCase *tcase = tcase_create("frame");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_example_of_the_page_is_one_frame_at_every_split);
    tcase_add_test(tcase, frames_in_one_stream_are_told_apart_at_every_split);
    tcase_add_test(tcase, an_unfinished_frame_says_how_much_it_needs);
    tcase_add_loop_test(tcase, a_bad_header_is_refused_as_soon_as_it_can_be_seen, 0, BADS);
    tcase_add_test(tcase, the_limit_holds_to_the_byte);
    tcase_add_test(tcase, an_encoded_header_is_decoded_to_what_it_was);
    suite_add_tcase(suite, tcase);
    return suite;
}
