/* What the daemon says about itself, as JSON. No byte of a request's content is in any of it.
 *
 * Each writes one object. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "protocol/base/clock.h"
#include "protocol/base/json.h"

struct server;
struct peer;

/* {"status":"loading|ok|draining|failed|stuck","ready":..,"progress":..,"uptime_us":..,...} */
void status_health(const struct server *server, struct json_writer *writer, time_us now_us);
/* What is served, and by which limits. */
void status_model(const struct server *server, struct json_writer *writer);
/* Counters, gauges, histograms, memory. requests: the list of the peer's requests, too, or of all
 * for an admin; at most STATUS_REQUESTS_MAX. */
void status_stats(struct server *server, const struct peer *peer, bool requests,
                  struct json_writer *writer, time_us now_us);

#define STATUS_REQUESTS_MAX 1000u
/* Room that each of them takes at most. */
#define STATUS_SIZE_MAX (32u << 10)
#define STATUS_REQUEST_SIZE_MAX 320u
