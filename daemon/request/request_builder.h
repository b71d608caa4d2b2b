/* The builder of requests: from typed prompts to a request in the waiting queue, or to an error
 * that says why not. The one way in, for SUBMIT frames and for HTTP.
 *
 * request_builder_open(), then for each prompt request_builder_prompt(), then
 * request_builder_admit(), then request_builder_enter(), which cannot fail. Nothing is kept before
 * that, so a refused batch leaves no trace; request_builder_drop() at any point before
 * request_builder_enter(). loop thread
 */
#pragma once

#include <stdint.h>

#include "daemon/request/request.h"
#include "protocol/message.h"

struct constraint_held;
struct served_model;
struct server;
struct user;

struct request_builder {
    struct server *server;
    struct request
        *request;   /* owned until it is enqueued; the caller sets job, stream and the like */
    uint64_t total; /* what it counts in queue-tokens */
    bool caches;    /* it finds what was computed before, and leaves its own, */
    struct prefix_key root; /* of those who have this */
};

/* Whether new work is taken at all. */
int request_builder_phase(const struct server *server, struct error *error);
/* Whether there is a model for them: a daemon may have programs alone. */
int request_builder_model(const struct server *server, struct error *error);
/* What requests of a model take where they are silent. */
struct sampling request_builder_defaults(const struct served_model *model);
/* What message_decode_submit() and the like check by. */
struct message_limits request_builder_limits(const struct server *server,
                                             const struct served_model *model);

/* model: NULL, of jobs; sequences: how many are expected. */
int request_builder_open(struct request_builder *builder, struct server *server,
                         struct served_model *model, struct response_sink *sink, uint64_t sequences,
                         const struct request_params *params, time_us arrived_us,
                         struct error *error);
/* What all outputs must be, before the first prompt; held by the request as well. NULL: nothing. */
void request_builder_constrain(struct request_builder *builder, struct constraint_held *held);
/* ERR_UNSUPPORTED, and which: the prompt asks for something that no constraint can stand beside. */
int request_builder_unconstrained(const struct message_prompt *prompt, const char **ret_field,
                                  struct error *error);
/* The prompt's n sequences; everything is copied. Tokens are those of the prompt, or of its text.
 */
int request_builder_prompt(struct request_builder *builder, struct message_prompt *prompt,
                           const int32_t *tokens, uint32_t token_count, struct error *error);
/* The whole against what its user may, and against what that and all of them hold. What its results
 * are told as is set. */
int request_builder_admit(struct request_builder *builder, const struct response_sink *sink,
                          struct error *error);
/* The request's daemon-wide number is known from here on. */
void request_builder_name(struct request_builder *builder, uint64_t client_id,
                          const struct user *user);
void request_builder_enter(struct request_builder *builder, struct response_sink *sink);
void request_builder_drop(struct request_builder *builder);
/* Before its texts are read: whether so many sequences would have a place in the queue now. */
int request_builder_room(const struct server *server, const struct user *user, uint64_t sequences,
                         struct error *error);
/* They have it, from now on; and no more. */
void request_builder_hold(struct server *server, struct user *user, uint64_t sequences);
void request_builder_unhold(struct server *server, struct user *user, uint64_t sequences);
/* Counts a refusal, and logs it; or one of both. */
void request_builder_refused(struct server *server, struct user *user, const struct error *error);
/* user: NULL where it is not known */
void request_builder_count_refusal(struct server *server, struct user *user,
                                   const struct error *error);
/* user: the name, or NULL likewise; status: HTTP's, or 0. */
void request_builder_log_refusal(const struct server *server, const char *user, unsigned status,
                                 const struct error *error);
