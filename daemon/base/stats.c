#include "daemon/base/stats.h"

#include <assert.h>

const struct stats_entry stats_table[] = {
#define ENTRY(name, unit, help, kind, owner, type)                                                 \
    {#name, unit, help, kind, owner, offsetof(struct type, name)},
#define LOOP_COUNTER(name, help) ENTRY(name, "", help, STATS_COUNTER, STATS_LOOP, stats_loop)
#define LOOP_GAUGE(name, unit, help) ENTRY(name, unit, help, STATS_GAUGE, STATS_LOOP, stats_loop)
#define LOOP_HIST(name, help) ENTRY(name, "us", help, STATS_HIST, STATS_LOOP, stats_loop)
#define WORKER_COUNTER(name, help) ENTRY(name, "", help, STATS_COUNTER, STATS_WORKER, stats_worker)
#define WORKER_GAUGE(name, unit, help)                                                             \
    ENTRY(name, unit, help, STATS_GAUGE, STATS_WORKER, stats_worker)
#define WORKER_HIST(name, help) ENTRY(name, "us", help, STATS_HIST, STATS_WORKER, stats_worker)
#include "daemon/base/stats.def"
#undef ENTRY
};

const size_t stats_table_count = sizeof(stats_table) / sizeof(stats_table[0]);

uint64_t stats_value(const struct stats_entry *entry, const void *of_owner)
{
    assert(entry->kind != STATS_HIST);
    return *(const uint64_t *)((const char *)of_owner + entry->offset);
}

const struct hist *stats_hist(const struct stats_entry *entry, const void *of_owner)
{
    assert(entry->kind == STATS_HIST);
    return (const struct hist *)((const char *)of_owner + entry->offset);
}

void stats_worker_merge(struct stats_worker *into, const struct stats_worker *from)
{
    for (size_t i = 0; i < stats_table_count; i++) {
        const struct stats_entry *entry = &stats_table[i];
        if (entry->owner != STATS_WORKER)
            continue;
        char *place = (char *)into + entry->offset;
        if (entry->kind == STATS_HIST)
            hist_merge((struct hist *)place, stats_hist(entry, from));
        else
            *(uint64_t *)place += stats_value(entry, from);
    }
}
