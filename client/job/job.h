/* A run of generate, score or embed: prompts from a source through the daemon to standard output,
 * in order.
 *
 * Prompts stand in a ring from reading to printing, so memory is bounded whatever the file holds:
 * by JOB_RING prompts and, beyond one, by JOB_HELD_MAX bytes of prompts and results.
 */
#pragma once

#include <stdint.h>

#include "client/job/constraint.h"
#include "client/job/item.h"
#include "client/job/source.h"
#include "client/job/token_names.h"
#include "client/job/window.h"
#include "client/option/option.h"
#include "client/option/settings.h"
#include "client/terminal/output.h"
#include "client/terminal/progress.h"
#include "client/terminal/status.h"

#define JOB_RING 4096u
#define JOB_HELD_MAX (64u << 20)

struct job {
    int kind; /* SLUICE_GENERATE, ... */
    const struct settings *settings;
    struct constraint constraint; /* of all results */
    sluice_client *client;        /* NULL: closed; then `model` is the name that it had */
    char model[128];
    struct source source;
    struct output output;
    struct window window;
    struct progress progress;
    struct token_names names; /* of OpenAI's log-probabilities */
    time_us now_us;           /* of this turn */

    struct item *ring;
    uint64_t first, next; /* numbers of the items in the ring; item i stands at i % JOB_RING */
    uint64_t next_send;   /* no item before it waits */
    uint32_t waiting;
    size_t held;
    bool source_waits, input_over;
    time_us give_up_us; /* after an interrupt; 0 = none came */

    uint64_t index, done, tokens;
    uint64_t printed;      /* bytes of the lines whose results are out */
    uint64_t said, unsaid; /* messages about failed prompts */
    enum status status;    /* of the first prompt, in order, that failed */
};

/* Returns the program's exit status. */
enum status job_run(int kind, const struct option_group *groups, const struct settings *settings);

/* The model that it goes to. */
const char *job_model(const struct job *job, const struct item *item);

/* What items report. */
void job_held(struct job *job, size_t more);
void job_tokens(struct job *job, size_t count);
void job_item_ended(struct job *job, struct item *item);
