#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 16];

static void set_up(void)
{
    site_make(&site);
}

static void tear_down(void)
{
    site_free(&site);
}

#define has(text, part) ck_assert_msg(strstr(text, part) != NULL, "%s not in %s", part, text)
#define has_not(text, part) ck_assert_msg(strstr(text, part) == NULL, "%s in %s", part, text)

struct example {
    const char *path, *body;
    unsigned status;
    const char *part; /* of the answer */
};

static const struct example examples[] = {
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":3}", 200, "\"text\":\"BCD\""},
    {"/v1/completions", "{\"prompt\":[\"A\",\"K\"],\"max_tokens\":2}", 200,
     "\"index\":1,\"text\":\"LM\""},
    {"/v1/completions", "{\"prompt\":[65,66],\"max_tokens\":1}", 200, "\"text\":\"B\""},
    {"/v1/completions", "{\"prompt\":[[65],[75,1]],\"max_tokens\":1}", 200,
     "\"index\":1,\"text\":\"L\""},
    {"/v1/completions", "{\"prompt\":\"A\"}", 200, "\"completion_tokens\":16"},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":9,\"stop\":\"EF\"}", 200,
     "\"text\":\"BCD\",\"logprobs\":null,\"finish_reason\":\"stop\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":9,\"stop\":[\"x\",\"D\"]}", 200,
     "\"text\":\"BC\""},
    {"/v1/completions",
     "{\"prompt\":\"A\",\"max_tokens\":9,\"min_tokens\":4,\"stop\":[\"D\",\"G\"]}", 200,
     "\"text\":\"BCDEF\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":2,\"echo\":true}", 200,
     "\"text\":\"ABC\""},
    {"/v1/completions", "{\"prompt\":[65],\"max_tokens\":2,\"echo\":true,\"n\":2}", 200,
     "\"index\":1,\"text\":\"ABC\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":2,\"logprobs\":1}", 200,
     "\"tokens\":[\"B\",\"C\"],\"token_logprobs\":[-0,-1]"},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":1,\"user\":\"me\",\"suffix\":null}", 200,
     "\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2"},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":2,\"logit_bias\":{\"88\":5}}", 200,
     "\"text\":\"BC\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"logit_bias\":{\"66\":1,\"B\":1}}", 400,
     "\"code\":\"bad_token\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"suffix\":\"x\"}", 400, "\"param\":\"suffix\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"model\":\"rule\",\"max_tokens\":1}", 200, "\"B\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"model\":\"other\"}", 404,
     "\"code\":\"model_not_found\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"best_of\":2}", 400, "\"param\":\"best_of\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":100000}", 400, "\"code\":\"too_large\""},
    {"/v1/completions", "{\"prompt\":[1000]}", 400, "\"code\":\"bad_token\""},
    {"/v1/completions", "{\"prompt\":[65,\"A\"]}", 400, "\"param\":\"prompt\""},
    {"/v1/completions", "{\"prompt\":[\"A\",65]}", 400, "\"param\":\"prompt\""},
    {"/v1/completions", "{\"prompt\":\"\"}", 400, "\"code\":\"empty\""},
    {"/v1/completions", "{}", 400, "prompt is missing"},
    {"/v1/completions", "[]", 400, "no JSON object"},
    {"/v1/completions", "{\"prompt\":\"A\",\"prompt\":\"B\"}", 400, "\"code\":\"bad_head\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"echo\":true,\"logprobs\":1,\"stream\":true}", 400,
     "\"param\":\"stream\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"echo\":true,\"logprobs\":0,\"max_tokens\":1}", 200,
     "\"text\":\"AB\",\"logprobs\":{\"tokens\":[\"A\",\"B\"],\"token_logprobs\":[null,-0],"
     "\"top_logprobs\":null,\"text_offset\":[0,1]}"},
    {"/v1/completions", "{\"prompt\":\"A\",\"stream\":1}", 400, "\"param\":\"stream\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"stream_options\":{\"x\":true}}", 400,
     "stream_options.x"},
    {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}]}", 400,
     "no chat template"},
    {"/v1/chat/completions", "{\"messages\":[{\"content\":\"A\"}]}", 400, "without a role"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
     "image_url"},
    {"/v1/embeddings", "{\"input\":\"A\"}", 200, "\"embedding\":[65,66,67,68]"},
    {"/v1/embeddings", "{\"input\":[\"A\",[66]]}", 400, "\"param\":\"input\""},
    {"/v1/embeddings", "{\"input\":[[66]],\"encoding_format\":\"base64\"}", 200,
     "\"embedding\":\"AACEQgAAhkIAAIhCAACKQg==\""},
    {"/v1/embeddings", "{\"input\":\"A\",\"dimensions\":2}", 400, "\"param\":\"dimensions\""},
    {"/tokenize", "{\"prompt\":\"AB\"}", 200, "\"tokens\":[65,66]"},
    {"/tokenize", "{\"prompt\":[1]}", 400, "must be one string"},
    {"/detokenize", "{\"tokens\":[65,256,66]}", 200, "\"prompt\":\"A<|end|>B\""},
    {"/detokenize", "{\"tokens\":[]}", 200, "\"prompt\":\"\""},
    {"/v1/models", NULL, 200, "\"id\":\"rule\""},
    {"/v1/models/rule", NULL, 200, "\"id\":\"rule\""},
    {"/v1/models/other", NULL, 404, "model_not_found"},
    {"/version", NULL, 200, SLUICE_VERSION},
    {"/health", NULL, 200, "\"status\":\"ok\""},
    {"/metrics", NULL, 200, "sluice_num_requests_running 0"},
    {"/v1/completions", NULL, 405, "another method"},
    {"/v1/nothing", NULL, 404, "nothing under this path"},
};

START_TEST(a_request_gets_its_answer)
{
    const struct example *example = &examples[_i];
    unsigned status = fetch(&site, example->path, example->body, answer, sizeof(answer));
    ck_assert_msg(status == example->status, "%u, not %u: %s", status, example->status, answer);
    has(answer, example->part);
}
END_TEST

START_TEST(a_stream_gives_pieces_usage_and_its_end)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":5,\"stream\":true,\"stream_options\":{\"include_usage\":"
         "true}}");
    ck_assert(caller.exchange->streaming);
    ck_assert_str_eq(caller_read(&caller), "");
    world_step(&site.world, 2);
    site_turn(&site);
    has(caller_read(&caller), "\"text\":\"BC\"");
    has_not(caller.answer, "[DONE]");
    ck_assert(!caller.ended);
    site_finish(&site);
    has(caller_read(&caller), "\"text\":\"DEF\",\"logprobs\":null,\"finish_reason\":\"length\"");
    has(caller.answer, "\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":5");
    ck_assert_str_eq(caller.answer + caller.length - 14, "data: [DONE]\n\n");
    ck_assert(caller.ended);
    caller_free(&caller);
}
END_TEST

/* A stream or not; two results, whose guesses are told as a sum. */
START_TEST(usage_tells_what_was_guessed)
{
    static const char *const bodies[2] = {
        "{\"prompt\":\"A\",\"max_tokens\":5,\"n\":2}",
        "{\"prompt\":\"A\",\"max_tokens\":5,\"n\":2,\"stream\":true,\"stream_options\":"
        "{\"include_usage\":true}}"};
    for (int guesses = 0; guesses < 2; guesses++) {
        struct caller caller;
        call(&site, &caller, "/v1/completions", bodies[_i]);
        world_step(&site.world, 1);
        for (int i = 0; i < 2 * guesses; i++) { /* as the worker does */
            caller.exchange->request->seqs[i].drafted = 4 + (uint32_t)i;
            caller.exchange->request->seqs[i].accepted = 3;
        }
        site_finish(&site);
        (void)caller_read(&caller);
        if (guesses)
            has(caller.answer, "\"completion_tokens\":10,\"total_tokens\":11,"
                               "\"completion_tokens_details\":{\"accepted_prediction_tokens\":6,"
                               "\"rejected_prediction_tokens\":3}}");
        else
            has_not(caller.answer, "completion_tokens_details");
        caller_free(&caller);
    }
}
END_TEST

START_TEST(a_stream_holds_back_what_may_become_a_stop_string)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":50,\"stream\":true,\"stop\":\"DEF\"}");
    world_step(&site.world, 4); /* B C D E */
    site_turn(&site);
    has(caller_read(&caller), "\"text\":\"BC\"");
    world_step(&site.world, 1);
    site_turn(&site);
    has(caller_read(&caller), "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"");
    ck_assert(caller.ended);
    ck_assert_uint_eq(site.world.server.live_sequences, 0);
    caller_free(&caller);
}
END_TEST

START_TEST(a_reader_that_is_slow_is_not_formatted_for)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":4000,\"stream\":true,\"n\":8}");
    site_finish(&site);
    ck_assert_uint_lt(out_left(&caller.exchange->out), 128 << 10);
    ck_assert(!caller.exchange->finished || out_left(&caller.exchange->out) > 0);
    caller_read(&caller);
    ck_assert(caller.ended);
    caller_free(&caller);
}
END_TEST

START_TEST(who_goes_away_is_cancelled)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         _i == 0 ? "{\"prompt\":\"A\",\"max_tokens\":4000}"
                 : "{\"prompt\":\"A\",\"max_tokens\":4000,\"stream\":true,\"n\":3}");
    world_step(&site.world, 1);
    ck_assert_uint_gt(site.world.replica.count, 0);
    caller_free(&caller);
    ck_assert_uint_eq(site.world.replica.count, 0);
    ck_assert_uint_eq(site.world.server.live_sequences, 0);
}
END_TEST

/* As FIELDS.md has it: what there is of an answer is worth more than an error, of a row there is
 * nothing. */
START_TEST(what_runs_beyond_its_deadline_ends_with_what_it_has)
{
    struct caller text, row; /* the row is not begun */
    call(&site, &text, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":4000,\"deadline_ms\":50}");
    world_step(&site.world, 1);
    call(&site, &row, "/v1/embeddings", "{\"input\":\"A\",\"deadline_ms\":50}");
    world_pass(&site.world, 50000);
    site_turn(&site);
    site_finish(&site);
    ck_assert_uint_eq(text.exchange->status, 200);
    has(caller_read(&text), "\"finish_reason\":\"deadline\"");
    ck_assert_uint_eq(row.exchange->status, 504);
    has(caller_read(&row), "\"code\":\"deadline\"");
    caller_free(&text);
    caller_free(&row);
}
END_TEST

/* By the world's rule the score at position i is -(i - 1), and the likeliest token i - 1. */
START_TEST(echoed_prompts_are_scored_before_they_are_continued)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":[[65,66,67],[70]],\"max_tokens\":2,\"n\":2,\"echo\":true,\"logprobs\":1}");
    ck_assert_uint_eq(site.world.replica.count, 2); /* the prompts, once each */
    if (_i == 1) {
        caller_free(&caller);
        ck_assert_uint_eq(site.world.replica.count, 0);
        ck_assert_uint_eq(site.world.server.live_requests, 0);
        return;
    }
    site_finish(&site);
    const char *text = caller_read(&caller);
    has(text,
        "\"index\":1,\"text\":\"ABCBC\",\"logprobs\":{\"tokens\":[\"A\",\"B\",\"C\",\"B\",\"C\"],"
        "\"token_logprobs\":[null,-0,-1,-0,-1],\"top_logprobs\":[null,{\"\":0,\"B\":-0},{"
        "\"\\u0001\":0,\"C\":-1},");
    has(text, "\"index\":3,\"text\":\"FGH\",\"logprobs\":{\"tokens\":[\"F\",\"G\",\"H\"],"
              "\"token_logprobs\":[null,-0,-1]");
    has(text, "\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":8");
    caller_free(&caller);
    ck_assert_uint_eq(site.world.server.live_requests, 0);
}
END_TEST

START_TEST(long_texts_are_tokenized_off_the_loop)
{
    struct caller caller;
    size_t length = 9000;
    char *body = malloc(length + 100);
    world_set(&site.world, "context-max", "16384");
    site.world.server.limits.context_max = 16384;
    int used = sprintf(body, "{\"max_tokens\":1,\"prompt\":\"");
    memset(body + used, 'A', length);
    strcpy(body + used + length, "\"}");
    site.hold = true;
    call(&site, &caller, "/v1/completions", body);
    ck_assert_uint_eq(site.held_count, 1);
    ck_assert_uint_eq(site.world.server.encodings, 1);
    ck_assert(!server_idle(&site.world.server));
    if (_i == 0) {
        site_work(&site);
        site_turn(&site);
        site_finish(&site);
        has(caller_read(&caller), "\"text\":\"B\"");
        caller_free(&caller);
    } else {
        caller_free(&caller); /* while the other thread reads the text */
        ck_assert_uint_eq(site.http.exchanges, 1);
        site_work(&site);
    }
    ck_assert_uint_eq(site.http.exchanges, 0);
    free(body);
}
END_TEST

/* A list of so many tokens, in an allocation of its own. */
static char *long_list(size_t count)
{
    char *body = malloc(count * 3 + 64);
    size_t used = (size_t)sprintf(body, "{\"max_tokens\":1,\"prompt\":[65");
    for (size_t i = 1; i < count; i++)
        used += (size_t)sprintf(body + used, ",65");
    strcpy(body + used, "]}");
    return body;
}

START_TEST(long_bodies_are_read_off_the_loop)
{
    struct caller caller;
    char *body = long_list(12000);
    site.world.server.limits.context_max = 16384;
    world_set(&site.world, "queue-tokens", "65536");
    site.hold = true;
    call(&site, &caller, "/v1/completions", body);
    free(body);
    ck_assert_uint_eq(site.held_count, 1);
    ck_assert(!exchange_ready(caller.exchange));
    ck_assert(!server_idle(&site.world.server));
    if (_i == 0) {
        site_work(&site);
        ck_assert_uint_eq(site.world.server.load.input, 0);
        site_turn(&site);
        site_finish(&site);
        has(caller_read(&caller), "\"text\":\"B\"");
        has(caller_read(&caller), "\"prompt_tokens\":12000");
        caller_free(&caller);
    } else {
        caller_free(&caller); /* while the other thread reads it */
        ck_assert_uint_eq(site.http.exchanges, 1);
        site_work(&site);
    }
    ck_assert_uint_eq(site.http.exchanges, 0);
    ck_assert_uint_eq(site.world.server.load.input, 0);
}
END_TEST

START_TEST(a_long_body_that_is_wrong_is_refused_all_the_same)
{
    struct caller caller;
    char *body = long_list(12000);
    strcpy(body + strlen(body) - 3, "500]}"); /* out of the vocabulary */
    call(&site, &caller, "/v1/completions", body);
    site_turn(&site);
    ck_assert_uint_eq(caller.exchange->status, 400);
    has(caller_read(&caller), "\"param\":\"prompt\"");
    has(caller_read(&caller), "\"code\":\"bad_token\"");
    caller_free(&caller);
    free(body);
    body = long_list(QUERY_VALUES_MAX);
    call(&site, &caller, "/v1/completions", body);
    site_turn(&site);
    ck_assert_uint_eq(caller.exchange->status, 400);
    has(caller_read(&caller), "more than 1048576 values");
    caller_free(&caller);
    free(body);
}
END_TEST

START_TEST(a_full_queue_is_429_with_a_hint)
{
    struct caller caller, second;
    world_set(&site.world, "queue-sequences", "4");
    site.world.replica.room = 0;
    call(&site, &caller, "/v1/completions", "{\"prompt\":\"A\",\"n\":2}");
    call(&site, &second, "/v1/completions", "{\"prompt\":\"A\"}");
    ck_assert_uint_eq(second.exchange->status, 429);
    ck_assert_uint_gt(second.exchange->retry_after_ms, 0);
    has(caller_read(&second), "rate_limit_error");
    caller_free(&second);
    caller_free(&caller);
}
END_TEST

START_TEST(draining_is_503)
{
    server_drain(&site.world.server);
    ck_assert_uint_eq(fetch(&site, "/v1/completions", "{\"prompt\":\"A\"}", answer, sizeof(answer)),
                      503);
    ck_assert_uint_eq(fetch(&site, "/health", NULL, answer, sizeof(answer)), 503);
    has(answer, "\"status\":\"draining\"");
}
END_TEST

START_TEST(a_body_over_the_limit_is_413)
{
    const struct exchange_peer peer = {.user = 1};
    struct exchange_head head = {
        .method = "POST", .path = "/v1/completions", .content_type = "application/json"};
    struct caller caller;
    static char body[8192];
    world_set(&site.world, "frame-max", "4096");
    memset(body, ' ', sizeof(body) - 1);
    head.content_length = _i == 0 ? sizeof(body) - 1 : 0; /* said, or found out */
    call_as(&site, &caller, &peer, &head, body);
    ck_assert_uint_eq(caller.exchange->status, 413);
    has(caller_read(&caller), "frame-max");
    caller_free(&caller);
}
END_TEST

/* ---- who may -----------------------------------------------------------------------------------
 */

struct entry {
    const char *host, *type, *authorization;
    bool tcp;
    unsigned status;
};

static const struct entry entries[] = {
    {NULL, "application/json", NULL, false, 200},
    {"any.name", "application/json", NULL, false, 200},
    {NULL, "text/plain", NULL, false, 415},
    {NULL, NULL, NULL, false, 415},
    {"localhost:8000", "application/json", "Bearer secret", true, 200},
    {"127.0.0.1", "application/json", "bearer secret", true, 200},
    {"[::1]:80", "application/json", "Bearer secret", true, 200},
    {"evil.example", "application/json", "Bearer secret", true, 421},
    {NULL, "application/json", "Bearer secret", true, 421},
    {"localhost", "application/json", NULL, true, 401},
    {"localhost", "application/json", "Bearer secre", true, 401},
    {"localhost", "application/json", "Bearer secrett", true, 401},
    {"localhost", "application/json", "Bearer ", true, 401},
    {"localhost", "application/json", "secret", true, 401},
};

START_TEST(only_who_may_gets_in)
{
    const struct entry *entry = &entries[_i];
    static const char file[] = "# keys\n\nme secret\nyou other\n";
    const struct exchange_peer peer = {.user = 5, .tcp = entry->tcp};
    const struct exchange_head head = {.method = "POST",
                                       .path = "/tokenize",
                                       .host = entry->host,
                                       .content_type = entry->type,
                                       .authorization = entry->authorization};
    struct caller caller;
    struct error error;
    ck_assert_int_eq(keys_read(&site.http.keys, "keys", file, sizeof(file) - 1, &error), 0);
    call_as(&site, &caller, &peer, &head, "{\"prompt\":\"A\"}");
    ck_assert_msg(caller.exchange->status == entry->status, "%s", caller_read(&caller));
    if (entry->status == 200)
        ck_assert_str_eq(caller.exchange->sink.user->name, entry->tcp ? "key/me" : "5");
    else
        has(caller_read(&caller), entry->status == 401 ? "authentication_error" : "error");
    caller_free(&caller);
}
END_TEST

START_TEST(only_callers_from_this_machine_may_need_no_key)
{
    struct exchange_peer peer = {.user = KEY_USER_ANONYMOUS, .tcp = true};
    const struct exchange_head head = {.method = "GET", .path = "/version", .host = "localhost"};
    struct caller caller;
    site.http.free_loopback = true;
    call_as(&site, &caller, &peer, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 401);
    caller_free(&caller);
    peer.loopback = true;
    call_as(&site, &caller, &peer, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 200);
    ck_assert_str_eq(caller.exchange->sink.user->name, "anonymous");
    caller_free(&caller);
}
END_TEST

START_TEST(listeners_of_the_figures_have_nothing_else)
{
    const struct exchange_peer apart = {.user = 5, .metrics_apart = true};
    const struct exchange_peer only = {.user = 5, .metrics_only = true, .tcp = true};
    struct exchange_head head = {.method = "GET", .path = "/metrics", .host = "localhost"};
    struct caller caller;
    call_as(&site, &caller, &apart, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 404);
    caller_free(&caller);
    call_as(&site, &caller, &only, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 200);
    caller_free(&caller);
    head.path = "/v1/models";
    call_as(&site, &caller, &only, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 404);
    caller_free(&caller);
}
END_TEST

START_TEST(a_request_keeps_the_name_that_it_was_given)
{
    const struct exchange_peer peer = {.user = 5};
    struct exchange_head head = {.method = "GET", .path = "/version", .request_id = "run-17"};
    struct caller caller;
    call_as(&site, &caller, &peer, &head, NULL);
    ck_assert_str_eq(caller.exchange->request_id, "run-17");
    caller_free(&caller);
    head.request_id = "two words\r\n";
    call_as(&site, &caller, &peer, &head, NULL);
    ck_assert_str_eq(caller.exchange->request_id, caller.exchange->answer_id);
    caller_free(&caller);
}
END_TEST

static const char *const bad_keys[] = {"",
                                       "# none\n",
                                       "name\n",
                                       "name \n",
                                       "name key more\n",
                                       " key\n",
                                       "a\033[2Jb key\n",
                                       "\377 key\n",
                                       "a/b key\n", /* the user b of a trusted key a */
                                       "one key\ntwo key\n"};

START_TEST(a_file_of_keys_that_is_wrong_is_refused_by_its_line)
{
    struct keys keys;
    struct error error;
    ck_assert_int_eq(keys_read(&keys, "keys", bad_keys[_i], strlen(bad_keys[_i]), &error),
                     -ERR_BAD_CONFIG);
    has(error.text, "keys");
}
END_TEST

/* ---- metrics -----------------------------------------------------------------------------------
 */

/* The value behind `name` at the start of a line; -1: there is none. */
static double figure(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ' ')
            return strtod(line + length, NULL);
    return -1;
}

START_TEST(metrics_are_well_formed)
{
    static char text[1 << 17];
    char name[128] = "", type[32] = "";
    double last = 0;
    struct gpu_model *model = &site.world.server.model;
    model->formats[0] = (struct gpu_format){"e4m3", 7000};
    model->formats[1] = (struct gpu_format){"bf16", 500};
    model->format_count = 2;
    model->kv_token_bytes = 132;
    snprintf(model->kv_dtype, sizeof model->kv_dtype, "fp8");
    site.world.replica.figures.running = 3;
    hist_add(&site.world.replica.figures.time_to_first_token, 700);
    hist_add(&site.world.replica.figures.time_to_first_token, 3000000);
    ck_assert_uint_eq(fetch(&site, "/metrics", NULL, text, sizeof(text)), 200);
    ck_assert_double_eq(figure(text, "sluice_num_requests_running"), 3);
    ck_assert_double_eq(figure(text, "sluice_replica_running{replica=\"0\"}"), 3);
    ck_assert_double_ge(
        figure(text, "sluice_gpu_memory_bytes{replica=\"0\",gpu=\"0\",kind=\"weights\"}"), 0);
    ck_assert_double_eq(figure(text, "sluice_replica_running{replica=\"1\"}"), -1);
    ck_assert_double_eq(figure(text, "sluice_time_to_first_token_seconds_bucket{le=\"0.0005\"}"),
                        0);
    ck_assert_double_eq(figure(text, "sluice_time_to_first_token_seconds_bucket{le=\"0.001\"}"), 1);
    ck_assert_double_eq(figure(text, "sluice_time_to_first_token_seconds_bucket{le=\"+Inf\"}"), 2);
    ck_assert_double_eq(figure(text, "sluice_time_to_first_token_seconds_count"), 2);
    ck_assert_double_eq(figure(text, "sluice_weight_bytes{format=\"e4m3\"}"), 7000);
    ck_assert_double_eq(figure(text, "sluice_weight_bytes{format=\"bf16\"}"), 500);
    ck_assert_double_eq(figure(text, "sluice_kv_token_bytes{format=\"fp8\"}"), 132);
    /* Each sample stands behind the type of its family; buckets never fall. */
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char word[128];
        if (sscanf(line, "# TYPE %127s %31s", name, type) == 2) {
            last = 0;
            continue;
        }
        if (line[0] == '#')
            continue;
        ck_assert_int_eq(sscanf(line, "%127[^ {]", word), 1);
        ck_assert_msg(strncmp(word, name, strlen(name)) == 0, "%s under %s", word, name);
        bool counts = strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0;
        ck_assert_msg(counts == (strcmp(type, "counter") == 0), "%s is a %s", name, type);
        if (strstr(word, "_bucket")) {
            double value = strtod(strrchr(line, ' '), NULL);
            ck_assert_double_ge(value, last);
            last = value;
        }
    }
}
END_TEST

/* ---- what is not read --------------------------------------------------------------------------
 */

#define CALLERS 24
#define LONG_ANSWER                                                                                \
    "{\"prompt\":\"A\",\"max_tokens\":1000,\"logprobs\":5}" /* 64,560 bytes kept                   \
                                                             */

static void step_many(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        world_step(&site.world, 100);
        site_turn(&site);
    }
}

/* Whole answers that nobody takes count, first as numbers and then as text, and keep further ones
 * from being computed; others are answered meanwhile. */
START_TEST(answers_that_are_not_taken_are_bounded_in_bytes)
{
    static struct caller callers[CALLERS];
    struct caller other;
    const struct exchange_peer peer = {.user = 2000};
    const struct exchange_head head = {
        .method = "POST", .path = "/v1/completions", .content_type = "application/json"};
    world_set(&site.world, "results-max", "1MiB");
    const struct server *server = &site.world.server;
    for (uint32_t i = 0; i < CALLERS; i++)
        call(&site, &callers[i], "/v1/completions", LONG_ANSWER);
    step_many(50);
    uint64_t sent = site.world.replica.sent_total;
    ck_assert_uint_gt(sent, 2);
    ck_assert_uint_lt(sent, CALLERS / 2);
    ck_assert_uint_gt(server->load.results, 0);
    ck_assert_uint_eq(site.world.replica.count, 0);
    uint64_t held = 0;
    for (uint32_t i = 0; i < CALLERS; i++)
        held += out_left(&callers[i].exchange->out);
    ck_assert_uint_le(held, server->load.results); /* all of the texts count */
    if (_i == 1) {
        for (uint32_t i = 0; i < CALLERS; i++)
            caller_free(&callers[i]); /* and go with whom they were for */
        ck_assert_uint_eq(server->load.results, 0);
        return;
    }
    world_set(&site.world, "results-max", "4MiB"); /* the texts took more than half of 1 MiB */
    call_as(&site, &other, &peer, &head, LONG_ANSWER);
    step_many(20);
    ck_assert(other.exchange->finished);
    caller_free(&other);
    for (uint32_t i = 0; i < CALLERS; i++) {
        step_many(20);
        caller_read(&callers[i]);
        ck_assert(callers[i].ended);
        ck_assert_uint_eq(callers[i].exchange->status, 200);
        caller_free(&callers[i]);
    }
    ck_assert_uint_eq(server->load.results, 0);
}
END_TEST

/* An answer of several results is kept until the last is there: it has room as a whole, or waits as
 * a whole. Else halves of answers would wait for each other. */
START_TEST(an_answer_of_several_results_has_room_as_a_whole)
{
    static struct caller callers[6];
    world_set(&site.world, "results-max", "4MiB");
    site.world.replica.room = 2;
    for (uint32_t i = 0; i < 6; i++)
        call(&site, &callers[i], "/v1/completions",
             "{\"prompt\":\"A\",\"max_tokens\":1000,\"logprobs\":5,\"n\":12}");
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t round = 0; round < 200 && !callers[i].exchange->finished; round++)
            step_many(5);
        caller_read(&callers[i]);
        ck_assert(callers[i].ended);
        ck_assert_uint_eq(callers[i].exchange->status, 200);
        caller_free(&callers[i]);
    }
    struct caller large;
    call(&site, &large, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":1000,\"logprobs\":5,\"n\":20}");
    ck_assert_uint_eq(large.exchange->status, 400);
    has(caller_read(&large), "results-max");
    caller_free(&large);
    ck_assert_uint_eq(site.world.server.load.results, 0);
}
END_TEST

static const struct {
    uint64_t user;
    bool admin;
    unsigned status;
} askers[] = {{1000, false, 403}, {1000, true, 200}, {0, false, 200}};

START_TEST(a_priority_is_for_who_may_ask_for_it)
{
    struct caller caller;
    uint64_t user = askers[_i].user ? askers[_i].user : keys_user_of("me", 2);
    const struct exchange_peer peer = {.user = user, .admin = askers[_i].admin};
    const struct exchange_head head = {
        .method = "POST", .path = "/v1/completions", .content_type = "application/json"};
    world_set(&site.world, "users", "key/me:priority=3");
    call_as(&site, &caller, &peer, &head, "{\"prompt\":\"A\",\"max_tokens\":2,\"priority\":3}");
    site_finish(&site);
    ck_assert_uint_eq(caller.exchange->status, askers[_i].status);
    if (askers[_i].status == 403)
        has(caller_read(&caller), "priority-max");
    caller_free(&caller);
}
END_TEST

Suite *exchange_suite(void)
{
    Suite *suite = suite_create("exchange");
    TCase *tests = tcase_create("exchange");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, a_request_gets_its_answer, 0,
                        sizeof(examples) / sizeof(examples[0]));
    tcase_add_test(tests, a_stream_gives_pieces_usage_and_its_end);
    tcase_add_loop_test(tests, usage_tells_what_was_guessed, 0, 2);
    tcase_add_test(tests, a_stream_holds_back_what_may_become_a_stop_string);
    tcase_add_test(tests, a_reader_that_is_slow_is_not_formatted_for);
    tcase_add_loop_test(tests, who_goes_away_is_cancelled, 0, 2);
    tcase_add_test(tests, what_runs_beyond_its_deadline_ends_with_what_it_has);
    tcase_add_loop_test(tests, echoed_prompts_are_scored_before_they_are_continued, 0, 2);
    tcase_add_loop_test(tests, long_texts_are_tokenized_off_the_loop, 0, 2);
    tcase_add_loop_test(tests, long_bodies_are_read_off_the_loop, 0, 2);
    tcase_add_test(tests, a_long_body_that_is_wrong_is_refused_all_the_same);
    tcase_add_test(tests, a_full_queue_is_429_with_a_hint);
    tcase_add_test(tests, draining_is_503);
    tcase_add_loop_test(tests, a_body_over_the_limit_is_413, 0, 2);
    tcase_add_loop_test(tests, only_who_may_gets_in, 0, sizeof(entries) / sizeof(entries[0]));
    tcase_add_test(tests, only_callers_from_this_machine_may_need_no_key);
    tcase_add_test(tests, listeners_of_the_figures_have_nothing_else);
    tcase_add_test(tests, a_request_keeps_the_name_that_it_was_given);
    tcase_add_loop_test(tests, a_file_of_keys_that_is_wrong_is_refused_by_its_line, 0,
                        sizeof(bad_keys) / sizeof(bad_keys[0]));
    tcase_add_test(tests, metrics_are_well_formed);
    tcase_add_loop_test(tests, answers_that_are_not_taken_are_bounded_in_bytes, 0, 2);
    tcase_add_test(tests, an_answer_of_several_results_has_room_as_a_whole);
    tcase_add_loop_test(tests, a_priority_is_for_who_may_ask_for_it, 0,
                        sizeof(askers) / sizeof(askers[0]));
    suite_add_tcase(suite, tests);
    return suite;
}
