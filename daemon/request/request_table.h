/* The request table: every request and sequence that lives, from its acceptance to its last frame,
 * and the counters that must be zero when nothing does. Private to the server's files.
 *
 * Whatever happens, a sequence ends exactly once (request_table_end) and is released exactly once
 * (request_table_release). loop thread
 */
#pragma once

#include "daemon/request/request.h"
#include "protocol/base/clock.h"

struct server;

/* Takes a request over: it waits from now on. Nothing here can fail. */
void request_table_enter(struct server *server, struct request *request,
                         struct response_sink *sink);
/* The live request of that number; of this sink and its own number; or NULL. */
struct request *request_table_find(struct server *server, uint64_t id);
struct request *request_table_find_client(struct server *server, const struct response_sink *sink,
                                          uint64_t client_id);

/* A sequence leaves the queue for a device; so many bytes of results count from now on. */
void request_table_send(struct server *server, struct seq *seq, uint64_t result_bytes);
/* It was handed back: it waits once more, before those of its connection that came later. */
void request_table_return(struct server *server, struct seq *seq);
/* Further bytes that wait for the sink's reader, or fewer. */
void request_table_keep(struct server *server, struct response_sink *sink, uint64_t bytes);
void request_table_drop(struct server *server, struct response_sink *sink, uint64_t bytes);

/* Asks for the end of a sequence, wherever it is now; one that has ended is left alone. */
void request_table_cancel(struct server *server, struct seq *seq, enum finish reason,
                          time_us now_us);
/* Ends those of its sequences whose prompts were not taken; it has been entered just now. */
void request_table_refuse(struct server *server, struct request *request, time_us now_us);
void request_table_cancel_request(struct server *server, struct request *request, time_us now_us);
/* It has tokens that were not there before. */
void request_table_progress(struct server *server, struct seq *seq, time_us now_us);
/* Its client is gone: cancelled, and nothing is told. */
void request_table_orphan(struct server *server, struct request *request, time_us now_us);
/* The sequence has ended and is the loop's, with finish (and failure) set: counts, the log, and
 * news for its sink. */
void request_table_end(struct server *server, struct seq *seq, time_us now_us);
/* Its last frame is written, or nobody waits for it: the books are closed, and the request is freed
 * with its last sequence. */
void request_table_release(struct server *server, struct seq *seq);
