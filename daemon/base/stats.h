/* The figures of stats.def as two structs and one table.
 *
 * A struct stats_loop is written by the loop, a struct stats_worker by its worker; neither is read
 * by another thread. The loop gets a worker's by asking (worker_ask_stats): the worker copies it
 * into a second struct and says so through the completion queue.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/hist.h"

#define STATS_NONE_2(name, help)
#define STATS_NONE_3(name, unit, help)

struct stats_loop {
#define LOOP_COUNTER(name, help) uint64_t name;
#define LOOP_GAUGE(name, unit, help) uint64_t name;
#define LOOP_HIST(name, help) struct hist name;
#define WORKER_COUNTER STATS_NONE_2
#define WORKER_GAUGE STATS_NONE_3
#define WORKER_HIST STATS_NONE_2
#include "daemon/base/stats.def"
};

struct stats_worker {
#define LOOP_COUNTER STATS_NONE_2
#define LOOP_GAUGE STATS_NONE_3
#define LOOP_HIST STATS_NONE_2
#define WORKER_COUNTER(name, help) uint64_t name;
#define WORKER_GAUGE(name, unit, help) uint64_t name;
#define WORKER_HIST(name, help) struct hist name;
#include "daemon/base/stats.def"
};

enum stats_kind { STATS_COUNTER, STATS_GAUGE, STATS_HIST };
enum stats_owner { STATS_LOOP, STATS_WORKER };

struct stats_entry {
    const char *name;
    const char *unit; /* "us" for histograms, "" for plain counts */
    const char *help;
    enum stats_kind kind;
    enum stats_owner owner;
    size_t offset; /* in struct stats_loop or stats_worker: a uint64_t, or a struct hist */
};

/* In the order of stats.def. */
extern const struct stats_entry stats_table[];
extern const size_t stats_table_count;

/* Where an entry's value stands in the struct of its owner. */
uint64_t stats_value(const struct stats_entry *entry, const void *of_owner);
const struct hist *stats_hist(const struct stats_entry *entry, const void *of_owner);

/* Sums two replicas' figures: counters and gauges add, histograms merge. */
void stats_worker_merge(struct stats_worker *into, const struct stats_worker *from);
