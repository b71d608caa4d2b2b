/* What an answer with calls, thought or constrained content must be, as a structure of constraints
 * (daemon/constrain/structure.h says what stands in it). Pure.
 */
#pragma once

#include "daemon/answer/answer_form.h"
#include "protocol/base/json.h"

#define ANSWER_NO_BUDGET UINT32_MAX

enum answer_thought {
    ANSWER_THOUGHT_OVER, /* the prompt has closed it, or the model does not think */
    ANSWER_THOUGHT_MAY,  /* it may begin with it */
    ANSWER_THOUGHT_BEGUN /* the prompt has begun it */
};

struct answer_tool {
    const char *name;
    const char *schema;   /* of its arguments, as text; NULL: any object */
    const uint8_t *types; /* of these in their order (argument_types.h), if they are no JSON */
    size_t count;
};

struct answer_structure {
    const struct answer_form *form;
    enum answer_thought thought;
    uint32_t budget; /* tokens after which thought is closed; or none */
    const struct answer_tool *tools;
    uint32_t tool_count; /* 0: no calls */
    bool must_call;
    bool one_call;
    const char *content_kind; /* what content must be, by its name; NULL: any text */
    const char *content;      /* and the text of that */
};

void answer_structure_write(const struct answer_structure *structure, struct json_writer *writer);
