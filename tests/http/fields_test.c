/* The table of fields: the page that is made of it, and each line by what it says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/http/query/query_field.h"
#include "daemon/text/template/chat.h"
#include "daemon/text/tokenizer.h"
#include "tests/http/caller.h"
#include "tests/http/has.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 17];

static void set_up(void)
{
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}"
                                 "{% if reasoning_effort %}[{{ reasoning_effort }}]{% endif %}"
                                 "{% if more %}[{{ more }}]{% endif %}";
    site_make(&site);
    site.model_text.pairs = (struct pair_form){.tokens = {'n', 'y'}};
    ck_assert_int_eq(chat_template_load(source, sizeof(source) - 1, &site.model_text.chat, NULL),
                     0);
}

static void tear_down(void)
{
    site_free(&site);
}

/* ---- the page ----------------------------------------------------------------------------------
 */

static const char *const kinds[QUERY_KINDS] = {
    "completions", "chat",  "embeddings", "tokenize",  "detokenize", "lora_adapter",
    "rerank",      "score", "classify",   "responses", "messages",   "count_tokens"};

static void write_row(FILE *page, const struct query_field *field)
{
    bool every = field->kinds == QUERY_FIELD_EVERY, first = true;
    fprintf(page, "| `%s` | ", field->name);
    for (unsigned i = 0; !every && i < QUERY_KINDS; i++)
        if (field->kinds & 1u << i) {
            fprintf(page, "%s%s", first ? "" : ", ", kinds[i]);
            first = false;
        }
    fprintf(page, "%s | %s | %s |\n", every ? "all" : "",
            field->takes[0] ? field->takes : "nothing", field->meaning);
}

void fields_write(FILE *page)
{
    size_t count;
    const struct query_field *fields = query_fields(&count);
    fputs("# Fields\n\n"
          "Every field of a request's body, from the one table in [field.def](query/field.def)\n"
          "(`test_http --fields > daemon/http/FIELDS.md` makes this page). A field that is null "
          "counts "
          "as not given,\none that does not stand here is refused by its name, and so is a value "
          "that "
          "is not among those taken.\n\n"
          "| field | requests | taken | what it does, or why it is taken or refused |\n"
          "| --- | --- | --- | --- |\n",
          page);
    for (size_t i = 0; i < count; i++)
        write_row(page, &fields[i]);
}

START_TEST(the_page_says_what_the_table_says)
{
    char *made = NULL;
    size_t length = 0, read;
    FILE *memory = open_memstream(&made, &length), *page = fopen(FIELDS_PAGE, "r");
    ck_assert_ptr_nonnull(memory);
    ck_assert_msg(page != NULL, "no %s", FIELDS_PAGE);
    fields_write(memory);
    fclose(memory);
    read = fread(answer, 1, sizeof(answer) - 1, page);
    answer[read] = '\0';
    fclose(page);
    ck_assert_str_eq(answer, made);
    free(made);
}
END_TEST

/* ---- each line ---------------------------------------------------------------------------------
 */

/* A request of the kind that is right, but for one more field. */
static unsigned ask(enum query_kind kind, const char *name, const char *value)
{
    static const struct {
        const char *path, *needed, *rest;
    } requests[] = {
        {"/v1/completions", "prompt", "\"A\""},
        {"/v1/chat/completions", "messages", "[{\"role\":\"u\",\"content\":\"A\"}]"},
        {"/v1/embeddings", "input", "\"A\""},
        {"/tokenize", "prompt", "\"A\""},
        {"/detokenize", "tokens", "[65]"},
        {"/v1/unload_lora_adapter", "lora_name", "\"a\""},
        {"/v1/rerank", "query", "\"A\""},
        {"/v1/score", "text_1", "\"A\""},
        {"/classify", "input", "\"A\""},
        {"/v1/responses", "input", "\"A\""},
        {"/v1/messages", "messages", "[{\"role\":\"user\",\"content\":\"A\"}]"},
        {"/v1/messages/count_tokens", "messages", "[{\"role\":\"user\",\"content\":\"A\"}]"}};
    static const struct {
        const char *name, *value;
    } others[QUERY_KINDS] = {[QUERY_RERANK] = {"documents", "[\"A\"]"},
                             [QUERY_SCORE] = {"text_2", "\"A\""},
                             [QUERY_MESSAGES] = {"max_tokens", "3"}};
    char body[512];
    bool needs = strcmp(name, requests[kind].needed) != 0 &&
                 !(kind == QUERY_TOKENIZE && strcmp(name, "messages") == 0);
    const char *also = others[kind].name;
    char second[64] = "";
    if (also && strcmp(name, also) != 0)
        snprintf(second, sizeof(second), "\"%s\":%s,", also, others[kind].value);
    snprintf(body, sizeof(body), "{%s%s%s%s%s%s\"%s\":%s}", second, needs ? "\"" : "",
             needs ? requests[kind].needed : "", needs ? "\":" : "",
             needs ? requests[kind].rest : "", needs ? "," : "", name, value);
    return fetch(&site, requests[kind].path, body, answer, sizeof(answer));
}

START_TEST(a_field_is_known_to_its_requests_alone_and_null_is_not_given)
{
    size_t count;
    const struct query_field *fields = query_fields(&count);
    for (size_t i = 0; i < count; i++)
        for (unsigned kind = 0; kind < QUERY_KINDS; kind++) {
            const char *name = fields[i].name;
            const struct query_field *found = query_field_find(name, (enum query_kind)kind);
            ck_assert_msg((fields[i].kinds & 1u << kind) == 0 || found == &fields[i],
                          "%s stands twice for one request", name);
            if (!found) {
                ck_assert_uint_eq(ask((enum query_kind)kind, name, "1"), 400);
                has(answer, kind < QUERY_MESSAGES ? "\"code\":\"unknown_field\""
                                                  : "\"type\":\"invalid_request_error\"");
                has(answer, name);
            }
            bool needed = strcmp(name, "prompt") == 0 || strcmp(name, "messages") == 0;
            for (unsigned n = 0; query_needs((enum query_kind)kind, n); n++)
                needed |= strcmp(name, query_needs((enum query_kind)kind, n)) == 0;
            needed &= found != NULL;
            /* There is no adapter, and who asks is no admin; and the model has no head. */
            if (!needed && kind != QUERY_ADAPTER && kind != QUERY_CLASSIFY)
                ck_assert_msg(ask((enum query_kind)kind, name, "null") == 200, "%s: %s", name,
                              answer);
        }
}
END_TEST

/* What is refused says why in the table's words, and names itself. */
START_TEST(what_is_refused_says_why)
{
    size_t count;
    const struct query_field *fields = query_fields(&count);
    unsigned refused = 0;
    for (size_t i = 0; i < count; i++)
        for (unsigned kind = 0; kind < QUERY_KINDS; kind++) {
            char param[64];
            if (fields[i].takes[0] || !(fields[i].kinds & 1u << kind))
                continue;
            ck_assert_msg(ask((enum query_kind)kind, fields[i].name, "[\"x\"]") == 400, "%s: %s",
                          fields[i].name, answer);
            snprintf(param, sizeof(param), "\"param\":\"%s\"", fields[i].name);
            has(answer, param);
            has(answer, fields[i].meaning);
            refused++;
        }
    ck_assert_uint_gt(refused, 15);
}
END_TEST

/* Whatever stands in a field is taken or refused, lists where objects belong among it. */
START_TEST(any_value_of_any_field_is_answered)
{
    static const char *const values[] = {
        "[]",
        "[null,null]",
        "[1]",
        "[[1]]",
        "[\"x\"]",
        "{}",
        "{\"\":1}",
        "{\"a\":[1]}",
        "[{}]",
        "0",
        "-1",
        "1e300",
        "\"\"",
        "\"x\"",
        "true",
        "false",
        "{\"type\":[1],\"format\":[1],\"json_schema\":[1]}",
        "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":[1]}}",
        "{\"format\":[\"x\"],\"effort\":[1]}",
        "[{\"type\":\"function\",\"function\":[1]}]",
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[1]}}]",
        "[{\"type\":\"function\",\"name\":\"f\",\"parameters\":[1]}]",
        "[{\"name\":\"f\",\"input_schema\":[1]}]",
        "[{\"role\":\"user\",\"content\":[[1]],\"tool_calls\":[[1]]}]",
        "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":[1]}]}]"};
    size_t count;
    const struct query_field *fields = query_fields(&count);
    for (size_t i = 0; i < count; i++)
        for (unsigned kind = 0; kind < QUERY_KINDS; kind++)
            for (size_t at = 0; at < sizeof(values) / sizeof(values[0]); at++) {
                if (!(fields[i].kinds & 1u << kind))
                    continue;
                unsigned status = ask((enum query_kind)kind, fields[i].name, values[at]);
                ck_assert_msg(status == 200 || (status >= 400 && status < 500), "%s: %s: %u: %s",
                              fields[i].name, values[at], status, answer);
            }
}
END_TEST

struct single {
    enum query_kind kind;
    const char *field, *value;
    unsigned status;
    const char *part;
};

static const struct single singles[] = {
    {QUERY_CHAT, "reasoning_effort", "\"low\"", 200, "\"prompt_tokens\":6"}, /* A[low] */
    {QUERY_CHAT, "reasoning_effort", "\"much\"", 400, "\"param\":\"reasoning_effort\""},
    {QUERY_CHAT, "chat_template_kwargs", "{\"more\":\"low\"}", 200, "\"prompt_tokens\":6"},
    {QUERY_RESPONSES, "chat_template_kwargs", "{\"more\":\"low\"}", 200, "\"input_tokens\":6"},
    {QUERY_TOKENIZE, "reasoning_effort", "\"none\"", 200, "\"tokens\":[65]"},
    {QUERY_CHAT, "verbosity", "\"medium\"", 200, "\"finish_reason\""},
    {QUERY_CHAT, "verbosity", "\"low\"", 400, "shorter or longer"},
    {QUERY_CHAT, "modalities", "[\"text\"]", 200, "\"finish_reason\""},
    {QUERY_CHAT, "modalities", "{\"a\":\"text\"}", 400, "\"param\":\"modalities\""},
    {QUERY_RESPONSES, "text", "{\"format\":[null,null]}", 400, "must be an object"},
    {QUERY_RESPONSES, "text", "[null]", 400, "text must be an object"},
    {QUERY_MESSAGES, "output_format", "[null,null]", 400, "must be an object"},
    {QUERY_MESSAGES, "output_config", "[null]", 400, "must be an object"},
    {QUERY_MESSAGES, "tools", "[[null]]", 400, "must be a list of objects"},
    {QUERY_CHAT, "tools", "[{\"type\":\"function\",\"function\":[1]}]", 400, "is not known"},
    {QUERY_TOKENIZE, "return_token_strs", "true", 200, "\"token_strs\":[\"A\"]"},
    {QUERY_TOKENIZE, "return_token_strs", "false", 200, "\"token_strs\":null"},
    {QUERY_EMBEDDING, "dimensions", "4", 200, "\"embedding\":[65,66,67,68]"},
    {QUERY_EMBEDDING, "dimensions", "2", 400, "\"param\":\"dimensions\""},
    {QUERY_CHAT, "store", "false", 200, "\"finish_reason\""},
    {QUERY_CHAT, "store", "true", 200, "\"finish_reason\""},
    {QUERY_CHAT, "store", "1", 400, "\"param\":\"store\""},
    {QUERY_COMPLETION, "no_stop_trim", "true", 400, "stop string"},
    {QUERY_CHAT, "return_hidden_states", "true", 400, "/v1/embeddings"},
    {QUERY_CHAT, "separate_reasoning", "\"x\"", 400, "\"param\":\"separate_reasoning\""},
    {QUERY_CHAT, "stream_reasoning", "false", 400, "streamed"},
    {QUERY_COMPLETION, "stream_reasoning", "true", 400, "unknown_field"},
    {QUERY_CHAT, "metadata", "{\"a\":\"b\"}", 200, "\"finish_reason\""},
    {QUERY_COMPLETION, "service_tier", "\"auto\"", 200, "\"finish_reason\""},
    {QUERY_COMPLETION, "service_tier", "\"priority\"", 400, "one tier"},
    {QUERY_COMPLETION, "best_of", "1", 200, "\"finish_reason\""},
    {QUERY_COMPLETION, "length_penalty", "2", 400, "beam search"},
    {QUERY_COMPLETION, "bad_words", "[]", 200, "\"finish_reason\""},
    {QUERY_COMPLETION, "bad_words", "[\"x\"]", 400, "logit_bias"},
    {QUERY_COMPLETION, "speculate", "false", 200, "\"finish_reason\""},
    {QUERY_CHAT, "speculate", "\"no\"", 400, "\"param\":\"speculate\""},
    {QUERY_EMBEDDING, "speculate", "false", 400, "unknown_field"},
    {QUERY_COMPLETION, "cache_salt", "\"x\"", 200, "\"finish_reason\""},
    {QUERY_COMPLETION, "cache_salt", "3", 400, "a string"},
    {QUERY_COMPLETION, "echo", "true", 200, "\"text\":\"ABC"},
    {QUERY_CHAT, "echo", "true", 400, "\"param\":\"echo\""},
    {QUERY_COMPLETION, "prompt_logprobs", "-1", 400, "\"param\":\"prompt_logprobs\""},
    {QUERY_COMPLETION, "max_tokens", "0", 400, "\"param\":\"max_tokens\""},
    {QUERY_CHAT, "user", "\"me\"", 200, "\"finish_reason\""},
};

START_TEST(a_field_is_taken_or_refused_by_its_meaning)
{
    const struct single *single = &singles[_i];
    unsigned status = ask(single->kind, single->field, single->value);
    ck_assert_msg(status == single->status, "%s: %u: %s", single->field, status, answer);
    has(answer, single->part);
}
END_TEST

/* ---- what prompts are told of ------------------------------------------------------------------
 *
 * By the world's rule the score at position i is -(i - 1), of likeliest tokens 0, 1, 2, ... */

struct told {
    const char *path, *body, *part;
};

static const struct told tellings[] = {
    /* The prompt alone. */
    {"/v1/completions", "{\"prompt\":\"ABC\",\"max_tokens\":0,\"echo\":true}",
     "\"text\":\"ABC\",\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":{"
     "\"prompt_tokens\":3,\"completion_tokens\":0,\"total_tokens\":3}"},
    {"/v1/completions", "{\"prompt\":[\"AB\",\"K\"],\"max_tokens\":0,\"echo\":true,\"logprobs\":2}",
     "{\"index\":0,\"text\":\"AB\",\"logprobs\":{\"tokens\":[\"A\",\"B\"],\"token_logprobs\":[null,"
     "-0],\"top_logprobs\":[null,{\"\":-0,\"\\u0001\":-1,\"B\":-0}],\"text_offset\":[0,1]},"
     "\"finish_reason\":\"length\"},{\"index\":1,\"text\":\"K\",\"logprobs\":{\"tokens\":[\"K\"],"
     "\"token_logprobs\":[null],\"top_logprobs\":[null],\"text_offset\":[0]},\"finish_reason\":"
     "\"length\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":0"},
    {"/v1/completions", "{\"prompt\":\"AB\",\"max_tokens\":0,\"prompt_logprobs\":1}",
     "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\",\"prompt_logprobs\":[null,{"
     "\"0\":"
     "{\"logprob\":0,\"rank\":1,\"decoded_token\":\"\xef\xbf\xbd\"},\"66\":{\"logprob\":-0,"
     "\"rank\":null,"
     "\"decoded_token\":\"B\"}}]"},
    /* With its continuation. */
    {"/v1/completions",
     "{\"prompt\":\"AB\",\"max_tokens\":1,\"echo\":true,\"logprobs\":2,\"prompt_logprobs\":3}",
     "\"top_logprobs\":[null,{\"\":-0,\"\\u0001\":-1,\"B\":-0},{\"\":-0,\"\\u0001\":-1,\"B\":-0}]"},
    {"/v1/completions", "{\"prompt\":[[65,1]],\"max_tokens\":1,\"prompt_logprobs\":3}",
     "\"prompt_logprobs\":[null,{\"0\":{\"logprob\":-0,\"rank\":1,\"decoded_token\":"
     "\"\xef\xbf\xbd\"},\"1\":{"
     "\"logprob\":-1,\"rank\":2,\"decoded_token\":\"\\u0001\"},\"2\":{\"logprob\":-2,\"rank\":3,"
     "\"decoded_token\":\"\\u0002\"}}]"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"u\",\"content\":\"AB\"}],\"max_tokens\":1,\"prompt_logprobs\":0,"
     "\"return_token_ids\":true}",
     "\"prompt_token_ids\":[65,66],\"prompt_logprobs\":[null,{\"66\":{\"logprob\":-0,\"rank\":null,"
     "\"decoded_token\":\"B\"}}]}"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"u\",\"content\":\"A\"}],\"max_tokens\":2,\"return_token_ids\":"
     "true}",
     "\"finish_reason\":\"length\",\"token_ids\":[66,67]}]"},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":2,\"return_token_ids\":true,\"n\":2}",
     "\"prompt_token_ids\":[65],\"token_ids\":[66,67]},{\"index\":1"},
    {"/v1/completions",
     "{\"prompt\":\"A\",\"max_tokens\":1,\"logprobs\":1,\"return_tokens_as_token_ids\":true}",
     "\"tokens\":[\"token_id:66\"],\"token_logprobs\":[-0],\"top_logprobs\":[{\"token_id:0\":-0,"
     "\"token_id:66\":-0}]"},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":0,\"echo\":true,\"stream\":true}",
     "\"param\":\"stream\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"max_tokens\":0,\"echo\":true,\"n\":2}",
     "\"param\":\"n\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"prompt_logprobs\":1,\"stream\":true}",
     "\"param\":\"stream\""},
    {"/v1/completions", "{\"prompt\":\"A\",\"echo\":true,\"logprobs\":21}", "\"too_large\""},
};

START_TEST(prompts_are_told_as_they_are_asked_for)
{
    fetch(&site, tellings[_i].path, tellings[_i].body, answer, sizeof(answer));
    has(answer, tellings[_i].part);
    ck_assert_uint_eq(site.world.server.live_sequences, 0);
}
END_TEST

/* A hundred tokens with twenty likeliest each take 16 KiB as numbers, and 160 in the answer. */
START_TEST(what_is_told_of_prompts_has_its_bounds)
{
    char body[512], prompt[101];
    memset(prompt, 'A', 100);
    prompt[100] = '\0';
    site.world.server.limits.results_max = 400 << 10;
    for (int tops = 0; tops <= 20; tops += 20) {
        snprintf(body, sizeof(body), "{\"prompt\":\"%s\",\"max_tokens\":0,\"prompt_logprobs\":%d}",
                 prompt, tops);
        unsigned status = fetch(&site, "/v1/completions", body, answer, sizeof(answer));
        ck_assert_msg(status == (tops ? 400 : 200), "%u: %s", status, answer);
    }
    has(answer, "results-max");
    ck_assert_uint_eq(site.world.server.load.results, 0);
}
END_TEST

/* ---- usage as it goes --------------------------------------------------------------------------
 */

START_TEST(each_event_has_the_usage_so_far)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":\"A\",\"max_tokens\":4,\"stream\":true,\"return_token_ids\":true,"
         "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}");
    world_step(&site.world, 2);
    site_turn(&site);
    has(caller_read(&caller), "\"text\":\"BC\",\"logprobs\":null,\"finish_reason\":null,"
                              "\"prompt_token_ids\":[65],\"token_ids\":[66,67]}],\"usage\":{"
                              "\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}");
    site_finish(&site);
    const char *rest = strstr(caller_read(&caller), "\"text\":\"DE\"");
    ck_assert_ptr_nonnull(rest);
    has_not(rest, "prompt_token_ids");
    has(rest, "\"token_ids\":[68,69]}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":4");
    has(rest, "\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":4");
    caller_free(&caller);
}
END_TEST

/* A token that is half of a character has no text yet, and is counted all the same. */
START_TEST(tokens_without_text_are_counted_as_they_come)
{
    struct caller caller;
    call(&site, &caller, "/v1/completions",
         "{\"prompt\":[194],\"max_tokens\":3,\"stream\":true,\"stream_options\":{"
         "\"continuous_usage_stats\":true}}");
    world_step(&site.world, 1);
    site_turn(&site);
    has(caller_read(&caller), "\"text\":\"\",");
    has(caller.answer, "\"completion_tokens\":1,");
    world_step(&site.world, 1);
    site_turn(&site);
    has(caller_read(&caller), "\"completion_tokens\":2,");
    site_finish(&site);
    has_not(caller_read(&caller), "\"choices\":[]");
    caller_free(&caller);
}
END_TEST

/* ---- the tokenizer -----------------------------------------------------------------------------
 */

START_TEST(a_client_learns_what_it_needs_of_the_tokenizer)
{
    ck_assert_uint_eq(fetch(&site, "/tokenizer_info", NULL, answer, sizeof(answer)), 200);
    has(answer, "\"bos_token\":null,\"eos_token\":\"<|end|>\",\"pad_token\":null");
    has(answer, "\"chat_template\":\"{% for m in messages %}");
    struct tokenizer *tokenizer = site.model_text.tokenizer;
    site.model_text.tokenizer = NULL;
    error_set(&site.model_text.refusal, ERR_UNSUPPORTED, "it has none");
    ck_assert_uint_eq(fetch(&site, "/tokenizer_info", NULL, answer, sizeof(answer)), 400);
    has(answer, "it has none");
    site.model_text.tokenizer = tokenizer;
}
END_TEST

/* A made-up model: bytes in, and every token that it answers is seen. */
START_TEST(synthetic_models_have_bytes_for_tokens)
{
    struct model_text text;
    static const int32_t tokens[] = {'h', 'i', 300, 511, 255};
    char *decoded;
    size_t length;
    struct error error;
    ck_assert_int_eq(model_text_load(&text, "synthetic:tiny", NULL), 0);
    ck_assert_int_eq(model_text_chats(&text, &error), 0);
    ck_assert_int_eq(model_text_decode(&text, tokens, 4, 100, true, &decoded, &length, &error), 0);
    ck_assert_uint_eq(length, 10);
    ck_assert_mem_eq(decoded, "hi 300 511", 10);
    free(decoded);
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    int32_t ids[16];
    size_t count;
    ck_assert_int_eq(tokenizer_encode(text.tokenizer, scratch, "a 300\xc3\xa9", 7, true, ids, 16,
                                      &count, &error),
                     0);
    ck_assert_uint_eq(count, 7);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(ids[i], (unsigned char)"a 300\xc3\xa9"[i]);
    tokenizer_scratch_free(scratch);
    model_text_free(&text);
    ck_assert_int_eq(model_text_load(&text, "synthetic:nothing", NULL), 0);
    ck_assert_int_eq(model_text_texts(&text, &error), -ERR_UNSUPPORTED);
    has(error.text, "nothing");
    model_text_free(&text);
}
END_TEST

/* ---- what the checkpoint says ------------------------------------------------------------------
 */

static void load_config(struct model_text *text, const char *config)
{
    char folder[] = "/tmp/sluice-config-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(config, file);
    fclose(file);
    ck_assert_int_eq(model_text_load(text, folder, NULL), 0);
    unlink(path);
    rmdir(folder);
}

START_TEST(rows_are_cut_where_the_checkpoint_says_so)
{
    struct model_text text;
    load_config(&text, "{\"matryoshka_dimensions\":[2,3]}");
    ck_assert(model_text_cuts(&text, 2) && !model_text_cuts(&text, 1));
    memcpy(site.model_text.row_cut, text.row_cut, sizeof(text.row_cut));
    site.model_text.row_cut_count = text.row_cut_count;
    model_text_free(&text);
    load_config(&text, "{\"is_matryoshka\":true}");
    ck_assert(model_text_cuts(&text, 1));
    model_text_free(&text);
    load_config(&text, "{}");
    ck_assert(!model_text_cuts(&text, 1));
    model_text_free(&text);
    ck_assert_uint_eq(ask(QUERY_EMBEDDING, "dimensions", "2"), 200);
    has(answer, "\"embedding\":[0.701688588,0.712483764]");
    ck_assert_uint_eq(ask(QUERY_EMBEDDING, "dimensions", "1"), 400);
    ck_assert_uint_eq(ask(QUERY_EMBEDDING, "dimensions", "5"), 400);
}
END_TEST

Suite *fields_suite(void)
{
    Suite *suite = suite_create("fields");
    TCase *tests = tcase_create("fields");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, the_page_says_what_the_table_says);
    tcase_add_test(tests, a_field_is_known_to_its_requests_alone_and_null_is_not_given);
    tcase_add_test(tests, what_is_refused_says_why);
    tcase_add_test(tests, any_value_of_any_field_is_answered);
    tcase_add_loop_test(tests, a_field_is_taken_or_refused_by_its_meaning, 0,
                        sizeof(singles) / sizeof(singles[0]));
    tcase_add_loop_test(tests, prompts_are_told_as_they_are_asked_for, 0,
                        sizeof(tellings) / sizeof(tellings[0]));
    tcase_add_test(tests, what_is_told_of_prompts_has_its_bounds);
    tcase_add_test(tests, each_event_has_the_usage_so_far);
    tcase_add_test(tests, tokens_without_text_are_counted_as_they_come);
    tcase_add_test(tests, a_client_learns_what_it_needs_of_the_tokenizer);
    tcase_add_test(tests, synthetic_models_have_bytes_for_tokens);
    tcase_add_test(tests, rows_are_cut_where_the_checkpoint_says_so);
    suite_add_tcase(suite, tests);
    return suite;
}
