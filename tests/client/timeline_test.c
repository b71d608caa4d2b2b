/* Timed chunks: what is read of an answer, how much ran at once, and how it is drawn. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/timeline/chart.h"
#include "tests/client/command_suites.h"

#define US 1000u

static struct chunk_list list;
static struct overlap overlap;
static struct error error;

static void setup(void)
{
    ck_assert_int_eq(chunk_list_init(&list, 256, &error), 0);
}

static void teardown(void)
{
    chunk_list_free(&list);
}

/* Stages that begin then, in microseconds, and take so long each. */
static void add(uint32_t lane, uint64_t in, uint64_t kernels, uint64_t out, uint64_t takes)
{
    const uint64_t begins[STAGES] = {in, kernels, out};
    struct timed_chunk *chunk = &list.chunks[list.count++];
    *chunk = (struct timed_chunk){.program = "affine", .lane = lane, .items = 2, .bytes_in = 1000};
    for (int i = 0; i < STAGES; i++)
        chunk->stages[i] = (struct stage_span){(100 + begins[i]) * US, (100 + begins[i] + takes) * US};
}

static void measure(void)
{
    chunk_list_sort(&list);
    ck_assert_int_eq(overlap_measure(&list, &overlap, &error), 0);
}

/* ---- what is measured --------------------------------------------------------------------------
 */

static void check_near(double value, double expected)
{
    ck_assert_msg(value > expected - 1e-9 && value < expected + 1e-9, "%g is not %g", value, expected);
}

/* Three stages of 10 us, and 30 us of nothing between two chunks, which nobody's engine is to blame
 * for. */
START_TEST(chunks_one_after_the_other_are_serialized)
{
    for (uint64_t i = 0; i < 4; i++)
        add(i % 2, 60 * i, 60 * i + 10, 60 * i + 20, 10);
    measure();
    ck_assert_uint_eq(overlap.span_ns, 210 * US);
    ck_assert_uint_eq(overlap.elapsed_ns, 120 * US);
    ck_assert_uint_eq(overlap.sum_ns, 120 * US);
    check_near(overlap.at_once, 1);
    check_near(overlap.model_ns, 60 * US);
    check_near(overlap.model_once, 2);
}
END_TEST

/* The picture of `timeline --simulate 4`: 12 units in 6. */
static void make_pipeline(void)
{
    for (uint64_t i = 4; i-- > 0;)
        add(i % 2, 10 * i, 10 * i + 10, 10 * i + 20, 10);
    measure();
}

START_TEST(a_full_pipeline_is_what_the_model_says)
{
    make_pipeline();
    ck_assert_uint_eq(list.chunks[0].stages[STAGE_IN].begin_ns, 0);
    ck_assert_uint_eq(list.chunks[3].stages[STAGE_OUT].end_ns, 60 * US);
    ck_assert_uint_eq(overlap.elapsed_ns, 60 * US);
    ck_assert_uint_eq(overlap.busy_ns[STAGE_KERNELS], 40 * US);
    ck_assert_uint_eq(overlap.bytes[STAGE_IN], 4000);
    check_near(overlap.at_once, 2);
    check_near(overlap.model_ns, 60 * US);
    check_near(overlap.model_once, 2);
}
END_TEST

/* Eight lanes that do everything together keep each engine busy once. */
START_TEST(what_lanes_do_at_once_on_one_engine_counts_once)
{
    for (uint32_t i = 0; i < 8; i++)
        add(i, i, 30, 60, 20 + i);
    measure();
    ck_assert_uint_eq(overlap.busy_ns[STAGE_KERNELS], 27 * US);
    ck_assert_uint_eq(overlap.busy_ns[STAGE_IN], 34 * US);
    ck_assert_uint_eq(overlap.elapsed_ns, 87 * US);
}
END_TEST

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

START_TEST(no_engine_is_busy_for_longer_than_there_was_work)
{
    uint64_t state = (uint64_t)_i + 1;
    size_t count = 1 + draw(&state, 200);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = draw(&state, 10000), takes = draw(&state, 100);
        add((uint32_t)draw(&state, 16), at, at + takes + draw(&state, 50), at + 200, takes);
    }
    measure();
    uint64_t sum_ns = 0;
    for (int stage = 0; stage < STAGES; stage++) {
        ck_assert_uint_le(overlap.busy_ns[stage], overlap.elapsed_ns);
        sum_ns += overlap.busy_ns[stage];
    }
    ck_assert_uint_eq(overlap.sum_ns, sum_ns);
    ck_assert_uint_le(overlap.elapsed_ns, overlap.span_ns);
    ck_assert(overlap.at_once <= STAGES && overlap.model_once <= STAGES + 1e-9);
}
END_TEST

/* ---- what is read ------------------------------------------------------------------------------
 */

#define CHUNK(members)                                                                             \
    "{\"next\":5,\"lost\":2,\"chunks\":[{\"program\":\"a-1\",\"lane\":3,\"items\":1,\"bytes_in\":7," \
    "\"bytes_out\":9," members "}]}"
#define SPANS "\"in\":[5,6],\"kernels\":[6,9],\"out\":[9,12]"

static int read_text(const char *text, uint64_t *ret_next)
{
    const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 8};
    json *document = NULL;
    ck_assert_msg(json_parse(text, strlen(text), bounds, &document, &error) == 0, "%s", error.text);
    int rc = chunk_list_read(&list, document, ret_next, &error);
    json_free(document);
    return rc;
}

START_TEST(an_answer_is_read)
{
    uint64_t next = 0;
    ck_assert_int_eq(read_text(CHUNK(SPANS), &next), 0);
    ck_assert_uint_eq(next, 5);
    ck_assert_uint_eq(list.lost, 2);
    ck_assert_uint_eq(list.count, 1);
    ck_assert_str_eq(list.chunks[0].program, "a-1");
    ck_assert_uint_eq(list.chunks[0].lane, 3);
    ck_assert_uint_eq(list.chunks[0].stages[STAGE_KERNELS].end_ns, 9);
    for (int i = 0; i < 300; i++) /* what there is no room for is left */
        ck_assert_int_eq(read_text(CHUNK(SPANS), &next), 0);
    ck_assert_uint_eq(list.count, list.room);
}
END_TEST

static const char *const bad[] = {
    "{}",
    "{\"next\":5}",
    "{\"next\":-1,\"lost\":0,\"chunks\":[]}",
    "{\"next\":5,\"lost\":0,\"chunks\":[1]}",
    "{\"next\":5,\"lost\":0,\"chunks\":[{}]}",
    "{\"next\":5,\"lost\":0,\"chunks\":[{\"program\":\"<b>\",\"lane\":3,\"items\":1,\"bytes_in\":7,"
    "\"bytes_out\":9," SPANS "}]}",
    CHUNK("\"in\":[5,6],\"kernels\":[6,9]"),
    CHUNK("\"in\":[5,6],\"kernels\":[6,9],\"out\":[9]"),
    CHUNK("\"in\":[5,6],\"kernels\":[6,9],\"out\":[9,12,13]"),
    CHUNK("\"in\":[5,6],\"kernels\":[6,9],\"out\":[12,9]"),
    CHUNK("\"in\":[5,6],\"kernels\":[5,9],\"out\":[9,12]"),
    CHUNK("\"in\":[5,6],\"kernels\":[6,1e300],\"out\":[9,12]"),
};

START_TEST(what_is_no_timeline_is_refused)
{
    uint64_t next;
    ck_assert_int_eq(read_text(bad[_i], &next), -ERR_INTERNAL);
    ck_assert_uint_eq(list.count, 0);
}
END_TEST

/* ---- what is drawn -----------------------------------------------------------------------------
 */

static char *drawn(void (*draw_it)(FILE *file))
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    draw_it(file);
    fclose(file);
    return text;
}

static void as_text(FILE *file)
{
    chart_print(&list, &overlap, file);
}

static void as_svg(FILE *file)
{
    chart_svg(&list, &overlap, file);
}

static void as_trace(FILE *file)
{
    chart_trace(&list, file);
}

static void as_json(FILE *file)
{
    chart_json(&list, &overlap, file);
}

START_TEST(chunks_are_shown_lane_by_lane)
{
    make_pipeline();
    char *text = drawn(as_text);
    ck_assert_str_eq(
        text,
        "4 chunks in 0.060 ms, for 0.060 ms of which one was under way\n"
        "                busy   share      a chunk          bytes       rate\n"
        "in          0.040 ms  66.7 %      10.0 us           4000  0.10 GB/s\n"
        "kernels     0.040 ms  66.7 %      10.0 us\n"
        "out         0.040 ms  66.7 %      10.0 us              0  0.00 GB/s\n"
        "overlapped: stages take 0.120 ms one after the other, and took 0.060 ms, 2.00 x; by the "
        "model 0.060 ms, 2.00 x\n"
        " 0 in      |000000000000            222222222222                                    |\n"
        " 0 kernels |            000000000000            222222222222                        |\n"
        " 0 out     |                        000000000000            222222222222            |\n"
        " 1 in      |            111111111111            333333333333                        |\n"
        " 1 kernels |                        111111111111            333333333333            |\n"
        " 1 out     |                                    111111111111            333333333333|\n");
    free(text);
}
END_TEST

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

START_TEST(pictures_and_traces_have_every_stage)
{
    const struct json_bounds bounds = {.bytes_max = 1 << 20, .depth_max = 8};
    json *document;
    make_pipeline();
    char *text = drawn(as_svg);
    ck_assert_uint_eq(count_of(text, "<rect "), 12);
    ck_assert_uint_eq(count_of(text, "overlapped: 2.00 stages at once, 2.00 by the model"), 1);
    ck_assert_uint_eq(count_of(text, "<svg ") + count_of(text, "</svg>"), 2);
    free(text);
    text = drawn(as_trace);
    ck_assert_msg(json_parse(text, strlen(text), bounds, &document, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(json_count(json_get(document, "traceEvents")), 6 + 12);
    ck_assert_uint_eq(count_of(text, "\"ts\":50.000,\"dur\":10.000"), 1);
    json_free(document);
    free(text);
    text = drawn(as_json);
    ck_assert_msg(json_parse(text, strlen(text), bounds, &document, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(json_count(json_get(document, "chunks")), 4);
    ck_assert_str_eq(json_string(json_get(document, "verdict")), "overlapped");
    json_free(document);
    free(text);
}
END_TEST

/* All at one time: nothing is divided by the length of nothing. */
START_TEST(chunks_that_take_no_time_are_drawn)
{
    add(15, 0, 0, 0, 0);
    measure();
    char *text = drawn(as_text);
    ck_assert_uint_eq(count_of(text, "nan") + count_of(text, "inf"), 0);
    ck_assert_uint_eq(count_of(text, "serialized"), 1);
    free(text);
    text = drawn(as_svg);
    ck_assert_uint_eq(count_of(text, "nan") + count_of(text, "inf"), 0);
    free(text);
}
END_TEST

Suite *timeline_suite(void)
{
    Suite *suite = suite_create("timeline");
    TCase *tests = tcase_create("timeline");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, chunks_one_after_the_other_are_serialized);
    tcase_add_test(tests, a_full_pipeline_is_what_the_model_says);
    tcase_add_test(tests, what_lanes_do_at_once_on_one_engine_counts_once);
    tcase_add_loop_test(tests, no_engine_is_busy_for_longer_than_there_was_work, 0, 50);
    tcase_add_test(tests, an_answer_is_read);
    tcase_add_loop_test(tests, what_is_no_timeline_is_refused, 0, sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(tests, chunks_are_shown_lane_by_lane);
    tcase_add_test(tests, pictures_and_traces_have_every_stage);
    tcase_add_test(tests, chunks_that_take_no_time_are_drawn);
    suite_add_tcase(suite, tests);
    return suite;
}
