/* A connection of memory between a simulated client and the daemon: two queues of bytes, the one to
 * the client as short as a socket's buffer may be. Each end may be closed; what was sent before is
 * still there then, as with a Unix socket. The client may also end its side alone.
 */
#pragma once

#include "daemon/net/conn.h"
#include "tests/sim/scene.h"

struct line_queue {
    unsigned char *bytes;
    size_t size, start, end;
};

struct line {
    struct transport transport;
    struct scene *scene;
    struct conn *conn;     /* NULL once the daemon has closed it */
    uint32_t number;       /* for the trace */
    bool reading, writing; /* what the daemon waits for */
    bool client_ended, end_told; /* the client says no more; the daemon knows it */
    bool client_gone, server_gone;
    size_t room; /* bytes that the queue to the client holds */
    struct line_queue up, down;
};

void line_init(struct line *line, struct scene *scene, uint32_t number, size_t room);
void line_free(struct line *line);

static inline size_t line_length(const struct line_queue *queue)
{
    return queue->end - queue->start;
}
/* The client sends. */
void line_put(struct line *line, const void *bytes, size_t length);
/* The client reads up to `most` bytes; 0 when there are none. */
size_t line_get(struct line *line, void *bytes, size_t most);

/* What may happen next on the daemon's side: bytes to read, their end, room to write, the other end
 * gone. */
bool line_readable(const struct line *line);
bool line_writable(const struct line *line);
bool line_ended(const struct line *line);
bool line_lost(const struct line *line);
void line_tell_end(struct line *line);
/* Moves up to `most` bytes into the daemon. */
void line_deliver(struct line *line, size_t most);
