/* An exchange: one HTTP request and its answer.
 *
 * Way: exchange_open, exchange_head once the headers are there (an answer may be ready then),
 * exchange_body for what comes, exchange_begin when all of it is there, and from when
 * exchange_ready() says so exchange_read until it says END. http.wake tells when there is something
 * new.
 *
 * It is the sink of its request. Results wait as numbers in the sequences until there is room
 * for their text, as with native connections; without streaming all is formatted when the last has
 * ended.
 *
 * exchange_close() at any time: what runs is cancelled. The memory goes once no thread reads it.
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/answer/answer_items.h"
#include "daemon/answer/answer_message.h"
#include "daemon/api/out.h"
#include "daemon/base/web_access.h"
#include "daemon/http/http.h"
#include "daemon/http/inflate.h"
#include "daemon/http/query/query.h"
#include "daemon/request/encoder.h"
#include "daemon/request/request.h"
#include "daemon/request/server.h"

#define EXCHANGE_ID_MAX 64
#define EXCHANGE_CORS_HEADERS_MAX 512
#define EXCHANGE_READ_END SIZE_MAX

/* Who asks, and over what. */
struct exchange_peer {
    uint64_t user;     /* uid, or KEY_USER_FIRST and on */
    const char *key;   /* the name of the key that was given, or NULL; until the head is read */
    uint64_t key_user; /* as user, where that is one whom a trusted key named */
    bool admin;        /* may drain, and ask for any priority */
    bool tcp;
    bool loopback;      /* of tcp: from this machine */
    bool metrics_only;  /* the listener has nothing but /metrics and /health */
    bool metrics_apart; /* this one has no /metrics */
};

/* What is looked at of a request's first lines; NULL where it is not given. */
struct exchange_head {
    const char *method, *path;
    const char *host, *content_type, *authorization, *request_id;
    const char *api_key; /* x-api-key: a key without "Bearer" */
    const char *user;    /* x-sluice-user */
    const char *origin;  /* of a web page, and what it asks for beforehand */
    const char *cors_method, *cors_headers;
    const char *content_encoding;
    const char *json_length; /* Inference-Header-Content-Length: of JSON before bytes */
    uint64_t content_length; /* 0 also where it is not said */
};

/* Of a request from a page of cors-origins: what goes with its answer. */
struct exchange_cors {
    char origin[WEB_ORIGIN_MAX + 1];
    bool preflight;
    char headers[EXCHANGE_CORS_HEADERS_MAX]; /* that the page may send */
};

struct route;
struct exchange_tensors;

/* How an answer ended. */
enum answer_end { ANSWER_END_STOP, ANSWER_END_CALLS, ANSWER_END_LENGTH, ANSWER_END_OTHER };

/* Of one choice of an answer. */
struct choice {
    uint32_t text_offset; /* characters of its tokens so far, for logprobs */
    bool begun, ended;
    struct answer_reader reader;   /* where answers are taken apart */
    struct answer_message message; /* of a whole answer: its parts */
    struct answer_items items;     /* the same where the API tells a list, of streams, too */
    uint32_t events;               /* of a stream, as its API counts them */
    enum answer_end end;           /* once it is read to its end */
    int stop;                      /* the stop string that ended it; -1: none */
};

/* What a body says of its deadline, before it is read: looked for as its bytes come. */
struct body_deadline {
    uint32_t depth;
    uint32_t matched; /* letters of the key */
    bool in_string, escaped, at_key, found;
    uint64_t ms; /* 0: none */
};

/* A body being read. */
struct body_reading {
    struct errand errand;
    struct message_limits limits; /* as they were when it began */
    struct sampling defaults;
    struct served_model *model; /* that the body names, where it is known */
    size_t bytes_max; /* of a body that came compressed */
    bool failed;
    struct error error;
};

struct adapter_loading; /* daemon/http/adapters.c */

struct exchange {
    struct response_sink sink;
    struct http *http;
    void *carrier; /* of whoever drives it */
    struct exchange_peer peer;
    const struct route *route;
    const struct api *api; /* how refusals are written, also where there is no route; NULL: OpenAI's */
    char object[128]; /* what the path names behind the route */
    bool closed;
    time_us arrived_us;
    char request_id[EXCHANGE_ID_MAX + 1]; /* x-request-id */
    char named[2 * KEY_NAME_MAX + 2];     /* KEY/USER, where a trusted key names a user */
    char answer_id[40];
    uint64_t created_s; /* wall clock */

    struct buffer body;
    size_t body_counted; /* against input-max */
    bool body_over;      /* it is too large; the rest is thrown away */
    bool large;          /* it was, or what was made of it */
    bool elsewhere;      /* another thread reads it, or will */
    struct body_deadline body_deadline;
    struct body_reading reading;

    enum coding coding;               /* of the body; */
    size_t body_json;                 /* its bytes of JSON, SIZE_MAX: all */
    struct exchange_tensors *tensors; /* owned; of a body that carries tensors (tensors.h) */
    struct query query;
    struct served_model *model;      /* that it names, or the first */
    struct adapter_loading *loading; /* of one that is read elsewhere; NULL: none */
    char adapter[MODEL_NAME_SIZE]; /* "": the model as it is */
    struct encoder encoding;
    bool encoding_on; /* another thread has it or will, or it is being begun */
    void (*encoded)(struct exchange *exchange, time_us now_us);
    struct request *request; /* until its last sequence is released */
    struct list ready;       /* seq.wait_link: sequences with news */
    struct choice *choices;  /* NULL: nothing is generated */
    uint32_t choice_count;
    size_t kept; /* bytes of the answer and of scores, counted against results-max */
    struct message_score *scores; /* of all prompts' tokens; NULL: none are asked for, or not yet */
    struct gpu_top *score_tops;   /* [of scores][query_score_tops()], where that is above 1 */
    size_t *score_starts;         /* where each prompt's are; the first token's is empty */
    uint32_t unended;             /* sequences that are not told to their end */
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    uint64_t drafted_tokens, accepted_tokens; /* guesses of next tokens, and those that stood */

    /* The answer. */
    unsigned status;            /* 0: not known yet */
    const char *content_type;   /* NULL: there is no body */
    const char *allow;          /* of a 405 */
    size_t json_bytes;          /* of an answer with bytes behind its JSON: how much is JSON */
    struct exchange_cors *cors; /* owned; NULL: of no page, or of none that may */
    uint32_t retry_after_ms;    /* 0: no such header */
    bool streaming;             /* sent as it comes */
    bool finished;              /* nothing will be added */
    struct out out;
    struct list dirty_link;
    struct stats_waiter stats; /* waits for the workers' figures */
};

/* NULL: no memory. */
struct exchange *exchange_open(struct http *http, const struct exchange_peer *peer, time_us now_us);
/* False when the answer is ready already and no body is wanted. */
bool exchange_head(struct exchange *exchange, const struct exchange_head *head);
void exchange_body(struct exchange *exchange, const char *bytes, size_t length);
/* Instead of all that: the request cannot be read, and this is the answer. */
void exchange_fail(struct exchange *exchange, unsigned status, const struct error *error);
void exchange_begin(struct exchange *exchange, time_us now_us);
/* The status is known: the answer's headers may go. */
static inline bool exchange_ready(const struct exchange *exchange)
{
    return exchange->status != 0;
}
/* The next bytes of the answer; 0: none yet, EXCHANGE_READ_END: no more. */
size_t exchange_read(struct exchange *exchange, char *bytes, size_t max);
/* No more calls follow. The sink is gone, whatever was asked for is cancelled. */
void exchange_close(struct exchange *exchange, time_us now_us);

/* ---- between the files of daemon/http/ ---------------------------------------------------------
 */

struct piece;

/* Why a request has no answer, or a stream no end. */
struct refusal {
    const struct error *error;
    const char *param; /* the field that it is about, or "" */
    unsigned status;
};

/* How an API writes its answers (daemon/http/api/). */
struct api {
    bool items;         /* answers are lists of parts */
    out_writer refusal; /* of struct refusal */
    out_writer whole;   /* of struct exchange: all sequences have ended */
    /* The next piece of a stream, the stream's end, and what it breaks off with. */
    void (*piece)(struct exchange *exchange, const struct piece *piece);
    void (*end)(struct exchange *exchange);
    void (*broken)(struct exchange *exchange, const struct refusal *refusal);
    /* Instead of all these: news of its sequences, and turns that it asked for by exchange_touch().
     */
    void (*news)(struct exchange *exchange, time_us now_us);
};

/* What a path leads to. */
struct route {
    const char *method, *path;
    bool prefix; /* what follows the path is the object's name */
    /* Of a prefix, not NULL: the name has no "/", maybe "/versions/V" behind it, and then this. */
    const char *tail;
    bool body;    /* JSON is expected */
    bool tensors; /* and tensors in it, or behind it */
    bool open;    /* needs no key */
    bool refused; /* whatever is asked; not in /openapi.json */
    bool metrics; /* where metrics listeners are apart, on those alone */
    enum query_kind kind;
    const struct api *api; /* NULL: OpenAI's refusals, and no other answers by it */
    void (*begin)(struct exchange *exchange, time_us now_us);
    const char *says; /* in a few words, for /openapi.json */
};
struct routes {
    const struct route *list;
    size_t count;
};
/* daemon/http/route.c. Sets the exchange's API and its route, or refuses. */
void route_find(struct exchange *exchange, const struct exchange_head *head);

/* The answer is an error in the shape of its API. param: the field that it is about, or "". */
void exchange_refuse(struct exchange *exchange, const struct error *error, const char *param);
/* With a status other than the error's own. */
void exchange_refuse_as(struct exchange *exchange, unsigned status, const struct error *error,
                        const char *param);
/* It has ended before it was accepted. */
void exchange_end(struct exchange *exchange, const struct error *error);
void exchange_status(struct exchange *exchange, unsigned status, const char *content_type);
/* The whole answer is in `out`. */
void exchange_finish(struct exchange *exchange);
/* So many further bytes wait for the reader, until the exchange goes. */
void exchange_keep(struct exchange *exchange, size_t bytes);
/* Put on the list of those whose news is formatted after the turn. */
void exchange_touch(struct exchange *exchange);

/* daemon/http/body.c, also exchange_body() and exchange_begin(). */
void body_drop(struct exchange *exchange);
/* daemon/http/hint.c. The next bytes of a body: finds its "deadline_ms", where that is written
 * without escapes. */
void hint_read(struct body_deadline *deadline, const char *bytes, size_t length);
/* daemon/http/generate.c: completions, chats, embeddings. */
void generate_begin(struct exchange *exchange, time_us now_us);
/* Formats news while there is room. */
void generate_news(struct exchange *exchange, time_us now_us);
/* All sequences have ended: why there is no answer, if one of them failed. */
int generate_lost(const struct exchange *exchange, struct error *error);
/* Its results are told. */
void generate_release(struct exchange *exchange);
/* daemon/http/echo.c. The prompt's text, at the end of `text`; or before the sequence's own. */
void echo_text(struct exchange *exchange, const struct seq *seq, struct buffer *text);
void echo_before(struct exchange *exchange, struct seq *seq);
/* The request has scored the prompts: keeps that. */
int echo_keep_scores(struct exchange *exchange, struct error *error);
/* One for each token of the sequence's prompt; NULL where they were not asked for. */
const struct message_score *echo_scores(const struct exchange *exchange, const struct seq *seq);
/* The likeliest at a position of its prompt, which has a score: at most `max`. */
uint32_t echo_tops(const struct exchange *exchange, const struct seq *seq, uint32_t position,
                   uint32_t max, struct gpu_top *tops);
void echo_free(struct exchange *exchange);
/* daemon/http/encode.c: the texts of a query on their way to tokens. done is called when they are
 * all there; refusals are answered here. */
void encode_begin(struct exchange *exchange,
                  void (*done)(struct exchange *exchange, time_us now_us), time_us now_us);
/* daemon/http/adapters.c */
void adapters_load(struct exchange *exchange, time_us now_us);
void adapters_unload(struct exchange *exchange, time_us now_us);
/* daemon/http/rest.c */
void rest_sleep(struct exchange *exchange, time_us now_us);
void rest_wake(struct exchange *exchange, time_us now_us);
/* A new version of the model that the path names; and how that stands. */
void rest_reload(struct exchange *exchange, time_us now_us);
void rest_reload_state(struct exchange *exchange, time_us now_us);
void rest_is_sleeping(struct exchange *exchange, time_us now_us);
/* daemon/http/lookup.c */
void lookup_models(struct exchange *exchange, time_us now_us);
void lookup_health(struct exchange *exchange, time_us now_us);
void lookup_live(struct exchange *exchange, time_us now_us);
void lookup_model_info(struct exchange *exchange, time_us now_us);
void lookup_server_info(struct exchange *exchange, time_us now_us);
void lookup_tokenizer(struct exchange *exchange, time_us now_us);
void lookup_version(struct exchange *exchange, time_us now_us);
void lookup_tokenize(struct exchange *exchange, time_us now_us);
void lookup_detokenize(struct exchange *exchange, time_us now_us);
/* A model by one of its names or by an adapter's. ERR_NOT_FOUND where there is none. */
int lookup_model(const struct exchange *exchange, const char *name, struct served_model **ret_model,
                 uint32_t *ret_adapter, struct error *error);
/* What answers call its model: as that is called first, or the adapter by its name. */
const char *lookup_called(const struct exchange *exchange);
/* daemon/api/metrics.c */
void metrics_begin(struct exchange *exchange, time_us now_us);
