/* What the program's exit status says, and how it says it in words. */
#pragma once

#include "client/sluice.h"

enum status {
    STATUS_OK = 0,
    STATUS_SERVER = 1,   /* the daemon failed at it, or refused it for good */
    STATUS_USAGE = 2,    /* wrong command line or input file */
    STATUS_CONNECT = 3,  /* no daemon was reached */
    STATUS_RETRY = 4,    /* refused or broken off; the same may pass later */
    STATUS_DEADLINE = 5, /* --deadline-ms passed */
    STATUS_INTERRUPTED = 130
};

enum status status_of_error(const sluice_error *error);
enum status status_of_end(const sluice_end *end);

/* "sluice: ...", one line on stderr. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
