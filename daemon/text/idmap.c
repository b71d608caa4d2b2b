#include "daemon/text/idmap.h"

#include <stdlib.h>
#include <string.h>

bool idmap_init(struct idmap *map, size_t count_max)
{
    size_t room = 16;
    while (room < count_max * 2)
        room *= 2;
    map->entries = malloc(room * sizeof(*map->entries));
    if (!map->entries)
        return false;
    map->mask = (uint32_t)(room - 1);
    for (size_t i = 0; i < room; i++)
        map->entries[i] = (struct idmap_entry){.value = IDMAP_NONE};
    return true;
}

void idmap_free(struct idmap *map)
{
    free(map->entries);
    *map = (struct idmap){0};
}

bool idmap_add(struct idmap *map, uint32_t hash, uint32_t value)
{
    for (uint32_t probe = 0; probe < IDMAP_PROBES_MAX; probe++) {
        struct idmap_entry *entry = &map->entries[(hash + probe) & map->mask];
        if (entry->value == IDMAP_NONE) {
            *entry = (struct idmap_entry){.hash = hash, .value = value};
            return true;
        }
    }
    return false;
}

uint32_t idmap_hash(const char *bytes, size_t count)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t hash = count * odd, word;
    for (; count >= sizeof(word); bytes += sizeof(word), count -= sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        hash = (hash ^ word) * odd;
        hash ^= hash >> 32;
    }
    if (count > 0) {
        word = 0;
        memcpy(&word, bytes, count);
        hash = (hash ^ word) * odd;
        hash ^= hash >> 32;
    }
    return (uint32_t)(hash ^ hash >> 29);
}
