/* What the daemon says about itself, as JSON. No byte of a request's content is in any of it.
 *
 * Each writes one object. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "protocol/base/clock.h"
#include "protocol/base/hist.h"
#include "protocol/base/json.h"

struct gpu_counters;
struct gpu_memory;
struct message_stats;
struct peer;
struct served_model;
struct server;
struct stats_worker;

/* {"status":"loading|ok|draining|failed|stuck","ready":..,"progress":..,"uptime_us":..,...} */
void status_health(const struct server *server, struct json_writer *writer, time_us now_us);
/* "loading", "ok", "draining" (also while it only says so, in drain-grace), "failed" or "stuck". */
const char *status_word(const struct server *server, time_us now_us);
/* A new process would be no better: neither stuck nor failed. */
bool status_alive(const struct server *server, time_us now_us);
/* The status is ok: what HEALTH calls ready. */
bool status_ready(const struct server *server, time_us now_us);
/* A model, and by which limits it is served. */
/* How a model stands to its versions; members of an object. */
void status_reload(const struct server *server, const struct served_model *served,
                   struct json_writer *writer);
void status_model(const struct server *server, const struct served_model *model,
                  struct json_writer *writer);
/* Counters, gauges, histograms, memory, and what is wanted beside: the list of the peer's requests,
 * or of all for an admin, at most STATUS_REQUESTS_MAX; the histograms' buckets. */
void status_stats(struct server *server, const struct peer *peer, const struct message_stats *want,
                  struct json_writer *writer, time_us now_us);

/* The workers' figures as they are known, summed, and the loop's brought up to date. Borrowed until
 * the next call. */
const struct stats_worker *status_figures(struct server *server);
/* Summed over replicas. */
void status_device(const struct server *server, struct gpu_memory *ret_memory,
                   struct gpu_counters *ret_counters);

/* Summed over the model's. */
void status_model_memory(const struct served_model *model, struct gpu_memory *ret_memory);

#define STATUS_REQUESTS_MAX 1000u
