#include "daemon/answer/call_list.h"

void call_list_begin(struct answer_reader *reader, char byte)
{
    reader->call_state = CALL_LIST_OPEN;
    answer_reader_hold(reader, byte);
}

void call_list_byte(struct answer_reader *reader, char byte)
{
    if (reader->call_state == CALL_LIST_OBJECT) {
        if (answer_reader_object(reader, byte))
            reader->call_state = CALL_LIST_BEHIND;
    } else if (json_scan_space(byte)) {
        answer_reader_hold(reader, byte);
    } else if (reader->call_state == CALL_LIST_OPEN && byte == '{') {
        reader->call_state = CALL_LIST_OBJECT;
        answer_reader_open(reader);
        answer_reader_object(reader, byte);
    } else if (reader->call_state == CALL_LIST_BEHIND && (byte == ',' || byte == ']')) {
        reader->held.length = 0;
        reader->call_state = CALL_LIST_OPEN;
        if (byte == ']')
            answer_reader_behind(reader);
    } else {
        answer_reader_hold(reader, byte);
        answer_reader_no_call(reader);
    }
}
