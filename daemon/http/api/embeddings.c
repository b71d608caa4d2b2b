/* /v1/embeddings: rows of numbers for texts. */
#include <math.h>
#include <stdlib.h>

#include "daemon/http/answer.h"
#include "daemon/http/api/api.h"
#include "daemon/request/server.h"

static void put_base64(struct json_writer *writer, const void *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    char *text = malloc((length + 2) / 3 * 4), *to = text;
    if (!text) {
        json_put_null(writer, "embedding");
        return;
    }
    for (size_t i = 0; i < length; i += 3) {
        uint32_t bits = (uint32_t)in[i] << 16 | (i + 1 < length ? (uint32_t)in[i + 1] << 8 : 0) |
                        (i + 2 < length ? in[i + 2] : 0);
        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = i + 1 < length ? digits[bits >> 6 & 63] : '=';
        *to++ = i + 2 < length ? digits[bits & 63] : '=';
    }
    json_put_string(writer, "embedding", text, (size_t)(to - text));
    free(text);
}

static uint32_t width_of(const struct exchange *exchange)
{
    uint32_t asked = exchange->query.dimensions;
    return asked > 0 ? asked : exchange->model->info.hidden;
}

/* What a row was cut to has length 1 again; as often as it is written. */
static void normalize(float *row, uint32_t width)
{
    double squares = 0;
    for (uint32_t i = 0; i < width; i++)
        squares += (double)row[i] * (double)row[i];
    float scale = squares > 0 ? (float)(1 / sqrt(squares)) : 1;
    for (uint32_t i = 0; i < width; i++)
        row[i] *= scale;
}

static void put_whole(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct request *request = exchange->request;
    uint32_t width = width_of(exchange);
    json_open(writer, NULL, '{');
    json_put_text(writer, "object", "list");
    json_open(writer, "data", '[');
    for (uint32_t i = 0; i < request->seq_count; i++) {
        float *row = request->seqs[i].out_rows;
        if (width < exchange->model->info.hidden)
            normalize(row, width);
        json_open(writer, NULL, '{');
        json_put_text(writer, "object", "embedding");
        json_put_uint(writer, "index", i);
        if (exchange->query.base64) {
            put_base64(writer, row, width * sizeof(*row));
        } else {
            json_open(writer, "embedding", '[');
            for (uint32_t at = 0; at < width; at++)
                json_put_double(writer, NULL, (double)row[at]);
            json_close(writer, ']');
        }
        json_close(writer, '}');
    }
    json_close(writer, ']');
    json_put_text(writer, "model", lookup_called(exchange));
    answer_put_usage(writer, exchange);
    json_close(writer, '}');
}

const struct api api_embeddings = {.whole = put_whole};
