/* An object's members, gathered from all that is said of them: between schema_object.c and
 * schema_members.c. One thread. */
#pragma once

#include "daemon/constrain/schema/schema_inner.h"

#define KEY_PATTERNS_MAX 4u /* of one object's names: each set of them is a class of names */

struct member {
    const char *name;
    bool required, forbidden;
};

struct key_pattern {
    const char *text;
    struct language *language;
};

struct members {
    struct schema_reader *reader;
    const struct way *way;
    struct member *list;
    uint32_t count, room, min, max;
    uint32_t others_end;
    bool closed;     /* no other names */
    bool names_said; /* propertyNames */
    struct key_pattern patterns[KEY_PATTERNS_MAX];
    uint32_t patterns_count;
};

bool members_gather(struct members *members);
void members_free(struct members *members);
uint32_t members_value(struct members *members, uint32_t from, const struct member *member);
/* A rule of what is not in the list, a name and a value. */
uint32_t members_others(struct members *members);
/* A name in quotes that is none of the list, in its one form. */
uint32_t members_other_keys(struct members *members, uint32_t from);
