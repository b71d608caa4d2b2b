/* Values of a rendering, as Python's are, and what is done to them. Private to chat.
 *
 * Values are small and copied; what they point at lives in the rendering's arena, or in the
 * template, and does not change, but for namespaces. Errors stick in the rendering: functions
 * return undefined then, and callers look at render->code before they go on.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "daemon/base/buffer.h"
#include "daemon/text/template/chat.h"
#include "daemon/text/template/chat_arena.h"

#define CHAT_DEPTH_MAX 300 /* nesting of evaluation and of values */

enum chat_kind {
    CHAT_UNDEFINED,
    CHAT_NONE,
    CHAT_BOOL,
    CHAT_INT,
    CHAT_FLOAT,
    CHAT_STRING,
    CHAT_LIST,
    CHAT_TUPLE,
    CHAT_DICT,
    CHAT_NAMESPACE,
    CHAT_LOOP,
    CHAT_MACRO,
    CHAT_METHOD /* of a string, dict or loop, taken but not yet called */
};

struct chat_node;
struct chat_dict;
struct chat_loop;
struct chat_value;

struct chat_value {
    enum chat_kind kind;
    uint32_t length; /* bytes of a string, elements of a list or tuple */
    union {
        bool truth;
        int64_t integer;
        double number;
        const char *text;
        const struct chat_value *items;
        struct chat_dict *dict;
        struct chat_loop *loop;
        const struct chat_node *macro;
        const char *name; /* undefined: what was, for messages */
    };
};

struct chat_pair {
    struct chat_value key, value;
};

/* Few members, in order. */
struct chat_dict {
    struct chat_pair *pairs;
    size_t count, room;
};

/* `loop` inside of a for. */
struct chat_loop {
    const struct chat_value *items;
    size_t count, at;
};

struct chat_scope;

struct chat_render {
    struct chat_arena arena;
    struct chat_limits limits;
    uint64_t steps, look_at; /* the steps at which the halt is looked at next */
    int depth;
    uint32_t line;
    size_t bytes;   /* gone through, and not a step yet */
    size_t written; /* bytes of text in all buffers that are being written */
    struct buffer output;
    struct chat_scope *globals, *scope;
    time_t now;
    struct error *error;
    int code; /* sticky */
};

struct chat_value chat_fail(struct chat_render *render, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Counts work; false when it is used up, or something failed before. Whatever a template can make
 * long is counted: before it is done, where it is known how long it is, else as it goes. chat_step
 * counts a step and the bytes, chat_bytes the bytes alone: for what is short and often. */
bool chat_step(struct chat_render *render, size_t bytes);
bool chat_bytes(struct chat_render *render, size_t bytes);
bool chat_enter(struct chat_render *render); /* one level deeper; chat_leave after it, always */
void chat_leave(struct chat_render *render);

static inline struct chat_value chat_undefined(const char *name)
{
    return (struct chat_value){.kind = CHAT_UNDEFINED, .name = name};
}
static inline struct chat_value chat_none(void)
{
    return (struct chat_value){.kind = CHAT_NONE};
}
static inline struct chat_value chat_bool(bool truth)
{
    return (struct chat_value){.kind = CHAT_BOOL, .truth = truth};
}
static inline struct chat_value chat_int(int64_t integer)
{
    return (struct chat_value){.kind = CHAT_INT, .integer = integer};
}
static inline struct chat_value chat_float(double number)
{
    return (struct chat_value){.kind = CHAT_FLOAT, .number = number};
}
static inline struct chat_value chat_text(const char *text, size_t length)
{
    return (struct chat_value){.kind = CHAT_STRING, .length = (uint32_t)length, .text = text};
}
static inline bool chat_is_listed(struct chat_value value)
{
    return value.kind == CHAT_LIST || value.kind == CHAT_TUPLE;
}
static inline bool chat_is_number(struct chat_value value)
{
    return value.kind == CHAT_INT || value.kind == CHAT_FLOAT || value.kind == CHAT_BOOL;
}
static inline double chat_as_float(struct chat_value value)
{
    return value.kind == CHAT_FLOAT  ? value.number
           : value.kind == CHAT_BOOL ? value.truth
                                     : (double)value.integer;
}
static inline int64_t chat_as_int(struct chat_value value)
{
    return value.kind == CHAT_BOOL ? value.truth : value.integer;
}
bool chat_is(struct chat_value value, const char *text); /* a string of this text */

const char *chat_kind_name(struct chat_value value); /* as Python calls its type */

/* Zeroed memory of the rendering, counted by its bytes; NULL where it failed. */
void *chat_allocate(struct chat_render *render, size_t bytes);
/* New values. A list's items are filled by the caller; NULL where it failed. */
struct chat_value *chat_items(struct chat_render *render, size_t count);
struct chat_value chat_list(const struct chat_value *items, size_t count);
struct chat_value chat_copy(struct chat_render *render, const char *text, size_t length);
struct chat_value chat_new_dict(struct chat_render *render, enum chat_kind kind);
void chat_dict_set(struct chat_render *render, struct chat_dict *dict, struct chat_value key,
                   struct chat_value value);
struct chat_value chat_from_json(struct chat_render *render, const json *value);

/* Reading. */
const struct chat_value *chat_dict_get(struct chat_render *render, const struct chat_dict *dict,
                                       struct chat_value key);
bool chat_truth(struct chat_value value);
bool chat_equal(struct chat_render *render, struct chat_value a, struct chat_value b);
/* Less than 0, 0 or more; an error where Python has no order. */
int chat_order(struct chat_render *render, struct chat_value a, struct chat_value b);
bool chat_contains(struct chat_render *render, struct chat_value container,
                   struct chat_value element);
size_t chat_length(struct chat_render *render, struct chat_value value);
/* What a for goes through: a list of elements, of keys, or of characters. */
struct chat_value chat_elements(struct chat_render *render, struct chat_value value);
struct chat_value chat_attribute(struct chat_render *render, struct chat_value value,
                                 const char *name, size_t length);
bool chat_has_method(enum chat_kind kind, const char *name);
struct chat_value chat_item(struct chat_render *render, struct chat_value value,
                            struct chat_value key);
struct chat_value chat_slice(struct chat_render *render, struct chat_value value,
                             const struct chat_value bounds[3]);

/* Operators: one character, or 'd' for // and 'p' for **. */
struct chat_value chat_binary(struct chat_render *render, char op, struct chat_value a,
                              struct chat_value b);
struct chat_value chat_concat(struct chat_render *render, struct chat_value a,
                              struct chat_value b); /* of strings */

/* Writing. */
struct chat_json_style {
    struct chat_value indent; /* int, string or none */
    const char *item, *key;   /* separators; NULL: as json.dumps */
    bool ascii, sorted;
};
bool chat_put(struct chat_render *render, struct buffer *out, const char *text, size_t length);
void chat_put_text(struct chat_render *render, struct buffer *out, struct chat_value value);
void chat_put_json(struct chat_render *render, struct buffer *out, struct chat_value value,
                   const struct chat_json_style *style);
struct chat_value chat_string(struct chat_render *render, struct chat_value value); /* str() */
/* Moves what was written to a string and frees the buffer. */
struct chat_value chat_take(struct chat_render *render, struct buffer *buffer);

/* Arguments of a call. */
#define CHAT_ARGUMENTS_MAX 16
struct chat_arguments {
    size_t count, named;
    struct chat_value values[CHAT_ARGUMENTS_MAX];
    struct {
        const char *name;
        size_t length;
        struct chat_value value;
    } names[CHAT_ARGUMENTS_MAX];
};
/* The argument at a place, or of that name; undefined (with a NULL name) when it was not given. */
struct chat_value chat_argument(const struct chat_arguments *arguments, size_t place,
                                const char *name);

enum chat_filter {
#define FILTER(name) CHAT_FILTER_##name,
#include "daemon/text/template/chat_names.def"
    CHAT_FILTERS
};
enum chat_test {
#define TEST(name) CHAT_TEST_##name,
#include "daemon/text/template/chat_names.def"
    CHAT_TESTS
};
enum chat_method {
#define METHOD(name) CHAT_METHOD_##name,
#include "daemon/text/template/chat_names.def"
    CHAT_METHODS
};
enum chat_function {
#define FUNCTION(name) CHAT_FUNCTION_##name,
#include "daemon/text/template/chat_names.def"
    CHAT_FUNCTIONS
};
/* -1 where the name is not known. */
int chat_find_filter(const char *name, size_t length);
int chat_find_test(const char *name, size_t length);
int chat_find_method(const char *name, size_t length);
int chat_find_function(const char *name, size_t length);

struct chat_value chat_call_filter(struct chat_render *render, enum chat_filter filter,
                                   struct chat_value value, const struct chat_arguments *arguments);
bool chat_call_test(struct chat_render *render, enum chat_test test, struct chat_value value,
                    const struct chat_arguments *arguments);
struct chat_value chat_call_method(struct chat_render *render, enum chat_method method,
                                   struct chat_value value, const struct chat_arguments *arguments);
struct chat_value chat_call_function(struct chat_render *render, enum chat_function function,
                                     const struct chat_arguments *arguments);
