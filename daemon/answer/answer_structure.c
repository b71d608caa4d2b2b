#include "daemon/answer/answer_structure.h"

#include <string.h>

#include "daemon/answer/call_format.h"

/* ---- marks -------------------------------------------------------------------------------------
 */

/* A mark as the member `key`: its name, and whether it is a special token. */
static void put_mark(struct json_writer *writer, const char *key, const struct answer_mark *mark)
{
    bool special = mark->length > 0 && mark->text[0] == ANSWER_SPECIAL;
    json_put_string(writer, key, mark->text + special, mark->length - special);
    if (special)
        json_put_bool(writer, "special", true);
}

static void put_text(struct json_writer *writer, const char *text, size_t length)
{
    if (length == 0)
        return;
    json_open(writer, NULL, '{');
    json_put_string(writer, "text", text, length);
    json_close(writer, '}');
}

/* A text of a shape, in which \1 and on are marks. */
static void put_shape(struct json_writer *writer, const struct answer_form *form, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\1\2\3\4\5\6\7\10");
        put_text(writer, text, length);
        text += length;
        if (!*text)
            return;
        json_open(writer, NULL, '{');
        put_mark(writer, "text", &form->marks[*text - 1]);
        json_close(writer, '}');
        text++;
    }
}

/* ---- calls -------------------------------------------------------------------------------------
 */

/* A type by its names in JSON Schema. */
static void put_types(struct json_writer *writer, unsigned types)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    json_open(writer, NULL, '[');
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (types >> i & 1)
            json_put_text(writer, NULL, names[i]);
    json_close(writer, ']');
}

static void put_shape_list(struct json_writer *writer, const struct answer_form *form,
                           const char *key, const char *text)
{
    json_open(writer, key, '[');
    put_shape(writer, form, text);
    json_close(writer, ']');
}

/* Arguments of any name, each any text. */
static void put_any_tagged(struct json_writer *writer, const struct answer_form *form)
{
    const struct call_shape *shape = &form->calls->shape;
    json_open(writer, NULL, '{');
    json_open(writer, "maybe", '{');
    json_open(writer, "each", '{');
    json_open(writer, "all", '[');
    put_shape(writer, form, shape->key);
    json_open(writer, NULL, '{');
    json_put_text(writer, "kind", "pattern");
    json_put_text(writer, "of", "[^\\s<>\"\\\\]{1,64}");
    json_close(writer, '}');
    put_shape(writer, form, shape->value);
    json_open(writer, NULL, '{');
    put_mark(writer, "until", &form->marks[ANSWER_MARK_SIXTH]);
    json_close(writer, '}');
    put_shape(writer, form, shape->after);
    json_close(writer, ']');
    json_close(writer, '}');
    json_open(writer, "between", '{');
    put_shape_list(writer, form, "all", "");
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
}

/* Arguments as texts between marks, by the tool's schema. */
static void put_tagged(struct json_writer *writer, const struct answer_form *form,
                       const struct answer_tool *tool)
{
    const struct call_shape *shape = &form->calls->shape;
    if (!tool->schema) {
        put_any_tagged(writer, form);
        return;
    }
    json_open(writer, NULL, '{');
    json_put_text(writer, "tagged", tool->schema);
    json_put_text(writer, "name", tool->name);
    json_open(writer, "types", '[');
    for (size_t i = 0; i < tool->count; i++)
        put_types(writer, tool->types[i] ? tool->types[i] : form->calls->untyped);
    json_close(writer, ']');
    put_shape_list(writer, form, "key", shape->key);
    put_shape_list(writer, form, "value", shape->value);
    put_shape_list(writer, form, "last", shape->last);
    put_shape_list(writer, form, "mark", "\6");
    put_shape_list(writer, form, "after", shape->after);
    json_close(writer, '}');
}

static void put_arguments(struct json_writer *writer, const struct answer_form *form,
                          const struct answer_tool *tool)
{
    if (form->calls->shape.key) {
        put_tagged(writer, form, tool);
        return;
    }
    json_open(writer, NULL, '{');
    json_put_text(writer, "kind", tool->schema ? "schema" : "object");
    json_put_text(writer, "of", tool->schema ? tool->schema : "");
    json_put_text(writer, "name", tool->name);
    json_close(writer, '}');
}

/* One of the tools, from its name on. */
static void put_call(struct json_writer *writer, const struct answer_structure *structure,
                     const char *key)
{
    const struct call_shape *shape = &structure->form->calls->shape;
    json_open(writer, key, '{');
    json_open(writer, "all", '[');
    json_open(writer, NULL, '{');
    json_open(writer, "any", '[');
    for (uint32_t i = 0; i < structure->tool_count; i++) {
        const struct answer_tool *tool = &structure->tools[i];
        json_open(writer, NULL, '{');
        json_open(writer, "all", '[');
        put_text(writer, tool->name, strlen(tool->name));
        put_shape(writer, structure->form, shape->between);
        put_arguments(writer, structure->form, tool);
        json_close(writer, ']');
        json_close(writer, '}');
    }
    json_close(writer, ']');
    json_close(writer, '}');
    put_shape(writer, structure->form, shape->close);
    json_close(writer, ']');
    json_close(writer, '}');
}

/* All calls; `skip`: without the mark that they begin with, which was read. */
static void put_calls(struct json_writer *writer, const struct answer_structure *structure,
                      bool skip)
{
    const struct answer_form *form = structure->form;
    const struct call_shape *shape = &form->calls->shape;
    bool in_open = skip && shape->open[0] == '\1', in_name = skip && !in_open;
    put_shape(writer, form, shape->open + in_open);
    put_shape(writer, form, shape->name + in_name);
    if (structure->one_call || structure->form->calls->whole) {
        put_call(writer, structure, NULL);
    } else {
        json_open(writer, NULL, '{');
        put_call(writer, structure, "each");
        json_open(writer, "between", '{');
        json_open(writer, "all", '[');
        put_shape(writer, form, shape->next);
        put_shape(writer, form, shape->name);
        json_close(writer, ']');
        json_close(writer, '}');
        json_close(writer, '}');
    }
    put_shape(writer, form, shape->end);
}

static void put_calls_alone(struct json_writer *writer, const struct answer_structure *structure)
{
    json_open(writer, NULL, '{');
    json_open(writer, "all", '[');
    put_calls(writer, structure, false);
    json_close(writer, ']');
    json_close(writer, '}');
}

/* Text up to the mark, then calls. */
static void put_calls_behind(struct json_writer *writer, const struct answer_structure *structure)
{
    json_open(writer, NULL, '{');
    json_open(writer, "all", '[');
    json_open(writer, NULL, '{');
    put_mark(writer, "until", &structure->form->marks[ANSWER_MARK_CALL]);
    json_close(writer, '}');
    put_calls(writer, structure, true);
    json_close(writer, ']');
    json_close(writer, '}');
}

/* ---- content -----------------------------------------------------------------------------------
 */

static void put_content(struct json_writer *writer, const struct answer_structure *structure)
{
    const struct call_format *calls = structure->tool_count > 0 ? structure->form->calls : NULL;
    const struct call_format *format = structure->form->calls;
    bool whole = format && format->whole;
    if (whole) {
        json_open(writer, NULL, '{');
        json_open(writer, "all", '[');
        put_shape(writer, structure->form, format->shape.content);
    }
    json_open(writer, NULL, '{');
    if (structure->content_kind) {
        json_put_text(writer, "kind", structure->content_kind);
        json_put_text(writer, "of", structure->content ? structure->content : "");
    } else if (!calls || whole) {
        json_put_text(writer, "free", "");
    } else {
        put_mark(writer, "free", &structure->form->marks[ANSWER_MARK_CALL]);
        if (calls->bare)
            json_put_text(writer, "unlike", "{");
    }
    json_close(writer, '}');
    if (whole) {
        json_close(writer, ']');
        json_close(writer, '}');
    }
}

static void put_rest(struct json_writer *writer, const struct answer_structure *structure)
{
    if (structure->tool_count == 0) {
        put_content(writer, structure);
        return;
    }
    if (structure->must_call) {
        put_calls_alone(writer, structure);
        return;
    }
    json_open(writer, NULL, '{');
    json_open(writer, "any", '[');
    put_content(writer, structure);
    if (structure->content_kind || structure->form->calls->bare || structure->form->calls->whole)
        put_calls_alone(writer, structure);
    else
        put_calls_behind(writer, structure);
    json_close(writer, ']');
    json_close(writer, '}');
}

/* ---- thought -----------------------------------------------------------------------------------
 */

static void put_maybe_line(struct json_writer *writer)
{
    json_open(writer, NULL, '{');
    json_open(writer, "maybe", '{');
    json_put_text(writer, "text", "\n");
    json_close(writer, '}');
    json_close(writer, '}');
}

/* From the mark that begins it, where it has not begun, to up to two ends of lines behind it. */
static void put_thought(struct json_writer *writer, const struct answer_structure *structure)
{
    const struct answer_form *form = structure->form;
    bool whole = form->calls && form->calls->whole;
    if (structure->thought == ANSWER_THOUGHT_MAY)
        put_shape(writer, form, whole ? form->calls->shape.thought : "\7");
    json_open(writer, NULL, '{');
    put_mark(writer, "until", &form->marks[ANSWER_MARK_THINK_END]);
    if (structure->budget != ANSWER_NO_BUDGET)
        json_put_uint(writer, "budget", structure->budget);
    json_close(writer, '}');
    if (whole) {
        put_shape(writer, form, form->calls->shape.behind);
        return;
    }
    put_maybe_line(writer);
    put_maybe_line(writer);
}

void answer_structure_write(const struct answer_structure *structure, struct json_writer *writer)
{
    json_open(writer, NULL, '{');
    json_open(writer, "all", '[');
    if (structure->thought == ANSWER_THOUGHT_BEGUN) {
        put_thought(writer, structure);
    } else if (structure->thought == ANSWER_THOUGHT_MAY) {
        json_open(writer, NULL, '{');
        json_open(writer, "maybe", '{');
        json_open(writer, "all", '[');
        put_thought(writer, structure);
        json_close(writer, ']');
        json_close(writer, '}');
        json_close(writer, '}');
    }
    put_rest(writer, structure);
    json_close(writer, ']');
    json_close(writer, '}');
}
