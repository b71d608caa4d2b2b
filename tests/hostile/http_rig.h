/* A real daemon with HTTP on a socket of its own and a port, the least of a client for it, and a
 * canary beside. One daemon at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/hostile/scene.h"

#define MIB ((size_t)1 << 20)
#define DESCRIPTORS 4096
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CROWD 200 /* what is slow anyway is not done several times over */
#define AT_A_TIME 1
#else
#define CROWD 1000
#define AT_A_TIME 4
#endif
#if defined(__SANITIZE_THREAD__)
#define STRIDE 3
#else
#define STRIDE 1
#endif

extern struct scene scene;

/* ---- the daemon ------------------------------------------------------------------------------ */

/* Whether a thousand connections can be open; the daemon has the limit from here. */
bool http_raise_descriptors(void);
/* A directory and options, and no daemon yet. */
void http_make(void);
void http_start(const char *model, const char *input_max, const struct canary_song *song);
/* The two of a fixture: a daemon without a model. */
void http_setup(void);
void http_teardown(void);

/* ---- the client ------------------------------------------------------------------------------ */

int http_connect(void);
int http_tcp_connect(void);
/* False when the other side takes no more: it may have answered before all was there. */
bool http_send(int fd, const void *bytes, size_t length);
/* The status, 0 when it was closed without one; text: the first bytes of the answer. */
int http_status(int fd, char *text, size_t size);
/* A connection on which the head of a POST was sent. */
int http_head(const char *path, size_t length);
int http_post(const char *path, const char *body, size_t length, char *text, size_t size);
/* Of a POST: its status, and what its answer has in it. The canary sings still. */
void http_expect(const char *path, const char *body, size_t length, int status, const char *says);
/* `head`, then `length` bytes of a pattern, then `tail`; the caller's to free. */
char *http_body_of(const char *head, const char *pattern, size_t length, const char *tail,
                   size_t *ret_length);
