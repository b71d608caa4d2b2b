/* What an EAGLE-3 head of tests/model/heads guesses for its target, see eagle.py there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HEADS_DATA "tests/model/heads/"
#define HEADS_PROMPTS 5
#define HEADS_TOKENS 150
#define HEADS_BEHIND 4 /* tokens behind a prompt */
#define HEADS_STEPS 6
#define HEADS_ACCEPTED 2

enum heads_round {
    HEADS_FIRST,    /* behind the prompt and its next token */
    HEADS_STANDING, /* behind that, the first HEADS_ACCEPTED guesses, and what is drawn then */
    HEADS_OWN,      /* behind the target's own next three */
    HEADS_ROUNDS
};

struct heads_guesses {
    uint32_t count; /* tokens behind the prompt, the last of which is not computed yet */
    int32_t behind[HEADS_BEHIND];
    int32_t tokens[HEADS_STEPS];
    float logprobs[HEADS_STEPS], margins[HEADS_STEPS];
};

struct heads_prompt {
    uint32_t count;
    int32_t tokens[HEADS_TOKENS];
    struct heads_guesses rounds[HEADS_ROUNDS];
};

struct heads {
    char directory[128], target[128];
    struct heads_prompt prompts[HEADS_PROMPTS];
};

bool heads_read(const char *name, struct heads *ret);
