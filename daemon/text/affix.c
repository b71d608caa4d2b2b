#include "daemon/text/affix.h"

#include <stdbool.h>
#include <string.h>

static bool add(int32_t *ids, size_t *count, const int32_t *more, size_t more_count)
{
    if (more_count > AFFIX_IDS_MAX - *count)
        return false;
    memcpy(ids + *count, more, more_count * sizeof(*ids));
    *count += more_count;
    return true;
}

/* The ids of a special token, from the processor's own table. */
static int special_ids(const struct field *field, const char *name, const struct vocab *vocab,
                       int32_t *ids, size_t *ret_count, struct error *error)
{
    struct field table = field_of(field, "special_tokens");
    struct field special = field_of(&table, name);
    struct field list = field_of(&special, "ids");
    if (!json_is_array(list.value))
        return field_wrong(&special, "ids", "an array expected", error);
    *ret_count = 0;
    for (const json *child = json_child(list.value); child; child = json_next(child)) {
        int64_t id;
        if (*ret_count == AFFIX_IDS_MAX)
            return field_wrong(&special, "ids", "more than 64 ids", error);
        if (json_integer(child, list.path, 0, VOCAB_ID_MAX, &id, error) ||
            !vocab_has(vocab, (uint32_t)id))
            return field_wrong(&special, "ids", "an id that no token has", error);
        ids[(*ret_count)++] = (int32_t)id;
    }
    return 0;
}

static int load_piece(struct affix *own, const struct field *field, const struct field *piece,
                      const struct vocab *vocab, bool *seen, struct error *error)
{
    int32_t ids[AFFIX_IDS_MAX];
    size_t count = 0;
    int code = field_only(piece, "SpecialToken Sequence", error);
    if (code)
        return code;
    struct field sequence = field_of(piece, "Sequence");
    struct field special = field_of(piece, "SpecialToken");
    const struct field *one = sequence.value ? &sequence : &special;
    const json *name = json_get(one->value, "id");
    if ((code = field_only(one, "id type_id", error)))
        return code;
    if (!json_is_string(name))
        return field_wrong(one, "id", "a string expected", error);
    if (sequence.value) {
        if (*seen || strcmp(json_string(name), "A") != 0)
            return field_wrong(one, "id", "the text A exactly once expected", error);
        *seen = true;
        return 0;
    }
    if ((code = special_ids(field, json_string(name), vocab, ids, &count, error)))
        return code;
    bool fits = *seen ? add(own->suffix, &own->suffix_count, ids, count)
                      : add(own->prefix, &own->prefix_count, ids, count);
    return fits ? 0 : field_wrong(one, "", "more than 64 ids", error);
}

/* What a later processor adds stands outside of what an earlier one added. */
static bool wrap(struct affix *affix, struct affix *outer)
{
    if (!add(outer->prefix, &outer->prefix_count, affix->prefix, affix->prefix_count) ||
        !add(affix->suffix, &affix->suffix_count, outer->suffix, outer->suffix_count))
        return false;
    memcpy(affix->prefix, outer->prefix, sizeof(affix->prefix));
    affix->prefix_count = outer->prefix_count;
    return true;
}

/* "<s>" of a special token, and "A" of a text. */
static const char *piece_name(const json *piece, bool *ret_text)
{
    const json *text = json_get(piece, "Sequence");
    *ret_text = text != NULL;
    return json_string(json_get(text ? text : json_get(piece, "SpecialToken"), "id"));
}

/* Whether the template for a pair is that for one text, of A, and then of B. */
static bool is_twice(const json *single, const json *pair)
{
    const json *own = json_child(single);
    size_t count = json_count(single), index = 0;
    if (!json_is_array(pair) || json_count(pair) != 2 * count)
        return false;
    for (const json *piece = json_child(pair); piece; piece = json_next(piece), index++) {
        bool text, own_text;
        own = own ? own : json_child(single);
        const char *name = piece_name(piece, &text), *own_name = piece_name(own, &own_text);
        if (text != own_text || strcmp(name, text ? index < count ? "A" : "B" : own_name) != 0)
            return false;
        own = json_next(own);
    }
    return true;
}

static int load_template(struct affix *affix, const struct field *field, const struct vocab *vocab,
                         struct error *error)
{
    struct affix own = {0};
    bool seen = false;
    size_t index = 0;
    int code = field_only(field, "type single pair special_tokens", error);
    if (code)
        return code;
    struct field single = field_of(field, "single");
    if (!json_is_array(single.value))
        return field_wrong(field, "single", "an array expected", error);
    for (const json *child = json_child(single.value); child; child = json_next(child)) {
        struct field piece = field_at(&single, child, index++);
        if ((code = load_piece(&own, field, &piece, vocab, &seen, error)))
            return code;
    }
    if (!seen)
        return field_wrong(field, "single", "the text A exactly once expected", error);
    affix->parts_pairs |= !is_twice(single.value, field_of(field, "pair").value);
    return wrap(affix, &own) ? 0 : field_wrong(field, "single", "more than 64 ids", error);
}

struct loading {
    struct affix *affix;
    const struct vocab *vocab;
};

static int load_one(void *context, const struct field *field, const char *type, struct error *error)
{
    const struct loading *loading = context;
    if (strcmp(type, "TemplateProcessing") == 0)
        return load_template(loading->affix, field, loading->vocab, error);
    if (strcmp(type, "ByteLevel") == 0)
        return field_only(field, "type add_prefix_space trim_offsets use_regex", error);
    return field_unknown(field, "post-processor", type, error);
}

int affix_load(struct affix *affix, const struct field *field, const struct vocab *vocab,
               struct error *error)
{
    struct loading loading = {affix, vocab};
    return field_steps(field, "processors", load_one, &loading, error);
}
