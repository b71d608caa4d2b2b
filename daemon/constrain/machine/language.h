/* Texts that several grammars let in and others do not, as part of one more grammar: a product of
 * their automata, made state by state. For what is regular: patterns, formats, names, lengths.
 *
 * At most LANGUAGE_NODES_MAX states and LANGUAGE_STEPS_MAX steps, or it fails as unsupported with
 * the words of the caller. One thread.
 *
 * A part that is known by a text is kept in a store, with the states that were made of it, for the
 * next language that has it: at most LANGUAGE_STORE_MAX of LANGUAGE_STORE_BYTES in all, besides
 * those that a language holds. The store lives longer than its languages.
 */
#pragma once

#include "daemon/constrain/machine/machine.h"

#define LANGUAGE_PARTS_MAX 12u
#define LANGUAGE_NODES_MAX 16000u
#define LANGUAGE_STEPS_MAX (3u << 20)
#define LANGUAGE_STORE_MAX 64u
#define LANGUAGE_STORE_BYTES ((size_t)8 << 20)

struct language_set { /* the texts of one grammar */
    struct grammar grammar;
    struct machine machine;
    bool empty; /* there are none */
    /* Of one that a store keeps: */
    struct language_store *store;
    struct language_set *next;
    uint32_t users; /* languages that have it */
    uint32_t kind;
    uint64_t hash;
    char *text;
};

struct language_store {
    struct language_set *sets;
    uint32_t count;
};

struct language_part {
    struct language_set *set, own; /* set: a store's, or own */
    bool except;                   /* texts of it are left out */
};

struct language {
    struct language_part parts[LANGUAGE_PARTS_MAX];
    uint32_t count;
    uint64_t steps; /* so far: the work that was done */
    struct error error;
};

/* Of a text that a part, or a rule made of parts, is known by (FNV-1a). No secret: what is found by
 * it is compared. */
static inline uint64_t language_hash(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 1099511628211u;
    return hash;
}
void language_free(struct language *language);
/* The grammar that a part is to be built in, or NULL: there are too many. The start is node 0. */
struct grammar *language_part(struct language *language, bool except);
/* The same of one that is known by a text and what kind of text that is. *ret_known: the store has
 * it, and nothing is to be built or ended. */
struct grammar *language_part_kept(struct language *language, bool except,
                                   struct language_store *store, const char *text, uint32_t kind,
                                   bool *ret_known);
/* The part that was built last ends at `end`. 0, or a code with the text in language->error. */
int language_end(struct language *language, uint32_t end);
/* Into `grammar`, from `from`: the node behind it. `character`: that grammar's rule of a character,
 * where the texts stand in quotes, for what may be any up to its end; else GRAMMAR_NONE. */
uint32_t language_put(struct language *language, struct grammar *grammar, uint32_t from,
                      uint32_t character, const char *what);
/* Whether the text is one of them; *ret_failed: a limit was met, and nobody knows. */
bool language_has(struct language *language, const char *text, size_t length, bool *ret_failed);
void language_store_free(struct language_store *store);
