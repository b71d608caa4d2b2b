/* What sluice_submit() makes of a batch, and what it refuses before anything is sent. */
#include <math.h>
#include <string.h>

#include "tests/client/client_suites.h"
#include "tests/client/peer.h"
#include "tests/client/tally.h"

static struct peer peer;
static struct tally tally;
static const int32_t three[] = {1, 2, 3};
static const struct message_limits limits = {.batch_max = 4096,
                                             .n_max = 128,
                                             .logprobs_max = 20,
                                             .stop_max = 16,
                                             .json_depth_max = 8,
                                             .vocabulary = 257};

static void setup(void)
{
    peer_open(&peer);
    peer_greet(&peer);
}

static void teardown(void)
{
    peer_close(&peer);
}

START_TEST(every_parameter_arrives)
{
    const char *const stop[] = {"end", "caf\xc3\xa9"};
    const int32_t stop_ids[] = {7, 8}, bias_tokens[] = {3};
    const float bias_values[] = {-1.5f};
    const struct sampling none = {.n = 1};
    sluice_prompt prompt = {.tokens = three, .token_count = 3};
    sluice_params params;
    sluice_batch batch;
    struct frame frame;
    struct error error;
    struct message_submit submit;
    struct message_prompt got;
    struct message_bias bias[4];
    uint32_t bias_count;
    sluice_params_init(&params);
    params.temperature = 0.5;
    params.top_p = 0.75;
    params.min_p = 0.25;
    params.repetition_penalty = 1.5;
    params.presence_penalty = -2;
    params.frequency_penalty = 2;
    params.top_k = 40;
    params.seed = 1234567890123;
    params.max_tokens = 9;
    params.min_tokens = 2;
    params.logprobs = 3;
    params.ignore_eos = 1;
    params.n = 4;
    params.stop = stop;
    params.stop_count = 2;
    params.stop_ids = stop_ids;
    params.stop_id_count = 2;
    params.bias_tokens = bias_tokens;
    params.bias_values = bias_values;
    params.bias_count = 1;
    tally_batch(&tally, &batch, &prompt, &params);
    batch.priority = -3;
    batch.deadline_ms = 5000;
    batch.stream = 0;
    batch.want_text = 1;
    ck_assert_int_eq(sluice_submit(peer.client, &batch, NULL), 0);
    ck_assert_uint_eq(sluice_open_sequences(peer.client), 4);
    ck_assert(peer_next(&peer, &frame));
    ck_assert_int_eq(message_decode_submit(&frame, &limits, &none, &submit, &error), 0);
    ck_assert_int_eq(message_submit_prompt(&submit, 0, &got, &error), 0);
    ck_assert_int_eq(submit.params.priority, -3);
    ck_assert_uint_eq(submit.params.deadline_ms, 5000);
    ck_assert(!submit.params.stream && submit.params.want_text);
    ck_assert_float_eq(got.sampling.sampler.temperature, 0.5f);
    ck_assert_float_eq(got.sampling.sampler.top_p, 0.75f);
    ck_assert_float_eq(got.sampling.sampler.min_p, 0.25f);
    ck_assert_float_eq(got.sampling.sampler.repetition_penalty, 1.5f);
    ck_assert_float_eq(got.sampling.sampler.presence_penalty, -2);
    ck_assert_float_eq(got.sampling.sampler.frequency_penalty, 2);
    ck_assert_int_eq(got.sampling.sampler.top_k, 40);
    ck_assert(got.sampling.seed_given && got.sampling.seed == 1234567890123);
    ck_assert_uint_eq(got.sampling.max_tokens, 9);
    ck_assert_uint_eq(got.sampling.min_tokens, 2);
    ck_assert_int_eq(got.sampling.logprobs, 3);
    ck_assert(got.sampling.ignore_eos);
    ck_assert_uint_eq(got.sampling.n, 4);
    ck_assert_uint_eq(got.stop_count, 2);
    ck_assert_str_eq(got.stop[1], "caf\xc3\xa9");
    ck_assert_uint_eq(got.stop_id_count, 2);
    ck_assert_int_eq(got.stop_ids[1], 8);
    ck_assert_int_eq(message_bias(got.bias, 257, bias, 4, &bias_count, &error), 0);
    ck_assert_uint_eq(bias_count, 1);
    ck_assert_float_eq(bias[0].value, -1.5f);
    ck_assert_mem_eq(got.tokens, three, sizeof(three));
    message_submit_free(&submit);
}
END_TEST

START_TEST(what_is_not_given_is_not_sent)
{
    sluice_prompt prompt = {.text = "hi", .text_length = 2};
    static const char expected[] = "{\"job\":\"generate\",\"stream\":true,\"texts\":[\"hi\"]}";
    sluice_params params;
    sluice_batch batch;
    struct frame frame;
    sluice_params_init(&params);
    tally_batch(&tally, &batch, &prompt, &params);
    ck_assert_int_eq(sluice_submit(peer.client, &batch, NULL), 0);
    ck_assert(peer_next(&peer, &frame));
    ck_assert_mem_eq(frame.head, expected, sizeof(expected) - 1);
}
END_TEST

static const struct {
    int code;
    const char *word; /* in the text */
    double temperature;
    int64_t top_k, seed, max_tokens;
    int n, job;
    size_t prompts, tokens;
    const char *text;
    int mixed, no_init;
    size_t stop_count;
} refusals[] = {
    {SLUICE_E_BAD_VALUE, "top_k", NAN, -2, -1, -1, 1, 0, 1, 3, NULL, 0, 0, 0},
    {SLUICE_E_BAD_VALUE, "seed", NAN, -1, INT64_MAX, -1, 1, 0, 1, 3, NULL, 0, 0, 0},
    {SLUICE_E_BAD_VALUE, "max_tokens", NAN, -1, -1, INT64_MAX, 1, 0, 1, 3, NULL, 0, 0, 0},
    {SLUICE_E_BAD_VALUE, "n of", NAN, -1, -1, -1, 0, 0, 1, 3, NULL, 0, 0, 0},
    {SLUICE_E_BAD_VALUE, "n of", NAN, -1, -1, -1, 1000, 0, 1, 3, NULL, 0, 0, 0},
    {SLUICE_E_USAGE, "job", NAN, -1, -1, -1, 1, 7, 1, 3, NULL, 0, 0, 0},
    {SLUICE_E_EMPTY, "empty", NAN, -1, -1, -1, 1, 0, 0, 3, NULL, 0, 0, 0},
    {SLUICE_E_EMPTY, "prompt 0", NAN, -1, -1, -1, 1, 0, 1, 0, NULL, 0, 0, 0},
    {SLUICE_E_EMPTY, "prompt 0", NAN, -1, -1, -1, 1, 0, 1, 0, "", 0, 0, 0},
    {SLUICE_E_TOO_LARGE, "at most", NAN, -1, -1, -1, 1, 0, 1000000, 3, NULL, 0, 0, 0},
    {SLUICE_E_TOO_LARGE, "daemon takes", NAN, -1, -1, -1, 1, 0, 1, 600000, NULL, 0, 0, 0},
    {SLUICE_E_BAD_VALUE, "byte 1", NAN, -1, -1, -1, 1, 0, 1, 0, "a\xff", 0, 0, 0},
    {SLUICE_E_USAGE, "all tokens", NAN, -1, -1, -1, 1, 0, 2, 3, NULL, 1, 0, 0},
    {SLUICE_E_USAGE, "init", NAN, -1, -1, -1, 1, 0, 1, 3, NULL, 0, 1, 0},
    {SLUICE_E_TOO_LARGE, "stop", NAN, -1, -1, -1, 1, 0, 1, 3, NULL, 0, 0, 17},
};

START_TEST(what_cannot_be_meant_is_refused_before_it_is_sent)
{
    static int32_t many[600000];
    const size_t shown = refusals[_i].prompts < 2 ? refusals[_i].prompts : 2;
    sluice_prompt prompts[2] = {{0}};
    sluice_params params;
    sluice_batch batch;
    struct frame frame;
    for (size_t i = 0; i < shown; i++) {
        prompts[i].tokens = refusals[_i].text ? NULL : many;
        prompts[i].token_count = refusals[_i].tokens;
        prompts[i].text = refusals[_i].text;
        prompts[i].text_length = refusals[_i].text ? strlen(refusals[_i].text) : 0;
    }
    if (refusals[_i].mixed)
        prompts[1] = (sluice_prompt){.text = "x", .text_length = 1};
    sluice_params_init(&params);
    params.temperature = refusals[_i].temperature;
    params.top_k = refusals[_i].top_k;
    params.seed = refusals[_i].seed;
    params.max_tokens = refusals[_i].max_tokens;
    params.n = refusals[_i].n;
    params.stop_count = refusals[_i].stop_count;
    if (refusals[_i].no_init)
        params.size = 0;
    tally_batch(&tally, &batch, prompts, &params);
    batch.prompt_count = refusals[_i].prompts;
    batch.job = refusals[_i].job;
    ck_assert_int_eq(sluice_submit(peer.client, &batch, NULL), -refusals[_i].code);
    ck_assert_int_eq(sluice_client_error(peer.client)->code, refusals[_i].code);
    ck_assert_msg(strstr(sluice_client_error(peer.client)->text, refusals[_i].word) != NULL, "%s",
                  sluice_client_error(peer.client)->text);
    ck_assert(!peer_next(&peer, &frame));
    ck_assert_uint_eq(sluice_open_sequences(peer.client), 0);
    ck_assert_int_eq(tally.ends, 0);
}
END_TEST

START_TEST(what_waits_to_be_sent_is_bounded)
{
    static int32_t many[200000];
    sluice_prompt prompt = {.tokens = many, .token_count = 200000};
    sluice_batch batch;
    int rc = 0, taken = 0;
    tally_batch(&tally, &batch, &prompt, NULL);
    while (!rc && taken < 1000) {
        rc = sluice_submit(peer.client, &batch, NULL);
        taken += !rc;
    }
    ck_assert_int_eq(rc, -SLUICE_E_BUSY);
    ck_assert_int_gt(taken, 50);
    ck_assert_uint_eq(sluice_open_sequences(peer.client), (unsigned)taken);
}
END_TEST

Suite *submit_suite(void)
{
    Suite *suite = suite_create("submit");
    TCase *tcase = tcase_create("submit");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, every_parameter_arrives);
    tcase_add_test(tcase, what_is_not_given_is_not_sent);
    tcase_add_loop_test(tcase, what_cannot_be_meant_is_refused_before_it_is_sent, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tcase, what_waits_to_be_sent_is_bounded);
    suite_add_tcase(suite, tcase);
    return suite;
}
