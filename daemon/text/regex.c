#define PCRE2_CODE_UNIT_WIDTH 8
#include "daemon/text/regex.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>

/* Backtracking steps of one match. A run of white space as long as the longest text needs one each.
 */
#define REGEX_STEPS_MAX (16u << 20)
#define REGEX_DEPTH_MAX 10000u
#define REGEX_HEAP_KIB 65536u
#define JIT_STACK_FIRST (32u << 10)
#define JIT_STACK_MAX (1u << 20)

struct regex {
    pcre2_code *code;
    bool compiled; /* by PCRE2's compiler */
};

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static pcre2_code *compile(const struct buffer *pattern, const char *path, struct error *error)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) {
        error_set(error, ERR_NO_MEMORY, "no memory for a regular expression");
        return NULL;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 32);
    int number;
    PCRE2_SIZE offset;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern->data, pattern->length,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK,
                                     &number, &offset, context);
    pcre2_compile_context_free(context);
    if (!code) {
        unsigned char text[120] = "";
        pcre2_get_error_message(number, text, sizeof(text));
        error_set(error, ERR_BAD_MODEL, "tokenizer.json: %s: %s", path, text);
    }
    return code;
}

int regex_compile(const char *pattern, size_t length, const char *path, struct regex **ret_regex,
                  struct error *error)
{
    struct buffer translated = {0};
    int code = regex_translate(pattern, length, path, &translated, error);
    struct regex *regex = code ? NULL : calloc(1, sizeof(*regex));
    if (!code && !regex)
        code = error_set(error, ERR_NO_MEMORY, "no memory for a regular expression");
    if (regex) {
        regex->code = compile(&translated, path, error);
        if (!regex->code) {
            free(regex);
            code = -ERR_BAD_MODEL;
        } else {
            regex->compiled = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
            *ret_regex = regex;
        }
    }
    buffer_free(&translated);
    return code;
}

void regex_free(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex);
}

struct regex_scratch *regex_scratch_new(void)
{
    struct regex_scratch *scratch = calloc(1, sizeof(*scratch));
    if (!scratch)
        return NULL;
    scratch->data = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    if (!scratch->data || !scratch->context) {
        regex_scratch_free(scratch);
        return NULL;
    }
    pcre2_set_match_limit(scratch->context, REGEX_STEPS_MAX);
    pcre2_set_depth_limit(scratch->context, REGEX_DEPTH_MAX);
    pcre2_set_heap_limit(scratch->context, REGEX_HEAP_KIB);
    /* Without one the compiled code makes do with 32 KiB of the thread's own stack. */
    scratch->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MAX, NULL);
    if (scratch->stack)
        pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
    return scratch;
}

void regex_scratch_free(struct regex_scratch *scratch)
{
    if (!scratch)
        return;
    pcre2_match_data_free(scratch->data);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    free(scratch);
}

int regex_find(const struct regex *regex, struct regex_scratch *scratch, const char *text,
               size_t length, size_t from, size_t *ret_start, size_t *ret_end, struct error *error)
{
    int count = PCRE2_ERROR_JIT_BADOPTION;
    if (regex->compiled)
        count = pcre2_jit_match(regex->code, (PCRE2_SPTR)text, length, from, 0, scratch->data,
                                scratch->context);
    if (count == PCRE2_ERROR_JIT_BADOPTION || count == PCRE2_ERROR_JIT_STACKLIMIT)
        count = pcre2_match(regex->code, (PCRE2_SPTR)text, length, from,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch->data, scratch->context);
    if (count == PCRE2_ERROR_NOMATCH)
        return 0;
    if (count < 0)
        return error_limit(error, ERR_TOO_LARGE, REGEX_STEPS_MAX, length,
                           "the tokenizer's regular expression takes too many steps on this text");
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(scratch->data);
    *ret_start = range[0];
    *ret_end = range[1];
    return 1;
}
