/* What transformers says of the checkpoints in tests/model/data, see reference.py there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/json.h"

#define REFERENCE_DATA "tests/model/data"
#define REFERENCES_MAX 256 /* checkpoints */
#define REFERENCE_NAME 64
#define REFERENCE_PROMPTS 8
#define REFERENCE_TOKENS 320
#define REFERENCE_GREEDY 48
#define REFERENCE_HIDDEN 128

struct reference_prompt {
    uint32_t count;
    int32_t tokens[REFERENCE_TOKENS];
    float logprobs[REFERENCE_TOKENS]; /* [count - 1] */
    int32_t greedy[REFERENCE_GREEDY];
    float greedy_logprobs[REFERENCE_GREEDY], margins[REFERENCE_GREEDY];
    bool detailed; /* the following are there */
    int32_t top_ids[REFERENCE_TOKENS];
    float top_logprobs[REFERENCE_TOKENS];
    uint32_t hidden;
    float hidden_last[REFERENCE_HIDDEN], hidden_mean[REFERENCE_HIDDEN];
};

struct reference {
    char directory[256];
    double bf16_mean_error, bf16_max_error;
    bool experts; /* a mixture of them */
    struct reference_prompt prompts[REFERENCE_PROMPTS];
};

/* Of so many checkpoints, and other cases of a kind, one is tested. */
#ifndef ENGINE_CLIENT_THIN
#define ENGINE_CLIENT_THIN 1
#endif
#define ENGINE_CLIENT_TURNS(count) (((int)(count) + ENGINE_CLIENT_THIN - 1) / ENGINE_CLIENT_THIN)

/* The names of the checkpoints to test, all that are there, sorted; their number. */
uint32_t reference_names(char names[REFERENCES_MAX][REFERENCE_NAME]);
/* Of those the first `each` of each family, by what stands before the first "-". */
uint32_t reference_families(char names[REFERENCES_MAX][REFERENCE_NAME], uint32_t each);
/* Of a list of numbers the first `max`; how many there were of them. */
uint32_t reference_floats(const json *list, float *to, uint32_t max);
uint32_t reference_ids(const json *list, int32_t *to, uint32_t max);
bool reference_read(const char *name, struct reference *ret);
