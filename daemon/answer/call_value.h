/* A call's arguments as formats write them that are no JSON: each a text between marks, which
 * becomes a member of one JSON object. What a text is, its types say: a string alone is told as it
 * comes; where it may be something else all of it is read first. It is JSON of one of those types
 * if it is one, else a string: what is told is JSON, whatever was written.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/answer/json_scan.h"
#include "daemon/base/buffer.h"

struct answer_reader;

#define CALL_KEY_MAX 256u /* of an argument's name */

struct call_value {
    struct buffer text; /* read so far, where all of it is needed */
    uint8_t types;
    bool lines;   /* an end of a line at its beginning and one at its end are not the text's */
    bool begun;   /* behind its beginning */
    bool newline; /* one has come, which may be the last */
    bool blank;   /* white space so far */
    bool scans;   /* it began as an array or object, and is one so far */
    struct json_scan scan;
    uint32_t members;
    uint16_t key_length;
    char key[CALL_KEY_MAX]; /* of the next argument */
};

/* The object begins, behind the call's name. */
void call_value_open(struct answer_reader *reader, bool lines);
/* Its key is read. */
void call_value_begin(struct answer_reader *reader);
void call_value_byte(struct answer_reader *reader, char byte);
/* Amid a string of an array or object, where no mark's text ends the value. */
bool call_value_quoted(const struct answer_reader *reader);
void call_value_end(struct answer_reader *reader);
void call_value_close(struct answer_reader *reader);
