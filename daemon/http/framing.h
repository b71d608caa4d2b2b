/* Framing: where a request of HTTP/1.1 begins and ends (RFC 9112), and what of its head we look at.
 *
 * Read strictly: whatever two readers could understand differently is refused, so that no proxy in
 * front of us takes for a body what we take for a request. After a refusal nothing of the
 * connection may be read as a request any more. Both readers may be given their bytes in any
 * pieces, and say the same.
 *
 * Pure, and without memory of its own. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAMING_HEAD_MAX ((size_t)32 << 10)
#define FRAMING_FIELDS_MAX 128u

enum framing_status { FRAMING_OK, FRAMING_MORE, FRAMING_BAD };

/* What a request that cannot be read is answered with. */
struct framing_refusal {
    unsigned status; /* of HTTP */
    int code;        /* enum error_code */
    const char *text;
};

struct framing_head {
    const char *method;
    const char *path; /* without the query, escapes resolved; starts with "/" */
    /* NULL: not given. */
    const char *host, *content_type, *authorization, *request_id, *api_key;
    const char *user, *origin, *cors_method, *cors_headers;
    const char *content_encoding, *json_length; /* Inference-Header-Content-Length */
    bool http10;
    bool close;      /* the client wants no further answer on this connection */
    bool expects;    /* 100 before it sends the body */
    bool chunked;    /* the body comes in chunks, else it has `length` bytes */
    uint64_t length; /* below 10^18 */
};

/* Reads the head at the start of `bytes`. *scanned: how much was looked at, 0 at first; kept by the
 * caller as long as MORE is said and bytes are added. With OK *ret_used is the head's length, and
 * `bytes` was changed: the texts of *ret_head lie in it. */
enum framing_status framing_head(char *bytes, size_t length, size_t *scanned,
                                 struct framing_head *ret_head, size_t *ret_used,
                                 struct framing_refusal *ret_refusal);

enum framing_place {
    FRAMING_SIZE, /* zeroed memory begins here */
    FRAMING_SIZE_END,
    FRAMING_DATA,
    FRAMING_DATA_CR,
    FRAMING_DATA_LF,
    FRAMING_END_CR,
    FRAMING_END_LF,
    FRAMING_DONE
};

/* A chunked body between two pieces. Extensions and trailers are refused: nothing of ours has a use
 * for them, and readers differ about them. */
struct framing_chunks {
    enum framing_place place;
    uint32_t digits; /* of the size, so far */
    uint64_t left;   /* bytes of this chunk */
};

struct framing_piece {
    const char *bytes;
    size_t length;
};

/* Reads on. OK: *ret_piece is the body's next piece, empty once place is FRAMING_DONE. *ret_used
 * bytes were taken, with MORE all of them. */
enum framing_status framing_chunks(struct framing_chunks *chunks, const char *bytes, size_t length,
                                   size_t *ret_used, struct framing_piece *ret_piece,
                                   struct framing_refusal *ret_refusal);

/* "Bad Request" of 400. */
const char *framing_reason(unsigned status);
