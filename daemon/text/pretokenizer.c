#include "daemon/text/pretokenizer.h"

#include <string.h>

#include "daemon/text/search.h"

struct run {
    const struct pretokenizer *pretokenizer;
    struct pretokenizer_scratch *scratch;
    struct piece_sink *sink;
    struct error *error;
};

/* What a split has seen but not yet passed on: with some behaviors the next part joins it. */
struct joined {
    size_t start, end;
    bool any, match;
};

bool pretokenizer_scratch_init(struct pretokenizer_scratch *scratch)
{
    *scratch = (struct pretokenizer_scratch){.regex = regex_scratch_new()};
    return scratch->regex != NULL;
}

void pretokenizer_scratch_free(struct pretokenizer_scratch *scratch)
{
    for (size_t i = 0; i < PRETOKENIZER_STEPS_MAX; i++)
        buffer_free(&scratch->buffers[i]);
    regex_scratch_free(scratch->regex);
    scratch->regex = NULL;
}

static int run_from(struct run *run, size_t index, const char *text, size_t length, bool first);

/* Recursion is as deep as there are steps. */
static int pass(struct run *run, size_t index, const char *text, size_t start, size_t end,
                bool first)
{
    if (start == end)
        return 0;
    return run_from(run, index + 1, text + start, end - start, first && start == 0);
}

/* A literal, or the regular expression; 1, 0 or an error, as regex_find. */
static int find(struct run *run, const struct pretokenizer_step *step, const char *text,
                size_t length, size_t from, size_t *ret_start, size_t *ret_end)
{
    int code = halt_error(run->scratch->halt, run->error);
    if (code)
        return code;
    if (step->regex)
        return regex_find(step->regex, run->scratch->regex, text, length, from, ret_start, ret_end,
                          run->error);
    const char *found =
        search_until(run->scratch->halt, text + from, length - from, step->text, step->text_length);
    if (!found)
        return halt_error(run->scratch->halt, run->error);
    *ret_start = (size_t)(found - text);
    *ret_end = *ret_start + step->text_length;
    return 1;
}

/* One part of the text, match or not, in order. */
static int part(struct run *run, size_t index, const char *text, struct joined *joined,
                size_t start, size_t end, bool match, bool first)
{
    const struct pretokenizer_step *step = &run->pretokenizer->steps[index];
    bool join = false;
    match = match != step->invert;
    switch (step->behavior) {
    case SPLIT_ISOLATED:
        return pass(run, index, text, start, end, first);
    case SPLIT_REMOVED:
        return match ? 0 : pass(run, index, text, start, end, first);
    case SPLIT_WITH_PREVIOUS:
        join = match && !joined->match;
        break;
    case SPLIT_WITH_NEXT:
        join = joined->match && !match;
        break;
    case SPLIT_CONTIGUOUS:
        join = joined->match == match;
        break;
    }
    if (joined->any && join) {
        joined->end = end;
        joined->match = match;
        return 0;
    }
    int code = joined->any ? pass(run, index, text, joined->start, joined->end, first) : 0;
    *joined = (struct joined){.start = start, .end = end, .any = true, .match = match};
    return code;
}

static int split(struct run *run, size_t index, const char *text, size_t length, bool first)
{
    const struct pretokenizer_step *step = &run->pretokenizer->steps[index];
    struct joined joined = {0};
    size_t done = 0, from = 0, start, end;
    int code = 0, found;
    while (!code && from <= length &&
           (found = find(run, step, text, length, from, &start, &end)) != 0) {
        if (found < 0)
            return found;
        from = end;
        if (start == end) {
            /* An empty match parts the text all the same, but not right after another match. */
            if (end < length)
                for (from++; from < length && ((unsigned char)text[from] & 0xc0) == 0x80;)
                    from++;
            else
                from = length + 1;
            if (end == done)
                continue;
        }
        if (done < start)
            code = part(run, index, text, &joined, done, start, false, first);
        if (!code)
            code = part(run, index, text, &joined, start, end, true, first);
        done = end;
    }
    if (!code && done < length)
        code = part(run, index, text, &joined, done, length, false, first);
    if (!code && joined.any)
        code = pass(run, index, text, joined.start, joined.end, first);
    return code;
}

static int too_long(struct run *run, size_t length)
{
    return error_limit(run->error, ERR_TOO_LARGE, PRETOKENIZER_OUTPUT_MAX, length,
                       "the text does not fit once spaces are replaced");
}

/* False, too, once the halt is set. */
static bool replace_spaces(const struct pretokenizer_step *step, const struct halt *halt,
                           const char *text, size_t length, struct buffer *out)
{
    const char *end = text + length, *space;
    while ((space = search_until(halt, text, (size_t)(end - text), " ", 1))) {
        if (!buffer_append(out, text, (size_t)(space - text), PRETOKENIZER_OUTPUT_MAX) ||
            !buffer_append(out, step->text, step->text_length, PRETOKENIZER_OUTPUT_MAX))
            return false;
        text = space + 1;
    }
    return !halt_code(halt) &&
           buffer_append(out, text, (size_t)(end - text), PRETOKENIZER_OUTPUT_MAX);
}

static int metaspace(struct run *run, size_t index, const char *text, size_t length, bool first)
{
    const struct pretokenizer_step *step = &run->pretokenizer->steps[index];
    struct buffer *out = &run->scratch->buffers[index];
    bool marked = text[0] == ' ' ||
                  (length >= step->text_length && memcmp(text, step->text, step->text_length) == 0);
    bool prepend = !marked && (step->prepend == METASPACE_ALWAYS ||
                               (step->prepend == METASPACE_FIRST && first));
    out->length = 0;
    if ((prepend && !buffer_append(out, step->text, step->text_length, PRETOKENIZER_OUTPUT_MAX)) ||
        !replace_spaces(step, run->scratch->halt, text, length, out)) {
        int code = halt_error(run->scratch->halt, run->error);
        return code ? code : too_long(run, length);
    }
    size_t start = 0, at = 0;
    int code = 0;
    while (step->cut && !code && at < out->length) {
        const char *found = search_until(run->scratch->halt, out->data + at, out->length - at,
                                         step->text, step->text_length);
        if (!found)
            break;
        size_t end = (size_t)(found - out->data);
        code = pass(run, index, out->data, start, end, first);
        start = end;
        at = end + step->text_length;
    }
    return code ? code : pass(run, index, out->data, start, out->length, first);
}

static int bytes(struct run *run, size_t index, const char *text, size_t length, bool first)
{
    const struct pretokenizer_step *step = &run->pretokenizer->steps[index];
    if (step->space && text[0] != ' ') {
        struct buffer *out = &run->scratch->buffers[index];
        out->length = 0;
        if (!buffer_append(out, " ", 1, PRETOKENIZER_OUTPUT_MAX) ||
            !buffer_append(out, text, length, PRETOKENIZER_OUTPUT_MAX))
            return too_long(run, length);
        text = out->data;
        length = out->length;
    }
    return step->cut ? split(run, index, text, length, first)
                     : pass(run, index, text, 0, length, first);
}

static int run_from(struct run *run, size_t index, const char *text, size_t length, bool first)
{
    if (index == run->pretokenizer->count)
        return run->sink->take(run->sink, text, length, run->error);
    switch (run->pretokenizer->steps[index].kind) {
    case PRETOKENIZER_SPLIT:
        return split(run, index, text, length, first);
    case PRETOKENIZER_METASPACE:
        return metaspace(run, index, text, length, first);
    case PRETOKENIZER_BYTES:
        return bytes(run, index, text, length, first);
    }
    return 0;
}

int pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                     const char *text, size_t length, bool first, struct piece_sink *sink,
                     struct error *error)
{
    struct run run = {pretokenizer, scratch, sink, error};
    return length > 0 ? run_from(&run, 0, text, length, first) : 0;
}
