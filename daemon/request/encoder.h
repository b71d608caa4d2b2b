/* Encoding: some texts on their way to tokens, and what their outputs must be on its way to a
 * constraint. Short texts are tokenized where they came, long ones off the loop.
 *
 * Texts are borrowed until the encoding is done. What it holds counts against `input-max`, as half
 * received messages do. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/request/errand.h"
#include "protocol/base/error.h"
#include "protocol/message.h"

struct constraint_held;
struct response_sink;
struct served_model;
struct server;
struct user;

/* Bytes of text up to which the loop does it itself: some 100 us. */
#define ENCODER_INLINE_MAX ((size_t)8 << 10)

struct encoder_text {
    const char *text;
    size_t length;
    const char *second; /* whose tokens follow; NULL: none */
    size_t second_length;
    bool add_special;
    char *made;   /* owned; `text`, where `prepare` made it, until it is tokens */
    int32_t *ids; /* owned by the encoding */
    uint32_t count;
    struct error *failure; /* owned; with `partial`, why it has no tokens; else NULL */
};

struct encoder {
    struct errand errand;
    struct server *server;
    struct served_model *model; /* whose tokens they become */
    struct user *user; /* the sink's: that may be gone before this is done */
    void (*done)(struct encoder *encoding, time_us now_us);
    /* Off the loop it ended before it was done: as errand_api.end; `done` follows, and means only
     * that no thread looks at it any more. */
    void (*end)(struct encoder *encoding, const struct error *error, time_us now_us);
    time_us deadline_us; /* of whoever waits; 0 = none. This, the next and errand.admits are
                          * set before the start. */
    uint32_t sequences;  /* places in the queue that it takes meanwhile */
    bool partial;        /* a text that must be changed fails alone: texts[i].failure */
    /* Any thread, before a text is read: may make it. NULL: nothing to do. */
    int (*prepare)(struct encoder *encoding, uint32_t index, struct error *error);
    struct encoder_text *texts; /* NULL: there are none, only a constraint */
    uint32_t text_count;
    /* What is compiled before the texts are read, always off the loop. Borrowed. */
    struct message_constraint constraint;
    uint64_t salt;                /* constraint_salt(): with whom it is shared */
    struct constraint_held *held; /* owned: what it became */
    bool held_before;             /* they had asked for the same */
    bool refused;                 /* the error is about the constraint */
    size_t bytes; /* of all texts; and, put there before the start, of what they are made from */
    uint64_t counted; /* against input-max */
    uint32_t ids_max; /* of each text */
    uint32_t vocabulary;
    const struct tokenizer *tokenizer;
    struct error error; /* code 0: all is well; names no text's number */
    uint32_t failed;    /* the text that the error is about */
    bool heavy;         /* some text met a limit */
};

/* Room for `count` texts; what is refused here was refused for want of a tokenizer or of memory.
 * The caller fills in texts[i].text, length and add_special, and `prepare`: that is always off the
 * loop. */
int encoder_make(struct encoder *encoding, struct server *server, struct served_model *model,
                 uint32_t count, struct error *error);
/* Calls `done` once, now or later; then error.code says how it went. Negative when it cannot be
 * begun: then `done` is not called. `end` is set. */
int encoder_start(struct encoder *encoding, struct response_sink *sink,
                  void (*done)(struct encoder *encoding, time_us now_us), time_us now_us,
                  struct error *error);
/* Nobody waits for it any more: drops what is off the loop. `done` follows, or has been called when
 * this returns. */
void encoder_drop(struct encoder *encoding);
/* Any thread, for `prepare`: makes the text by the model's chat template, of a conversation's JSON.
 * No special tokens are added: templates write them. */
int encoder_render(struct encoder *encoding, uint32_t index, const char *text, size_t length,
                   struct error *error);
/* Not while it is under way. Zeroed memory is allowed. */
void encoder_free(struct encoder *encoding);
