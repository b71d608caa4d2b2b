/* Digests in a file of the tree, one to a line: "NAME DIGEST". They were made once, of a tree that
 * is known to be right; `--write FILE` makes them anew, and says in that way that bits may change.
 * One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/parts.h"

#define DIGEST_START UINT64_C(0xcbf29ce484222325)

struct digest_book {
    char *known; /* the file's text; NULL: a new file is written */
    void *out;   /* FILE, of that */
    uint32_t seen, different;
    uint32_t elsewhere; /* lines of the file that are other parts' */
    struct parts parts;
};

/* The arguments of main: none, or --write FILE. False: neither. */
bool digest_open(struct digest_book *book, const char *file, int argc, char **argv);
/* Whether what is named is this part's to run; all of it is, where a file is written. */
bool digest_turn(struct digest_book *book, const char *name);
uint64_t digest_add(uint64_t digest, const void *data, size_t bytes); /* FNV-1a */
/* Compares, or writes; says what differs. */
void digest_note(struct digest_book *book, const char *name, uint64_t digest);
/* The program's exit status: also names of the file that did not come up count as different, but
 * where only some are tried. */
int digest_close(struct digest_book *book, bool all);
