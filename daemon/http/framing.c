#include "daemon/http/framing.h"

#include <string.h>
#include <strings.h>

#include "protocol/base/error.h"

#define METHOD_MAX 32u
#define LENGTH_DIGITS_MAX 18u
#define CHUNK_DIGITS_MAX 15u

static enum framing_status refuse(struct framing_refusal *refusal, unsigned status,
                                  const char *text)
{
    *refusal = (struct framing_refusal){.status = status,
                                        .code = status == 431 || status == 413 ? ERR_TOO_LARGE
                                                : status == 501 || status == 505 || status == 417
                                                    ? ERR_UNSUPPORTED
                                                    : ERR_BAD_HEAD,
                                        .text = text};
    return FRAMING_BAD;
}

/* ---- characters --------------------------------------------------------------------------------
 */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Of names and methods. */
static bool is_token(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static size_t token_length(const char *text)
{
    size_t length = 0;
    while (is_token(text[length]))
        length++;
    return length;
}

/* ---- the end of a head -------------------------------------------------------------------------
 */

static const char *bad_byte(const char *bytes, size_t at)
{
    unsigned char c = (unsigned char)bytes[at];
    bool after_return = at > 0 && bytes[at - 1] == '\r';
    if (c == '\n')
        return after_return ? NULL : "a line of the head ends without a carriage return";
    if (after_return)
        return "a carriage return in the midst of a line";
    if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7f)
        return "a control character in the head";
    return NULL;
}

/* One empty line may stand before a request: old clients end a body with it. */
static size_t leading(const char *bytes, size_t length)
{
    return length >= 2 && bytes[0] == '\r' && bytes[1] == '\n' ? 2 : 0;
}

/* Up to the empty line; *ret_end is behind it. */
static enum framing_status find_end(const char *bytes, size_t length, size_t *scanned,
                                    size_t *ret_end, struct framing_refusal *refusal)
{
    size_t at = *scanned;
    for (; at < length && at < FRAMING_HEAD_MAX; at++) {
        const char *why = bad_byte(bytes, at);
        if (why)
            return refuse(refusal, 400, why);
        if (bytes[at] == '\n' && at >= 3 && bytes[at - 2] == '\n') {
            *ret_end = at + 1;
            return FRAMING_OK;
        }
    }
    *scanned = at;
    if (at == FRAMING_HEAD_MAX)
        return refuse(refusal, 431, "the head has more than 32768 bytes");
    return FRAMING_MORE;
}

/* ---- the first line ----------------------------------------------------------------------------
 */

/* Resolves escapes in place and cuts the query off. */
static const char *read_path(char *target)
{
    char *to = target;
    if (target[0] != '/')
        return "the request's target must be a path";
    for (const char *from = target; *from; from++)
        if (*from <= 0x20 || *from >= 0x7f || *from == '#')
            return "a character in the request's target that does not belong there";
    for (const char *from = target; *from && *from != '?'; from++) {
        bool escape = *from == '%';
        int high = escape ? hex_value(from[1]) : 0;
        int low = escape && high >= 0 ? hex_value(from[2]) : 0;
        if (high < 0 || low < 0)
            return "\"%\" in the request's target without two digits behind it";
        int value = escape ? 16 * high + low : *from;
        if (value < 0x20 || value == 0x7f)
            return "a control character in the request's target";
        from += escape ? 2 : 0;
        *to++ = (char)value; /* not ahead of what is read */
    }
    *to = '\0';
    return NULL;
}

static enum framing_status read_first(char *line, struct framing_head *head,
                                      struct framing_refusal *refusal)
{
    size_t method = token_length(line);
    if (method == 0 || method > METHOD_MAX || line[method] != ' ')
        return refuse(refusal, 400, "the first line does not begin with a method");
    char *target = line + method + 1, *space = strchr(target, ' ');
    line[method] = '\0';
    if (!space)
        return refuse(refusal, 400, "the first line has no version");
    *space = '\0';
    const char *version = space + 1;
    bool known = strcmp(version, "HTTP/1.1") == 0 || strcmp(version, "HTTP/1.0") == 0;
    if (!known && strncmp(version, "HTTP/", 5) == 0 && is_digit(version[5]) && version[6] == '.' &&
        is_digit(version[7]) && !version[8])
        return refuse(refusal, 505, "only versions 1.1 and 1.0 of HTTP are spoken here");
    if (!known)
        return refuse(refusal, 400, "the first line does not end with a version");
    const char *why = read_path(target);
    if (why)
        return refuse(refusal, 400, why);
    head->method = line;
    head->path = target;
    head->http10 = version[7] == '0';
    return FRAMING_OK;
}

/* ---- fields ------------------------------------------------------------------------------------
 */

/* Those that are looked at. None may come twice; but for the same key once more, which routers add
 * to what the client brought, and which nobody can read in two ways. */
struct fields {
    const char *host, *content_type, *authorization, *request_id, *api_key;
    const char *user, *origin, *cors_method, *cors_headers;
    const char *content_length, *transfer_encoding, *expect;
    const char *content_encoding, *json_length;
};

static const char **field_of(struct fields *fields, const char *name)
{
    const struct {
        const char *name, **value;
    } known[] = {
        {"host", &fields->host},
        {"content-type", &fields->content_type},
        {"authorization", &fields->authorization},
        {"x-request-id", &fields->request_id},
        {"x-api-key", &fields->api_key},
        {"x-sluice-user", &fields->user},
        {"origin", &fields->origin},
        {"access-control-request-method", &fields->cors_method},
        {"access-control-request-headers", &fields->cors_headers},
        {"content-length", &fields->content_length},
        {"transfer-encoding", &fields->transfer_encoding},
        {"expect", &fields->expect},
        {"content-encoding", &fields->content_encoding},
        {"inference-header-content-length", &fields->json_length},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcasecmp(name, known[i].name) == 0)
            return known[i].value;
    return NULL;
}

/* The next of a list with commas, without the spaces around it. False at the end. */
static bool next_of(const char **list, struct framing_piece *ret_element)
{
    const char *text = *list;
    if (!text)
        return false;
    size_t length = strcspn(text, ",");
    *list = text[length] ? text + length + 1 : NULL;
    while (length > 0 && (*text == ' ' || *text == '\t'))
        text++, length--;
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    *ret_element = (struct framing_piece){text, length};
    return true;
}

static bool is_word(const struct framing_piece *piece, const char *word)
{
    return piece->length == strlen(word) && strncasecmp(piece->bytes, word, piece->length) == 0;
}

static enum framing_status read_field(char *line, struct fields *fields, struct framing_head *head,
                                      struct framing_refusal *refusal)
{
    size_t name = token_length(line);
    if (line[0] == ' ' || line[0] == '\t')
        return refuse(refusal, 400, "a line of the head is continued (obsolete folding)");
    if (name == 0 || line[name] != ':')
        return refuse(refusal, 400, "a line of the head is no \"name: value\"");
    char *value = line + name + 1, *end = value + strlen(value);
    line[name] = '\0';
    while (*value == ' ' || *value == '\t')
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    if (strcasecmp(line, "connection") == 0) {
        struct framing_piece option;
        for (const char *list = value; next_of(&list, &option);)
            head->close |= is_word(&option, "close");
        return FRAMING_OK;
    }
    const char **place = field_of(fields, line);
    if (place && *place && (place != &fields->authorization || strcmp(*place, value) != 0))
        return refuse(refusal, 400, "a header that may come once came twice");
    if (place)
        *place = value;
    return FRAMING_OK;
}

/* ---- the body's length -------------------------------------------------------------------------
 */

static enum framing_status read_length(const char *text, struct framing_head *head,
                                       struct framing_refusal *refusal)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits])
        return refuse(refusal, 400, "Content-Length is no number");
    if (digits > LENGTH_DIGITS_MAX)
        return refuse(refusal, 413, "Content-Length has more than 18 digits");
    for (; *text; text++)
        head->length = 10 * head->length + (uint64_t)(*text - '0');
    return FRAMING_OK;
}

static enum framing_status read_coding(const char *list, struct framing_head *head,
                                       struct framing_refusal *refusal)
{
    struct framing_piece coding;
    bool unknown = false;
    while (next_of(&list, &coding)) {
        if (coding.length == 0)
            return refuse(refusal, 400, "Transfer-Encoding names nothing");
        if (head->chunked)
            return refuse(refusal, 400, "Transfer-Encoding: chunked must be the last, and once");
        head->chunked = is_word(&coding, "chunked");
        unknown |= !head->chunked;
    }
    if (unknown)
        return refuse(refusal, 501, "a Transfer-Encoding other than chunked is not known here");
    return FRAMING_OK;
}

static bool host_is_one(const char *host)
{
    return !host[strcspn(host, " \t,/?#@\\")];
}

static enum framing_status conclude(const struct fields *fields, struct framing_head *head,
                                    struct framing_refusal *refusal)
{
    enum framing_status status = FRAMING_OK;
    head->host = fields->host;
    head->content_type = fields->content_type;
    head->authorization = fields->authorization;
    head->request_id = fields->request_id;
    head->api_key = fields->api_key;
    head->user = fields->user;
    head->origin = fields->origin;
    head->cors_method = fields->cors_method;
    head->cors_headers = fields->cors_headers;
    head->content_encoding = fields->content_encoding;
    head->json_length = fields->json_length;
    if (!fields->host && !head->http10)
        return refuse(refusal, 400, "the header Host is missing");
    if (fields->host && !host_is_one(fields->host))
        return refuse(refusal, 400, "the header Host is no name of a host");
    if (fields->content_length && fields->transfer_encoding)
        return refuse(refusal, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (fields->transfer_encoding && head->http10)
        return refuse(refusal, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (fields->content_length)
        status = read_length(fields->content_length, head, refusal);
    else if (fields->transfer_encoding)
        status = read_coding(fields->transfer_encoding, head, refusal);
    if (status == FRAMING_OK && fields->expect && !head->http10) {
        if (strcasecmp(fields->expect, "100-continue") != 0)
            return refuse(refusal, 417, "nothing but 100-continue can be expected");
        head->expects = true;
    }
    return status;
}

enum framing_status framing_head(char *bytes, size_t length, size_t *scanned,
                                 struct framing_head *ret_head, size_t *ret_used,
                                 struct framing_refusal *ret_refusal)
{
    size_t end;
    struct fields fields = {0};
    struct framing_head head = {0};
    enum framing_status status = find_end(bytes, length, scanned, &end, ret_refusal);
    if (status != FRAMING_OK)
        return status;
    char *line = bytes + leading(bytes, length);
    for (uint32_t count = 0; status == FRAMING_OK && *line != '\r'; count++) {
        char *stop = memchr(line, '\r', (size_t)(bytes + end - line)); /* find_end() saw it */
        *stop = '\0';
        if (count > FRAMING_FIELDS_MAX)
            return refuse(ret_refusal, 431, "the head has more than 128 lines");
        status = count == 0 ? read_first(line, &head, ret_refusal)
                            : read_field(line, &fields, &head, ret_refusal);
        line = stop + 2;
    }
    if (status == FRAMING_OK && !head.method)
        return refuse(ret_refusal, 400, "the head is empty");
    if (status == FRAMING_OK)
        status = conclude(&fields, &head, ret_refusal);
    if (status != FRAMING_OK)
        return status;
    *ret_head = head;
    *ret_used = end;
    return FRAMING_OK;
}

/* ---- chunks ------------------------------------------------------------------------------------
 */

/* One byte that is none of the body's; false when it does not belong there. */
static bool step(struct framing_chunks *chunks, char c)
{
    int value;
    switch (chunks->place) {
    case FRAMING_SIZE:
        value = hex_value(c);
        if (value >= 0 && chunks->digits < CHUNK_DIGITS_MAX) {
            chunks->left = 16 * chunks->left + (uint64_t)value;
            chunks->digits++;
            return true;
        }
        chunks->place = FRAMING_SIZE_END;
        return c == '\r' && chunks->digits > 0;
    case FRAMING_SIZE_END:
        chunks->place = chunks->left > 0 ? FRAMING_DATA : FRAMING_END_CR;
        return c == '\n';
    case FRAMING_DATA_CR:
        chunks->place = FRAMING_DATA_LF;
        return c == '\r';
    case FRAMING_DATA_LF:
        *chunks = (struct framing_chunks){.place = FRAMING_SIZE};
        return c == '\n';
    case FRAMING_END_CR:
        chunks->place = FRAMING_END_LF;
        return c == '\r';
    case FRAMING_END_LF:
        chunks->place = FRAMING_DONE;
        return c == '\n';
    default:
        return false;
    }
}

enum framing_status framing_chunks(struct framing_chunks *chunks, const char *bytes, size_t length,
                                   size_t *ret_used, struct framing_piece *ret_piece,
                                   struct framing_refusal *ret_refusal)
{
    size_t at = 0;
    *ret_piece = (struct framing_piece){0};
    while (at < length && chunks->place != FRAMING_DATA && chunks->place != FRAMING_DONE)
        if (!step(chunks, bytes[at++]))
            return refuse(ret_refusal, 400,
                          "the body's chunks are not framed as they must be (without extensions "
                          "and trailers)");
    if (chunks->place == FRAMING_DATA && at < length) {
        size_t here = length - at < chunks->left ? length - at : (size_t)chunks->left;
        *ret_piece = (struct framing_piece){bytes + at, here};
        chunks->left -= here;
        at += here;
        if (chunks->left == 0)
            chunks->place = FRAMING_DATA_CR;
    }
    *ret_used = at;
    return ret_piece->length > 0 || chunks->place == FRAMING_DONE ? FRAMING_OK : FRAMING_MORE;
}

/* ---- answers -----------------------------------------------------------------------------------
 */

const char *framing_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Status";
}
