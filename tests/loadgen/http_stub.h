/* A server of streamed completions for the test of the HTTP side: one thread, HTTP/1.1 on a Unix
 * socket, and a stamp of CLOCK_MONOTONIC at everything it does. */
#pragma once

#include <stdint.h>

#include "protocol/base/clock.h"

#define HTTP_STUB_TOKENS 3
#define HTTP_STUB_MAX 64

struct http_stamps {  /* of one request, in the order of their coming */
    time_us heard_us; /* all of it was read */
    time_us before_us[HTTP_STUB_TOKENS], after_us[HTTP_STUB_TOKENS]; /* around each chunk's write */
};

struct http_stub;

/* Every fail_every-th request is answered with 429 (0 = none). */
struct http_stub *http_stub_start(uint32_t fail_every, const char **ret_path);
/* From now on; before anybody connects. */
void http_stub_ask_key(struct http_stub *stub, const char *key);
void http_stub_stop(struct http_stub *stub);
/* After it was stopped; returns how many requests there were, with those refused. */
uint32_t http_stub_stamps(const struct http_stub *stub, const struct http_stamps **ret_stamps);
void http_stub_free(struct http_stub *stub);
