/* HTTP bodies: the first byte says of which request; and conversations of the native protocol. What
 * is accepted keeps within the limits, and a conversation that had to be rewritten is one still.
 * What is found of a deadline before the body is read is what the body says. */
#include <string.h>

#include "daemon/http/exchange.h"
#include "daemon/http/query/query.h"
#include "tests/fuzz/fuzz.h"

#define CONVERSATION 'c' /* as first byte */
#define RERANK 'r'
#define SCORE 's'
#define CLASSIFY 'C'

static void check_prompts(const struct query *query, const struct message_limits *limits)
{
    FUZZ_CHECK(query->prompt_count <= limits->batch_max);
    for (uint32_t i = 0; i < query->prompt_count; i++) {
        const struct query_prompt *prompt = &query->prompts[i];
        FUZZ_CHECK(!prompt->text || strlen(prompt->text) == prompt->length);
        for (uint32_t at = 0; at < prompt->count; at++)
            FUZZ_CHECK((uint32_t)prompt->tokens[at] < limits->vocabulary);
    }
    FUZZ_CHECK(query->prompt_count > 0 || query->chat.messages);
}

static void check_pairs(const struct query *query, const struct message_limits *limits)
{
    const struct query_pairs *pairs = &query->pairs;
    FUZZ_CHECK(pairs->query_count == 1 || pairs->query_count == query->prompt_count);
    FUZZ_CHECK(pairs->query_count <= limits->batch_max);
    for (uint32_t i = 0; i < pairs->query_count; i++)
        FUZZ_CHECK(strlen(pairs->queries[i].text) == pairs->queries[i].length);
    for (uint32_t i = 0; i < query->prompt_count; i++)
        FUZZ_CHECK(query->prompts[i].text != NULL);
    FUZZ_CHECK((pairs->ranked != NULL) == (query->kind == QUERY_RERANK));
}

static enum query_kind kind_of(uint8_t byte)
{
    static const enum query_kind kinds[] = {QUERY_COMPLETION, QUERY_CHAT,       QUERY_EMBEDDING,
                                            QUERY_TOKENIZE,   QUERY_DETOKENIZE, QUERY_ADAPTER,
                                            QUERY_RESPONSES,  QUERY_MESSAGES,   QUERY_COUNT_TOKENS};
    return byte == RERANK     ? QUERY_RERANK
           : byte == SCORE    ? QUERY_SCORE
           : byte == CLASSIFY ? QUERY_CLASSIFY
                              : kinds[byte % (sizeof(kinds) / sizeof(kinds[0]))];
}

static void check_sampling(const struct query *query, const struct message_limits *limits)
{
    const struct message_prompt *common = &query->common;
    FUZZ_CHECK(common->sampling.n >= 1 && common->sampling.n <= limits->n_max);
    FUZZ_CHECK(common->sampling.logprobs <= (int32_t)limits->logprobs_max);
    FUZZ_CHECK(common->stop_count <= limits->stop_max);
    for (uint32_t i = 0; i < common->stop_count; i++)
        FUZZ_CHECK(common->stop_length[i] > 0 && common->stop_length[i] <= MESSAGE_STOP_BYTES_MAX);
    struct message_bias entries[MESSAGE_BIAS_MAX];
    struct error error;
    uint32_t count;
    if (common->bias &&
        message_bias(common->bias, 1000, entries, MESSAGE_BIAS_MAX, &count, &error) == 0)
        FUZZ_CHECK(count == json_count(common->bias));
}

static void check_messages(const struct chat_prompt *chat)
{
    const json *messages = chat->rewritten ? chat->rewritten : chat->messages;
    FUZZ_CHECK(json_is_array(messages) && json_count(messages) > 0);
    FUZZ_CHECK(json_count(messages) == json_count(chat->messages));
    FUZZ_CHECK(!chat->tools || json_is_array(chat->tools));
    FUZZ_CHECK(!chat->extra || json_is_object(chat->extra));
    for (const json *message = json_child(messages); message; message = json_next(message)) {
        FUZZ_CHECK(json_is_string(json_get(message, "role")));
        FUZZ_CHECK(!json_is_array(json_get(message, "content")));
    }
}

static void check_deadline(const struct query *query, const char *body, size_t length)
{
    struct body_deadline deadline = {0};
    hint_read(&deadline, body, length);
    FUZZ_CHECK(deadline.ms == 0 || deadline.ms == query->params.deadline_ms);
}

/* As the native protocol carries it. */
static void check_conversation(const char *text, size_t length)
{
    struct chat_prompt conversation;
    struct error error;
    if (chat_prompt_parse(&conversation, text, length, &error)) {
        FUZZ_CHECK(error.code > 0 && error.text[0]);
        return;
    }
    check_messages(&conversation);
    chat_prompt_free(&conversation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct message_limits limits = {.batch_max = 64,
                                          .n_max = 8,
                                          .logprobs_max = 5,
                                          .stop_max = 4,
                                          .json_depth_max = 8,
                                          .vocabulary = 1000};
    const struct sampling defaults = {
        .sampler.top_p = 1, .sampler.repetition_penalty = 1, .logprobs = -1, .n = 1};
    struct query query;
    struct error error;
    if (size == 0)
        return 0;
    if (data[0] == CONVERSATION) {
        check_conversation((const char *)data + 1, size - 1);
        return 0;
    }
    enum query_kind kind = kind_of(data[0]);
    if (query_read(&query, kind, (const char *)data + 1, size - 1, &limits, &defaults, &error)) {
        FUZZ_CHECK(error.code > 0 && error.text[0]);
        FUZZ_CHECK(memchr(query.param, 0, sizeof(query.param)));
        return 0;
    }
    check_prompts(&query, &limits);
    if (query_pairs(kind))
        check_pairs(&query, &limits);
    check_sampling(&query, &limits);
    if (!query_looks_up(kind))
        check_deadline(&query, (const char *)data + 1, size - 1);
    if (query.chat.messages)
        check_messages(&query.chat);
    query_free(&query);
    return 0;
}
