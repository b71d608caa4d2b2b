/* What the daemon listens on: the sockets that systemd passes, told apart by their names or else by
 * their addresses, and those that options ask for. Before the loop starts.
 */
#pragma once

#include <stdint.h>

#include "protocol/base/error.h"

struct event_loop;
struct listener;
struct options;

enum socket_kind { SOCKET_NATIVE, SOCKET_HTTP, SOCKET_METRICS, SOCKET_AGENT };

/* All of them; errors name the option. */
int sockets_open(struct event_loop *loop, const struct options *options, uint64_t salt,
                 struct error *error);
/* Whether the options could be asked for, and the keys be read; opens nothing. */
int sockets_check(const struct options *options, struct error *error);

/* sluiced-NAME.socket passes what the option would open. */
const char *sockets_unit(const char *option);

/* What a passed socket is for. Its name says native, http, metrics or agent; under any other name a path
 * that ends in "/http.sock" or "-http.sock" is of HTTP, likewise with metrics and agent, and any
 * other path is native. Pure. */
int sockets_tell(const struct listener *passed, enum socket_kind *ret_kind, struct error *error);
