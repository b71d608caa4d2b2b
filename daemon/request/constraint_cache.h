/* Compiled constraints by their text and who asked, those used last: what a request asks for is
 * often what the one before asked for. Users share none, so that nobody can time, or read from what
 * is counted, what another has asked for; nor do the requests of one user that give other salts.
 *
 * Compiling and all that waits for it is done by threads that do no other's work meanwhile
 * (encoder.h); the vocabulary, which is
 * one model's, is made with the first. What is held by nobody but the cache, and not
 * among its last CONSTRAINTS_KEPT, goes; who holds one keeps it alive.
 *
 * Any thread, but make and free.
 */
#pragma once

#include <stdbool.h>

#include "daemon/worker/constraint_held.h"
#include "protocol/base/error.h"
#include "protocol/message.h"

#define CONSTRAINTS_KEPT 128u

/* Whose it is. */
struct constraint_owner {
    uint64_t user; /* is charged */
    uint64_t salt; /* constraint_salt() */
};

struct constraint_cache;
struct gpu_model;
struct tokenizer;

/* bytes_max: all that are there take (constraint_held.h). */
int constraint_cache_make(size_t bytes_max, struct constraint_cache **ret_cache,
                          struct error *error);
/* One for another vocabulary, within the same bytes. */
int constraint_cache_beside(const struct constraint_cache *cache,
                            struct constraint_cache **ret_cache, struct error *error);
/* Nobody compiles any more. What others hold stays theirs. NULL is allowed. */
void constraint_cache_free(struct constraint_cache *cache);

/* Of a request's cache_salt, or NULL. */
uint64_t constraint_salt(const char *salt);
/* Held for the caller; *ret_hit: it was there. May take long. */
int constraint_cache_get(struct constraint_cache *cache, const struct tokenizer *tokenizer,
                         const struct gpu_model *model, const struct message_constraint *constraint,
                         const struct constraint_owner *owner, struct constraint_held **ret_held,
                         bool *ret_hit, struct error *error);
/* From the loop, which has no time to free the last one: the next who compiles does. NULL is
 * allowed. */
void constraint_cache_put(struct constraint_cache *cache, struct constraint_held *held);
