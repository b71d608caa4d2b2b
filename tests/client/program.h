/* Runs the program sluice as a user would. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#define PROGRAM_TEXT (1 << 20)

struct program {
    pid_t pid;
    int out, err; /* read ends */
    int status;   /* exit status, or 256 and the signal */
    size_t out_length, err_length;
    char out_text[PROGRAM_TEXT], err_text[PROGRAM_TEXT]; /* terminated */
};

/* arguments after "sluice", ended by NULL. in: descriptor of its standard input, -1 = none. */
void program_start(struct program *program, int in, const char *const *arguments);
/* The same with standard output to `to`, -1 = to the program's own pipe, and without those standard
 * descriptors whose bits are set in `closed`. */
void program_start_on(struct program *program, int in, int to, unsigned closed,
                      const char *const *arguments);
/* Reads its output until the text shows `text`, or it ends. */
void program_await(struct program *program, const char *text);
/* The same, for what it says on standard error. */
void program_await_error(struct program *program, const char *text);
/* Reads to the end; sets status. */
void program_finish(struct program *program);
/* All of it; arguments up to NULL. */
void program_run(struct program *program, const char *first, ...) __attribute__((sentinel));
