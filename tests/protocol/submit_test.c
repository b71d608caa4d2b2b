#include <stdio.h>
#include <stdlib.h>

#include "protocol/message.h"
#include "tests/protocol/head_frame.h"
#include "tests/protocol/protocol_suites.h"

static struct head_frame built;
static struct error error;

static const struct message_limits limits = {.batch_max = 8,
                                             .n_max = 4,
                                             .logprobs_max = 5,
                                             .stop_max = 2,
                                             .json_depth_max = 6,
                                             .vocabulary = 100};

static const struct sampling defaults = {.sampler.temperature = 0.25f,
                                         .sampler.top_k = 7,
                                         .sampler.top_p = 0.5f,
                                         .sampler.repetition_penalty = 1,
                                         .max_tokens = 33,
                                         .logprobs = -1,
                                         .n = 1};

/* The first error of a batch, in the head or in a prompt; 0 when all of it is good. */
static int first_error(const char *head, const int32_t *tokens, size_t token_count)
{
    struct message_submit submit;
    struct message_prompt prompt;
    head_frame_fill(&built, FRAME_SUBMIT, head, tokens, token_count * 4);
    int rc = message_decode_submit(&built.frame, &limits, &defaults, &submit, &error);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < submit.prompt_count && !rc; i++)
        rc = message_submit_prompt(&submit, i, &prompt, &error);
    message_submit_free(&submit);
    return rc;
}

static const int32_t five[] = {1, 2, 3, 4, 5};

struct refusal {
    const char *head;
    int code;
    const char *text;
};

#define G "{\"job\":\"generate\",\"lengths\":[5],"

static const struct refusal refusals[] = {
    {"", ERR_BAD_HEAD, "the head is missing"},
    {"[]", ERR_BAD_HEAD, "not a JSON object"},
    {"{", ERR_BAD_HEAD, "the text ends too early"},
    {"{}", ERR_BAD_VALUE, "job is missing"},
    {"{\"job\":\"train\",\"lengths\":[5]}", ERR_BAD_VALUE, "job is none of generate, score, embed"},
    {"{\"job\":1,\"lengths\":[5]}", ERR_BAD_VALUE, "job is none of generate, score, embed"},
    {"{\"job\":\"generate\"}", ERR_BAD_HEAD, "one of lengths, texts and chats must be given"},
    {G "\"texts\":[\"a\"]}", ERR_BAD_HEAD, "one of lengths, texts and chats must be given"},
    {G "\"Max_tokens\":1}", ERR_UNKNOWN_FIELD, "unknown field \"Max_tokens\""},
    {G "\"max_token\":1}", ERR_UNKNOWN_FIELD, "unknown field \"max_token\""},
    {G "\"\":1}", ERR_UNKNOWN_FIELD, "unknown field \"\""},
    {G "\"max_tokens\":1,\"max_tokens\":2}", ERR_BAD_HEAD, "duplicate key"},
    {G "\"stop\":[\"\\u0000\"]}", ERR_BAD_HEAD, "\\u0000 is not accepted"},
    {G "\"stop\":[\"\xff\"]}", ERR_BAD_HEAD, "invalid UTF-8"},
    {G "\"max_tokens\":9007199254740993}", ERR_BAD_HEAD, "integer beyond 2^53"},
    {G "\"each\":[[[[[[1]]]]]]}", ERR_TOO_LARGE, "nested deeper than 6"},
    {G "\"constraint\":\"xml\"}", ERR_BAD_VALUE,
     "constraint is none of none, json, object, schema"},
    {G "\"constraint\":\"schema\"}", ERR_BAD_VALUE, "constraint_text is missing"},
    {G "\"constraint\":\"grammar\"}", ERR_BAD_VALUE, "constraint_text is missing"},
    {G "\"constraint\":\"grammar\"}", ERR_BAD_VALUE, "constraint_text is missing"},
    {G "\"constraint\":\"json\",\"constraint_text\":\"\"}", ERR_BAD_VALUE,
     "constraint_text does not belong with the constraint json"},
    {G "\"constraint_text\":\"a\"}", ERR_BAD_VALUE, "constraint_text does not belong"},
    {G "\"constraint\":\"choice\",\"constraint_text\":[]}", ERR_BAD_VALUE,
     "constraint_text is not a string"},
    {G "\"each\":[{\"constraint\":\"json\"}]}", ERR_UNKNOWN_FIELD, "constraint"},
    {"{\"job\":\"score\",\"lengths\":[5],\"constraint\":\"json\"}", ERR_BAD_VALUE,
     "constraint does not belong to the job score"},
    /* lengths and texts */
    {"{\"job\":\"score\",\"lengths\":5}", ERR_BAD_VALUE, "lengths is not a list"},
    {"{\"job\":\"score\",\"texts\":\"a\"}", ERR_BAD_VALUE, "texts is not a list"},
    {"{\"job\":\"score\",\"lengths\":[]}", ERR_EMPTY, "the batch is empty"},
    {"{\"job\":\"score\",\"lengths\":[5,0]}", ERR_EMPTY, "prompt 1 is empty"},
    {"{\"job\":\"score\",\"lengths\":[6,-1]}", ERR_BAD_VALUE, "an entry of lengths is -1"},
    {"{\"job\":\"score\",\"lengths\":[2.5]}", ERR_BAD_VALUE, "not a whole number"},
    {"{\"job\":\"score\",\"lengths\":[\"5\"]}", ERR_BAD_VALUE, "not a whole number"},
    {"{\"job\":\"score\",\"lengths\":[4]}", ERR_BAD_FRAME, "lengths add up to 4 tokens"},
    {"{\"job\":\"score\",\"lengths\":[7]}", ERR_BAD_FRAME, "lengths add up to 7 tokens"},
    {"{\"job\":\"score\",\"lengths\":[1073741823]}", ERR_BAD_FRAME, "add up to 1073741823"},
    {"{\"job\":\"score\",\"lengths\":[4294967296]}", ERR_BAD_VALUE, "at most 1073741823"},
    {"{\"job\":\"score\",\"lengths\":[1,1,1,1,1,1,1,1,1]}", ERR_TOO_LARGE, "batch of 9 sequences"},
    {"{\"job\":\"score\",\"texts\":[\"a\"]}", ERR_BAD_FRAME, "a payload of 24 bytes beside texts"},
    {"{\"job\":\"score\",\"texts\":[\"a\",\"\"]}", ERR_EMPTY, "prompt 1 is empty"},
    /* chats: the payload of these cases has 24 bytes */
    {G "\"chats\":[24]}", ERR_BAD_HEAD, "one of lengths, texts and chats must be given"},
    {"{\"job\":\"score\",\"texts\":[\"a\"],\"chats\":[24]}", ERR_BAD_HEAD,
     "one of lengths, texts and chats must be given"},
    {"{\"job\":\"score\",\"chats\":24}", ERR_BAD_VALUE, "chats is not a list"},
    {"{\"job\":\"score\",\"chats\":[24,0]}", ERR_EMPTY, "prompt 1 is empty"},
    {"{\"job\":\"score\",\"chats\":[\"a\"]}", ERR_BAD_VALUE, "chats"},
    {"{\"job\":\"score\",\"chats\":[24,1]}", ERR_BAD_FRAME,
     "chats add up to 25 bytes, the payload has 24 bytes"},
    {"{\"job\":\"score\",\"chats\":[16]}", ERR_BAD_FRAME, "chats add up to 16 bytes"},
    {"{\"job\":\"score\",\"texts\":[1]}", ERR_BAD_VALUE, "prompt 0 is not a string"},
    /* the request as a whole */
    {G "\"priority\":8}", ERR_BAD_VALUE, "priority is 8, at most 7"},
    {G "\"priority\":-9}", ERR_BAD_VALUE, "priority is -9, at least -8"},
    {G "\"deadline_ms\":-1}", ERR_BAD_VALUE, "deadline_ms is -1"},
    {G "\"deadline_ms\":1099511627777}", ERR_BAD_VALUE, "deadline_ms is 1099511627777"},
    {G "\"stream\":1}", ERR_BAD_VALUE, "stream is neither true nor false"},
    {G "\"speculate\":0}", ERR_BAD_VALUE, "speculate is neither true nor false"},
    {"{\"job\":\"score\",\"lengths\":[2],\"speculate\":false}", ERR_BAD_VALUE,
     "speculate does not belong to the job score"},
    {G "\"cache\":0}", ERR_BAD_VALUE, "cache is neither true nor false"},
    {G "\"adapter\":1}", ERR_BAD_VALUE, "adapter is not a string"},
    {G "\"cache_salt\":1}", ERR_BAD_VALUE, "cache_salt is not a string"},
    {G "\"cache_salt\":\"\"}", ERR_BAD_VALUE, "cache_salt must have 1 to 256 bytes"},
    {G "\"text\":null}", ERR_BAD_VALUE, "text is neither true nor false"},
    {G "\"pooling\":\"last\"}", ERR_BAD_VALUE, "pooling does not belong to the job generate"},
    {G "\"normalize\":true}", ERR_BAD_VALUE, "normalize does not belong to the job generate"},
    {"{\"job\":\"embed\",\"lengths\":[5],\"pooling\":\"max\"}", ERR_BAD_VALUE,
     "pooling is none of last, mean, all"},
    {"{\"job\":\"embed\",\"lengths\":[5],\"normalize\":0}", ERR_BAD_VALUE, "normalize is neither"},
    {"{\"job\":\"score\",\"lengths\":[5],\"max_tokens\":1}", ERR_BAD_VALUE,
     "max_tokens does not belong to the job score"},
    {"{\"job\":\"score\",\"lengths\":[5],\"each\":[{\"seed\":1}]}", ERR_BAD_VALUE,
     "prompt 0: seed does not belong to the job score"},
    /* sampling */
    {G "\"max_tokens\":-1}", ERR_BAD_VALUE, "max_tokens is -1"},
    {G "\"max_tokens\":2147483648}", ERR_BAD_VALUE, "max_tokens is 2147483648"},
    {G "\"max_tokens\":\"1\"}", ERR_BAD_VALUE, "max_tokens is not a whole number"},
    {G "\"max_tokens\":4,\"min_tokens\":5}", ERR_BAD_VALUE, "min_tokens is 5, above max_tokens"},
    {G "\"min_tokens\":34}", ERR_BAD_VALUE, "min_tokens is 34, above max_tokens, which is 33"},
    {G "\"temperature\":-0.1}", ERR_BAD_VALUE, "temperature must be at least 0 and at most 100"},
    {G "\"temperature\":1e300}", ERR_BAD_VALUE, "temperature must be at least 0 and at most 100"},
    {G "\"temperature\":\"hot\"}", ERR_BAD_VALUE, "temperature is not a number"},
    {G "\"top_p\":0}", ERR_BAD_VALUE, "top_p must be above 0 and at most 1"},
    {G "\"top_p\":1e-300}", ERR_BAD_VALUE, "top_p must be above 0 and at most 1"},
    {G "\"top_p\":1.01}", ERR_BAD_VALUE, "top_p must be above 0 and at most 1"},
    {G "\"top_k\":-1}", ERR_BAD_VALUE, "top_k is -1"},
    {G "\"top_k\":0.5}", ERR_BAD_VALUE, "top_k is not a whole number"},
    {G "\"min_p\":2}", ERR_BAD_VALUE, "min_p must be"},
    {G "\"repetition_penalty\":0}", ERR_BAD_VALUE, "repetition_penalty must be above 0"},
    {G "\"presence_penalty\":-101}", ERR_BAD_VALUE, "presence_penalty must be at least -100"},
    {G "\"frequency_penalty\":101}", ERR_BAD_VALUE, "frequency_penalty must be at least -100"},
    {G "\"seed\":-1}", ERR_BAD_VALUE, "seed is -1"},
    {G "\"ignore_eos\":\"yes\"}", ERR_BAD_VALUE, "ignore_eos is neither true nor false"},
    {G "\"logprobs\":6}", ERR_TOO_LARGE, "logprobs is 6, at most 5 is accepted"},
    {G "\"logprobs\":-2}", ERR_BAD_VALUE, "logprobs is -2"},
    {G "\"n\":0}", ERR_BAD_VALUE, "n is 0"},
    {G "\"n\":5}", ERR_TOO_LARGE, "n is 5, at most 4 is accepted"},
    {"{\"job\":\"generate\",\"lengths\":[1,1,3],\"n\":3}", ERR_TOO_LARGE, "batch of 9 sequences"},
    {"{\"job\":\"generate\",\"lengths\":[1,1,3],\"each\":[{\"n\":4},{},{\"n\":4}]}", ERR_TOO_LARGE,
     "batch of 9 sequences, at most 8"},
    /* lists */
    {G "\"stop\":\"x\"}", ERR_BAD_VALUE, "stop is not a list"},
    {G "\"stop\":[1]}", ERR_BAD_VALUE, "stop has an entry that is empty or no string"},
    {G "\"stop\":[\"\"]}", ERR_BAD_VALUE, "stop has an entry that is empty or no string"},
    {G "\"stop\":[\"a\",\"b\",\"c\"]}", ERR_TOO_LARGE, "stop has 3 entries, at most 2"},
    {G "\"stop_token_ids\":5}", ERR_BAD_VALUE, "stop_token_ids is not a list"},
    {G "\"stop_token_ids\":[100]}", ERR_BAD_TOKEN, "stop_token_ids has an entry that is no token"},
    {G "\"stop_token_ids\":[-1]}", ERR_BAD_TOKEN, "stop_token_ids has an entry that is no token"},
    {G "\"logit_bias\":[1]}", ERR_BAD_VALUE, "logit_bias is not an object"},
    {G "\"each\":{}}", ERR_BAD_VALUE, "each is not a list"},
    {G "\"each\":[]}", ERR_BAD_VALUE, "each has 0 entries for 1 prompts"},
    {G "\"each\":[{},{}]}", ERR_BAD_VALUE, "each has 2 entries for 1 prompts"},
    {G "\"each\":[1]}", ERR_BAD_VALUE, "prompt 0: its entry of each is not an object"},
    {G "\"each\":[{\"priority\":1}]}", ERR_UNKNOWN_FIELD, "prompt 0: unknown field \"priority\""},
    {"{\"job\":\"generate\",\"lengths\":[2,3],\"each\":[{},{\"top_p\":2}]}", ERR_BAD_VALUE,
     "prompt 1: top_p must be above 0"},
    {"{\"job\":\"generate\",\"lengths\":[2,3],\"each\":[{},{\"min_tokens\":40}]}", ERR_BAD_VALUE,
     "prompt 1: min_tokens is 40"},
};

#define REFUSALS ((int)(sizeof(refusals) / sizeof(refusals[0])))

START_TEST(a_bad_batch_is_refused_with_what_is_wrong)
{
    const struct refusal *refusal = &refusals[_i];
    int rc = first_error(refusal->head, five, 5);
    ck_assert_msg(rc == -refusal->code, "%s: %d, %s", refusal->head, rc,
                  rc ? error.text : "accepted");
    ck_assert_int_eq(error.code, refusal->code);
    ck_assert_msg(strstr(error.text, refusal->text), "%s: %s", refusal->head, error.text);
}
END_TEST

START_TEST(limits_are_told_with_both_numbers)
{
    ck_assert_int_eq(first_error(G "\"n\":5}", five, 5), -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, 4);
    ck_assert_uint_eq(error.value, 5);
    ck_assert_int_eq(first_error("{\"job\":\"generate\",\"lengths\":[1,1,3],\"n\":3}", five, 5),
                     -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, 8);
    ck_assert_uint_eq(error.value, 9);
    ck_assert_int_eq(
        first_error("{\"job\":\"generate\",\"lengths\":[2,3],\"each\":[{},{\"n\":7}]}", five, 5),
        -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, 4);
    ck_assert_uint_eq(error.value, 7);
}
END_TEST

START_TEST(long_entries_are_refused)
{
    static char head[40000];
    int used = snprintf(head, sizeof(head), G "\"stop\":[\"%0257d\"]}", 0);
    ck_assert_int_gt(used, 0);
    ck_assert_int_eq(first_error(head, five, 5), -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, MESSAGE_STOP_BYTES_MAX);
    snprintf(head, sizeof(head), G "\"stop\":[\"%0256d\"]}", 0);
    ck_assert_int_eq(first_error(head, five, 5), 0);

    used = snprintf(head, sizeof(head), G "\"stop_token_ids\":[1");
    for (int i = 1; i < MESSAGE_STOP_IDS_MAX; i++)
        used += snprintf(head + used, sizeof(head) - (size_t)used, ",%d", i);
    snprintf(head + used, sizeof(head) - (size_t)used, "]}");
    ck_assert_int_eq(first_error(head, five, 5), 0);
    snprintf(head + used, sizeof(head) - (size_t)used, ",1]}");
    ck_assert_int_eq(first_error(head, five, 5), -ERR_TOO_LARGE);

    used = snprintf(head, sizeof(head), G "\"logit_bias\":{\"0\":1");
    for (int i = 1; i < MESSAGE_BIAS_MAX; i++)
        used += snprintf(head + used, sizeof(head) - (size_t)used, ",\"%d\":1", i);
    snprintf(head + used, sizeof(head) - (size_t)used, "}}");
    ck_assert_int_eq(first_error(head, five, 5), 0);
    snprintf(head + used, sizeof(head) - (size_t)used, ",\"1024\":1}}");
    ck_assert_int_eq(first_error(head, five, 5), -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, MESSAGE_BIAS_MAX);
}
END_TEST

static const int32_t bad_tokens[] = {100, -1, INT32_MAX, INT32_MIN};

START_TEST(tokens_outside_the_vocabulary_are_named_by_place)
{
    int32_t tokens[] = {0, 99, 1, bad_tokens[_i], 2};
    ck_assert_int_eq(first_error("{\"job\":\"score\",\"lengths\":[2,3]}", tokens, 5),
                     -ERR_BAD_TOKEN);
    ck_assert_str_eq(error.text,
                     "prompt 1: token 1 of the prompt is outside the vocabulary of 100");
    ck_assert_uint_eq(error.limit, 100);
    tokens[3] = 99;
    ck_assert_int_eq(first_error("{\"job\":\"score\",\"lengths\":[2,3]}", tokens, 5), 0);
}
END_TEST

START_TEST(padding_that_is_not_zero_is_refused)
{
    struct message_submit submit;
    head_frame_fill(&built, FRAME_SUBMIT, "{\"job\":\"score\",\"lengths\":[5]}", five,
                    sizeof(five));
    built.bytes[built.frame.head_length + 23] = 1;
    ck_assert_int_eq(message_decode_submit(&built.frame, &limits, &defaults, &submit, &error),
                     -ERR_BAD_FRAME);
}
END_TEST

START_TEST(an_unknown_name_is_cut_in_the_text)
{
    static char head[2000];
    snprintf(head, sizeof(head), G "\"%01000d\":1}", 0);
    ck_assert_int_eq(first_error(head, five, 5), -ERR_UNKNOWN_FIELD);
    ck_assert_uint_lt(strlen(error.text), 100);
}
END_TEST

START_TEST(what_is_not_given_has_its_default)
{
    struct message_submit submit;
    struct message_prompt prompt;
    head_frame_fill(&built, FRAME_SUBMIT, G "\"seed\":0}", five, sizeof(five));
    ck_assert_int_eq(message_decode_submit(&built.frame, &limits, &defaults, &submit, &error), 0);
    ck_assert(submit.params.stream && !submit.params.want_text && submit.params.normalize);
    ck_assert_int_eq(submit.params.priority, 0);
    ck_assert_uint_eq(submit.params.deadline_ms, 0);
    ck_assert_int_eq(submit.params.pooling, POOLING_LAST);
    ck_assert_int_eq(message_submit_prompt(&submit, 0, &prompt, &error), 0);
    ck_assert(prompt.sampling.sampler.temperature == 0.25f &&
              prompt.sampling.sampler.top_p == 0.5f);
    ck_assert_int_eq(prompt.sampling.sampler.top_k, 7);
    ck_assert_uint_eq(prompt.sampling.max_tokens, 33);
    ck_assert_int_eq(prompt.sampling.logprobs, -1);
    ck_assert(prompt.sampling.seed_given && prompt.sampling.seed == 0);
    ck_assert_uint_eq(prompt.stop_count + prompt.stop_id_count, 0);
    ck_assert_ptr_null(prompt.bias);
    ck_assert_mem_eq(prompt.tokens, five, sizeof(five));
    message_submit_free(&submit);
}
END_TEST

START_TEST(a_prompts_own_fields_go_over_the_common_ones)
{
    struct message_submit submit;
    struct message_prompt a, b;
    head_frame_fill(
        &built, FRAME_SUBMIT,
        "{\"each\":[{\"stop\":[\"z\"],\"max_tokens\":2},{\"stop\":[]}],\"stop\":[\"x\",\"y\"],"
        "\"stop_token_ids\":[3,4],\"lengths\":[2,3],\"max_tokens\":9,\"n\":2,"
        "\"logit_bias\":{\"5\":-1.5},\"job\":\"generate\"}",
        five, sizeof(five));
    ck_assert_int_eq(message_decode_submit(&built.frame, &limits, &defaults, &submit, &error), 0);
    ck_assert_int_eq(message_submit_prompt(&submit, 0, &a, &error), 0);
    ck_assert_int_eq(message_submit_prompt(&submit, 1, &b, &error), 0);
    ck_assert_uint_eq(a.stop_count, 1);
    ck_assert_str_eq(a.stop[0], "z");
    ck_assert_uint_eq(a.sampling.max_tokens, 2);
    ck_assert_uint_eq(a.token_count, 2);
    ck_assert_uint_eq(b.stop_count, 0);
    ck_assert_uint_eq(b.sampling.max_tokens, 9);
    ck_assert_uint_eq(b.token_count, 3);
    ck_assert_int_eq(b.tokens[0], 3);
    ck_assert_uint_eq(b.stop_id_count, 2);
    ck_assert_int_eq(b.stop_ids[1], 4);
    ck_assert_uint_eq(b.sampling.n, 2);
    ck_assert_ptr_eq(a.bias, b.bias);
    struct message_bias entry;
    uint32_t count = 0;
    ck_assert_int_eq(message_bias(b.bias, 100, &entry, 1, &count, &error), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert(entry.token == 5 && entry.value == -1.5f);
    message_submit_free(&submit);
}
END_TEST

START_TEST(a_bad_prompt_does_not_hide_the_next)
{
    int32_t tokens[] = {1000, 2, 3};
    struct message_submit submit;
    struct message_prompt prompt;
    head_frame_fill(&built, FRAME_SUBMIT, "{\"job\":\"score\",\"lengths\":[1,2]}", tokens,
                    sizeof(tokens));
    ck_assert_int_eq(message_decode_submit(&built.frame, &limits, &defaults, &submit, &error), 0);
    ck_assert_int_eq(message_submit_prompt(&submit, 0, &prompt, &error), -ERR_BAD_TOKEN);
    ck_assert_int_eq(message_submit_prompt(&submit, 1, &prompt, &error), 0);
    ck_assert_uint_eq(prompt.token_count, 2);
    ck_assert_int_eq(prompt.tokens[0], 2);
    message_submit_free(&submit);
}
END_TEST

static const struct refusal bias_refusals[] = {
    {"{\"100\":1}", ERR_BAD_TOKEN, "no token"},
    {"{\"-1\":1}", ERR_BAD_TOKEN, "no token"},
    {"{\"01\":1}", ERR_BAD_TOKEN, "no token"},
    {"{\"\":1}", ERR_BAD_TOKEN, "no token"},
    {"{\" 1\":1}", ERR_BAD_TOKEN, "no token"},
    {"{\"1x\":1}", ERR_BAD_TOKEN, "no token"},
    {"{\"99999999999\":1}", ERR_BAD_TOKEN, "no token"},
    {"{\"1\":\"1\"}", ERR_BAD_VALUE, "not within 100"},
    {"{\"1\":100.5}", ERR_BAD_VALUE, "not within 100"},
    {"{\"1\":1,\"2\":1,\"3\":1}", ERR_TOO_LARGE, "has 3 entries, at most 2"},
};

#define BIAS_REFUSALS ((int)(sizeof(bias_refusals) / sizeof(bias_refusals[0])))

START_TEST(a_bad_bias_is_refused)
{
    const struct refusal *refusal = &bias_refusals[_i];
    struct json_bounds bounds = {.bytes_max = 1000, .depth_max = 1};
    struct message_bias entries[2];
    uint32_t count = 77;
    json *document;
    ck_assert_int_eq(json_parse(refusal->head, strlen(refusal->head), bounds, &document, &error),
                     0);
    ck_assert_int_eq(message_bias(document, 100, entries, 2, &count, &error), -refusal->code);
    ck_assert_msg(strstr(error.text, refusal->text), "%s", error.text);
    ck_assert_uint_eq(count, 77);
    json_free(document);
}
END_TEST

/* What the client writes is what the daemon reads, for prompts that differ in everything. */
START_TEST(what_is_encoded_is_decoded)
{
    static unsigned char bytes[HEAD_FRAME_MAX];
    const struct message_bias biases[] = {{3, -0.5f}, {99, 100.0f}};
    const struct message_bias *bias[] = {NULL, biases};
    const uint32_t bias_counts[] = {0, 2};
    struct message_prompt prompts[2] = {
        {.sampling = sampling_unset(), .tokens = five, .token_count = 5},
        {.sampling = {.sampler.temperature = 0.7f,
                      .sampler.top_k = 1,
                      .sampler.top_p = 0.1f,
                      .sampler.min_p = 0.05f,
                      .sampler.repetition_penalty = 1.1f,
                      .sampler.presence_penalty = -2,
                      .sampler.frequency_penalty = 0.3f,
                      .seed = 1ull << 53,
                      .seed_given = true,
                      .max_tokens = 12,
                      .min_tokens = 3,
                      .ignore_eos = true,
                      .logprobs = 5,
                      .n = 3},
         .tokens = five + 1,
         .token_count = 2,
         .stop_count = 2,
         .stop = {"\"\n", "\xe2\x82\xac"},
         .stop_length = {2, 3},
         .stop_id_count = 1,
         .stop_ids = {42}}};
    struct message_submit_out request = {.params.job = JOB_GENERATE,
                                         .params.priority = -8,
                                         .params.deadline_ms = 123456,
                                         .params.want_text = true,
                                         .constraint = {MESSAGE_CONSTRAINT_PATTERN, "\"a\\d", 4},
                                         .params.no_cache = true,
                                         .params.no_drafts = true,
                                         .params.cache_salt = "\"salt\"",
                                         .params.adapter = "poet",
                                         .prompt_count = 2,
                                         .prompts = prompts,
                                         .bias = bias,
                                         .bias_count = bias_counts};
    size_t size = message_encode_submit(bytes, sizeof(bytes), 5, &request);
    ck_assert_uint_eq(size, message_submit_size_bound(&request));
    for (size_t small = 0; small < size; small++)
        ck_assert_uint_eq(message_encode_submit(bytes, small, 5, &request), 0);
    ck_assert_uint_eq(message_encode_submit(bytes, size, 5, &request), size);

    struct frame frame;
    size_t used;
    struct message_submit submit;
    struct message_prompt prompt;
    ck_assert_int_eq(frame_decode(bytes, size, size, &frame, &used, &error), FRAME_OK);
    ck_assert_int_eq(message_decode_submit(&frame, &limits, &defaults, &submit, &error), 0);
    ck_assert_int_eq(submit.params.priority, -8);
    ck_assert_uint_eq(submit.params.deadline_ms, 123456);
    ck_assert(!submit.params.stream && submit.params.want_text);
    ck_assert_int_eq(submit.constraint.kind, MESSAGE_CONSTRAINT_PATTERN);
    ck_assert_uint_eq(submit.constraint.length, 4);
    ck_assert_str_eq(submit.constraint.text, "\"a\\d");
    ck_assert(submit.params.no_cache && submit.params.no_drafts);
    ck_assert_str_eq(submit.params.cache_salt, "\"salt\"");
    ck_assert_str_eq(submit.params.adapter, "poet");
    ck_assert_int_eq(message_submit_prompt(&submit, 0, &prompt, &error), 0);
    ck_assert_mem_eq(&prompt.sampling, &defaults, sizeof(defaults));
    ck_assert_int_eq(message_submit_prompt(&submit, 1, &prompt, &error), 0);
    const struct sampling *sent = &prompts[1].sampling, *got = &prompt.sampling;
    ck_assert(got->sampler.temperature == sent->sampler.temperature &&
              got->sampler.top_p == sent->sampler.top_p);
    ck_assert(got->sampler.min_p == sent->sampler.min_p &&
              got->sampler.repetition_penalty == sent->sampler.repetition_penalty);
    ck_assert(got->sampler.presence_penalty == sent->sampler.presence_penalty);
    ck_assert(got->sampler.frequency_penalty == sent->sampler.frequency_penalty);
    ck_assert(got->seed == sent->seed && got->seed_given && got->ignore_eos);
    ck_assert(got->sampler.top_k == 1 && got->max_tokens == 12 && got->min_tokens == 3);
    ck_assert(got->logprobs == 5 && got->n == 3);
    ck_assert_mem_eq(prompt.tokens, five + 1, 8);
    ck_assert_uint_eq(prompt.stop_count, 2);
    ck_assert_mem_eq(prompt.stop[0], "\"\n", 3);
    ck_assert_uint_eq(prompt.stop_length[1], 3);
    ck_assert(prompt.stop_id_count == 1 && prompt.stop_ids[0] == 42);
    struct message_bias entries[4];
    uint32_t count = 0;
    ck_assert_int_eq(message_bias(prompt.bias, 100, entries, 4, &count, &error), 0);
    ck_assert_uint_eq(count, 2);
    ck_assert(entries[0].token == 3 && entries[0].value == -0.5f);
    ck_assert(entries[1].token == 99 && entries[1].value == 100.0f);
    message_submit_free(&submit);
}
END_TEST

START_TEST(a_head_over_its_limit_is_not_encoded)
{
    size_t length = FRAME_HEAD_MAX;
    char *text = malloc(length + 1), *buffer = malloc(2 * length);
    memset(text, 'a', length);
    text[length] = 0;
    struct message_prompt prompt = {
        .sampling = sampling_unset(), .text = text, .text_length = length};
    struct message_submit_out request = {
        .params.job = JOB_GENERATE, .prompt_count = 1, .prompts = &prompt};
    ck_assert_uint_eq(message_encode_submit(buffer, 2 * length, 1, &request), 0);
    prompt.text_length = length - 100;
    ck_assert_uint_gt(message_encode_submit(buffer, 2 * length, 1, &request), 0);
    free(text);
    free(buffer);
}
END_TEST

Suite *submit_suite(void)
{
    Suite *suite = suite_create("submit");
    TCase *tcase = tcase_create("submit");
    tcase_add_loop_test(tcase, a_bad_batch_is_refused_with_what_is_wrong, 0, REFUSALS);
    tcase_add_test(tcase, limits_are_told_with_both_numbers);
    tcase_add_test(tcase, long_entries_are_refused);
    tcase_add_loop_test(tcase, tokens_outside_the_vocabulary_are_named_by_place, 0, 4);
    tcase_add_test(tcase, padding_that_is_not_zero_is_refused);
    tcase_add_test(tcase, an_unknown_name_is_cut_in_the_text);
    tcase_add_test(tcase, what_is_not_given_has_its_default);
    tcase_add_test(tcase, a_prompts_own_fields_go_over_the_common_ones);
    tcase_add_test(tcase, a_bad_prompt_does_not_hide_the_next);
    tcase_add_loop_test(tcase, a_bad_bias_is_refused, 0, BIAS_REFUSALS);
    tcase_add_test(tcase, what_is_encoded_is_decoded);
    tcase_add_test(tcase, a_head_over_its_limit_is_not_encoded);
    suite_add_tcase(suite, tcase);
    return suite;
}
