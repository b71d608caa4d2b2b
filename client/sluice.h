/* libsluice: the client of the Sluice inference daemon.
 *
 * A client is one connection. It has no globals, starts no threads, handles no signals, prints
 * nothing and never exits the process. Two clients may be used from two threads; one client by one
 * thread at a time.
 *
 * Two ways to use it, and both may be mixed:
 *  - any event loop: watch sluice_client_fd() for sluice_client_events() (POLLIN, POLLOUT), call
 *    sluice_client_process() when it is ready, and get answers through the callbacks of the batch;
 *  - blocking: sluice_connect(), sluice_run(), ... Each waits no longer than its timeout.
 *
 * Functions return 0 or a negative number, -SLUICE_E_...; sluice_client_error() then tells more.
 * Strings and arrays handed to a callback are valid during that call only.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

typedef struct sluice_client sluice_client;

/* Error numbers are those of the wire (protocol/base/error.def); these are the ones to test for. */
enum {
    SLUICE_E_BAD_VALUE = 16,
    SLUICE_E_TOO_LARGE = 20,
    SLUICE_E_BUSY = 21,
    SLUICE_E_DRAINING = 22,
    SLUICE_E_LOADING = 23,
    SLUICE_E_DENIED = 24,
    SLUICE_E_NOT_FOUND = 25,
    SLUICE_E_DEADLINE = 30,
    SLUICE_E_CANCELLED = 31,
    SLUICE_E_DEVICE = 40,
    SLUICE_E_CONNECT = 60,
    SLUICE_E_TIMEOUT = 61,
    SLUICE_E_CLOSED = 62,
    SLUICE_E_USAGE = 63
};

enum { SLUICE_RETRY_NEVER = 0, SLUICE_RETRY_LATER = 1, SLUICE_RETRY_FIX = 2 };

typedef struct sluice_error {
    int code;                /* positive, 0 when nothing failed */
    int retry;               /* SLUICE_RETRY_... */
    uint32_t retry_after_ms; /* 0 = no hint */
    uint64_t limit, value;   /* of the limit that was met; 0 = none */
    char text[512];          /* one line */
} sluice_error;

enum { SLUICE_GENERATE = 0, SLUICE_SCORE = 1, SLUICE_EMBED = 2 };
enum { SLUICE_POOL_LAST = 0, SLUICE_POOL_MEAN = 1, SLUICE_POOL_ALL = 2 };
enum {
    SLUICE_FINISH_STOP = 0,
    SLUICE_FINISH_LENGTH = 1,
    SLUICE_FINISH_CANCELLED = 2,
    SLUICE_FINISH_DEADLINE = 3,
    SLUICE_FINISH_ERROR = 4
};

/* Fill with sluice_params_init() first: every field then means "the daemon's default". */
typedef struct sluice_params {
    size_t size; /* set by sluice_params_init; lets the struct grow */
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, seed, max_tokens, min_tokens;
    int logprobs; /* -1 none, 0 of the chosen token, n of the n likeliest too */
    int ignore_eos;
    int n;
    const char *const *stop; /* stop strings */
    size_t stop_count;
    const int32_t *stop_ids;
    size_t stop_id_count;
    const int32_t *bias_tokens; /* logit bias: bias_count pairs */
    const float *bias_values;
    size_t bias_count;
} sluice_params;

/* One prompt: tokens, or a text. */
typedef struct sluice_prompt {
    const int32_t *tokens;
    size_t token_count;
    const char *text; /* UTF-8; used when tokens is NULL */
    size_t text_length;
    const sluice_params *params; /* NULL = the batch's */
} sluice_prompt;

typedef struct sluice_piece { /* tokens of one sequence, as they come */
    const int32_t *tokens;
    const float *logprobs; /* NULL when not asked for */
    size_t count;
    const int32_t *top_tokens; /* [count][top_count], NULL when not asked for */
    const float *top_logprobs;
    size_t top_count;
    const char *text; /* NULL when not asked for */
    size_t text_length;
} sluice_piece;

typedef struct sluice_scores { /* of prompt positions first, first + 1, ... (the first is 1) */
    size_t first, count;
    const float *logprobs;
    const int32_t *top_tokens;
    const float *top_logprobs;
} sluice_scores;

typedef struct sluice_end {
    int finish;          /* SLUICE_FINISH_... */
    sluice_error error;  /* when finish is SLUICE_FINISH_ERROR */
    uint32_t prompt_tokens, completion_tokens;
    uint64_t queued_us, first_token_us, total_us;
} sluice_end;

/* Every sequence of a batch gets exactly one `end`; sequence s is prompt s / n, result s % n. After
 * the last one the batch is forgotten. A callback may submit, cancel, and close the client only by
 * returning to its caller first. Null callbacks are allowed. */
typedef struct sluice_callbacks {
    void (*tokens)(void *context, uint32_t sequence, const sluice_piece *piece);
    void (*scores)(void *context, uint32_t sequence, const sluice_scores *scores);
    void (*embedding)(void *context, uint32_t sequence, size_t row, const float *values,
                      size_t width);
    void (*end)(void *context, uint32_t sequence, const sluice_end *end);
} sluice_callbacks;

typedef struct sluice_batch {
    size_t size; /* set by sluice_batch_init */
    int job;
    const sluice_prompt *prompts;
    size_t prompt_count;
    const sluice_params *params; /* for all; NULL = defaults */
    int priority;                /* -8 .. 7, higher first */
    uint64_t deadline_ms;        /* 0 = none */
    int stream;                  /* tokens as they come; otherwise all before the end */
    int want_text;
    int pooling, normalize; /* embed */
    sluice_callbacks callbacks;
    void *context;
} sluice_batch;

typedef struct sluice_info {
    char model[128], device[128];
    uint32_t context_max, vocabulary, batch_max, logprobs_max;
    uint64_t frame_max;
    int text; /* the daemon takes and gives text */
} sluice_info;

SLUICE_API const char *sluice_version(void);
SLUICE_API const char *sluice_error_name(int code);

/* path NULL: $SLUICE_SOCKET, else the first that accepts of $XDG_RUNTIME_DIR/sluice.sock and
 * /run/sluice/sluice.sock. On failure *error (may be NULL) names every path tried and why. */
SLUICE_API int sluice_connect(const char *path, int timeout_ms, sluice_client **ret_client,
                              sluice_error *error);
SLUICE_API void sluice_close(sluice_client *client);
SLUICE_API const sluice_error *sluice_client_error(const sluice_client *client);
SLUICE_API const sluice_info *sluice_client_info(const sluice_client *client);

SLUICE_API int sluice_client_fd(const sluice_client *client);
SLUICE_API short sluice_client_events(const sluice_client *client);
/* Reads and writes what can be moved without waiting, and calls callbacks. Negative once the
 * connection is lost: every open sequence has got its end by then. */
SLUICE_API int sluice_client_process(sluice_client *client);

SLUICE_API void sluice_params_init(sluice_params *params);
SLUICE_API void sluice_batch_init(sluice_batch *batch);

/* Queues the batch; prompts and params are copied. *ret_id names it on this client. */
SLUICE_API int sluice_submit(sluice_client *client, const sluice_batch *batch, uint64_t *ret_id);
/* Its sequences end as cancelled, unless they ended before. */
SLUICE_API int sluice_cancel(sluice_client *client, uint64_t id);
/* By the daemon-wide number, from any connection of the same user (or an admin). */
SLUICE_API int sluice_cancel_request(sluice_client *client, uint64_t request, int timeout_ms);
SLUICE_API uint64_t sluice_request_number(const sluice_client *client, uint64_t id); /* 0 = not yet */
SLUICE_API size_t sluice_open_sequences(const sluice_client *client);

/* Waits for one turn of the connection: -SLUICE_E_TIMEOUT when nothing happened in time. */
SLUICE_API int sluice_wait(sluice_client *client, int timeout_ms);
/* Submits and waits until every sequence has ended. timeout_ms < 0 = no limit. */
SLUICE_API int sluice_run(sluice_client *client, const sluice_batch *batch, int timeout_ms);

/* Control: the daemon's answer is a JSON text, valid until the next call on this client. */
enum { SLUICE_STATS = 9, SLUICE_HEALTH = 10, SLUICE_MODEL = 11, SLUICE_DRAIN = 12, SLUICE_RESUME = 13 };
SLUICE_API int sluice_control(sluice_client *client, int what, const char *head, int timeout_ms,
                              const char **ret_json);

#ifdef __cplusplus
}
#endif
#endif
