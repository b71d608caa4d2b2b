#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_members.h"

#define COUNT_MAX 256u /* of a bound on the number of members */

/* Members in order: a node for each number of them that have come, up to `cap`, at which counting
 * stops where there is no bound above. GRAMMAR_NONE where no way leads there. */
struct counted {
    uint32_t *at;
    uint32_t cap;
    bool bounded;
};

/* Where a member that makes it `count` begins. */
static uint32_t begin(struct grammar *grammar, const struct counted *counted, uint32_t count)
{
    uint32_t start = GRAMMAR_NONE;
    bool again = count == counted->cap && !counted->bounded;
    for (uint32_t before = count - 1; before <= count - !again; before++) {
        if (counted->at[before] == GRAMMAR_NONE)
            continue;
        if (start == GRAMMAR_NONE)
            start = grammar_node(grammar);
        grammar_nothing(grammar,
                        before ? json_comma(grammar, counted->at[before]) : counted->at[before],
                        start);
    }
    return start;
}

/* A name and a value, as a rule of its own where it stands at several counts. */
static uint32_t put_member(struct members *members, uint32_t from, const struct member *member,
                           uint32_t *rule, bool once)
{
    struct grammar *grammar = members->reader->grammar;
    uint32_t at = from;
    if (!once && *rule != GRAMMAR_NONE)
        return grammar_call(grammar, from, GRAMMAR_NONE, *rule, 1, 1);
    if (!once)
        at = *rule = grammar_node(grammar);
    at = json_colon(grammar, json_quoted(grammar, at, member->name));
    at = members_value(members, at, member);
    if (once)
        return at;
    grammar_final(grammar, at);
    return grammar_call(grammar, from, GRAMMAR_NONE, *rule, 1, 1);
}

static void add_member(struct members *members, struct counted *counted,
                       const struct member *member)
{
    struct grammar *grammar = members->reader->grammar;
    uint32_t rule = GRAMMAR_NONE, next[COUNT_MAX + 1];
    for (uint32_t count = 0; count <= counted->cap; count++) {
        uint32_t start = count ? begin(grammar, counted, count) : GRAMMAR_NONE;
        next[count] = member->required ? GRAMMAR_NONE : counted->at[count];
        if (start == GRAMMAR_NONE)
            continue;
        uint32_t end = put_member(members, start, member, &rule, counted->cap == 1);
        if (next[count] != GRAMMAR_NONE) {
            uint32_t join = grammar_node(grammar);
            grammar_nothing(grammar, next[count], join);
            grammar_nothing(grammar, end, join);
            end = join;
        }
        next[count] = end;
    }
    memcpy(counted->at, next, (counted->cap + 1) * sizeof(uint32_t));
}

/* All that may come behind the members that have names: each class of names with its values. */
static void add_others(struct members *members, struct counted *counted)
{
    struct grammar *grammar = members->reader->grammar;
    uint32_t other = members_others(members), end = grammar_node(grammar), next = GRAMMAR_NONE;
    uint32_t more = grammar_node(grammar); /* with a comma before it */
    grammar_final(grammar,
                  grammar_call(grammar, json_comma(grammar, more), GRAMMAR_NONE, other, 1, 1));
    for (uint32_t count = 0; count <= counted->cap; count++) {
        uint32_t from = counted->at[count];
        uint32_t room = counted->bounded ? counted->cap - count : GRAMMAR_UNBOUNDED;
        if (from == GRAMMAR_NONE || room == 0)
            continue;
        if (count == 0 && counted->cap > 0) {
            from = grammar_call(grammar, from, GRAMMAR_NONE, other, 1, 1);
            room -= counted->bounded;
        }
        uint32_t to = grammar_call(grammar, from, GRAMMAR_NONE, more, 0, room);
        if (count + 1 >= members->min)
            grammar_nothing(grammar, to, end);
        next = end;
    }
    members->others_end = next;
}

static bool counts(struct members *members, struct counted *counted)
{
    uint32_t required = 0;
    for (uint32_t i = 0; i < members->count; i++)
        required += members->list[i].required;
    if (members->min <= required)
        members->min = 0;
    if (members->max != GRAMMAR_UNBOUNDED && members->closed && members->max >= members->count)
        members->max = GRAMMAR_UNBOUNDED;
    counted->bounded = members->max != GRAMMAR_UNBOUNDED;
    counted->cap = counted->bounded ? members->max : members->min > 1 ? members->min : 1;
    /* Names that may be any can be the same twice, and count once. */
    if (members->min > required + 1 && !members->closed)
        schema_refuse(members->reader, members->way->path, "minProperties",
                      "of more than are required, and one, is not supported beside names that may "
                      "be any");
    else if (counted->cap > COUNT_MAX)
        schema_refuse(members->reader, members->way->path,
                      counted->bounded ? "maxProperties" : "minProperties",
                      "of more than 256 is not supported");
    return members->reader->grammar->code == 0;
}

static uint32_t put_object(struct members *members, uint32_t from)
{
    struct grammar *grammar = members->reader->grammar;
    uint32_t at[COUNT_MAX + 1], end = grammar_node(grammar);
    struct counted counted = {.at = at};
    memset(at, 0xff, sizeof(at));
    at[0] = grammar_word(grammar, from, "{");
    if (!counts(members, &counted))
        return end;
    for (uint32_t i = 0; i < members->count && !grammar->code; i++)
        if (!members->list[i].forbidden)
            add_member(members, &counted, &members->list[i]);
        else if (members->list[i].required)
            return end; /* none is right */
    members->others_end = GRAMMAR_NONE;
    if (!grammar->code && !members->closed)
        add_others(members, &counted);
    for (uint32_t count = members->min; count <= counted.cap && !grammar->code; count++)
        if (at[count] != GRAMMAR_NONE)
            grammar_bytes(grammar, at[count], end, '}', '}');
    if (members->others_end != GRAMMAR_NONE)
        grammar_bytes(grammar, members->others_end, end, '}', '}');
    return end;
}

uint32_t schema_object(struct schema_reader *reader, uint32_t from, const struct way *way)
{
    struct members members = {.reader = reader, .way = way};
    uint32_t to = from;
    way_counts(reader, way, "minProperties", "maxProperties", &members.min, &members.max);
    if (members_gather(&members))
        to = put_object(&members, from);
    members_free(&members);
    return to;
}
