/* The deadline of a body whose turn to be read has not come: its bytes are looked at as they come,
 * once, and by far less than a parser. Whatever it finds, the parser says what holds; a body that
 * is none gives nonsense, which is no harm. */
#include <string.h>

#include "daemon/http/exchange.h"

static const char key[] = "deadline_ms";
#define KEY_LENGTH ((uint32_t)sizeof(key) - 1)
#define MS_MAX (UINT64_C(1) << 43) /* in microseconds it is no number of 64 bits beyond */

static void in_string(struct body_deadline *deadline, char byte)
{
    if (deadline->escaped) {
        deadline->escaped = false;
    } else if (byte == '\\') {
        deadline->escaped = true;
        deadline->matched = KEY_LENGTH + 1;
    } else if (byte == '"') {
        deadline->in_string = false;
        deadline->found =
            deadline->depth == 1 && deadline->at_key && deadline->matched == KEY_LENGTH;
    } else if (deadline->matched < KEY_LENGTH && byte == key[deadline->matched]) {
        deadline->matched++;
    } else {
        deadline->matched = KEY_LENGTH + 1;
    }
}

/* Of the value behind the key, at depth 1. */
static void in_value(struct body_deadline *deadline, char byte)
{
    if (byte >= '0' && byte <= '9' && deadline->ms < MS_MAX) {
        deadline->ms = deadline->ms * 10 + (uint64_t)(byte - '0');
    } else if (!strchr(": \t\r\n", byte)) {
        deadline->found = false; /* no whole number, or too large a one */
        deadline->ms = 0;
    }
}

static void between(struct body_deadline *deadline, char byte)
{
    if (deadline->found && byte != ',' && byte != '}') {
        in_value(deadline, byte);
        return;
    }
    switch (byte) {
    case '"':
        deadline->in_string = true;
        deadline->matched = 0;
        break;
    case '{':
    case '[':
        deadline->depth++;
        deadline->at_key = byte == '{';
        break;
    case '}':
    case ']':
        deadline->depth -= deadline->depth > 0;
        deadline->at_key = deadline->found = false;
        break;
    case ',':
        deadline->at_key = true;
        deadline->found = false;
        break;
    case ':':
        deadline->at_key = false;
        break;
    default:
        break;
    }
}

void hint_read(struct body_deadline *deadline, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (deadline->in_string)
            in_string(deadline, bytes[i]);
        else
            between(deadline, bytes[i]);
}
