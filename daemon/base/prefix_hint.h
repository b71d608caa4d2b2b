/* What a replica has cached, as the loop may guess it: a table of marks that the worker sets and
 * takes back while the loop reads, each a word, nothing between them in order. It forgets when it
 * is full, and is late by a turn: good enough to choose a replica by, and to say what a prompt may
 * cost. A prompt that is sent is marked as expected at once, so that others with its beginning
 * follow it; that counts for nothing else, for it may never be computed.
 *
 * worker and loop thread
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/prefix_key.h"

struct prefix_hint {
    _Atomic uint64_t *marks; /* NULL: nothing is ever there */
    uint64_t mask;
};

/* For so many blocks. 0 or -ERR_NO_MEMORY. */
int prefix_hint_init(struct prefix_hint *hint, uint32_t blocks);
void prefix_hint_destroy(struct prefix_hint *hint);

void prefix_hint_put(struct prefix_hint *hint, const struct prefix_key *key);
void prefix_hint_drop(struct prefix_hint *hint, const struct prefix_key *key);
void prefix_hint_expect(struct prefix_hint *hint, const struct prefix_key *keys, uint32_t count);
/* Of the names of a prompt's blocks, how many from the first on are there, about; `expected`: or
 * will be. */
uint32_t prefix_hint_count(const struct prefix_hint *hint, const struct prefix_key *keys,
                           uint32_t count, bool expected);
/* The same of those behind the first `from`, in another table. */
uint32_t prefix_hint_count_behind(const struct prefix_hint *hint, const struct prefix_key *keys,
                                  uint32_t from, uint32_t count);

/* The other way: what prompts that wait will need. Marked when one begins to wait, taken back when
 * that ends, and looked at by who has to give something up. Of a prompt all blocks are marked, or
 * none where there is no room: a gap would be given up, and what is behind it is of no use then.
 *
 * one thread marks and takes back, any looks
 */
struct prefix_wants {
    _Atomic uint32_t *marks; /* NULL: nothing is ever wanted */
    uint64_t mask;
    uint64_t room, most; /* marks that may still be made, of so many; who makes them knows */
};

/* For about so many blocks. 0 or -ERR_NO_MEMORY. */
int prefix_wants_init(struct prefix_wants *wants, uint32_t blocks);
void prefix_wants_destroy(struct prefix_wants *wants);

/* One more wants these blocks. False: nothing was marked. */
bool prefix_wants_add(struct prefix_wants *wants, const struct prefix_key *keys, uint32_t count);
/* One for whom that was true does so no more. */
void prefix_wants_drop(struct prefix_wants *wants, const struct prefix_key *keys, uint32_t count);
/* Whether somebody does, in any of so many tables. */
bool prefix_wants_any(const struct prefix_wants *wants, uint32_t tables,
                      const struct prefix_key *key);
