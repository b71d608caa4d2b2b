#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_members.h"

struct name {
    const char *text;
    size_t length;
};

static int by_text(const void *left, const void *right)
{
    return strcmp(((const struct name *)left)->text, ((const struct name *)right)->text);
}

static void other_key(struct grammar *grammar, uint32_t node, uint32_t rest, uint32_t end,
                      const struct name *names, size_t count, size_t at, unsigned depth);

static void put_one(struct grammar *grammar, uint32_t node, uint32_t to, uint32_t character)
{
    struct character_set one;
    character_none(&one);
    character_add(&one, character, character);
    character_edges(grammar, node, to, &one, CHARACTER_IN_JSON);
}

/* Each character that names have next, behind which their rest stands; into `taken`, if that is
 * wanted, instead. */
static void each_next(struct grammar *grammar, uint32_t node, uint32_t rest, uint32_t end,
                      const struct name *names, size_t count, size_t at, unsigned depth,
                      struct character_set *taken)
{
    for (size_t i = 0; i < count && !grammar->code;) {
        uint32_t character = 0, other = 0;
        size_t next = at, begin_at = i;
        character_next(names[i].text, names[i].length, &next, &character);
        for (i++; i < count; i++) {
            size_t same = at;
            if (!character_next(names[i].text, names[i].length, &same, &other) ||
                other != character)
                break;
        }
        if (taken) {
            character_add(taken, character, character);
            continue;
        }
        uint32_t to = grammar_node(grammar);
        put_one(grammar, node, to, character);
        other_key(grammar, to, rest, end, names + begin_at, i - begin_at, next, depth + 1);
    }
}

/* In a function of its own: its set is large, and is gone when what follows goes deeper. */
__attribute__((noinline)) static void put_others(struct grammar *grammar, uint32_t node,
                                                 uint32_t rest, const struct name *names,
                                                 size_t count, size_t at)
{
    struct character_set taken;
    character_none(&taken);
    each_next(grammar, node, rest, GRAMMAR_NONE, names, count, at, 0, &taken);
    character_invert(&taken);
    character_edges(grammar, node, rest, &taken, CHARACTER_IN_JSON);
}

/* A key that is none of the names, sorted, which agree up to `at`: goes on to `rest` at the first
 * character that none of them has. In the one form that a key has here, so no escape gets round. */
static void other_key(struct grammar *grammar, uint32_t node, uint32_t rest, uint32_t end,
                      const struct name *names, size_t count, size_t at, unsigned depth)
{
    if (depth > 128) {
        grammar_fail(grammar, ERR_TOO_LARGE, "schema: a property's name of over 128 characters");
        return;
    }
    if (count > 0 && names[0].length == at) {
        names++; /* it is this name: may not end here */
        count--;
    } else {
        grammar_bytes(grammar, node, end, '"', '"');
    }
    put_others(grammar, node, rest, names, count, at);
    each_next(grammar, node, rest, end, names, count, at, depth, NULL);
}

uint32_t members_other_keys(struct members *members, uint32_t from)
{
    struct grammar *grammar = members->reader->grammar;
    struct name *names = malloc((members->count + 1) * sizeof(*names));
    if (!names) {
        grammar_fail(grammar, ERR_NO_MEMORY, "no memory for a constraint");
        return from;
    }
    for (uint32_t i = 0; i < members->count; i++)
        names[i] = (struct name){members->list[i].name, strlen(members->list[i].name)};
    qsort(names, members->count, sizeof(*names), by_text);
    uint32_t open = grammar_word(grammar, from, "\""), rest = grammar_node(grammar);
    uint32_t end = grammar_node(grammar);
    uint32_t more = grammar_call(grammar, rest, GRAMMAR_NONE, json_canonical_rule(grammar), 0,
                                 GRAMMAR_UNBOUNDED);
    grammar_bytes(grammar, more, end, '"', '"');
    other_key(grammar, open, rest, end, names, members->count, 0, 0);
    free(names);
    return end;
}
