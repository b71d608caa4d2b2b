/* Queries: the bodies of HTTP requests, read into what the daemon's own messages hold.
 *
 * What is known stands in daemon/http/query/field.def; a field that is null counts as not given,
 * and one that is not known is refused by name. What is read may take 40 times as much as the body:
 * all is freed that nothing borrows from, and a conversation is made a text before the query is
 * handed on. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/request/chat_prompt.h"
#include "protocol/base/error.h"
#include "protocol/base/json.h"
#include "protocol/message.h"

#define QUERY_DEPTH_MAX 32
#define QUERY_PARAM_MAX 64
#define QUERY_VALUES_MAX (1u << 20) /* JSON values of a body: some 80 MiB */
#define QUERY_COMPLETION_TOKENS 16  /* what a completion has where neither request nor model say */

enum query_kind {
    QUERY_COMPLETION,
    QUERY_CHAT,
    QUERY_EMBEDDING,
    QUERY_TOKENIZE,
    QUERY_DETOKENIZE,
    QUERY_ADAPTER, /* one that comes or goes */
    QUERY_RERANK,
    QUERY_SCORE,
    QUERY_CLASSIFY,
    QUERY_RESPONSES,
    QUERY_MESSAGES,     /* Anthropic's */
    QUERY_COUNT_TOKENS, /* of such messages */
    QUERY_KINDS
};

/* Requests that are conversations, whatever they are called. */
static inline bool query_talks(enum query_kind kind)
{
    return kind == QUERY_CHAT || kind >= QUERY_RESPONSES;
}

/* Requests that want pairs of texts scored. */
static inline bool query_pairs(enum query_kind kind)
{
    return kind == QUERY_RERANK || kind == QUERY_SCORE;
}

/* Requests that ask the device for nothing. */
static inline bool query_looks_up(enum query_kind kind)
{
    return kind == QUERY_TOKENIZE || kind == QUERY_DETOKENIZE || kind == QUERY_COUNT_TOKENS ||
           kind == QUERY_ADAPTER;
}

struct query_prompt {
    const char *text; /* NULL: tokens */
    size_t length;
    int32_t *tokens; /* owned */
    uint32_t count;
};

enum tool_choice { TOOL_CHOICE_AUTO, TOOL_CHOICE_NONE, TOOL_CHOICE_REQUIRED };

#define QUERY_NO_BUDGET UINT32_MAX

/* Borrows from the document, until the conversation is rendered. */
struct query_tool {
    const char *name;
    const json *parameters; /* NULL: not given */
    bool strict;
    uint8_t *types; /* owned; of its parameters, where the model writes them without quotes */
    size_t count;
};

/* What a request's answers may call, and how they are read (query_tools.h). */
struct query_tools {
    enum tool_choice choice;
    struct query_tool *list; /* owned; NULL once the conversation is rendered */
    uint32_t count;
    char *names, *types; /* owned; as answer_reader's */
    char only[65];       /* the one that must be called; "": any */
    bool one_call, strict;
    uint32_t budget; /* tokens after which thought is closed, or none */
    bool reads;      /* answers are taken apart */
    bool thinks;     /* the prompt ends amid what the model thinks */
};

struct query_ranked {
    uint32_t index;
    double score;
};

/* Pairs of texts: what is looked for, one for all documents or one for each; the documents are the
 * query's prompts. */
struct query_pairs {
    struct query_prompt *queries; /* owned; texts alone */
    uint32_t query_count;
    struct query_ranked *ranked; /* owned; of QUERY_RERANK: room for the order of its documents */
    const char *instruction;     /* NULL: not given */
    uint32_t top_n;              /* 0: all are told */
    bool no_documents;           /* texts are not told again */
    bool log_odds; /* instead of probabilities, and what a head gives; of QUERY_CLASSIFY, too */
};

struct query {
    enum query_kind kind;
    json *document;                    /* owned; what is borrowed from: the rest of it was freed */
    const char *model;                 /* NULL: not given */
    const char *lora_name, *lora_path; /* of QUERY_ADAPTER */
    bool include_usage, continuous_usage, echo, base64;
    bool add_special;
    bool token_ids;          /* tokens are told as numbers, too */
    bool token_strs;         /* /tokenize: tokens as texts, too */
    bool tokens_as_ids;      /* log-probabilities name tokens by their numbers */
    bool prompt_only;        /* max_tokens 0: the answer tells of the prompt alone */
    int32_t prompt_logprobs; /* of the prompt's tokens: so many likeliest; -1: none */
    uint32_t dimensions;     /* 0: not given */
    bool logprobs;           /* chat says by a second field how many */
    bool max_given;
    struct request_params params; /* stream, priority and deadline; the job follows from the kind */
    struct message_prompt common; /* sampling, stop strings and tokens, bias */
    struct message_constraint constraint; /* of the answers; its text is constraint_text */
    char *constraint_text;                /* owned */
    struct query_tools tools;
    char *told; /* owned; what of the request its answer tells again, as JSON; NULL: nothing */
    const char *constraint_field; /* who asked for it */
    struct query_pairs pairs;     /* of QUERY_RERANK and QUERY_SCORE */
    struct query_prompt *prompts;
    uint32_t prompt_count;
    struct chat_prompt chat;     /* messages NULL: there is none; borrows from the document */
    char *rendered;              /* owned; what the one prompt is then: the conversation's text */
    char param[QUERY_PARAM_MAX]; /* the field that an error is about; "" */
};

#define QUERY_NEEDS_MAX 2
/* The fields without which a request is none, by number from 0; NULL: there is no more. None at
 * all: one of two. */
const char *query_needs(enum query_kind kind, unsigned number);
/* On failure the query need not be freed, and its `param` is set. */
int query_read(struct query *query, enum query_kind kind, const char *body, size_t length,
               const struct message_limits *limits, const struct sampling *defaults,
               struct error *error);
/* The query's conversation becomes its prompt, by the template of `model_text`, which has one; also
 * on failure it is gone. May take long. */
int query_render(struct query *query, const struct model_text *model_text, const struct halt *halt,
                 struct error *error);
/* The prompts have become tokens: frees the conversation's text. */
void query_encoded(struct query *query);
void query_free(struct query *query); /* zeroed memory is allowed */

/* Results in all. */
static inline uint64_t query_results(const struct query *query)
{
    return (uint64_t)query->prompt_count * query->common.sampling.n;
}

/* With how many of the likeliest the tokens of the prompts are to be told; -1: they are not. */
static inline int32_t query_score_tops(const struct query *query)
{
    int32_t echoed = query->echo ? query->common.sampling.logprobs : -1;
    return echoed > query->prompt_logprobs ? echoed : query->prompt_logprobs;
}

/* Whether the log-probabilities of the prompts are asked for, too. */
static inline bool query_scores(const struct query *query)
{
    return query_score_tops(query) >= 0;
}
