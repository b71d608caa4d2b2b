/* How models mark what they think: a table. */
#pragma once

struct reasoning_format {
    const char *name;
    const char *begin, *end;
};

/* NULL: the template has none of the marks. */
const struct reasoning_format *reasoning_find(const char *chat_template);
