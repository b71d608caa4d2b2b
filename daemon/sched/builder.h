/* A step in the making: sched_plan.c, and sched_decode.c for the rows of those that decode. Nobody
 * else includes this. */
#pragma once

#include "daemon/sched/sched_inner.h"

struct builder {
    struct sched *sched;
    struct sched_step *step;
    time_us now_us;
    double target_us;      /* bound of the step's cost for further prompt tokens */
    uint32_t prompts_left; /* prompt tokens that do not make steps uneven */
    uint32_t tokens_left, scores_left, embeds_left;
    uint32_t rows_left; /* and samples of guesses */
    uint32_t unread_left; /* tokens that the draft model reads before it guesses */
    uint32_t partial;   /* prompts that this step leaves partly read */
    int32_t priority;   /* the highest of its prompts */
    /* Of the above, kept for prompts whose turn must come. */
    uint32_t tokens_kept, scores_kept, embeds_kept;
};

/* A row of q_len tokens from where the sequence stands; its ids are the caller's. */
struct gpu_row *builder_row(struct builder *b, struct seq *seq, uint32_t q_len,
                            enum gpu_input input);
/* The decode rows that the step takes; those that would make a stage wait, too, where it is empty
 * else. */
void builder_decodes(struct builder *b, bool early_too);
