/* Intake: from typed prompts to a request in the waiting queue, or to an error that says why not.
 * The one way in, for SUBMIT frames and for HTTP.
 *
 * intake_open(), then for each prompt intake_prompt(), then intake_admit(), then intake_enter(),
 * which cannot fail. Nothing is kept before that, so a refused batch leaves no trace; intake_drop()
 * at any point before intake_enter(). loop thread
 */
#pragma once

#include <stdint.h>

#include "daemon/request.h"
#include "protocol/message.h"

struct server;
struct user;

struct intake {
    struct server *server;
    struct request
        *request;   /* owned until it is enqueued; the caller sets job, stream and the like */
    uint64_t total; /* what it counts in queue-tokens */
};

/* Whether new work is taken at all. */
int intake_phase(const struct server *server, struct error *error);
/* What requests take where they are silent. */
struct sampling intake_defaults(const struct server *server);
/* What message_decode_submit() and the like check by. */
struct message_limits intake_limits(const struct server *server);

/* sequences: how many are expected. */
int intake_open(struct intake *intake, struct server *server, uint64_t sequences,
                struct error *error);
/* The prompt's n sequences; everything is copied. Tokens are those of the prompt, or of its text.
 */
int intake_prompt(struct intake *intake, struct message_prompt *prompt, const int32_t *tokens,
                  uint32_t token_count, struct error *error);
/* The whole against what its user may, and against what that and all of them hold. arrived_us,
 * deadline_us, priority and what its results are told as are set. */
int intake_admit(struct intake *intake, const struct audience *audience, struct error *error);
/* The request's daemon-wide number is known from here on. */
void intake_name(struct intake *intake, uint64_t client_id, const struct user *user);
void intake_enter(struct intake *intake, struct audience *audience);
void intake_drop(struct intake *intake);
/* Before its texts are read: whether so many sequences would have a place in the queue now. */
int intake_room(const struct server *server, const struct user *user, uint64_t sequences,
                struct error *error);
/* They have it, from now on; and no more. */
void intake_hold(struct server *server, struct user *user, uint64_t sequences);
void intake_unhold(struct server *server, struct user *user, uint64_t sequences);
/* Counts a refusal. */
void intake_refused(struct server *server, const struct error *error);
