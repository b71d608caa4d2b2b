#include "daemon/http/query/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http/query/query_convert.h"
#include "daemon/http/query/query_field.h"
#include "daemon/http/query/query_pairs.h"
#include "daemon/http/query/query_tools.h"
#include "daemon/request/request_builder.h"
#include "protocol/message_sampling.h"

/* Frees what nothing borrows from: what was read into the query, as tokens are, and what was
 * ignored. The rest stays for as long as the request. */
static void keep_borrowed(struct query *query)
{
    const char *keys[16] = {"model",      "stop",      "logit_bias", "stop_sequences",
                            "cache_salt", "lora_name", "lora_path"};
    size_t count = 7;
    if (query_pairs(query->kind)) {
        keys[count++] = "query";
        keys[count++] = "documents";
        keys[count++] = "text_1";
        keys[count++] = "text_2";
        keys[count++] = "instruction";
    }
    if (query->prompts && query->prompts[0].text) {
        keys[count++] = "prompt";
        keys[count++] = "input";
    }
    if (query->chat.messages && !query->chat.document) {
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
    if (json_is_null(member))
        return 0; /* as if it was not there */
    const struct reading reading = {.query = query,
                                    .field = query_field_find(name, query->kind),
                                    .limits = limits,
                                    .error = error};
    return reading.field ? reading.field->read(&reading, member)
                         : error_set(error, ERR_UNKNOWN_FIELD, "%.64s is not supported", name);
}

static int refused(struct query *query, const char *param, const char *why, struct error *error)
{
    snprintf(query->param, sizeof(query->param), "%s", param);
    return error_set(error, ERR_UNSUPPORTED, "%s: %s", param, why);
}

/* What is told of prompts is told as a whole; with max_tokens 0 it is the answer. */
static int check_scores(struct query *query, struct error *error)
{
    bool scores = query_scores(query);
    if (scores && query->params.stream)
        return refused(query, "stream", "log-probabilities of prompts are not streamed", error);
    if (!query->max_given || query->common.sampling.max_tokens > 0)
        return 0;
    if (!query->echo && !scores) {
        snprintf(query->param, sizeof(query->param), "max_tokens");
        return error_set(error, ERR_BAD_VALUE,
                         "max_tokens must be at least 1 where nothing is asked of the prompt "
                         "(echo, prompt_logprobs)");
    }
    if (query->params.stream)
        return refused(query, "stream", "with max_tokens 0 there is nothing to stream", error);
    if (query->common.sampling.n > 1)
        return refused(query, "n", "with max_tokens 0 all results would be alike", error);
    query->prompt_only = true;
    return 0;
}

static int check_constraint(struct query *query, struct error *error)
{
    const char *field;
    if (query->constraint.kind == MESSAGE_CONSTRAINT_NONE)
        return 0;
    int rc = request_builder_unconstrained(&query->common, &field, error);
    if (rc)
        snprintf(query->param, sizeof(query->param), "%s", field);
    return rc;
}

const char *query_needs(enum query_kind kind, unsigned number)
{
    static const char *const needed[QUERY_KINDS][QUERY_NEEDS_MAX] = {
        [QUERY_COMPLETION] = {"prompt"},     [QUERY_CHAT] = {"messages"},
        [QUERY_EMBEDDING] = {"input"},       [QUERY_DETOKENIZE] = {"tokens"},
        [QUERY_RESPONSES] = {"input"},       [QUERY_MESSAGES] = {"messages", "max_tokens"},
        [QUERY_COUNT_TOKENS] = {"messages"}, [QUERY_ADAPTER] = {"lora_name"},
        [QUERY_CLASSIFY] = {"input"},        [QUERY_RERANK] = {"query", "documents"},
        [QUERY_SCORE] = {"text_1", "text_2"}};
    return number < QUERY_NEEDS_MAX ? needed[kind][number] : NULL;
}

static int check_adapter(struct query *query, struct error *error)
{
    snprintf(query->param, sizeof(query->param), "lora_name");
    return query->lora_name ? 0 : error_set(error, ERR_BAD_VALUE, "lora_name is missing");
}

/* The name of a field that is needed and not there; NULL: all are. */
static const char *missing(const struct query *query)
{
    bool prompts = query_talks(query->kind)
                       ? query->chat.messages != NULL
                       : query->prompts || (query->kind == QUERY_TOKENIZE && query->chat.messages);
    const char *first = query_needs(query->kind, 0), *second = query_needs(query->kind, 1);
    if (query_pairs(query->kind))
        return !query->pairs.queries ? first : !prompts ? second : NULL;
    if (!prompts)
        return first ? first : "prompt";
    return query->kind == QUERY_MESSAGES && !query->max_given ? second : NULL;
}

/* What only holds once all fields are read. */
static int check(struct query *query, struct error *error)
{
    struct sampling *sampling = &query->common.sampling;
    query->param[0] = '\0';
    if (query->kind == QUERY_ADAPTER)
        return check_adapter(query, error);
    const char *lacks = missing(query);
    if (lacks) {
        snprintf(query->param, sizeof(query->param), "%s", lacks);
        return error_set(error, ERR_BAD_VALUE, "%s is missing", lacks);
    }
    if (query_pairs(query->kind))
        return query_pairs_check(query, error);
    if (query_talks(query->kind) && !query->logprobs)
        sampling->logprobs = -1;
    else if (query->kind == QUERY_CHAT && sampling->logprobs < 0)
        sampling->logprobs = 0;
    int rc = check_scores(query, error);
    if (!rc)
        rc = check_constraint(query, error);
    if (rc)
        return rc;
    rc = query_tools_check(query, error);
    return rc ? rc : sampling_check(sampling, error);
}

/* What the fields are read by: a model's vocabulary and defaults. */
static int choose_model(struct query *query, struct message_limits *limits, struct error *error)
{
    const json *model = json_get(query->document, "model");
    if (!limits->choose || !json_is_string(model))
        return 0;
    snprintf(query->param, sizeof(query->param), "model");
    return limits->choose(limits->context, json_string(model), limits, &query->common.sampling,
                          error);
}

int query_read(struct query *query, enum query_kind kind, const char *body, size_t length,
               const struct message_limits *limits, const struct sampling *defaults,
               struct error *error)
{
    const struct json_bounds bounds = {
        .bytes_max = length, .depth_max = QUERY_DEPTH_MAX, .values_max = QUERY_VALUES_MAX};
    *query = (struct query){.kind = kind,
                            .common.sampling = *defaults,
                            .prompt_logprobs = -1,
                            .add_special = true,
                            .tools.budget = QUERY_NO_BUDGET};
    struct message_limits own = *limits;
    chat_prompt_init(&query->chat);
    int rc = json_parse(body, length, bounds, &query->document, error);
    if (!rc && !json_is_object(query->document))
        rc = error_set(error, ERR_BAD_HEAD, "the body is no JSON object");
    if (!rc)
        rc = choose_model(query, &own, error);
    if (!rc)
        for (const json *item = json_child(query->document); !rc && item; item = json_next(item))
            rc = read_member(query, item, &own, error);
    if (!rc && query->kind == QUERY_RESPONSES)
        rc = query_convert(query, query_write_responses, error);
    else if (!rc && (query->kind == QUERY_MESSAGES || query->kind == QUERY_COUNT_TOKENS))
        rc = query_convert(query, query_write_messages, error);
    if (!rc)
        rc = check(query, error);
    if (!rc && query->kind == QUERY_RESPONSES)
        rc = query_keep_told(query, error);
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
    if (!rc && query_talks(query->kind))
        rc = query_tools_render(query, model_text, error);
    query_tools_forget(query);
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
    query_tools_free(query);
    free(query->pairs.queries);
    free(query->pairs.ranked);
    free(query->told);
    free(query->constraint_text);
    free(query->rendered);
    chat_prompt_free(&query->chat);
    json_free(query->document);
    *query = (struct query){0};
}
