/* Taking schemas apart, between schema_expand.c and schema_choice.c. One thread. */
#pragma once

#include "daemon/constrain/schema/schema_inner.h"

#define EXPAND_WAYS_MAX 1024u
#define EXPAND_DEPTH_MAX 128u /* choices within each other */

enum choice_kind {
    CHOICE_ANY,
    CHOICE_ONE,
    CHOICE_IF,
    CHOICE_DEPENDENT,
    CHOICE_NONE,              /* allOf, denied: one of them is */
    CHOICE_DENIED_SCHEMA,     /* one of its keywords is */
    CHOICE_DENIED_REQUIRED,   /* one of the names is not there */
    CHOICE_DENIED_PROPERTIES, /* one is there, and wrong */
};

struct choice {
    enum choice_kind kind;
    const json *subject, *first; /* first: of what to choose from; NULL: two ways */
    uint32_t up;
};

struct todo {
    struct part part;
    uint32_t up; /* in `seen`, from 1: what it was found in */
};

struct seen {
    const json *schema;
    bool denied;
    uint32_t up;
};

struct expansion {
    struct schema_reader *reader;
    const struct schema_ways *ways;
    const struct schema_path *path;
    struct todo *todo;
    struct part *done;
    struct seen *seen;
    struct choice *choices;
    uint32_t todo_room, done_room, seen_room, choices_room;
    struct counts {
        uint32_t todo, next, done, seen, choices, choice;
        uint32_t pruned; /* of done, when members were last looked at */
        unsigned types;
    } counts;
    uint32_t up, depth, within, ways_made;
};

void expand_later(struct expansion *at, struct part part);
void expand_keep(struct expansion *at, struct part part);
void expand_choose(struct expansion *at, enum choice_kind kind, const json *subject,
                   const json *first);
void expand_types(struct expansion *at, unsigned types);
void expand_keyword(struct expansion *at, const json *schema, const json *member,
                    const struct keyword *keyword);

void expand_denied(struct expansion *at, const json *schema);
void expand_denied_keyword(struct expansion *at, const json *schema, const json *member);
/* What the branch adds is to do. */
void expand_branch(struct expansion *at, const struct choice *choice, const json *one, uint32_t i);
