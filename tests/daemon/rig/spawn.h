/* A daemon as a process of its own, and a blocking client of its socket. Whatever takes longer than
 * SPAWN_PATIENCE_MS has failed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol/frame.h"

#define SPAWN_PATIENCE_MS 60000 /* bounds what hangs, with a sanitizer on a busy machine, too */

struct spawn {
    char directory[64]; /* its own; holds socket, log and configuration */
    char socket[96], log[96], config[96];
    pid_t pid;
    unsigned closed;      /* standard descriptors that it starts without: bit n is n */
    unsigned descriptors; /* that it may open; 0 = as many as the test */
};

/* A directory, and no daemon yet. */
void spawn_make(struct spawn *spawn);
/* Starts sluiced with these arguments (up to NULL) behind --socket and --module-dir; `environment`
 * is put in front of the test's own, and may be NULL. */
void spawn_start(struct spawn *spawn, const char *const *arguments, const char *const *environment);
/* Until it answers HEALTH with "ok". */
void spawn_await_ready(struct spawn *spawn);
/* Its exit code, -1 when a signal ended it. */
int spawn_wait(struct spawn *spawn);
/* Whether its log holds the text. */
bool spawn_logged(const struct spawn *spawn, const char *text);
/* The same of a daemon that lives: a thread of its own writes the log, a moment later. */
bool spawn_logs(const struct spawn *spawn, const char *text);
/* The end of its log, for what a test says of a failure: until the next call. */
const char *spawn_last_words(const struct spawn *spawn);
uint32_t spawn_descriptors(const struct spawn *spawn);
uint64_t spawn_resident(const struct spawn *spawn); /* bytes */
uint64_t spawn_peak(const struct spawn *spawn);     /* the most that it ever was */
/* Ends what runs, and removes the directory. */
void spawn_free(struct spawn *spawn);

struct wire {
    int fd;
    _Alignas(8) unsigned char buffer[1u << 16];
    size_t length, used; /* used: of the frame given last */
};

/* -1 when nobody listens. */
int wire_connect(const struct spawn *spawn);
/* connect and HELLO; the WELCOME is read. False when nobody listens, or who was let in is turned away
 * again, as by a daemon that has no descriptor left. */
bool wire_try(struct wire *wire, const struct spawn *spawn);
/* The same, and must succeed. */
void wire_open(struct wire *wire, const struct spawn *spawn);
void wire_close(struct wire *wire);
void wire_send(struct wire *wire, const void *bytes, size_t length);
/* False at the end of the stream. Borrowed until the next call. */
bool wire_next(struct wire *wire, struct frame *ret_frame);
/* Skips to the next of that type. */
void wire_find(struct wire *wire, uint8_t type, struct frame *ret_frame);
/* Skips to the next DONE. */
struct message_done wire_done(struct wire *wire);
void wire_control(struct wire *wire, uint8_t type, const char *head);
/* Prompts of five tokens, each to give `max_tokens`, as one SUBMIT: its length. At most 64. */
size_t wire_encode_generate(void *buffer, size_t size, uint64_t id, uint32_t count,
                            uint32_t max_tokens);
void wire_generate(struct wire *wire, uint64_t id, uint32_t count, uint32_t max_tokens);
