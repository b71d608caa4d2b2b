#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/grammar/json_rules.h"

uint32_t json_shared(struct grammar *grammar, uint32_t from, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && !grammar->code; i++) {
        uint8_t byte = (uint8_t)bytes[i];
        uint32_t at = grammar->nodes[from].first;
        for (; at != GRAMMAR_NONE; at = grammar->edges[at].next)
            if (grammar->edges[at].kind == EDGE_BYTES && grammar->edges[at].low == byte &&
                grammar->edges[at].high == byte)
                break;
        from = at != GRAMMAR_NONE ? grammar->edges[at].to
                                  : grammar_bytes(grammar, from, GRAMMAR_NONE, byte, byte);
    }
    return from;
}

uint32_t json_quoted(struct grammar *grammar, uint32_t from, const char *text)
{
    static const char names[] = "\"\\bfnrt", meant[] = "\"\\\b\f\n\r\t";
    static const char digits[] = "0123456789abcdef";
    from = json_shared(grammar, from, "\"", 1);
    for (; *text && !grammar->code; text++) {
        unsigned char byte = (unsigned char)*text;
        bool escaped = byte < ' ' || byte == '"' || byte == '\\';
        const char *found = escaped ? strchr(meant, byte) : NULL;
        char escape[] = {'\\',
                         found ? names[found - meant] : 'u',
                         '0',
                         '0',
                         digits[byte >> 4],
                         digits[byte & 15]};
        from = escaped ? json_shared(grammar, from, escape, found ? 2 : sizeof(escape))
                       : json_shared(grammar, from, text, 1);
    }
    return json_shared(grammar, from, "\"", 1);
}

static uint32_t scalar(struct grammar *grammar, uint32_t from, const json *value)
{
    char text[64];
    struct json_writer writer;
    if (json_is_string(value))
        return json_quoted(grammar, from, json_string(value));
    json_writer_init(&writer, text, sizeof(text));
    json_put_value(&writer, NULL, value);
    if (writer.used > sizeof(text))
        grammar_fail(grammar, ERR_UNSUPPORTED, "a constant number of more than 64 characters");
    return json_shared(grammar, from, text, grammar->code ? 0 : writer.used);
}

/* Depth is that of a JSON document, which json_parse bounds. */
uint32_t json_constant(struct grammar *grammar, uint32_t from, const json *value)
{
    bool object = json_is_object(value);
    if (!object && !json_is_array(value))
        return scalar(grammar, from, value);
    from = grammar_word(grammar, from, object ? "{" : "[");
    for (const json *child = json_child(value); child && !grammar->code; child = json_next(child)) {
        if (child != json_child(value))
            from = json_comma(grammar, from);
        if (object)
            from = json_colon(grammar, json_quoted(grammar, from, json_key(child)));
        uint32_t own = grammar_node(grammar); /* a gap's end has other ways into it */
        grammar_nothing(grammar, from, own);
        from = json_constant(grammar, own, child);
    }
    return grammar_word(grammar, from, object ? "}" : "]");
}
