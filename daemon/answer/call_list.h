/* A list of objects, each a call, as several formats have it behind their mark: [{...}, {...}].
 * While it is read the reader's call_state is one of those here; the format's own are behind them.
 */
#pragma once

#include "daemon/answer/answer_reader.h"

enum { CALL_LIST_OPEN, CALL_LIST_OBJECT, CALL_LIST_BEHIND, CALL_LIST_STATES };

/* How such a list is written (call_format.h: struct call_shape), behind the mark. */
#define CALL_LIST_SHAPE                                                                            \
    {.open = "\1[", .name = "{\"name\": \"", .between = "\", \"arguments\": ", .close = "}",          \
     .next = ", ", .end = "]"}

/* The byte is the bracket that opens it. */
void call_list_begin(struct answer_reader *reader, char byte);
/* Behind the bracket that closes it calls are over; where it is no list of calls, there are none.
 */
void call_list_byte(struct answer_reader *reader, char byte);
