/* What reads each field of a body, and the table of them all. */
#include "daemon/http/query/query_field.h"

#include "daemon/http/query/query_constraint.h"
#include "daemon/http/query/query_convert.h"
#include "daemon/http/query/query_pairs.h"
#include "daemon/http/query/query_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/message_sampling.h"

static int wrong(const struct reading *reading, const char *expected)
{
    return error_set(reading->error, ERR_BAD_VALUE, "%s must be %s", reading->field->name,
                     expected);
}

/* What its line of the table says is taken, and why no more. */
static int not_taken(const struct reading *reading)
{
    const struct query_field *field = reading->field;
    if (!field->takes[0])
        return error_set(reading->error, ERR_UNSUPPORTED, "%s is not supported: %s", field->name,
                         field->meaning);
    return error_set(reading->error, ERR_UNSUPPORTED, "%s must be %s: %s", field->name,
                     field->takes, field->meaning);
}

static int refuse(const struct reading *reading, const json *value)
{
    (void)value;
    return not_taken(reading);
}

static int ignore(const struct reading *reading, const json *value)
{
    (void)reading;
    (void)value;
    return 0;
}

static int flag_of(const struct reading *reading, const json *value, bool *ret)
{
    if (!json_is_bool(value))
        return error_set(reading->error, ERR_BAD_VALUE, "%s must be true or false",
                         json_key(value));
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
static int read_prompt(const struct reading *reading, const json *value)
{
    struct query *query = reading->query;
    const struct message_limits *limits = reading->limits;
    struct error *error = reading->error;
    static const char kinds[] = "a string, a list of strings, or tokens";
    const json *first = json_child(value);
    bool list = json_is_array(value);
    bool many = list && first && !json_is_number(first);
    if (!list && !json_is_string(value))
        return wrong(reading, kinds);
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
            return wrong(reading, "all strings, or all lists of tokens");
        rc = texts ? read_text(prompt, item, error)
                   : read_tokens(prompt, item, limits->vocabulary, error);
    }
    return rc;
}

static int read_token_list(const struct reading *reading, const json *value)
{
    struct query *query = reading->query;
    if (!json_is_array(value))
        return wrong(reading, "a list of tokens");
    int rc = make_prompts(query, 1, reading->limits, reading->error);
    return !rc && json_child(value)
               ? read_tokens(&query->prompts[0], value, reading->limits->vocabulary, reading->error)
               : rc;
}

/* ---- single fields -----------------------------------------------------------------------------
 */

static int read_model(const struct reading *reading, const json *value)
{
    if (!json_is_string(value))
        return wrong(reading, "a string");
    reading->query->model = json_string(value);
    return 0;
}

static int read_lora_name(const struct reading *reading, const json *value)
{
    reading->query->lora_name = json_string(value);
    return json_is_string(value) ? 0 : wrong(reading, "a string");
}

static int read_lora_path(const struct reading *reading, const json *value)
{
    reading->query->lora_path = json_string(value);
    return json_is_string(value) ? 0 : wrong(reading, "a string");
}

#define FLAG(name, member)                                                                         \
    static int read_##name(const struct reading *reading, const json *value)                       \
    {                                                                                              \
        return flag_of(reading, value, &reading->query->member);                                   \
    }
FLAG(stream, params.stream)
FLAG(echo, echo)
FLAG(add_special, add_special)
FLAG(logprobs_flag, logprobs)
FLAG(return_token_ids, token_ids)
FLAG(tokens_as_ids, tokens_as_ids)
FLAG(token_strs, token_strs)

static int read_stream_options(const struct reading *reading, const json *value)
{
    struct query *query = reading->query;
    bool ignored;
    const struct {
        const char *name;
        bool *flag;
    } options[] = {{"include_usage", &query->include_usage},
                   {"continuous_usage_stats", &query->continuous_usage},
                   {"include_obfuscation", &ignored}};
    if (!json_is_object(value))
        return wrong(reading, "an object");
    for (const json *item = json_child(value); item; item = json_next(item)) {
        bool *flag = NULL;
        for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
            if (strcmp(json_key(item), options[i].name) == 0)
                flag = options[i].flag;
        if (!flag)
            return error_set(reading->error, ERR_UNKNOWN_FIELD, "stream_options.%.32s is not known",
                             json_key(item));
        int rc = json_is_null(item) ? 0 : flag_of(reading, item, flag);
        if (rc)
            return rc;
    }
    return 0;
}

/* One that the daemon's own protocol has by this name. */
static int read_sampling(const struct reading *reading, const json *value)
{
    bool known;
    return sampling_read(value, reading->limits, &reading->query->common, &known, reading->error);
}

static int read_top_k(const struct reading *reading, const json *value)
{
    if (json_is_number(value) && json_number(value) == -1) {
        reading->query->common.sampling.sampler.top_k = 0; /* others write "off" so */
        return 0;
    }
    return read_sampling(reading, value);
}

static int integer_of(const struct reading *reading, const json *value, int64_t min, int64_t max,
                      int64_t *ret)
{
    return json_integer(value, reading->field->name, min, max, ret, reading->error);
}

static int read_max_tokens(const struct reading *reading, const json *value)
{
    int64_t max;
    int rc = integer_of(reading, value, 0, INT32_MAX, &max);
    if (rc)
        return rc;
    reading->query->common.sampling.max_tokens = (uint32_t)max;
    reading->query->max_given = true;
    return 0;
}

static int read_stop(const struct reading *reading, const json *value)
{
    struct message_prompt *common = &reading->query->common;
    if (!json_is_string(value))
        return read_sampling(reading, value);
    size_t length = strlen(json_string(value));
    if (length == 0 || length > MESSAGE_STOP_BYTES_MAX)
        return error_limit(reading->error, ERR_BAD_VALUE, MESSAGE_STOP_BYTES_MAX, length,
                           "stop must have 1 to %d bytes", MESSAGE_STOP_BYTES_MAX);
    common->stop_count = 1;
    common->stop[0] = json_string(value);
    common->stop_length[0] = (uint32_t)length;
    return 0;
}

static int read_top_logprobs(const struct reading *reading, const json *value)
{
    int64_t count;
    int rc = integer_of(reading, value, 0, reading->limits->logprobs_max, &count);
    if (!rc)
        reading->query->common.sampling.logprobs = (int32_t)count;
    return rc;
}

static int read_prompt_logprobs(const struct reading *reading, const json *value)
{
    int64_t count;
    int rc = integer_of(reading, value, 0, reading->limits->logprobs_max, &count);
    if (!rc)
        reading->query->prompt_logprobs = (int32_t)count;
    return rc;
}

static int read_priority(const struct reading *reading, const json *value)
{
    return message_priority(value, &reading->query->params.priority, reading->error);
}

static int read_cache(const struct reading *reading, const json *value)
{
    bool cache = true;
    int rc = flag_of(reading, value, &cache);
    reading->query->params.no_cache = !cache;
    return rc;
}

static int read_speculate(const struct reading *reading, const json *value)
{
    bool guesses = true;
    int rc = flag_of(reading, value, &guesses);
    reading->query->params.no_drafts = !guesses;
    return rc;
}

static int read_cache_salt(const struct reading *reading, const json *value)
{
    return message_salt(value, &reading->query->params.cache_salt, reading->error);
}

static int read_deadline(const struct reading *reading, const json *value)
{
    return message_deadline(value, &reading->query->params.deadline_ms, reading->error);
}

/* Whether it is the model's width is only known where the model is. */
static int read_dimensions(const struct reading *reading, const json *value)
{
    int64_t dimensions;
    int rc = integer_of(reading, value, 1, INT32_MAX, &dimensions);
    if (!rc)
        reading->query->dimensions = (uint32_t)dimensions;
    return rc;
}

static int read_encoding_format(const struct reading *reading, const json *value)
{
    reading->query->base64 = strcmp(json_string(value), "base64") == 0;
    return reading->query->base64 || strcmp(json_string(value), "float") == 0
               ? 0
               : wrong(reading, "\"float\" or \"base64\"");
}

static int read_chat(const struct reading *reading, const json *value)
{
    bool known;
    return chat_prompt_field(&reading->query->chat, value, &known, reading->error);
}

static int read_boolean(const struct reading *reading, const json *value)
{
    return json_is_bool(value) ? 0 : wrong(reading, "true or false");
}

static int read_string(const struct reading *reading, const json *value)
{
    return json_is_string(value) ? 0 : wrong(reading, "a string");
}

/* ---- fields of which one value is taken --------------------------------------------------------
 */

static int read_one(const struct reading *reading, const json *value)
{
    return json_is_number(value) && json_number(value) == 1 ? 0 : not_taken(reading);
}

static int read_true(const struct reading *reading, const json *value)
{
    return json_bool(value) ? 0 : not_taken(reading);
}

static int read_false(const struct reading *reading, const json *value)
{
    return json_is_bool(value) && !json_bool(value) ? 0 : not_taken(reading);
}

static int read_no_list(const struct reading *reading, const json *value)
{
    return json_is_array(value) && !json_child(value) ? 0 : not_taken(reading);
}

/* Read once all fields are known (query_convert.h). */
static int read_later(const struct reading *reading, const json *value)
{
    (void)reading;
    (void)value;
    return 0;
}

static int read_stop_sequences(const struct reading *reading, const json *value)
{
    struct message_prompt *common = &reading->query->common;
    if (!json_is_array(value))
        return wrong(reading, "a list of strings");
    common->stop_count = 0;
    for (const json *item = json_child(value); item; item = json_next(item)) {
        size_t length = strlen(json_string(item));
        if (length == 0 || length > MESSAGE_STOP_BYTES_MAX ||
            common->stop_count == reading->limits->stop_max)
            return error_limit(reading->error, ERR_BAD_VALUE, MESSAGE_STOP_BYTES_MAX, length,
                               "stop_sequences must be up to %u strings of 1 to %d bytes",
                               reading->limits->stop_max, MESSAGE_STOP_BYTES_MAX);
        common->stop[common->stop_count] = json_string(item);
        common->stop_length[common->stop_count++] = (uint32_t)length;
    }
    return 0;
}

static int read_truncation(const struct reading *reading, const json *value)
{
    return strcmp(json_string(value), "disabled") == 0 ? 0 : not_taken(reading);
}

static int read_nothing_more(const struct reading *reading, const json *value)
{
    return json_is_number(value) && json_number(value) == 0 ? 0 : not_taken(reading);
}

static int read_service_tier(const struct reading *reading, const json *value)
{
    const char *tier = json_string(value);
    return strcmp(tier, "auto") == 0 || strcmp(tier, "default") == 0 ||
                   strcmp(tier, "standard_only") == 0
               ? 0
               : not_taken(reading);
}

static int read_verbosity(const struct reading *reading, const json *value)
{
    return strcmp(json_string(value), "medium") == 0 ? 0 : not_taken(reading);
}

static int read_modalities(const struct reading *reading, const json *value)
{
    bool text = json_is_array(value) && json_count(value) == 1 &&
                strcmp(json_string(json_child(value)), "text") == 0;
    return text ? 0 : not_taken(reading);
}

/* ---- the table ---------------------------------------------------------------------------------
 */

#define COMPLETION (1u << QUERY_COMPLETION)
#define CHAT (1u << QUERY_CHAT)
#define EMBEDDING (1u << QUERY_EMBEDDING)
#define TOKENIZE (1u << QUERY_TOKENIZE)
#define DETOKENIZE (1u << QUERY_DETOKENIZE)
#define RESPONSES (1u << QUERY_RESPONSES)
#define MESSAGES (1u << QUERY_MESSAGES)
#define COUNT (1u << QUERY_COUNT_TOKENS)
#define GENERATE (COMPLETION | CHAT)
#define LISTS (RESPONSES | MESSAGES) /* whose answers are lists of items */
#define ADAPTER (1u << QUERY_ADAPTER)
#define RERANK (1u << QUERY_RERANK)
#define SCORE (1u << QUERY_SCORE)
#define PAIRS (RERANK | SCORE)
#define CLASSIFY (1u << QUERY_CLASSIFY)
#define ROWS (EMBEDDING | PAIRS | CLASSIFY) /* whose answers are numbers for texts */
#define EVERY QUERY_FIELD_EVERY

static const struct query_field fields[] = {
#define FIELD(name, requests, reader, taken, meaning) {name, requests, reader, taken, meaning},
#include "daemon/http/query/field.def"
#undef FIELD
};

const struct query_field *query_fields(size_t *ret_count)
{
    *ret_count = sizeof(fields) / sizeof(fields[0]);
    return fields;
}

const struct query_field *query_field_find(const char *name, enum query_kind kind)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].kinds & 1u << kind && strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}
