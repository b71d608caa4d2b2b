/* Pairs of texts, ranked and scored. In this world the log-odds of a prompt are "A" less its last
 * letter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/template/chat.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 16];

#define TEMPLATE                                                                                   \
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}"                            \
    "{% if messages[-1].content == 'no' %}{{ raise_exception('not so') }}{% endif %}"

static void set_up(void)
{
    site_make(&site);
    struct pair_form *form = &site.model_text.pairs;
    *form = (struct pair_form){.known = true, .tokens = {'n', 'y'}};
    ck_assert_int_eq(chat_template_load(TEMPLATE, sizeof(TEMPLATE) - 1, &form->given, NULL), 0);
}

static void tear_down(void)
{
    site_free(&site);
}

#define has(part) ck_assert_msg(strstr(answer, part) != NULL, "%s not in %s", part, answer)
#define has_not(part) ck_assert_msg(strstr(answer, part) == NULL, "%s in %s", part, answer)

static unsigned ask(const char *path, const char *body)
{
    return fetch(&site, path, body, answer, sizeof(answer));
}

START_TEST(documents_are_ranked_the_best_first)
{
    static const char *const paths[] = {"/v1/rerank", "/rerank"};
    ck_assert_uint_eq(ask(paths[_i], "{\"query\":\"q\",\"documents\":[\"xC\",\"xA\",\"yC\","
                                     "{\"text\":\"xB\"}]}"),
                      200);
    has("\"id\":\"rerank-");
    has("\"results\":[{\"index\":1,\"document\":{\"text\":\"xA\"},\"relevance_score\":0.5},"
        "{\"index\":3,\"document\":{\"text\":\"xB\"},\"relevance_score\":0.268941421},"
        "{\"index\":0,\"document\":{\"text\":\"xC\"},\"relevance_score\":0.119202922},"
        "{\"index\":2,\"document\":{\"text\":\"yC\"},\"relevance_score\":0.119202922}]");
    has("\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":0,\"total_tokens\":20}"); /* qqdxC */
    ck_assert_uint_eq(site.world.server.counts.requests_total, 1);
}
END_TEST

START_TEST(the_best_alone_are_told_where_that_is_asked)
{
    ck_assert_uint_eq(ask("/rerank", "{\"query\":\"q\",\"documents\":[\"B\",\"A\",\"C\"],"
                                     "\"top_n\":2,\"return_documents\":false,"
                                     "\"use_activation\":false}"),
                      200);
    has("\"results\":[{\"index\":1,\"relevance_score\":0},"
        "{\"index\":0,\"relevance_score\":-1}]}");
    has_not("document");
    ck_assert_uint_eq(ask("/rerank", "{\"query\":\"q\",\"documents\":[\"B\",\"A\"],\"top_n\":9}"),
                      200);
    has("\"index\":0");
}
END_TEST

static const struct {
    const char *body, *data;
    unsigned tokens;
} scores[] = {
    {"\"text_1\":\"q\",\"text_2\":\"A\"", "[{\"index\":0,\"object\":\"score\",\"score\":0.5}]", 4},
    {"\"text_1\":\"q\",\"text_2\":[\"B\",\"A\"],\"use_activation\":false",
     "[{\"index\":0,\"object\":\"score\",\"score\":-1},{\"index\":1,\"object\":\"score\","
     "\"score\":0}]",
     8},
    {"\"text_1\":[\"q\",\"rr\"],\"text_2\":[\"B\",\"A\"],\"use_activation\":false",
     "[{\"index\":0,\"object\":\"score\",\"score\":-1},{\"index\":1,\"object\":\"score\","
     "\"score\":0}]",
     9},
    {"\"text_1\":\"\",\"text_2\":\"D\",\"use_activation\":false,\"instruction\":\"find\"",
     "[{\"index\":0,\"object\":\"score\",\"score\":-3}]", 8},
};

START_TEST(texts_are_scored_one_by_one_and_one_against_many)
{
    static const char *const paths[] = {"/v1/score", "/score"};
    char body[256], usage[64];
    snprintf(body, sizeof(body), "{%s}", scores[_i].body);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(ask(paths[i], body), 200);
        has("\"id\":\"score-");
        has("\"object\":\"list\",\"created\":");
        has(scores[_i].data);
        snprintf(usage, sizeof(usage), "\"prompt_tokens\":%u,", scores[_i].tokens);
        has(usage);
    }
}
END_TEST

START_TEST(the_checkpoints_instruction_stands_where_none_is_given)
{
    site.model_text.pairs.instruction = strdup("seek");
    ck_assert_uint_eq(ask("/score", "{\"text_1\":\"q\",\"text_2\":\"A\"}"), 200);
    has("\"prompt_tokens\":9,"); /* sseekqqdA */
    ck_assert_uint_eq(ask("/score", "{\"text_1\":\"q\",\"text_2\":\"A\",\"instruction\":\"\"}"),
                      200);
    has("\"prompt_tokens\":5,");
}
END_TEST

/* In this world the row of a prompt is its first letter and the three behind that. */
START_TEST(a_head_of_classes_answers_in_place_of_tokens)
{
    static float weights[] = {1, 0, 0, 0, 0, 0, 2, -1};
    static char *names[] = {"low", "high"};
    struct class_head *head = &site.model_text.head;
    ck_assert_uint_eq(ask("/classify", "{\"input\":\"A\"}"), 400);
    has("the model has no head of classes");
    *head = (struct class_head){.labels = 2, .hidden = 4, .weights = weights, .names = names};
    head->function = CLASS_SOFTMAX;
    ck_assert_uint_eq(ask("/classify", "{\"input\":[[65],[66]],\"use_activation\":false}"), 200);
    has("\"id\":\"classify-");
    has("\"data\":[{\"index\":0,\"label\":\"high\",\"probs\":[65,66],\"num_classes\":2},"
        "{\"index\":1,\"label\":\"high\",\"probs\":[66,67],\"num_classes\":2}]");
    ck_assert_uint_eq(ask("/v1/classify", "{\"input\":\"A\"}"), 200);
    has("\"probs\":[0.268941421,0.731058579]");
    ck_assert_uint_eq(ask("/v1/completions", "{\"prompt\":\"A\"}"), 400);
    has("none for tokens");
    head->labels = 1;
    head->pair_function = CLASS_SIGMOID;
    site.model_text.pairs.known = false;
    weights[0] = -0.5F;
    ck_assert_uint_eq(ask("/score", "{\"text_1\":\"q\",\"text_2\":[\"B\",\"A\"],"
                                    "\"use_activation\":false}"),
                      200);
    has("\"score\":-56.5},");
    has("\"prompt_tokens\":8,"); /* qqdB: the template asks */
    chat_template_free(site.model_text.pairs.given);
    site.model_text.pairs.given = NULL;
    ck_assert_uint_eq(ask("/score", "{\"text_1\":[\"q\",\"p\"],\"text_2\":[\"B\",\"A\"],"
                                    "\"use_activation\":false}"),
                      200);
    has("\"score\":-56.5},");
    has("\"score\":-56}");
    ck_assert_uint_eq(ask("/rerank", "{\"query\":\"A\",\"documents\":[\"B\",\"A\"]}"), 200);
    has("\"relevance_score\":7.68120469e-15}");
    has("\"prompt_tokens\":4,"); /* qB */
    ck_assert_uint_eq(ask("/score", "{\"text_1\":\"q\",\"text_2\":\"B\",\"instruction\":\"a\"}"),
                      400);
    has("\"param\":\"instruction\"");
    *head = (struct class_head){0};
}
END_TEST

static const struct {
    const char *path, *body, *param, *says;
} refusals[] = {
    {"/rerank", "\"documents\":[\"A\"]", "query", "query is missing"},
    {"/rerank", "\"query\":\"q\"", "documents", "documents is missing"},
    {"/rerank", "\"query\":[\"q\"],\"documents\":[\"A\"]", "query", "query must be a string"},
    {"/rerank", "\"query\":\"q\",\"documents\":\"A\"", "documents", "documents must be a list"},
    {"/rerank", "\"query\":\"q\",\"documents\":[]", "documents", "documents has no text"},
    {"/rerank", "\"query\":\"q\",\"documents\":{\"text\":\"A\"}", "documents", "must be a list"},
    {"/rerank", "\"query\":\"q\",\"documents\":[\"A\",{\"txt\":\"A\"}]", "documents",
     "objects with text"},
    {"/rerank", "\"query\":\"q\",\"documents\":[\"A\"],\"top_n\":-1", "top_n", "top_n"},
    {"/rerank", "\"query\":\"q\",\"documents\":[\"A\",\"A\",\"A\",\"A\",\"A\"]", "documents",
     "documents has 5 texts, at most 4 are accepted"},
    {"/rerank", "\"query\":\"q\",\"documents\":[\"A\",\"no\"]", "documents", "not so"},
    {"/rerank", "\"query\":\"q\",\"documents\":[\"A\"],\"rank_fields\":[\"a\"]", "rank_fields",
     "documents have one text"},
    {"/rerank", "\"query\":\"q\",\"documents\":[\"A\"],\"stream\":false", "stream",
     "stream is not supported"},
    {"/score", "\"text_1\":\"q\"", "text_2", "text_2 is missing"},
    {"/score", "\"text_1\":[\"q\",\"q\"],\"text_2\":\"A\"", "text_1", "text_1 has 2 texts"},
    {"/score", "\"text_1\":\"q\",\"text_2\":[{\"text\":\"A\"}]", "text_2", "a list of strings"},
    {"/score", "\"text_1\":\"q\",\"text_2\":[65]", "text_2", "a list of strings"},
    {"/score", "\"text_1\":\"q\",\"text_2\":\"A\",\"model\":\"other\"", "model", "other"},
};

START_TEST(what_is_no_pair_is_refused_by_its_field)
{
    char body[256], param[64];
    site.world.server.limits.batch_max = 4;
    snprintf(body, sizeof(body), "{%s}", refusals[_i].body);
    snprintf(param, sizeof(param), "\"param\":\"%s\"", refusals[_i].param);
    ck_assert_uint_eq(ask(refusals[_i].path, body),
                      strcmp(refusals[_i].param, "model") == 0 ? 404 : 400);
    has(refusals[_i].says);
    has(param);
    ck_assert_uint_eq(site.world.server.live_requests, 0);
}
END_TEST

/* As the model's own: a token that the tokenizer has and the model has not. */
START_TEST(a_token_beyond_the_vocabulary_is_refused)
{
    site.model_text.pairs.tokens[PAIR_YES] = (int32_t)site.world.server.models[0].info.vocab;
    ck_assert_uint_eq(ask("/score", "{\"text_1\":\"q\",\"text_2\":\"A\"}"), 400);
    has("may come next is none of the vocabulary");
}
END_TEST

START_TEST(a_model_that_says_neither_yes_nor_no_is_refused_by_name)
{
    static const char *const paths[] = {"/v1/rerank", "/rerank", "/v1/score", "/score"};
    static const char *const bodies[] = {"{\"query\":\"q\",\"documents\":[\"A\"]}",
                                         "{\"text_1\":\"q\",\"text_2\":\"A\"}"};
    error_set(&site.model_text.pairs.refusal, ERR_UNSUPPORTED, "the checkpoint names no tokens");
    ck_assert_uint_eq(ask(paths[_i], bodies[_i / 2]), 400);
    has("pairs of texts are not scored: the checkpoint names no tokens");
    has("\"code\":\"unsupported\"");
}
END_TEST

/* Made and read off the loop, for as long as its client is there. */
START_TEST(a_client_may_go_while_its_pairs_are_made_and_while_they_run)
{
    struct caller caller;
    const char *body = "{\"query\":\"q\",\"documents\":[\"A\",\"B\"]}";
    site.hold = true;
    call(&site, &caller, "/rerank", body);
    ck_assert_uint_gt(site.held_count, 0);
    caller_free(&caller);
    site_work(&site);
    site_turn(&site);
    ck_assert_uint_eq(site.world.server.live_requests, 0);
    site.hold = false;
    call(&site, &caller, "/rerank", body);
    site_turn(&site);
    ck_assert_uint_eq(site.world.server.live_sequences, 2);
    caller_free(&caller);
    site_finish(&site);
    ck_assert_uint_eq(site.world.server.live_requests, 0);
}
END_TEST

START_TEST(what_has_not_begun_by_its_deadline_has_no_scores)
{
    struct caller caller;
    call(&site, &caller, "/rerank", "{\"query\":\"q\",\"documents\":[\"A\"],\"deadline_ms\":5}");
    site_turn(&site);
    site.world.now_us += 10000;
    site_turn(&site);
    site_finish(&site);
    caller_read(&caller);
    ck_assert_uint_eq(caller.exchange->status, 504);
    caller_free(&caller);
}
END_TEST

Suite *pairs_suite(void)
{
    Suite *suite = suite_create("pairs");
    TCase *tests = tcase_create("pairs");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, documents_are_ranked_the_best_first, 0, 2);
    tcase_add_test(tests, the_best_alone_are_told_where_that_is_asked);
    tcase_add_loop_test(tests, texts_are_scored_one_by_one_and_one_against_many, 0,
                        (int)(sizeof(scores) / sizeof(scores[0])));
    tcase_add_test(tests, the_checkpoints_instruction_stands_where_none_is_given);
    tcase_add_test(tests, a_head_of_classes_answers_in_place_of_tokens);
    tcase_add_loop_test(tests, what_is_no_pair_is_refused_by_its_field, 0,
                        (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tests, a_token_beyond_the_vocabulary_is_refused);
    tcase_add_loop_test(tests, a_model_that_says_neither_yes_nor_no_is_refused_by_name, 0, 4);
    tcase_add_test(tests, a_client_may_go_while_its_pairs_are_made_and_while_they_run);
    tcase_add_test(tests, what_has_not_begun_by_its_deadline_has_no_scores);
    suite_add_tcase(suite, tests);
    return suite;
}
