#include "daemon/http/inflate.h"

#include <limits.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define STEP ((size_t)64 << 10) /* that the text grows by at first; later by its half */
#define WINDOW_GZIP (15 + 16)   /* as zlib has it: the largest window, and gzip's head and sum */
#define WINDOW_DEFLATE 15       /* zlib's head and sum, which is what HTTP calls deflate */

enum coding coding_find(const char *name)
{
    if (!name || !name[0] || strcasecmp(name, "identity") == 0)
        return CODING_NONE;
    if (strcasecmp(name, "gzip") == 0 || strcasecmp(name, "x-gzip") == 0)
        return CODING_GZIP;
    return strcasecmp(name, "deflate") == 0 ? CODING_DEFLATE : CODING_UNKNOWN;
}

static int grow(struct buffer *text, size_t max, struct error *error)
{
    size_t more = text->length / 2 > STEP ? text->length / 2 : STEP;
    if (text->length > max)
        return error_limit(error, ERR_TOO_LARGE, max, text->length,
                           "the body holds more than %zu bytes (frame-max)", max);
    more = more <= max - text->length ? more : max - text->length + 1;
    if (!buffer_reserve(text, more, max + 1))
        return error_set(error, ERR_NO_MEMORY, "no memory for a body");
    return 0;
}

/* To the stream's end, a piece of `text` at a time; a byte more than the most shows that there are.
 */
static int run(z_stream *stream, struct buffer *text, size_t max, struct error *error)
{
    int status = Z_OK;
    while (status != Z_STREAM_END) {
        size_t most = text->room < max + 1 ? text->room : max + 1;
        int rc = text->length >= most ? grow(text, max, error) : 0;
        if (rc)
            return rc;
        most = text->room < max + 1 ? text->room : max + 1;
        size_t room = most - text->length;
        room = room < UINT_MAX ? room : UINT_MAX;
        stream->next_out = (unsigned char *)text->data + text->length;
        stream->avail_out = (uInt)room;
        status = inflate(stream, Z_NO_FLUSH);
        text->length += room - stream->avail_out;
        if (status == Z_MEM_ERROR)
            return error_set(error, ERR_NO_MEMORY, "no memory for a body");
        if (status != Z_OK && status != Z_STREAM_END)
            return error_set(error, ERR_BAD_HEAD, "the body is not what Content-Encoding says: %s",
                             stream->avail_in == 0 ? "it ends too early"
                             : stream->msg         ? stream->msg
                                                   : "it cannot be read");
    }
    if (text->length > max)
        return grow(text, max, error);
    return stream->avail_in == 0
               ? 0
               : error_set(error, ERR_BAD_HEAD, "%u bytes stand behind the compressed body",
                           stream->avail_in);
}

int inflate_body(struct buffer *body, enum coding coding, size_t max, struct error *error)
{
    z_stream stream = {.next_in = (unsigned char *)body->data};
    struct buffer text = {0};
    if (body->length > UINT_MAX)
        return error_set(error, ERR_TOO_LARGE, "a compressed body has at most 4 GiB");
    stream.avail_in = (uInt)body->length;
    if (inflateInit2(&stream, coding == CODING_GZIP ? WINDOW_GZIP : WINDOW_DEFLATE) != Z_OK)
        return error_set(error, ERR_NO_MEMORY, "no memory for a compressed body");
    int rc = run(&stream, &text, max, error);
    inflateEnd(&stream);
    buffer_free(body);
    *body = text;
    return rc;
}
