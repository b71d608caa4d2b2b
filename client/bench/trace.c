#include "client/bench/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/json.h"

#define LINE_MAX_BYTES (1u << 20)
#define TIMESTAMP_MAX_MS 1e12

static int read_length(const json *object, const char *name, uint32_t *ret, struct error *error)
{
    int64_t value = 0;
    int rc = json_integer(json_get(object, name), name, 1, WORKLOAD_LENGTH_MAX, &value, error);
    if (!rc)
        *ret = (uint32_t)value;
    return rc;
}

static int read_item(const json *object, struct item *item, struct error *error)
{
    const json *stamp = json_get(object, "timestamp"), *priority = json_get(object, "priority");
    int64_t value = 0;
    double ms = json_number(stamp);
    if (!stamp || !json_is_number(stamp) || !(ms >= 0 && ms <= TIMESTAMP_MAX_MS))
        return error_set(error, ERR_USAGE, "timestamp: milliseconds from 0 on");
    int rc = read_length(object, "input_length", &item->prompt_tokens, error);
    if (!rc)
        rc = read_length(object, "output_length", &item->output_tokens, error);
    if (!rc && priority)
        rc = json_integer(priority, "priority", BENCH_PRIORITY_MIN,
                          BENCH_PRIORITY_MIN + BENCH_PRIORITIES - 1, &value, error);
    item->due_us = (uint64_t)llround(ms * 1000);
    item->priority = (int32_t)value;
    return rc;
}

static int read_line(const char *line, size_t length, struct item *item, struct error *error)
{
    static const struct json_bounds bounds = {.bytes_max = LINE_MAX_BYTES, .depth_max = 4};
    json *document;
    int rc = json_parse(line, length, bounds, &document, error);
    if (rc)
        return rc;
    *item = (struct item){.cancel_after = WORKLOAD_NO_CANCEL};
    rc = read_item(document, item, error);
    json_free(document);
    return rc;
}

static int append(struct item **items, uint32_t *count, const struct item *item,
                  struct error *error)
{
    if ((*count & (*count - 1)) == 0) { /* doubles when full: the count is a power of two then */
        struct item *more = realloc(*items, (*count ? 2 * (size_t)*count : 1) * sizeof(*more));
        if (!more)
            return error_set(error, ERR_NO_MEMORY, "no memory for the trace");
        *items = more;
    }
    (*items)[(*count)++] = *item;
    return 0;
}

static int by_due(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    return (a->due_us > b->due_us) - (a->due_us < b->due_us);
}

static int read_lines(FILE *file, const char *path, uint32_t max, struct item **items,
                      uint32_t *count, struct error *error)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int rc = 0;
    for (uint32_t number = 1; !rc && *count < max && (length = getline(&line, &room, file)) > 0;
         number++) {
        struct item item;
        struct error why;
        if (line[strspn(line, " \t\r\n")] == 0)
            continue;
        rc = read_line(line, (size_t)length, &item, &why);
        if (rc)
            rc = error_set(error, ERR_USAGE, "%s:%u: %.300s", path, number, why.text);
        else
            rc = append(items, count, &item, error);
    }
    free(line);
    return rc;
}

int trace_read(const char *path, uint32_t max, struct item **ret_items, uint32_t *ret_count,
               struct error *error)
{
    struct item *items = NULL;
    uint32_t count = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(error, ERR_USAGE, "%s: %s", path, strerrordesc_np(errno));
    int rc = read_lines(file, path, max, &items, &count, error);
    fclose(file);
    if (!rc && count == 0)
        rc = error_set(error, ERR_USAGE, "%s: no request in it", path);
    if (rc) {
        free(items);
        return rc;
    }
    qsort(items, count, sizeof(*items), by_due);
    for (uint32_t i = count; i-- > 0;)
        items[i].due_us -= items[0].due_us;
    *ret_items = items;
    *ret_count = count;
    return 0;
}
