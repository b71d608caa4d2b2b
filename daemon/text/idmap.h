/* An open-addressing table from a hash to small numbers. Keys stay with the owner: the table keeps
 * the hash, and the owner compares. Filled once, then read by any thread.
 *
 * Whoever writes a file can choose keys that collide, so no insertion looks at more than
 * IDMAP_PROBES_MAX entries; the owner refuses the file then.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IDMAP_PROBES_MAX 1024
#define IDMAP_NONE UINT32_MAX

struct idmap_entry {
    uint32_t hash, value; /* value IDMAP_NONE: empty */
};

struct idmap {
    struct idmap_entry *entries;
    uint32_t mask;
};

bool idmap_init(struct idmap *map, size_t count_max); /* false: out of memory */
void idmap_free(struct idmap *map);

/* Does not look for an equal key. False when too many entries collide. */
bool idmap_add(struct idmap *map, uint32_t hash, uint32_t value);

/* The candidates of a hash, one after another: start with *probe = 0; IDMAP_NONE ends. */
static inline uint32_t idmap_next(const struct idmap *map, uint32_t hash, uint32_t *probe)
{
    while (*probe < IDMAP_PROBES_MAX) {
        const struct idmap_entry *entry = &map->entries[(hash + (*probe)++) & map->mask];
        if (entry->value == IDMAP_NONE || entry->hash == hash)
            return entry->value;
    }
    return IDMAP_NONE; /* no entry is farther from its place */
}

uint32_t idmap_hash(const char *bytes, size_t count);
