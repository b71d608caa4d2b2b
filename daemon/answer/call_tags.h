/* What formats have in common that write a call's name and arguments between marks. The name that
 * is read is the reader's object's, the key its value's.
 */
#pragma once

#include "daemon/answer/answer_reader.h"

/* A byte of the name; where none has it, there is no call. */
void call_tags_name(struct answer_reader *reader, char byte);
/* The name is over, and the arguments begin. False: no tool has it, and there is no call. */
bool call_tags_named(struct answer_reader *reader, bool lines);
/* Likewise, where the byte begins arguments that are JSON; and a byte more of these. */
bool call_tags_arguments(struct answer_reader *reader, char byte);
enum json_scan_result call_tags_argument(struct answer_reader *reader, char byte);
void call_tags_key(struct answer_reader *reader, char byte);
/* A mark amid a value: true if it ends it, as the sixth does, but for its text amid an array's or
 * object's strings. Another's text is the value's. */
bool call_tags_value(struct answer_reader *reader, enum answer_mark_kind mark);
/* A byte behind a call, where only the mark that closes it may stand. */
void call_tags_behind(struct answer_reader *reader, char byte);
/* A mark where the format has no place for it. */
void call_tags_stray(struct answer_reader *reader, enum answer_mark_kind mark);
bool call_tags_special(const struct answer_reader *reader, enum answer_mark_kind mark);
