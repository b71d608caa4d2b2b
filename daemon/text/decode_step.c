#include "daemon/text/decode_step.h"

#include <string.h>

#include "protocol/base/utf8.h"

#define BYTE_TOKEN 6 /* <0xHH> */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int decode_byte(const char *text, size_t length)
{
    if (length != BYTE_TOKEN || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    /* The reference reads the digits as a number, which may have a sign. */
    int high = text[3] == '+' ? 0 : hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void decode_step_ready(struct decode_step *step)
{
    uint8_t held = 0;
    step->border[0] = 0;
    for (uint8_t i = 1; i < step->pattern_length; i++) {
        while (held > 0 && step->pattern[held] != step->pattern[i])
            held = step->border[held - 1];
        held = (uint8_t)(held + (step->pattern[held] == step->pattern[i]));
        step->border[i] = held;
    }
}

size_t decode_growth(const struct decode_step *step)
{
    if (step->kind != DECODE_REPLACE || step->content_length <= step->pattern_length)
        return 1;
    return (step->content_length + step->pattern_length - 1u) / step->pattern_length;
}

size_t decode_room(const struct decode_step *steps, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        size_t held = steps[i].kind == DECODE_STRIP_END ? steps[i].count + 1u : 1;
        bytes = (bytes + held * DECODE_TEXT_MAX) * decode_growth(&steps[i]);
    }
    return bytes;
}

/* The part of the pattern that was held back, `keep` bytes of it are still. */
static void let_go(struct decode_run *run, size_t at, uint8_t keep)
{
    struct decode_state *state = &run->states[at];
    const char *pattern = run->steps[at].pattern;
    size_t length = (size_t)state->held - keep;
    state->held = keep;
    decode_push(run, at + 1, pattern, length);
}

static void replace(struct decode_run *run, size_t at, const char *text, size_t length)
{
    const struct decode_step *step = &run->steps[at];
    struct decode_state *state = &run->states[at];
    const char *end = text + length;
    while (text < end) {
        if (state->held == 0) {
            const char *found = memchr(text, step->pattern[0], (size_t)(end - text));
            decode_push(run, at + 1, text, (size_t)((found ? found : end) - text));
            text = found ? found : end;
            if (!found)
                return;
        }
        while (state->held > 0 && step->pattern[state->held] != *text)
            let_go(run, at, step->border[state->held - 1]);
        if (step->pattern[state->held] != *text)
            continue;
        text++;
        if (++state->held < step->pattern_length)
            continue;
        state->held = 0;
        if (!step->drops_first || !(run->first_token || at >= run->text_first))
            decode_push(run, at + 1, step->content, step->content_length);
    }
}

static void strip_start(struct decode_run *run, size_t at, const char *text, size_t length)
{
    const struct decode_step *step = &run->steps[at];
    struct decode_state *state = &run->states[at];
    for (; length > 0 && !state->past; text++, length--) {
        if (state->count == step->count || *text != step->pattern[state->held]) {
            state->past = true;
            let_go(run, at, 0);
            break;
        }
        if (++state->held == step->pattern_length) {
            state->held = 0;
            state->count++;
        }
    }
    decode_push(run, at + 1, text, length);
}

/* Characters that the end may be made of are held back, the last `count` of them. */
static void strip_end(struct decode_run *run, size_t at, const char *text, size_t length)
{
    const struct decode_step *step = &run->steps[at];
    struct decode_state *state = &run->states[at];
    for (const char *end = text + length; text < end; text++) {
        if (*text != step->pattern[state->held]) {
            for (; state->count > 0; state->count--)
                decode_push(run, at + 1, step->pattern, step->pattern_length);
            let_go(run, at, 0);
            const char *next = memchr(text, step->pattern[0], (size_t)(end - text));
            next = next ? next : end;
            decode_push(run, at + 1, text, (size_t)(next - text));
            text = next - 1;
            continue;
        }
        if (++state->held < step->pattern_length)
            continue;
        state->held = 0;
        if (state->count == step->count)
            decode_push(run, at + 1, step->pattern, step->pattern_length);
        else
            state->count++;
    }
}

/* Bytes of "<0xHH>" that are held are told by their number alone but for the digits, which are kept
 * in the count. */
static char byte_token_at(const struct decode_state *state, uint8_t place)
{
    static const char form[] = "<0x";
    if (place < 3)
        return form[place];
    return place < 5 ? (char)(state->count >> (place == 3 ? 8 : 0) & 0xff) : '>';
}

static void byte_token_go(struct decode_run *run, size_t at)
{
    struct decode_state *state = &run->states[at];
    char text[BYTE_TOKEN];
    for (uint8_t i = 0; i < BYTE_TOKEN; i++)
        text[i] = byte_token_at(state, i);
    size_t length = state->held;
    state->held = 0;
    decode_push(run, at + 1, text, length);
}

static void byte_token(struct decode_run *run, size_t at, const char *text, size_t length)
{
    struct decode_state *state = &run->states[at];
    for (; length > 0 && !state->past; text++, length--) {
        uint8_t place = state->held;
        bool digit = place == 3 || place == 4;
        if (place == BYTE_TOKEN || (unsigned char)*text >= 0x80 ||
            (!digit && *text != byte_token_at(state, place))) {
            state->past = true;
            byte_token_go(run, at);
            break;
        }
        if (digit)
            state->count =
                (uint16_t)(state->count | (unsigned char)*text << (place == 3 ? 8 : 0));
        state->held++;
    }
    decode_push(run, at + 1, text, length);
}

static void byte_token_end(struct decode_run *run, size_t at)
{
    struct decode_state *state = &run->states[at];
    char text[BYTE_TOKEN];
    for (uint8_t i = 0; i < BYTE_TOKEN; i++)
        text[i] = byte_token_at(state, i);
    int byte = decode_byte(text, state->held);
    char single = (char)byte;
    if (byte < 0)
        byte_token_go(run, at);
    else if (byte < 0x80)
        decode_push(run, at + 1, &single, 1);
    else
        decode_push(run, at + 1, UTF8_REPLACEMENT, sizeof(UTF8_REPLACEMENT) - 1);
}

void decode_push(struct decode_run *run, size_t at, const char *text, size_t length)
{
    if (length == 0)
        return;
    if (at == run->end) {
        memcpy(run->out + run->used, text, length);
        run->used += length;
        return;
    }
    switch (run->steps[at].kind) {
    case DECODE_REPLACE:
        replace(run, at, text, length);
        break;
    case DECODE_STRIP_START:
        strip_start(run, at, text, length);
        break;
    case DECODE_STRIP_END:
        strip_end(run, at, text, length);
        break;
    case DECODE_BYTE:
        byte_token(run, at, text, length);
        break;
    }
}

void decode_end(struct decode_run *run, size_t from, size_t to)
{
    for (size_t at = from; at < to; at++) {
        if (run->steps[at].kind == DECODE_BYTE)
            byte_token_end(run, at);
        else
            let_go(run, at, 0);
        run->states[at] = (struct decode_state){0};
    }
}
