#include "daemon/http/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/message_sampling.h"

#define COMPLETION (1u << QUERY_COMPLETION)
#define CHAT (1u << QUERY_CHAT)
#define EMBEDDING (1u << QUERY_EMBEDDING)
#define TOKENIZE (1u << QUERY_TOKENIZE)
#define DETOKENIZE (1u << QUERY_DETOKENIZE)
#define GENERATE (COMPLETION | CHAT)

/* What reads a field. All are called with a value that is not null. */
typedef int (*field_reader)(struct query *query, const json *value,
                            const struct message_limits *limits, struct error *error);

struct field {
    const char *name;
    unsigned kinds; /* of requests that know it */
    field_reader read;
};

static int wrong(const json *value, const char *expected, struct error *error)
{
    return error_set(error, ERR_BAD_VALUE, "%s must be %s", json_key(value), expected);
}

static int read_flag(const json *value, bool *ret, struct error *error)
{
    if (!json_is_bool(value))
        return wrong(value, "true or false", error);
    *ret = json_bool(value);
    return 0;
}

/* ---- prompts -----------------------------------------------------------------------------------
 */

static int make_prompts(struct query *query, size_t count, const struct message_limits *limits,
                        struct error *error)
{
    if (count == 0)
        return error_set(error, ERR_EMPTY, "there is no prompt");
    if (count > limits->batch_max)
        return error_limit(error, ERR_TOO_LARGE, limits->batch_max, count,
                           "%zu prompts, at most %u are accepted", count, limits->batch_max);
    query->prompts = calloc(count, sizeof(*query->prompts));
    if (!query->prompts)
        return error_set(error, ERR_NO_MEMORY, "no memory for %zu prompts", count);
    query->prompt_count = (uint32_t)count;
    return 0;
}

static int read_text(struct query_prompt *prompt, const json *value, struct error *error)
{
    prompt->text = json_string(value);
    prompt->length = strlen(prompt->text);
    if (prompt->length == 0)
        return error_set(error, ERR_EMPTY, "a prompt is empty");
    return 0;
}

static int read_tokens(struct query_prompt *prompt, const json *list, uint32_t vocabulary,
                       struct error *error)
{
    size_t count = json_count(list), at = 0;
    if (count == 0)
        return error_set(error, ERR_EMPTY, "a prompt is empty");
    prompt->tokens = malloc(count * sizeof(*prompt->tokens));
    if (!prompt->tokens)
        return error_set(error, ERR_NO_MEMORY, "no memory for %zu tokens", count);
    for (const json *item = json_child(list); item; item = json_next(item), at++) {
        int64_t id;
        int64_t max = vocabulary > 0 ? (int64_t)vocabulary - 1 : INT32_MAX;
        if (json_integer(item, "a token", 0, max, &id, NULL))
            return error_set(error, ERR_BAD_TOKEN,
                             "token %zu of a prompt is no token of the vocabulary of %u", at,
                             vocabulary);
        prompt->tokens[at] = (int32_t)id;
    }
    prompt->count = (uint32_t)count;
    return 0;
}

/* A text, a list of texts, a list of tokens, or a list of lists of tokens. */
static int read_prompt(struct query *query, const json *value, const struct message_limits *limits,
                       struct error *error)
{
    const json *first = json_child(value);
    bool list = json_is_array(value);
    bool many = list && first && !json_is_number(first);
    if (!list && !json_is_string(value))
        return wrong(value, "a string, a list of strings, or tokens", error);
    int rc = make_prompts(query, many ? json_count(value) : !list || first, limits, error);
    if (rc)
        return rc;
    if (!list)
        return read_text(&query->prompts[0], value, error);
    if (!many)
        return read_tokens(&query->prompts[0], value, limits->vocabulary, error);
    struct query_prompt *prompt = query->prompts;
    bool texts = json_is_string(first);
    for (const json *item = first; !rc && item; item = json_next(item), prompt++) {
        if (texts ? !json_is_string(item) : !json_is_array(item))
            return wrong(value, "all strings, or all lists of tokens", error);
        rc = texts ? read_text(prompt, item, error)
                   : read_tokens(prompt, item, limits->vocabulary, error);
    }
    return rc;
}

static int read_token_list(struct query *query, const json *value,
                           const struct message_limits *limits, struct error *error)
{
    if (!json_is_array(value))
        return wrong(value, "a list of tokens", error);
    int rc = make_prompts(query, 1, limits, error);
    return !rc && json_child(value)
               ? read_tokens(&query->prompts[0], value, limits->vocabulary, error)
               : rc;
}

/* ---- single fields -----------------------------------------------------------------------------
 */

static int read_model(struct query *query, const json *value, const struct message_limits *limits,
                      struct error *error)
{
    (void)limits;
    if (!json_is_string(value))
        return wrong(value, "a string", error);
    query->model = json_string(value);
    return 0;
}

#define FLAG(name, field)                                                                          \
    static int read_##name(struct query *query, const json *value,                                 \
                           const struct message_limits *limits, struct error *error)               \
    {                                                                                              \
        (void)limits;                                                                              \
        return read_flag(value, &query->field, error);                                             \
    }
FLAG(stream, params.stream)
FLAG(echo, echo)
FLAG(add_special, add_special)
FLAG(logprobs_flag, logprobs)

static int read_stream_options(struct query *query, const json *value,
                               const struct message_limits *limits, struct error *error)
{
    (void)limits;
    if (!json_is_object(value))
        return wrong(value, "an object", error);
    for (const json *item = json_child(value); item; item = json_next(item)) {
        bool ignored;
        bool usage = strcmp(json_key(item), "include_usage") == 0;
        if (!usage && strcmp(json_key(item), "include_obfuscation") != 0)
            return error_set(error, ERR_UNKNOWN_FIELD, "stream_options.%.32s is not known",
                             json_key(item));
        int rc = read_flag(item, usage ? &query->include_usage : &ignored, error);
        if (rc)
            return rc;
    }
    return 0;
}

/* One that the daemon's own protocol has by this name. */
static int read_sampling(struct query *query, const json *value,
                         const struct message_limits *limits, struct error *error)
{
    bool known;
    return sampling_read(value, limits, &query->common, &known, error);
}

static int read_top_k(struct query *query, const json *value, const struct message_limits *limits,
                      struct error *error)
{
    if (json_is_number(value) && json_number(value) == -1) {
        query->common.sampling.sampler.top_k = 0; /* others write "off" so */
        return 0;
    }
    return read_sampling(query, value, limits, error);
}

static int read_max_tokens(struct query *query, const json *value,
                           const struct message_limits *limits, struct error *error)
{
    int64_t max;
    (void)limits;
    int rc = json_integer(value, json_key(value), 0, INT32_MAX, &max, error);
    if (rc)
        return rc;
    query->common.sampling.max_tokens = (uint32_t)max;
    query->max_given = true;
    return 0;
}

static int read_stop(struct query *query, const json *value, const struct message_limits *limits,
                     struct error *error)
{
    if (!json_is_string(value))
        return read_sampling(query, value, limits, error);
    size_t length = strlen(json_string(value));
    if (length == 0 || length > MESSAGE_STOP_BYTES_MAX)
        return error_limit(error, ERR_BAD_VALUE, MESSAGE_STOP_BYTES_MAX, length,
                           "stop must have 1 to %d bytes", MESSAGE_STOP_BYTES_MAX);
    query->common.stop_count = 1;
    query->common.stop[0] = json_string(value);
    query->common.stop_length[0] = (uint32_t)length;
    return 0;
}

static int read_top_logprobs(struct query *query, const json *value,
                             const struct message_limits *limits, struct error *error)
{
    int64_t count;
    int rc = json_integer(value, "top_logprobs", 0, limits->logprobs_max, &count, error);
    if (!rc)
        query->common.sampling.logprobs = (int32_t)count;
    return rc;
}

static int read_priority(struct query *query, const json *value,
                         const struct message_limits *limits, struct error *error)
{
    int64_t priority;
    (void)limits;
    int rc = json_integer(value, "priority", -8, 7, &priority, error);
    if (!rc)
        query->params.priority = (int32_t)priority;
    return rc;
}

static int read_deadline(struct query *query, const json *value,
                         const struct message_limits *limits, struct error *error)
{
    int64_t deadline;
    (void)limits;
    int rc = json_integer(value, "deadline_ms", 0, INT64_C(1) << 40, &deadline, error);
    if (!rc)
        query->params.deadline_ms = (uint64_t)deadline;
    return rc;
}

static int read_encoding_format(struct query *query, const json *value,
                                const struct message_limits *limits, struct error *error)
{
    (void)limits;
    query->base64 = strcmp(json_string(value), "base64") == 0;
    return query->base64 || strcmp(json_string(value), "float") == 0
               ? 0
               : wrong(value, "\"float\" or \"base64\"", error);
}

static int read_chat(struct query *query, const json *value, const struct message_limits *limits,
                     struct error *error)
{
    bool known;
    (void)limits;
    return chat_prompt_field(&query->chat, value, &known, error);
}

/* ---- fields of which one value is taken --------------------------------------------------------
 */

static int read_best_of(struct query *query, const json *value, const struct message_limits *limits,
                        struct error *error)
{
    (void)query;
    (void)limits;
    return json_is_number(value) && json_number(value) == 1 ? 0 : wrong(value, "1", error);
}

static int read_true(struct query *query, const json *value, const struct message_limits *limits,
                     struct error *error)
{
    (void)query;
    (void)limits;
    return json_bool(value) ? 0 : wrong(value, "true", error);
}

static int read_false(struct query *query, const json *value, const struct message_limits *limits,
                      struct error *error)
{
    (void)query;
    (void)limits;
    return json_is_bool(value) && !json_bool(value) ? 0 : wrong(value, "false", error);
}

static int read_response_format(struct query *query, const json *value,
                                const struct message_limits *limits, struct error *error)
{
    (void)query;
    (void)limits;
    return strcmp(json_string(json_get(value, "type")), "text") == 0
               ? 0
               : error_set(error, ERR_UNSUPPORTED, "response_format: only text is supported");
}

/* auto is what the template does; none keeps the tools from it, see query_read(). */
static int read_tool_choice(struct query *query, const json *value,
                            const struct message_limits *limits, struct error *error)
{
    const char *choice = json_string(value);
    (void)query;
    (void)limits;
    return strcmp(choice, "auto") == 0 || strcmp(choice, "none") == 0
               ? 0
               : error_set(error, ERR_UNSUPPORTED, "tool_choice: only auto and none are supported");
}

static int read_modalities(struct query *query, const json *value,
                           const struct message_limits *limits, struct error *error)
{
    (void)query;
    (void)limits;
    return json_count(value) == 1 && strcmp(json_string(json_child(value)), "text") == 0
               ? 0
               : error_set(error, ERR_UNSUPPORTED, "modalities: only text is supported");
}

static int ignore(struct query *query, const json *value, const struct message_limits *limits,
                  struct error *error)
{
    (void)query;
    (void)value;
    (void)limits;
    (void)error;
    return 0;
}

static const struct field fields[] = {
    {"model", ~0u, read_model},
    {"prompt", COMPLETION | TOKENIZE, read_prompt},
    {"input", EMBEDDING, read_prompt},
    {"tokens", DETOKENIZE, read_token_list},
    {"messages", CHAT | TOKENIZE, read_chat},
    {"tools", CHAT | TOKENIZE, read_chat},
    {"tool_choice", CHAT, read_tool_choice},
    {"chat_template_kwargs", CHAT | TOKENIZE, read_chat},
    {"add_generation_prompt", CHAT | TOKENIZE, read_chat},
    {"add_special_tokens", COMPLETION | EMBEDDING | TOKENIZE, read_add_special},
    {"max_tokens", GENERATE, read_max_tokens},
    {"max_completion_tokens", CHAT, read_max_tokens},
    {"top_k", GENERATE, read_top_k},
    {"stop", GENERATE, read_stop},
    {"logprobs", CHAT, read_logprobs_flag},
    {"top_logprobs", CHAT, read_top_logprobs},
    {"echo", COMPLETION, read_echo},
    {"best_of", COMPLETION, read_best_of},
    {"stream", GENERATE, read_stream},
    {"stream_options", GENERATE, read_stream_options},
    {"priority", GENERATE | EMBEDDING, read_priority},
    {"deadline_ms", GENERATE | EMBEDDING, read_deadline},
    {"encoding_format", EMBEDDING, read_encoding_format},
    {"skip_special_tokens", GENERATE, read_true},
    {"include_stop_str_in_output", GENERATE, read_false},
    {"continue_final_message", CHAT, read_false},
    {"use_beam_search", GENERATE, read_false},
    {"response_format", CHAT, read_response_format},
    {"modalities", CHAT, read_modalities},
    {"parallel_tool_calls", CHAT, ignore},
    {"user", ~0u, ignore},
    {"metadata", ~0u, ignore},
    {"store", ~0u, ignore},
    {"service_tier", ~0u, ignore},
    {"safety_identifier", ~0u, ignore},
    {"prompt_cache_key", ~0u, ignore},
    {"prompt_cache_retention", ~0u, ignore},
    {"prediction", CHAT, ignore},
};

/* Frees what nothing borrows from: what was read into the query, as tokens are, and what was
 * ignored. The rest stays for as long as the request. */
static void keep_borrowed(struct query *query)
{
    const char *keys[8] = {"model", "stop", "logit_bias"};
    size_t count = 3;
    if (query->prompts && query->prompts[0].text) {
        keys[count++] = "prompt";
        keys[count++] = "input";
    }
    if (query->chat.messages) {
        keys[count++] = "messages";
        keys[count++] = "tools";
        keys[count++] = "chat_template_kwargs";
    }
    json_keep(query->document, keys, count);
}

static int read_member(struct query *query, const json *member, const struct message_limits *limits,
                       struct error *error)
{
    const char *name = json_key(member);
    snprintf(query->param, sizeof(query->param), "%s", name);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].kinds & 1u << query->kind && strcmp(fields[i].name, name) == 0)
            return json_is_null(member) ? 0 : fields[i].read(query, member, limits, error);
    if (json_is_null(member))
        return 0;
    /* All others that say how to sample have the names of the daemon's own protocol. */
    bool known = false;
    int rc = GENERATE & 1u << query->kind
                 ? sampling_read(member, limits, &query->common, &known, error)
                 : 0;
    if (rc || known)
        return rc;
    return error_set(error, ERR_UNKNOWN_FIELD, "%.64s is not supported", name);
}

/* What only holds once all fields are read. */
static int check(struct query *query, struct error *error)
{
    struct sampling *sampling = &query->common.sampling;
    static const char *const needed[] = {"prompt", "messages", "input", "prompt", "tokens"};
    query->param[0] = '\0';
    bool there = query->kind == QUERY_CHAT
                     ? query->chat.messages != NULL
                     : query->prompts || (query->kind == QUERY_TOKENIZE && query->chat.messages);
    if (!there) {
        snprintf(query->param, sizeof(query->param), "%s", needed[query->kind]);
        return error_set(error, ERR_BAD_VALUE, "%s is missing", needed[query->kind]);
    }
    if (query->kind == QUERY_CHAT && !query->logprobs)
        sampling->logprobs = -1;
    else if (query->kind == QUERY_CHAT && sampling->logprobs < 0)
        sampling->logprobs = 0;
    if (query_scores(query) && (query->params.stream || sampling->logprobs > 1)) {
        snprintf(query->param, sizeof(query->param), query->params.stream ? "stream" : "logprobs");
        return error_set(error, ERR_UNSUPPORTED, "echo with logprobs: %s",
                         query->params.stream ? "streams are not supported"
                                              : "prompts have no more than the likeliest token, 1");
    }
    if (query->max_given && sampling->max_tokens == 0) {
        snprintf(query->param, sizeof(query->param), "max_tokens");
        return error_set(error, ERR_BAD_VALUE, "max_tokens must be at least 1");
    }
    if (strcmp(json_string(json_get(query->document, "tool_choice")), "none") == 0)
        query->chat.tools = NULL;
    return sampling_check(sampling, error);
}

int query_read(struct query *query, enum query_kind kind, const char *body, size_t length,
               const struct message_limits *limits, const struct sampling *defaults,
               struct error *error)
{
    const struct json_bounds bounds = {
        .bytes_max = length, .depth_max = QUERY_DEPTH_MAX, .values_max = QUERY_VALUES_MAX};
    *query = (struct query){.kind = kind, .common.sampling = *defaults, .add_special = true};
    chat_prompt_init(&query->chat);
    int rc = json_parse(body, length, bounds, &query->document, error);
    if (!rc && !json_is_object(query->document))
        rc = error_set(error, ERR_BAD_HEAD, "the body is no JSON object");
    if (!rc)
        for (const json *item = json_child(query->document); !rc && item; item = json_next(item))
            rc = read_member(query, item, limits, error);
    if (!rc)
        rc = check(query, error);
    if (!rc)
        keep_borrowed(query);
    if (!rc && query->chat.messages) {
        snprintf(query->param, sizeof(query->param), "messages");
        rc = chat_prompt_check(&query->chat, error);
    }
    if (rc) {
        char param[QUERY_PARAM_MAX];
        memcpy(param, query->param, sizeof(param));
        query_free(query);
        memcpy(query->param, param, sizeof(param));
    }
    return rc;
}

static void free_prompts(struct query *query)
{
    for (uint32_t i = 0; i < query->prompt_count; i++)
        free(query->prompts[i].tokens);
    free(query->prompts);
    query->prompts = NULL;
    query->prompt_count = 0;
}

int query_render(struct query *query, const struct model_text *model_text, const struct halt *halt,
                 struct error *error)
{
    size_t length;
    snprintf(query->param, sizeof(query->param), "messages");
    int rc = chat_prompt_render(&query->chat, model_text, halt, &query->rendered, &length, error);
    chat_prompt_free(&query->chat);
    free_prompts(query); /* one beside a conversation counts for nothing */
    keep_borrowed(query);
    if (rc)
        return rc;
    query->prompts = malloc(sizeof(*query->prompts));
    if (!query->prompts)
        return error_set(error, ERR_NO_MEMORY, "no memory for a prompt");
    query->prompts[0] = (struct query_prompt){.text = query->rendered, .length = length};
    query->prompt_count = 1;
    query->add_special = false; /* templates write them */
    return 0;
}

void query_encoded(struct query *query)
{
    if (query->rendered)
        query->prompts[0].text = NULL;
    free(query->rendered);
    query->rendered = NULL;
}

void query_free(struct query *query)
{
    free_prompts(query);
    free(query->rendered);
    chat_prompt_free(&query->chat);
    json_free(query->document);
    *query = (struct query){0};
}
