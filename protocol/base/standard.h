/* Standard descriptors: what a program was started without is opened, first of all in main(), so
 * that no socket or file gets the number of one and is written to by everybody who prints.
 */
#pragma once

#include <stdio.h>

/* The null device in place of 0, 1 and 2 where they are closed, each in the direction that nobody
 * uses: reading from a closed input and writing to a closed output fail, as they would have. Only
 * messages, on 2, go nowhere. Negative errno when there is none. */
int standard_open(void);
/* Writes out what was printed to `file`, standard output: 0, or negative errno when something of
 * it, also earlier, could not be written. */
int standard_flush(FILE *file);
