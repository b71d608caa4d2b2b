/* Messages that a daemon must refuse, one way each, with the code that it must answer. For a daemon
 * with synthetic:null. The simulation sends them at any time, the hostile test at a real daemon.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stands in every message that has room for words; no log, status or metric may repeat it. */
#define BAD_CANARY "canary-4d1f09c2"

struct bad {
    const char *name;
    int code;    /* ERR_... that comes back */
    bool closes; /* the connection cannot go on after it */
    uint8_t type;
    const char *head;
    uint32_t tokens; /* of the payload */
    int32_t token;   /* each of them */
    /* Bytes of the finished frame that are overwritten. */
    uint32_t patch_at, patch_size;
    uint64_t patch;
    const char *raw; /* instead of all that */
    bool chat;       /* a conversation: a model without a template refuses any, as unsupported */
};

extern const struct bad bad_table[];
extern const uint32_t bad_count;

#define BAD_SIZE_MAX 1024

/* The message with this id; returns its size. */
size_t bad_encode(const struct bad *bad, uint64_t id, unsigned char out[BAD_SIZE_MAX]);
