/* What formats have in common that write a call's name and arguments between marks. The name that
 * is read is the reader's object's, the key its value's.
 */
#pragma once

#include "daemon/answer/answer_reader.h"

/* A byte of the name; where none has it, there is no call. */
void call_tags_name(struct answer_reader *reader, char byte);
/* The name is over, and the arguments begin. False: no tool has it, and there is no call. */
bool call_tags_named(struct answer_reader *reader, bool lines);
void call_tags_key(struct answer_reader *reader, char byte);
/* Whether the mark ends a value: the sixth, but for its text amid an array's or object's strings.
 */
bool call_tags_ends(const struct answer_reader *reader, enum answer_mark_kind mark);
/* A byte behind a call, where only the mark that closes it may stand. */
void call_tags_behind(struct answer_reader *reader, char byte);
/* A mark where the format has no place for it. */
void call_tags_stray(struct answer_reader *reader, enum answer_mark_kind mark);
bool call_tags_special(const struct answer_reader *reader, enum answer_mark_kind mark);
