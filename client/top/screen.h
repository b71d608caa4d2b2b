/* The lines of `sluice top`, as text: what is drawn on a terminal, and what a pipe gets.
 *
 * It knows neither: a struct screen takes lines, at most `columns` wide.
 */
#pragma once

#include "client/top/history.h"
#include "protocol/base/json.h"

#define SCREEN_ROWS_MAX 400
#define SCREEN_BYTES 1024 /* of a line: characters of a sparkline take three */
#define SCREEN_USER_MAX 127

struct screen {
    int columns, rows;
    bool ascii; /* the terminal knows no other characters: sparklines are drawn with these */
    int used;
    int heading; /* the row above the requests; they follow. -1 = none is there */
    char lines[SCREEN_ROWS_MAX][SCREEN_BYTES];
};

struct screen_request { /* as STATS lists them */
    uint64_t request;
    char user[SCREEN_USER_MAX + 1];
    char job[16];
    char adapter[24]; /* "": none */
    int priority;
    uint64_t sequences, waiting, running, tokens, age_us;
};

struct screen_state {
    const char *model, *device, *status;
    const struct history *history;
    const struct screen_request *requests;
    uint32_t request_count, chosen; /* chosen: the one that a key would cancel */
    const char *formats; /* as screen_read_formats gives them; NULL: not known */
    const char *models;  /* as screen_read_models gives them; NULL: not known */
    const char *message; /* NULL = the help line */
};

/* Reads the list of STATS into at most `max`, oldest first; returns how many. */
uint32_t screen_read_requests(const json *stats, struct screen_request *requests, uint32_t max);

/* What STATS says of weights and of keys and values, as the line has it; empty: nothing. */
void screen_read_formats(const json *stats, char *text, size_t size);

/* Likewise of models, where there are several. */
void screen_read_models(const json *stats, char *text, size_t size);

void screen_draw(struct screen *screen, const struct screen_state *state);
/* One line for a pipe or a log; with `heading` the names of its columns. */
void screen_plain(char *line, size_t size, const struct history *history, bool heading);
