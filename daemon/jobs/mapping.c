#include "daemon/jobs/mapping.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/stat.h>

struct job_mapping {
    struct list link;
    uint64_t user;
    dev_t device;
    ino_t file;
    bool writable;
    uint32_t users; /* requests; 0: it is kept */
    time_us idle_us;
    struct job_memory memory;
};

void job_mappings_init(struct job_mappings *mappings, uint64_t idle_bytes_max)
{
    *mappings = (struct job_mappings){.idle_bytes_max = idle_bytes_max};
    list_init(&mappings->used);
    list_init(&mappings->idle);
}

static void drop(struct job_mappings *mappings, struct job_mapping *mapping)
{
    list_remove(&mapping->link);
    mappings->idle_bytes -= mapping->memory.bytes;
    mappings->idle_count--;
    job_memory_unmap(&mapping->memory);
    free(mapping);
}

static struct job_mapping *longest(const struct job_mappings *mappings)
{
    return list_empty(&mappings->idle)
               ? NULL
               : container_of(mappings->idle.next, struct job_mapping, link);
}

void job_mappings_destroy(struct job_mappings *mappings)
{
    assert(list_empty(&mappings->used));
    while (longest(mappings))
        drop(mappings, longest(mappings));
}

static bool is_kept(const struct job_mapping *mapping)
{
    return mapping->memory.bytes >= JOB_MAPPING_KEPT_BYTES;
}

static struct job_mapping *find(struct list *list, const struct job_mapping *like)
{
    list_each_safe(link, list)
    {
        struct job_mapping *mapping = container_of(link, struct job_mapping, link);
        if (mapping->user == like->user && mapping->device == like->device &&
            mapping->file == like->file && mapping->writable == like->writable &&
            mapping->memory.bytes >= like->memory.bytes)
            return mapping;
    }
    return NULL;
}

static struct job_mapping *find_again(struct job_mappings *mappings, const struct job_mapping *like)
{
    struct job_mapping *mapping = find(&mappings->used, like);
    if (mapping || !(mapping = find(&mappings->idle, like)))
        return mapping;
    list_remove(&mapping->link);
    mappings->idle_bytes -= mapping->memory.bytes;
    mappings->idle_count--;
    list_append(&mappings->used, &mapping->link);
    return mapping;
}

static int make(const struct job_mapping *like, int fd, const char *what,
                struct job_mapping **ret_mapping, struct error *error)
{
    struct job_mapping *mapping = malloc(sizeof(*mapping));
    if (!mapping)
        return error_set(error, ERR_NO_MEMORY, "no memory for a mapping");
    *mapping = *like;
    int rc = job_memory_map(fd, like->memory.bytes, like->writable, what, &mapping->memory, error);
    if (rc) {
        free(mapping);
        return rc;
    }
    mapping->users = 1;
    *ret_mapping = mapping;
    return 0;
}

int job_mappings_take(struct job_mappings *mappings, uint64_t user, int fd, uint64_t bytes,
                      bool writable, const char *what, struct job_mapping **ret_mapping,
                      struct error *error)
{
    struct stat status = {.st_ino = 0}; /* of what is no file the check says so */
    struct job_mapping *mapping;
    int rc = job_memory_check(fd, bytes, writable, what, error);
    if (rc)
        return rc;
    (void)fstat(fd, &status);
    const struct job_mapping like = {.user = user,
                                     .device = status.st_dev,
                                     .file = status.st_ino,
                                     .writable = writable,
                                     .memory.bytes = bytes};
    mapping = is_kept(&like) ? find_again(mappings, &like) : NULL;
    if (mapping) {
        mapping->users++;
        *ret_mapping = mapping;
        return 0;
    }
    rc = make(&like, fd, what, ret_mapping, error);
    if (!rc && is_kept(&like))
        list_append(&mappings->used, &(*ret_mapping)->link);
    return rc;
}

void *job_mapping_address(const struct job_mapping *mapping)
{
    return mapping ? mapping->memory.address : NULL;
}

void job_mappings_give(struct job_mappings *mappings, struct job_mapping *mapping)
{
    if (!mapping || --mapping->users > 0)
        return;
    if (!is_kept(mapping)) {
        job_memory_unmap(&mapping->memory);
        free(mapping);
        return;
    }
    list_remove(&mapping->link);
    list_append(&mappings->idle, &mapping->link);
    mapping->idle_us = mappings->turn_us;
    mappings->idle_bytes += mapping->memory.bytes;
    mappings->idle_count++;
    while (mappings->idle_bytes > mappings->idle_bytes_max ||
           mappings->idle_count > JOB_MAPPINGS_IDLE_MAX)
        drop(mappings, longest(mappings));
}

void job_mappings_turn(struct job_mappings *mappings, time_us now_us)
{
    struct job_mapping *first;
    mappings->turn_us = now_us;
    while ((first = longest(mappings)) && first->idle_us + JOB_MAPPINGS_IDLE_US <= now_us)
        drop(mappings, first);
}

time_us job_mappings_due(const struct job_mappings *mappings)
{
    const struct job_mapping *first = longest(mappings);
    return first ? first->idle_us + JOB_MAPPINGS_IDLE_US : 0;
}
