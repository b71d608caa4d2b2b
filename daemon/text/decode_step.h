/* Steps of decoding that follow each other: Replace, Strip, Metaspace, and ByteFallback behind
 * Fuse. Text goes through them as it comes; what a step cannot decide on yet it holds back, as a
 * count of what it has matched, so that its state has a fixed size.
 *
 * A token's end is told where steps stand before Fuse; behind it all of the text is one token.
 * Pure; the steps are shared by threads, the state is one caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DECODE_STEPS_MAX 8
#define DECODE_TEXT_MAX 64   /* bytes of a pattern, and of what takes its place */
#define DECODE_STRIP_MAX 256 /* characters at a token's end; they are held back */
#define DECODE_GROWTH_MAX 64 /* how many times as long a text may become */

enum decode_kind {
    DECODE_REPLACE,
    DECODE_STRIP_START,
    DECODE_STRIP_END,
    DECODE_BYTE /* a token <0xHH> becomes a byte */
};

struct decode_step {
    enum decode_kind kind;
    bool drops_first; /* in the first token nothing takes the pattern's place */
    uint8_t pattern_length, content_length;
    char pattern[DECODE_TEXT_MAX], content[DECODE_TEXT_MAX];
    uint8_t border[DECODE_TEXT_MAX]; /* [i]: of the pattern's first i + 1 bytes */
    uint32_t count;                  /* strip: characters at most */
};

/* Zero where a token begins. */
struct decode_state {
    uint8_t held;   /* bytes of the pattern that are matched and not told yet */
    bool past;      /* strip at the start: something else has come */
    uint16_t count; /* strip: characters taken, or held back */
};

/* What comes through the steps up to `end` is appended to `out`, which has room for decode_room().
 * To steps from text_first on all is the first token. */
struct decode_run {
    const struct decode_step *steps;
    struct decode_state *states;
    size_t text_first, end;
    bool first_token;
    char *out;
    size_t used;
};

/* After its kind, pattern and lengths are set. */
void decode_step_ready(struct decode_step *step);
/* How many times as long it can make a text. */
size_t decode_growth(const struct decode_step *step);
/* Bytes that come out of `bytes` at most, and of what was held back before. */
size_t decode_room(const struct decode_step *steps, size_t count, size_t bytes);
/* Bytes into step `at`, whole characters at each call from outside. */
void decode_push(struct decode_run *run, size_t at, const char *text, size_t length);
/* The token's end: what steps [from, to) held back goes on. They begin anew. */
void decode_end(struct decode_run *run, size_t from, size_t to);
/* The byte of a token <0xHH>; -1 for any other. */
int decode_byte(const char *text, size_t length);
