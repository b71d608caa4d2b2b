#include "tests/sim/line.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/base/list.h"

static void append(struct line_queue *queue, const void *bytes, size_t length)
{
    if (queue->start == queue->end)
        queue->start = queue->end = 0;
    if (queue->size - queue->end < length && queue->start > 0) {
        memmove(queue->bytes, queue->bytes + queue->start, line_length(queue));
        queue->end -= queue->start;
        queue->start = 0;
    }
    while (queue->size - queue->end < length) {
        queue->size = queue->size ? 2 * queue->size : 4096;
        queue->bytes = realloc(queue->bytes, queue->size);
        if (!queue->bytes)
            abort();
    }
    memcpy(queue->bytes + queue->end, bytes, length);
    queue->end += length;
}

static size_t take(struct line_queue *queue, void *bytes, size_t most)
{
    size_t length = line_length(queue) < most ? line_length(queue) : most;
    if (length > 0)
        memcpy(bytes, queue->bytes + queue->start, length);
    queue->start += length;
    return length;
}

static struct line *of(struct transport *transport)
{
    return container_of(transport, struct line, transport);
}

static ssize_t line_send(struct transport *transport, const void *bytes, size_t length)
{
    struct line *line = of(transport);
    if (line->client_gone)
        return -ERR_CLOSED;
    size_t room = line->room - line_length(&line->down);
    length = length < room ? length : room;
    append(&line->down, bytes, length);
    scene_note(line->scene, "sent", line->number, length);
    scene_note_bytes(line->scene, bytes, length);
    return (ssize_t)length;
}

static void line_watch(struct transport *transport, bool reading, bool writing)
{
    of(transport)->reading = reading;
    of(transport)->writing = writing;
}

static void line_close(struct transport *transport)
{
    struct line *line = of(transport);
    if (line->server_gone)
        scene_fail(line->scene, "a transport was closed twice");
    line->server_gone = true;
    line->conn = NULL;
    scene_note(line->scene, "closed", line->number, line_length(&line->down));
}

static const struct transport_api line_api = {
    .send = line_send, .watch = line_watch, .close = line_close};

void line_init(struct line *line, struct scene *scene, uint32_t number, size_t room)
{
    memset(line, 0, sizeof(*line));
    line->transport.api = &line_api;
    line->scene = scene;
    line->number = number;
    line->room = room;
}

void line_free(struct line *line)
{
    free(line->up.bytes);
    free(line->down.bytes);
    line->up = line->down = (struct line_queue){0};
}

void line_put(struct line *line, const void *bytes, size_t length)
{
    if (!line->server_gone)
        append(&line->up, bytes, length);
}

size_t line_get(struct line *line, void *bytes, size_t most)
{
    return take(&line->down, bytes, most);
}

bool line_readable(const struct line *line)
{
    return line->conn && line->reading && line_length(&line->up) > 0;
}

bool line_writable(const struct line *line)
{
    return line->conn && line->writing && line_length(&line->down) < line->room;
}

bool line_ended(const struct line *line)
{
    return line->conn && line->reading && line->client_ended && !line->end_told &&
           line_length(&line->up) == 0;
}

void line_tell_end(struct line *line)
{
    line->end_told = true;
    scene_note(line->scene, "end", line->number, 0);
    conn_ended(line->conn, line->scene->now_us);
}

bool line_lost(const struct line *line)
{
    return line->conn && line->client_gone;
}

void line_deliver(struct line *line, size_t most)
{
    size_t room;
    void *to = conn_room(line->conn, &room);
    if (!to)
        return;
    size_t length = take(&line->up, to, room < most ? room : most);
    scene_note(line->scene, "received", line->number, length);
    conn_received(line->conn, length, line->scene->now_us);
}
