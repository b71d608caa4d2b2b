#include "daemon/net/timeouts.h"

#include <inttypes.h>
#include <stddef.h>

#include "daemon/net/conn.h"
#include "protocol/base/log.h"

static void close_late(struct conn *conn, int code, const char *what, time_us now_us)
{
    struct error error;
    error_set(&error, code, "%s", what);
    conn_refuse(conn, &error, now_us);
}

/* The first of a list in order of time, when its delay is over. */
static struct conn *late(struct list *list, size_t link_offset, size_t since_offset,
                         time_us delay_us, time_us now_us)
{
    if (list_empty(list))
        return NULL;
    char *conn = (char *)list->next - link_offset;
    time_us since_us = *(time_us *)(void *)(conn + since_offset);
    return since_us + delay_us <= now_us ? (struct conn *)(void *)conn : NULL;
}
#define LATE(set, list, link, since, delay, now)                                                   \
    late(&(set)->list, offsetof(struct conn, link), offsetof(struct conn, since), delay, now)

/* Who has more time after all waits on, in the order of time. */
static bool give_time(struct conn_set *set, struct conn *conn, time_us now_us)
{
    time_us over_us = conn->half_us + set->options->frame_timeout;
    bool ours = conn->in_need == 0; /* it waits for us, not for the client */
    if (!conn->half_bytes && conn->heard_us > set->expired_us &&
        over_us + TIMEOUTS_LATE_US <= now_us)
        ours = true;
    time_us more_us = timeouts_given(&conn->half_bytes, now_us - conn->half_us, ours);
    if (!more_us)
        return false;
    conn->half_us += more_us;
    list_remove(&conn->half_link);
    struct list *last = set->half.prev;
    while (last != &set->half &&
           container_of(last, struct conn, half_link)->half_us > conn->half_us)
        last = last->prev;
    list_insert_before(last->next, &conn->half_link);
    return true;
}

void timeouts_expire(struct conn_set *set, time_us now_us)
{
    const struct options *options = set->options;
    struct conn *conn;
    while ((conn = LATE(set, greeting, greet_link, greet_us, options->handshake_timeout, now_us)))
        close_late(conn, ERR_TIMEOUT, "no HELLO came in time (handshake-timeout)", now_us);
    while ((conn = LATE(set, half, half_link, half_us, options->frame_timeout, now_us))) {
        if (give_time(set, conn, now_us))
            continue;
        list_remove(&conn->half_link);
        close_late(conn, ERR_TIMEOUT, "the rest of a message did not come in time (frame-timeout)",
                   now_us);
    }
    while ((conn = LATE(set, stalled, stall_link, stall_us, options->stall_timeout, now_us))) {
        /* There is no telling somebody who does not read. */
        log_line(LOG_NOTICE, "conn",
                 "connection %" PRIu64 " of uid %u did not read its answers for "
                 "%" PRIu64 " ms and is closed",
                 conn->number, conn->peer.uid, options->stall_timeout / 1000);
        set->counts->slow_readers_total++;
        conn_close(conn, now_us);
    }
    while ((conn = LATE(set, held, held_link, held_us, CONN_HOLD_US, now_us))) {
        conn->urgent = true;
        list_remove(&conn->held_link);
        conn_mark_dirty(conn);
    }
    set->expired_us = now_us;
}

static void earlier(time_us *due_us, const struct list *list, size_t link_offset,
                    size_t since_offset, time_us delay_us)
{
    if (list_empty(list))
        return;
    const char *conn = (const char *)list->next - link_offset;
    time_us at_us = *(const time_us *)(const void *)(conn + since_offset) + delay_us;
    if (*due_us == 0 || at_us < *due_us)
        *due_us = at_us;
}
#define EARLIER(due, set, list, link, since, delay)                                                \
    earlier(due, &(set)->list, offsetof(struct conn, link), offsetof(struct conn, since), delay)

time_us timeouts_due(const struct conn_set *set)
{
    const struct options *options = set->options;
    time_us due_us = 0;
    EARLIER(&due_us, set, greeting, greet_link, greet_us, options->handshake_timeout);
    EARLIER(&due_us, set, half, half_link, half_us, options->frame_timeout);
    EARLIER(&due_us, set, stalled, stall_link, stall_us, options->stall_timeout);
    EARLIER(&due_us, set, held, held_link, held_us, CONN_HOLD_US);
    return due_us;
}
