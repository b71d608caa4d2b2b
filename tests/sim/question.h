/* Prompts with known answers: what the model says to each, made before the run by computing one
 * sequence after the other. For synthetic:null that is its rule; any other model is asked alone, on
 * an engine of its own, which gives the same bits as a busy one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/adapter_name.h"
#include "gpu/gpu.h"
#include "protocol/message.h"

#define QUESTION_TOPS 4 /* log-probabilities that may be asked for */
#define QUESTION_STOPS 8
#define QUESTION_CHOICE_MAX 12
#define QUESTION_PENALTY (-2.0f) /* frequency_penalty of those that repeat themselves */

struct question {
    int32_t *prompt;
    uint32_t prompt_len;
    char *text;       /* whose tokens the prompt is; NULL: it is none */
    uint32_t adapter; /* number; 0: none */
    float temperature;
    bool repeats; /* what was said is likelier than before: guesses of what follows stand */
    uint64_t seed;
    char choice[QUESTION_CHOICE_MAX + 1]; /* what its answer is constrained to; "": nothing */
    bool ignore_eos;
    uint32_t min_tokens;
    uint32_t stop_id_count;
    int32_t stop_ids[QUESTION_STOPS];
    /* The answer. */
    uint32_t count; /* tokens that are known */
    bool stops;     /* the last of them ends it */
    int32_t *tokens;
    float *logprobs;
    struct gpu_top (*tops)[QUESTION_TOPS];
    struct message_score *scores; /* [prompt_len - 1] */
    float *last, *mean;           /* [hidden], not normalised */
    float *all;                   /* [prompt_len][hidden], or NULL: not known */
};

struct questions {
    char model[256];
    uint32_t number;               /* of its model among those that are served */
    const char *name;              /* that it is asked by; NULL: it is the only one */
    struct adapter_names adapters; /* that questions are asked by turns */
    bool null;                     /* answered by the rule */
    bool texts;                    /* the model takes and gives them */
    uint32_t tp; /* devices that each layer is shared by: other bits than alone, unlike stages */
    bool ep;     /* by whole experts */
    uint32_t vocab, hidden, context_max;
    uint32_t count;
    struct question *question;
};

struct question_model {
    const char *model, *adapters; /* as the options have them */
    uint32_t tp;
    bool ep;
};

/* `random` draws the prompts. A model other than synthetic:null sets up the emulation anew. 0, or a
 * negative code. */
int questions_make(struct questions *questions, const struct question_model *model,
                   uint32_t context_max, uint32_t count, uint64_t *random, struct error *error);
void questions_free(struct questions *questions);
