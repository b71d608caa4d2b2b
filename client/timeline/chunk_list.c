#include "client/timeline/chunk_list.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX ((int64_t)1 << 53)

const char *const stage_names[STAGES] = {"in", "kernels", "out"};

int chunk_list_init(struct chunk_list *list, size_t room, struct error *error)
{
    *list = (struct chunk_list){.chunks = calloc(room, sizeof(*list->chunks)), .room = room};
    return list->chunks ? 0 : error_set(error, ERR_NO_MEMORY, "no memory for %zu chunks", room);
}

void chunk_list_free(struct chunk_list *list)
{
    free(list->chunks);
    *list = (struct chunk_list){0};
}

static int number(const json *object, const char *name, uint64_t max, uint64_t *ret,
                  struct error *error)
{
    int64_t value;
    int rc = json_integer(json_get(object, name), name, 0, (int64_t)max, &value, error);
    if (!rc)
        *ret = (uint64_t)value;
    return rc;
}

/* Begin and end, not before `least_ns`. */
static int read_span(const json *object, const char *name, uint64_t least_ns,
                     struct stage_span *ret_span, struct error *error)
{
    const json *pair = json_get(object, name);
    int64_t begin, end;
    if (!json_is_array(pair) || json_count(pair) != 2)
        return error_set(error, ERR_BAD_VALUE, "%s is no pair", name);
    int rc =
        json_integer(json_child(pair), name, (int64_t)least_ns, NUMBER_MAX, &begin, error);
    if (!rc)
        rc = json_integer(json_next(json_child(pair)), name, begin, NUMBER_MAX, &end, error);
    if (!rc)
        *ret_span = (struct stage_span){(uint64_t)begin, (uint64_t)end};
    return rc;
}

static int read_chunk(const json *object, struct timed_chunk *chunk, struct error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    const char *name = json_string(json_get(object, "program"));
    size_t length = strlen(name);
    uint64_t lane = 0, items = 0;
    if (length == 0 || length > CHUNK_NAME_MAX || strspn(name, letters) < length)
        return error_set(error, ERR_BAD_VALUE, "program is no name of one");
    memcpy(chunk->program, name, length + 1);
    int rc = number(object, "lane", CHUNK_LANES_MAX - 1, &lane, error);
    if (!rc)
        rc = number(object, "items", UINT32_MAX, &items, error);
    if (!rc)
        rc = number(object, "bytes_in", NUMBER_MAX, &chunk->bytes_in, error);
    if (!rc)
        rc = number(object, "bytes_out", NUMBER_MAX, &chunk->bytes_out, error);
    for (int i = 0; !rc && i < STAGES; i++)
        rc = read_span(object, stage_names[i], i > 0 ? chunk->stages[i - 1].end_ns : 0,
                       &chunk->stages[i], error);
    chunk->lane = (uint32_t)lane;
    chunk->items = (uint32_t)items;
    return rc;
}

int chunk_list_read(struct chunk_list *list, const json *answer, uint64_t *ret_next,
                    struct error *error)
{
    uint64_t next = 0, lost = 0;
    struct error found;
    int rc = number(answer, "next", NUMBER_MAX, &next, &found);
    if (!rc)
        rc = number(answer, "lost", NUMBER_MAX, &lost, &found);
    const json *at = json_child(json_get(answer, "chunks"));
    for (; !rc && at && list->count < list->room; at = json_next(at)) {
        rc = read_chunk(at, &list->chunks[list->count], &found);
        list->count += !rc;
    }
    if (rc)
        return error_set(error, ERR_INTERNAL, "the daemon's answer is no timeline: %s", found.text);
    list->lost += lost;
    *ret_next = next;
    return 0;
}

static int by_begin(const void *left, const void *right)
{
    const struct timed_chunk *a = left, *b = right;
    uint64_t a_ns = a->stages[STAGE_IN].begin_ns, b_ns = b->stages[STAGE_IN].begin_ns;
    return a_ns != b_ns ? (a_ns > b_ns) - (a_ns < b_ns) : (a->lane > b->lane) - (a->lane < b->lane);
}

void chunk_list_sort(struct chunk_list *list)
{
    if (list->count == 0)
        return;
    qsort(list->chunks, list->count, sizeof(*list->chunks), by_begin);
    const uint64_t first_ns = list->chunks[0].stages[STAGE_IN].begin_ns;
    for (size_t i = 0; i < list->count; i++)
        for (int stage = 0; stage < STAGES; stage++) {
            list->chunks[i].stages[stage].begin_ns -= first_ns;
            list->chunks[i].stages[stage].end_ns -= first_ns;
        }
}
