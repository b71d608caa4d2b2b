/* Constraints by lines, for suite.py, random_schemas.py and maskbench.py: a letter, a space, and
 *   S SCHEMA     compiles it: "ok", or "refused WHY"; later lines are of this one
 *   P PATTERN    the same; it, and the texts of the lines behind it, are strings of JSON
 *   G GRAMMAR    the same
 *   R INSTANCE   "1": it may be produced, "0": not, "-": nothing is compiled
 *   D SEED       "ended TEXT" or "cut": drawn token by token from the masks, by a model that knows
 *  * nothing
 *   M INSTANCE   reads it in pieces with a mask before each: "MASKS US_ALL US_WORST", by the thread's
 * clock
 *   B            "US": what compiling it took, by the same clock
 *   T TOKENS     numbers: "taken 0" or "taken 1", and for each until it is not, what its mask took and
 * what reading it did, in us
 * Options: a style of tokens (0, 1, 2), "large" for 128,000 drawn ones, or a file of them: their bytes
 * in hexadecimal, a line each, of which an empty one is the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "protocol/base/json.h"
#include "tests/constrain/constrain_suites.h"

#define LARGE 128000u
#define DRAWN_MAX 3000

struct lines {
    struct vocabulary *vocabulary;
    struct constraint *constraint;
    uint32_t *bits;
    uint64_t seed;
    double compile_us;
    bool quoted; /* texts come and go as strings of JSON */
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static uint32_t draw(struct lines *lines, uint32_t below)
{
    lines->seed = lines->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(lines->seed >> 33) % below;
}

/* Words and pieces as a large tokenizer has them: half begin with a space, some end in quotes. */
static size_t drawn_token(struct lines *lines, char *token)
{
    static const char *const ends[] = {"\",", "\":",  "\"}", "\"", "\\",
                                       "\n",  "\xc3", ",",   ".",  ")"};
    size_t used = 0, length = 2 + draw(lines, 8) + draw(lines, 4);
    uint32_t kind = draw(lines, 100);
    if (kind < 50)
        token[used++] = ' ';
    if (kind >= 97) {
        for (used = 0; used < 1 + kind % 3; used++)
            token[used] = (char)('0' + draw(lines, 10));
        return used;
    }
    while (used < length)
        token[used++] = "etaoinshrdlucmfwypvbgkjqxz"[draw(lines, 26) * draw(lines, 26) / 26];
    if (kind >= 92) {
        const char *end = ends[draw(lines, 10)];
        size_t more = strlen(end);
        memcpy(token + used, end, more);
        used += more;
    }
    return used;
}

static struct vocabulary *large(struct lines *lines)
{
    struct vocabulary_token *tokens = calloc(LARGE, sizeof(*tokens));
    char *bytes = malloc((size_t)LARGE * 16);
    struct vocabulary *vocabulary = NULL;
    int32_t end = END_TOKEN;
    if (!tokens || !bytes)
        abort();
    for (uint32_t id = 0; id < LARGE; id++) {
        char *token = bytes + (size_t)id * 16;
        token[0] = (char)id;
        tokens[id] = (struct vocabulary_token){token, id < 256 ? 1 : 0};
        if (id > END_TOKEN)
            tokens[id].length = drawn_token(lines, token);
    }
    if (vocabulary_new(tokens, LARGE, &end, 1, &vocabulary, NULL))
        abort();
    free(tokens);
    free(bytes);
    return vocabulary;
}

/* A line of hexadecimal digits as a token of `bytes`; returns its length. */
static size_t read_token(const char *line, char *bytes)
{
    size_t length = 0;
    unsigned byte;
    for (; sscanf(line + 2 * length, "%2x", &byte) == 1; length++)
        bytes[length] = (char)byte;
    return length;
}

static struct vocabulary *from_file(const char *path)
{
    struct vocabulary_token *tokens = calloc(VOCABULARY_TOKENS_MAX, sizeof(*tokens));
    struct vocabulary *vocabulary = NULL;
    static char line[4 * VOCABULARY_TOKEN_BYTES_MAX], bytes[2 * VOCABULARY_TOKEN_BYTES_MAX];
    FILE *file = fopen(path, "r");
    int32_t end = -1;
    uint32_t count = 0;
    if (!file || !tokens)
        abort();
    for (; count < VOCABULARY_TOKENS_MAX && fgets(line, sizeof(line), file); count++) {
        tokens[count].length = read_token(line, bytes);
        char *own = malloc(tokens[count].length + 1);
        if (!own)
            abort();
        memcpy(own, bytes, tokens[count].length);
        tokens[count].bytes = own;
        if (tokens[count].length == 0)
            end = (int32_t)count;
    }
    fclose(file);
    if (vocabulary_new(tokens, count, &end, 1, &vocabulary, NULL))
        abort();
    while (count > 0)
        free((void *)tokens[--count].bytes);
    free(tokens);
    return vocabulary;
}

/* The text of a string of JSON, or what stands there; to be freed. */
static char *unquoted(const struct lines *lines, const char *text, size_t *length)
{
    struct json_bounds bounds = {*length, 4, 4};
    json *value = NULL;
    if (lines->quoted && json_parse(text, *length, bounds, &value, NULL))
        abort();
    char *copy = strdup(value ? json_string(value) : text);
    json_free(value);
    if (!copy)
        abort();
    *length = strlen(copy);
    return copy;
}

static void print(const struct lines *lines, const char *text, size_t length)
{
    static char quoted[DRAWN_MAX * 64 * 6];
    struct json_writer writer;
    if (!lines->quoted) {
        printf("ended %.*s\n", (int)length, text);
        return;
    }
    json_writer_init(&writer, quoted, sizeof(quoted));
    json_put_string(&writer, NULL, text, length);
    printf("ended %.*s\n", (int)writer.used, quoted);
}

static void compile(struct lines *lines, char letter, const char *line, size_t length)
{
    struct error error = {0};
    lines->quoted = letter != 'S';
    char *text = unquoted(lines, line, &length);
    enum constraint_kind kind = letter == 'S'   ? CONSTRAINT_SCHEMA
                                : letter == 'P' ? CONSTRAINT_PATTERN
                                                : CONSTRAINT_GRAMMAR;
    constraint_free(lines->constraint);
    lines->constraint = NULL;
    double begin = now_us();
    int rc = constraint_new(kind, text, length, lines->vocabulary, &lines->constraint, &error);
    lines->compile_us = now_us() - begin;
    if (rc)
        printf("refused %s\n", error.text);
    else
        puts("ok");
    free(text);
}

static void read_text(struct lines *lines, const char *line, size_t length)
{
    char *text = unquoted(lines, line, &length);
    puts(meets(lines->constraint, text, length) == 1 ? "1" : "0");
    free(text);
}

static bool is_set(const struct lines *lines, uint32_t token)
{
    return lines->bits[token / 32] >> token % 32 & 1;
}

/* After a while, and more and more, what closes: else random texts seldom end. */
static uint32_t choose(struct lines *lines, const struct constraint_allowed *allowed, int drawn)
{
    uint32_t tokens = lines->vocabulary->tokens, token = draw(lines, tokens);
    if (allowed->ends && (int)draw(lines, 100) < 20 + drawn)
        return END_TOKEN;
    if ((int)draw(lines, 100) < drawn - 20)
        for (const char *closer = "\"}]0"; *closer; closer++)
            if (is_set(lines, (uint8_t)*closer))
                return (uint8_t)*closer;
    while (!is_set(lines, token))
        token = (token + 1) % tokens;
    return token;
}

static void draw_text(struct lines *lines, uint64_t seed)
{
    static char text[DRAWN_MAX * 64];
    struct constraint_place place;
    size_t used = 0;
    uint32_t token = 0;
    lines->seed = seed * 0x9e3779b97f4a7c15u + 1;
    constraint_start(lines->constraint, &place);
    for (int drawn = 0; drawn < DRAWN_MAX && token != END_TOKEN; drawn++) {
        struct constraint_allowed allowed;
        if (constraint_mask(lines->constraint, &place, lines->bits, &allowed, NULL))
            break;
        token = choose(lines, &allowed, drawn);
        if (constraint_advance(lines->constraint, &place, (int32_t)token, NULL))
            abort(); /* the mask had it */
        const struct vocabulary *vocabulary = lines->vocabulary;
        size_t length = vocabulary->offset[token + 1] - vocabulary->offset[token];
        memcpy(text + used, vocabulary->bytes + vocabulary->offset[token],
               token == END_TOKEN ? 0 : length);
        used += token == END_TOKEN ? 0 : length;
    }
    constraint_drop(lines->constraint, &place);
    if (token == END_TOKEN)
        print(lines, text, used);
    else
        puts("cut");
}

static void masks(struct lines *lines, const char *text, size_t length)
{
    struct constraint_place place;
    double all = 0, worst = 0;
    int count = 0;
    constraint_start(lines->constraint, &place);
    for (size_t at = 0, step; at < length; at += step, count++) {
        struct constraint_allowed allowed;
        double begin = now_us();
        if (constraint_mask(lines->constraint, &place, lines->bits, &allowed, NULL))
            break;
        double took = now_us() - begin;
        all += took;
        worst = took > worst ? took : worst;
        step = 1 + draw(lines, 5);
        step = at + step > length ? length - at : step;
        if (constraint_read(lines->constraint, &place, text + at, step, NULL))
            break;
    }
    constraint_drop(lines->constraint, &place);
    printf("%d %.1f %.1f\n", count, all, worst);
}

static void time_tokens(struct lines *lines, const char *text)
{
    static char out[1 << 22];
    struct constraint_place place;
    size_t used = 0;
    bool taken = true;
    char *rest = NULL;
    constraint_start(lines->constraint, &place);
    while (taken && *text && used + 64 < sizeof(out)) {
        struct constraint_allowed allowed;
        int32_t token = (int32_t)strtol(text, &rest, 10);
        double begin = now_us();
        taken = !constraint_mask(lines->constraint, &place, lines->bits, &allowed, NULL);
        double masked = now_us();
        taken = taken && is_set(lines, (uint32_t)token) &&
                !constraint_advance(lines->constraint, &place, token, NULL);
        double done = now_us();
        used += (size_t)snprintf(out + used, sizeof(out) - used, " %.2f %.2f", masked - begin,
                                 done - masked);
        text = rest;
    }
    constraint_drop(lines->constraint, &place);
    printf("taken %d%s\n", taken, out[0] ? out : "");
    out[0] = '\0';
}

int main(int count, char **arguments)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    struct lines lines = {.seed = 1};
    const char *style = count > 1 ? arguments[1] : "0";
    lines.vocabulary = strchr(style, '/')         ? from_file(style)
                       : strcmp(style, "large") ? style_new(atoi(style))
                                                : large(&lines);
    lines.bits = calloc(lines.vocabulary->words, sizeof(uint32_t));
    if (!lines.bits)
        abort();
    while ((length = getline(&line, &room, stdin)) > 1) {
        line[--length] = 0;
        if (strchr("SPG", line[0]))
            compile(&lines, line[0], line + 2, (size_t)length - 2);
        else if (!lines.constraint)
            puts("-");
        else if (line[0] == 'R')
            read_text(&lines, line + 2, (size_t)length - 2);
        else if (line[0] == 'B')
            printf("%.1f\n", lines.compile_us);
        else if (line[0] == 'T')
            time_tokens(&lines, line + 2);
        else if (line[0] == 'D')
            draw_text(&lines, strtoull(line + 2, NULL, 10));
        else
            masks(&lines, line + 2, (size_t)length - 2);
        fflush(stdout);
    }
    constraint_free(lines.constraint);
    vocabulary_free(lines.vocabulary);
    free(lines.bits);
    free(line);
    return 0;
}
