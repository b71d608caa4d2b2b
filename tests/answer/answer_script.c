#include "tests/answer/answer_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void answer_script_make(struct answer_script *script, const char *chat_template, bool special)
{
    *script = (struct answer_script){.tools = true};
    answer_form_find(&script->form, chat_template, NULL);
    for (unsigned i = 0; special && i < ANSWER_MARKS; i++) {
        struct answer_mark *mark = &script->form.marks[i];
        if (mark->length == 0)
            continue;
        memmove(mark->text + 1, mark->text, mark->length++);
        mark->text[0] = ANSWER_SPECIAL;
    }
}

struct told {
    FILE *out;
    bool any;
    enum answer_part part;
};

static void tell(void *context, const struct answer_event *event)
{
    struct told *told = context;
    bool same = told->any && told->part == event->part && event->part != ANSWER_CALL;
    if (!same && told->any && told->part != ANSWER_CALL)
        fputc(')', told->out);
    if (event->part == ANSWER_CALL)
        fprintf(told->out, "[%.*s]", (int)event->length, event->text);
    else if (!same)
        fputs(event->part == ANSWER_REASONING ? "R("
              : event->part == ANSWER_CONTENT ? "C("
                                              : "(",
              told->out);
    if (event->part != ANSWER_CALL)
        fwrite(event->text, 1, event->length, told->out);
    told->any = true;
    told->part = event->part;
}

char *answer_script_read(const struct answer_script *script, const char *text, size_t length,
                         size_t (*cut)(void *context), void *context)
{
    char *out = NULL;
    size_t size = 0;
    struct told told = {.out = open_memstream(&out, &size)};
    struct answer_reader reader;
    answer_reader_init(&reader, &script->form, script->thinks, script->tools, tell, &told);
    reader.names = script->names;
    reader.types = script->types;
    for (size_t at = 0, next; at < length; at += next) {
        next = cut ? cut(context) : length;
        next = next > length - at ? length - at : next;
        answer_reader_push(&reader, text + at, next);
    }
    answer_reader_finish(&reader);
    answer_reader_free(&reader);
    if (told.any && told.part != ANSWER_CALL)
        fputc(')', told.out);
    fclose(told.out);
    return out;
}
