#include "tests/sim/scribe.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/api/status.h"

static struct scribe *current;

static uint64_t hash_of(const char *line, size_t length)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)line[i]) * UINT64_C(1099511628211);
    return hash;
}

static void put(enum log_level level, const char *line, size_t length)
{
    struct scribe *scribe = current;
    size_t room = scribe->ring.capacity - scribe->ring.used;
    uint64_t kept = scribe->put - scribe->ring.dropped;
    bool stays = log_ring_put(&scribe->ring, level, line, length);
    if (stays && scribe->gap && level > LOG_NOTICE)
        scene_fail(scribe->scene, "a line was kept behind dropped ones that are not told");
    scribe->gap = scribe->gap || !stays;
    if (stays)
        scribe->kept[kept % SCRIBE_LINES] = hash_of(line, length);
    else if (level <= LOG_NOTICE && length <= room)
        scene_fail(scribe->scene, "a grave line was dropped although there was room: %.*s",
                   (int)length - 1, line);
    scribe->put++;
    scribe->waited += !scribe->reads;
}

static uint64_t dropped(void)
{
    return current->shown ? current->ring.dropped : 0;
}

/* What the daemon says last, the simulation says: on its own stderr. */
static void last(const char *line, size_t length)
{
    (void)log_write(line, length);
}

void scribe_begin(struct scribe *scribe, struct scene *scene)
{
    static const struct log_sink sink = {.put = put, .dropped = dropped, .last = last};
    memset(scribe, 0, sizeof(*scribe));
    scribe->scene = scene;
    scribe->random = scene->random ^ UINT64_C(0x6c6f67);
    log_ring_init(&scribe->ring, scribe->room, sizeof(scribe->room));
    current = scribe;
    log_to(&sink);
}

void scribe_end(void)
{
    log_rest(); /* not to the next run's */
    log_to(NULL);
}

static bool take_some(struct scribe *scribe)
{
    char bytes[LOG_LINE_MAX];
    size_t length = log_ring_take(&scribe->ring, bytes, sizeof(bytes)), at = 0;
    while (at < length) {
        const char *end = memchr(bytes + at, '\n', length - at);
        if (!end) {
            scene_fail(scribe->scene, "a line of the log is cut");
            return false;
        }
        size_t line = (size_t)(end + 1 - (bytes + at));
        if (hash_of(bytes + at, line) != scribe->kept[scribe->taken % SCRIBE_LINES])
            scene_fail(scribe->scene, "a line of the log is another's, or out of order");
        scribe->taken++;
        at += line;
    }
    uint64_t gap = log_ring_gap(&scribe->ring);
    if (gap && scribe->ring.used)
        scene_fail(scribe->scene, "dropped lines are told before those that came earlier");
    scribe->gap = scribe->gap && !gap;
    scribe->told += gap;
    return length > 0;
}

void scribe_turn(struct scribe *scribe)
{
    time_us now_us = scribe->scene->now_us;
    if (scribe->change_us <= now_us) {
        scribe->reads = !scribe->reads;
        scribe->change_us =
            now_us + chance_below(&scribe->random, scribe->reads ? 20000 : 2000000);
    }
    if (scribe->reads)
        take_some(scribe);
}

void scribe_check_rest(struct scribe *scribe, struct server *server)
{
    while (take_some(scribe))
        continue;
    scribe->shown = true;
    (void)status_figures(server);
    scribe->shown = false;
    uint64_t dropped_by_figures = server->counts.log_lines_dropped_total;
    if (scribe->taken + scribe->told != scribe->put || scribe->told != dropped_by_figures)
        scene_fail(scribe->scene,
                   "of %" PRIu64 " lines the log has %" PRIu64 " and tells of %" PRIu64
                   " dropped, figures of %" PRIu64,
                   scribe->put, scribe->taken, scribe->told, dropped_by_figures);
}
