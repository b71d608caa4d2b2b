#include "daemon/constrain/structure.h"

#include <stdbool.h>
#include <string.h>

#include "daemon/constrain/schema/schema.h"
#include "protocol/base/json.h"

#define DEPTH_MAX 32u
#define VALUES_MAX (1u << 16)
#define MARK_MAX 64u
#define TEXT_LAST 0xfdu /* the largest byte that text may have */

struct reader {
    struct grammar *grammar;
    structure_kind kind;
    uint32_t budget;
};

static uint32_t build(struct reader *reader, uint32_t from, const json *node);

/* ---- marks -------------------------------------------------------------------------------------
 */

struct mark {
    unsigned char bytes[MARK_MAX + 1];
    uint32_t length;
    uint32_t back[MARK_MAX + 1]; /* how much of it is still matched where the next does not come */
};

static bool read_mark(struct reader *reader, const json *node, const json *text, struct mark *mark)
{
    const char *bytes = json_string(text);
    bool special = json_bool(json_get(node, "special"));
    size_t length = strlen(bytes);
    if (length + special > MARK_MAX) {
        grammar_fail(reader->grammar, ERR_BAD_VALUE, "structure: a mark is too long");
        return false;
    }
    mark->length = 0;
    if (special)
        mark->bytes[mark->length++] = STRUCTURE_SPECIAL;
    memcpy(mark->bytes + mark->length, bytes, length);
    mark->length += (uint32_t)length;
    mark->back[0] = 0;
    for (uint32_t i = 1, k = 0; i < mark->length; i++) {
        while (k > 0 && mark->bytes[k] != mark->bytes[i])
            k = mark->back[k - 1];
        k += mark->bytes[k] == mark->bytes[i];
        mark->back[i] = k;
    }
    return true;
}

/* How much is matched behind a byte. */
static uint32_t next_of(const struct mark *mark, uint32_t at, unsigned byte)
{
    while (at > 0 && mark->bytes[at] != byte)
        at = mark->back[at - 1];
    return at + (at < mark->length && mark->bytes[at] == byte);
}

/* Edges of the state in which so much is matched; to[mark->length] is where the whole mark leads,
 * or GRAMMAR_NONE. */
static void add_edges(struct grammar *grammar, const struct mark *mark, uint32_t at,
                      const uint32_t *to)
{
    for (unsigned low = 0, high; low <= TEXT_LAST; low = high + 1) {
        uint32_t next = next_of(mark, at, low);
        for (high = low; high < TEXT_LAST && next_of(mark, at, high + 1) == next;)
            high++;
        if (to[next] != GRAMMAR_NONE)
            grammar_bytes(grammar, to[at], to[next], (uint8_t)low, (uint8_t)high);
    }
    uint32_t next = next_of(mark, at, STRUCTURE_SPECIAL);
    if (next > 0 && to[next] != GRAMMAR_NONE)
        grammar_bytes(grammar, to[at], to[next], STRUCTURE_SPECIAL, STRUCTURE_SPECIAL);
}

/* The states of a text that looks for the mark, in which to[0] is the first. */
static void make_states(struct grammar *grammar, const struct mark *mark, uint32_t end,
                        uint32_t *to)
{
    for (uint32_t i = 0; i < mark->length || i == 0; i++)
        to[i] = grammar_node(grammar);
    if (mark->length > 0)
        to[mark->length] = end;
    for (uint32_t i = 0; i < mark->length || i == 0; i++)
        add_edges(grammar, mark, i, to);
}

/* White space, then anything but the byte. */
static uint32_t begin_unlike(struct grammar *grammar, uint32_t from, uint8_t byte, uint32_t text)
{
    uint32_t start = grammar_nothing(grammar, from, GRAMMAR_NONE);
    for (unsigned one = 0; one <= TEXT_LAST; one++) {
        bool space = one == ' ' || one == '\n' || one == '\r' || one == '\t';
        if (one != byte)
            grammar_bytes(grammar, start, space ? start : text, (uint8_t)one, (uint8_t)one);
    }
    return start;
}

static uint32_t build_free(struct reader *reader, uint32_t from, const json *node)
{
    struct grammar *grammar = reader->grammar;
    struct mark mark;
    uint32_t to[MARK_MAX + 1], end = grammar_node(grammar);
    const char *unlike = json_string(json_get(node, "unlike"));
    if (!read_mark(reader, node, json_get(node, "free"), &mark))
        return from;
    make_states(grammar, &mark, GRAMMAR_NONE, to);
    if (unlike[0])
        grammar_nothing(grammar, begin_unlike(grammar, from, (uint8_t)unlike[0], to[0]), end);
    else
        grammar_nothing(grammar, from, to[0]);
    for (uint32_t i = 0; i < mark.length || i == 0; i++)
        grammar_nothing(grammar, to[i], end);
    return end;
}

/* From each state the rest of the mark alone. */
static void build_cut(struct grammar *grammar, const struct mark *mark, uint32_t end,
                      const uint32_t *to)
{
    for (uint32_t i = mark->length, behind = end; i-- > 0;) {
        uint32_t node = grammar_node(grammar);
        grammar_bytes(grammar, node, behind, mark->bytes[i], mark->bytes[i]);
        grammar_bytes(grammar, to[i], node, STRUCTURE_CUT, STRUCTURE_CUT);
        behind = node;
    }
}

static uint32_t build_until(struct reader *reader, uint32_t from, const json *node)
{
    struct grammar *grammar = reader->grammar;
    struct mark mark;
    uint32_t to[MARK_MAX + 1], end = grammar_node(grammar);
    const json *budget = json_get(node, "budget");
    int64_t tokens;
    if (!read_mark(reader, node, json_get(node, "until"), &mark))
        return from;
    if (mark.length == 0) {
        grammar_fail(grammar, ERR_BAD_VALUE, "structure: an empty mark");
        return from;
    }
    make_states(grammar, &mark, end, to);
    grammar_nothing(grammar, from, to[0]);
    if (!budget)
        return end;
    if (json_integer(budget, "budget", 0, INT32_MAX, &tokens, NULL)) {
        grammar_fail(grammar, ERR_BAD_VALUE, "structure: budget is no number of tokens");
        return from;
    }
    reader->budget = (uint32_t)tokens;
    build_cut(grammar, &mark, end, to);
    return end;
}

/* ---- the others --------------------------------------------------------------------------------
 */

static uint32_t build_text(struct reader *reader, uint32_t from, const json *node)
{
    const char *text = json_string(json_get(node, "text"));
    if (json_bool(json_get(node, "special")))
        from = grammar_bytes(reader->grammar, from, GRAMMAR_NONE, STRUCTURE_SPECIAL,
                             STRUCTURE_SPECIAL);
    return grammar_word(reader->grammar, from, text);
}

/* An error that came up since then is told with the name of what it is about. */
static void name_error(struct grammar *grammar, bool before, const char *name)
{
    if (before || grammar->code == 0 || !name[0] || !grammar->error)
        return;
    struct error found = *grammar->error;
    error_set(grammar->error, found.code, "%.64s: %s", name, found.text);
}

static uint32_t build_kind(struct reader *reader, uint32_t from, const json *node)
{
    struct grammar *grammar = reader->grammar;
    const char *text = json_string(json_get(node, "of"));
    const char *name = json_string(json_get(node, "name"));
    bool before = grammar->code != 0;
    uint32_t end =
        reader->kind(grammar, from, json_string(json_get(node, "kind")), text, strlen(text));
    name_error(grammar, before, name);
    return end;
}

struct tags {
    struct reader *reader;
    const json *node;
};

static uint32_t build_list(struct reader *reader, uint32_t from, const json *list)
{
    for (const json *child = json_child(list); child; child = json_next(child))
        from = build(reader, from, child);
    return from;
}

static uint32_t put_tag(void *context, uint32_t from, enum schema_tag tag)
{
    const struct tags *tags = context;
    if (tag == SCHEMA_TAG_KEY)
        return build_list(tags->reader, from, json_get(tags->node, "key"));
    if (tag == SCHEMA_TAG_VALUE)
        return build_list(tags->reader, from, json_get(tags->node, "value"));
    from = build_list(tags->reader, from, json_get(tags->node, "last"));
    from = build_list(tags->reader, from, json_get(tags->node, "mark"));
    return build_list(tags->reader, from, json_get(tags->node, "after"));
}

/* No text has the byte of special tokens: where the mark is one there is nothing to leave out. */
static uint32_t build_tagged(struct reader *reader, uint32_t from, const json *node)
{
    struct grammar *grammar = reader->grammar;
    struct tags own = {reader, node};
    const json *mark = json_child(json_get(node, "mark"));
    const char *text = json_string(json_get(node, "tagged"));
    const struct schema_tags tags = {
        .types = json_get(node, "types"),
        .except = json_bool(json_get(mark, "special")) ? "" : json_string(json_get(mark, "text")),
        .put = put_tag,
        .context = &own};
    bool before = grammar->code != 0;
    uint32_t end = schema_tagged(grammar, from, text, strlen(text), &tags);
    name_error(grammar, before, json_string(json_get(node, "name")));
    return end;
}

static uint32_t build_any(struct reader *reader, uint32_t from, const json *list)
{
    uint32_t end = grammar_node(reader->grammar);
    for (const json *node = json_child(list); node; node = json_next(node)) {
        uint32_t start = grammar_nothing(reader->grammar, from, GRAMMAR_NONE);
        grammar_nothing(reader->grammar, build(reader, start, node), end);
    }
    return end;
}

static uint32_t build_each(struct reader *reader, uint32_t from, const json *node)
{
    uint32_t start = grammar_nothing(reader->grammar, from, GRAMMAR_NONE);
    uint32_t end = build(reader, start, json_get(node, "each"));
    uint32_t between = grammar_nothing(reader->grammar, end, GRAMMAR_NONE);
    grammar_nothing(reader->grammar, build(reader, between, json_get(node, "between")), start);
    return grammar_nothing(reader->grammar, end, GRAMMAR_NONE);
}

static uint32_t build_maybe(struct reader *reader, uint32_t from, const json *node)
{
    uint32_t start = grammar_nothing(reader->grammar, from, GRAMMAR_NONE);
    uint32_t end = build(reader, start, node);
    return grammar_nothing(reader->grammar, from,
                           grammar_nothing(reader->grammar, end, GRAMMAR_NONE));
}

static uint32_t build(struct reader *reader, uint32_t from, const json *node)
{
    const json *child;
    if (reader->grammar->code)
        return from;
    if (json_get(node, "text"))
        return build_text(reader, from, node);
    if (json_get(node, "free"))
        return build_free(reader, from, node);
    if (json_get(node, "until"))
        return build_until(reader, from, node);
    if (json_get(node, "kind"))
        return build_kind(reader, from, node);
    if (json_get(node, "tagged"))
        return build_tagged(reader, from, node);
    if ((child = json_get(node, "any")))
        return build_any(reader, from, child);
    if (json_get(node, "each"))
        return build_each(reader, from, node);
    if ((child = json_get(node, "maybe")))
        return build_maybe(reader, from, child);
    if (!json_is_array(json_get(node, "all")))
        grammar_fail(reader->grammar, ERR_BAD_VALUE, "structure: a part that is not known");
    return build_list(reader, from, json_get(node, "all"));
}

uint32_t structure_build(struct grammar *grammar, uint32_t from, const char *text, size_t length,
                         structure_kind kind, uint32_t *ret_budget)
{
    const struct json_bounds bounds = {
        .bytes_max = length, .depth_max = DEPTH_MAX, .values_max = VALUES_MAX};
    struct reader reader = {.grammar = grammar, .kind = kind, .budget = STRUCTURE_NO_BUDGET};
    struct error error;
    json *document;
    int code = json_parse(text, length, bounds, &document, &error);
    *ret_budget = STRUCTURE_NO_BUDGET;
    if (code) {
        grammar_fail(grammar, -code, "structure: %s", error.text);
        return from;
    }
    from = build(&reader, from, document);
    json_free(document);
    *ret_budget = reader.budget;
    return from;
}
