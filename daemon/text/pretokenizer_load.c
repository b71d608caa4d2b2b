#include <string.h>

#include "daemon/text/codepoint.h"
#include "daemon/text/pretokenizer.h"

/* GPT-2's, which ByteLevel stands for where it is not told otherwise. */
#define BYTE_LEVEL_PATTERN                                                                         \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static int compile(struct pretokenizer_step *step, const char *pattern, const struct field *field,
                   struct error *error)
{
    return regex_compile(pattern, strlen(pattern), field->path, &step->regex, error);
}

static int load_pattern(struct pretokenizer_step *step, const struct field *field,
                        struct error *error)
{
    struct field pattern = field_of(field, "pattern");
    const char *text = NULL, *regex = NULL;
    int code = field_only(&pattern, "String Regex", error);
    if (code || (code = field_text(&pattern, "String", &text, error)) ||
        (code = field_text(&pattern, "Regex", &regex, error)))
        return code;
    if (!text == !regex)
        return field_wrong(&pattern, "", "either String or Regex expected", error);
    if (regex)
        return compile(step, regex, &pattern, error);
    step->text_length = strlen(text);
    if (step->text_length == 0 || step->text_length > PRETOKENIZER_TEXT_MAX)
        return field_wrong(&pattern, "String", "1 to 64 bytes expected", error);
    memcpy(step->text, text, step->text_length);
    return 0;
}

static int load_split(struct pretokenizer_step *step, const struct field *field,
                      struct error *error)
{
    static const char *const names[] = {[SPLIT_REMOVED] = "Removed",
                                        [SPLIT_ISOLATED] = "Isolated",
                                        [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [SPLIT_WITH_NEXT] = "MergedWithNext",
                                        [SPLIT_CONTIGUOUS] = "Contiguous"};
    const char *behavior = "";
    int code = field_only(field, "type pattern behavior invert", error);
    if (code || (code = field_bool(field, "invert", &step->invert, error)) ||
        (code = field_text(field, "behavior", &behavior, error)) ||
        (code = load_pattern(step, field, error)))
        return code;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(behavior, names[i]) == 0) {
            step->behavior = (enum split_behavior)i;
            return 0;
        }
    return field_unknown(field, "behavior", behavior, error);
}

static int load_digits(struct pretokenizer_step *step, const struct field *field,
                       struct error *error)
{
    bool individual = false;
    int code = field_only(field, "type individual_digits", error);
    if (code || (code = field_bool(field, "individual_digits", &individual, error)))
        return code;
    step->behavior = SPLIT_ISOLATED;
    return compile(step, individual ? "\\p{N}" : "\\p{N}+", field, error);
}

static int load_metaspace(struct pretokenizer_step *step, const struct field *field,
                          struct error *error)
{
    const char *replacement = "\xe2\x96\x81", *scheme = NULL;
    bool prefix_space = true;
    step->kind = PRETOKENIZER_METASPACE;
    step->cut = true;
    int code = field_only(field, "type replacement add_prefix_space prepend_scheme split", error);
    if (code || (code = field_text(field, "replacement", &replacement, error)) ||
        (code = field_text(field, "prepend_scheme", &scheme, error)) ||
        (code = field_bool(field, "add_prefix_space", &prefix_space, error)) ||
        (code = field_bool(field, "split", &step->cut, error)))
        return code;
    step->text_length = strlen(replacement);
    if (step->text_length == 0 ||
        step->text_length != codepoint_bytes((unsigned char)replacement[0]))
        return field_wrong(field, "replacement", "one character expected", error);
    memcpy(step->text, replacement, step->text_length);
    /* The older field decides only where the newer one is missing. */
    if (!scheme)
        scheme = prefix_space ? "always" : "never";
    if (strcmp(scheme, "always") == 0)
        step->prepend = METASPACE_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        step->prepend = METASPACE_FIRST;
    else if (strcmp(scheme, "never") == 0)
        step->prepend = METASPACE_NEVER;
    else
        return field_unknown(field, "prepend_scheme", scheme, error);
    return 0;
}

static int load_bytes(struct pretokenizer *pretokenizer, struct pretokenizer_step *step,
                      const struct field *field, struct error *error)
{
    step->kind = PRETOKENIZER_BYTES;
    step->space = true;
    step->cut = true;
    pretokenizer->byte_level = true;
    int code = field_only(field, "type add_prefix_space trim_offsets use_regex", error);
    if (code || (code = field_bool(field, "add_prefix_space", &step->space, error)) ||
        (code = field_bool(field, "use_regex", &step->cut, error)))
        return code;
    step->behavior = SPLIT_ISOLATED;
    return step->cut ? compile(step, BYTE_LEVEL_PATTERN, field, error) : 0;
}

static int load_step(void *context, const struct field *field, const char *type,
                     struct error *error)
{
    struct pretokenizer *pretokenizer = context;
    if (pretokenizer->count == PRETOKENIZER_STEPS_MAX)
        return field_wrong(field, "", "more than 8 steps", error);
    if (pretokenizer->byte_level)
        return field_wrong(field, "", "a step after ByteLevel is not supported", error);
    struct pretokenizer_step *step = &pretokenizer->steps[pretokenizer->count++];
    *step = (struct pretokenizer_step){0};
    if (strcmp(type, "Split") == 0)
        return load_split(step, field, error);
    if (strcmp(type, "Digits") == 0)
        return load_digits(step, field, error);
    if (strcmp(type, "Metaspace") == 0)
        return load_metaspace(step, field, error);
    if (strcmp(type, "ByteLevel") == 0)
        return load_bytes(pretokenizer, step, field, error);
    return field_unknown(field, "pre-tokenizer", type, error);
}

int pretokenizer_load(struct pretokenizer *pretokenizer, const struct field *field,
                      struct error *error)
{
    return field_steps(field, "pretokenizers", load_step, pretokenizer, error);
}

void pretokenizer_free(struct pretokenizer *pretokenizer)
{
    for (size_t i = 0; i < pretokenizer->count; i++)
        regex_free(pretokenizer->steps[i].regex);
    *pretokenizer = (struct pretokenizer){0};
}
