/* libsluice: the client of the Sluice inference daemon.
 *
 * A client is one connection. It has no globals, starts no threads, handles no signals, prints
 * nothing and never exits the process. Two clients may be used from two threads; one client by one
 * thread at a time.
 *
 * Two ways to use it, and both may be mixed:
 *  - any event loop: watch sluice_client_fd() for sluice_client_events() (POLLIN, POLLOUT; ask
 * again after each call of this library), call sluice_client_process() when it is ready, and get
 * answers through callbacks;
 *  - blocking: sluice_connect(), sluice_run(), ... Each waits no longer than its timeout.
 *
 * Functions return 0 or a negative number, -SLUICE_E_...; sluice_client_error() then tells more.
 * Strings and arrays handed to a callback are valid during that call only. A callback may submit,
 * ask and cancel; it may not wait, run, process or close (but for closing: -SLUICE_E_USAGE).
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

/* Numbers of errors. Others may come, too: sluice_error_name() knows them all. */
enum {
    SLUICE_E_INTERNAL = 1,
    SLUICE_E_NO_MEMORY = 2,
    SLUICE_E_IO = 3,
    SLUICE_E_BAD_FRAME = 12,
    SLUICE_E_BAD_VALUE = 16,
    SLUICE_E_BAD_TOKEN = 17,
    SLUICE_E_EMPTY = 18,
    SLUICE_E_TOO_LARGE = 20,
    SLUICE_E_BUSY = 21,
    SLUICE_E_DRAINING = 22,
    SLUICE_E_LOADING = 23,
    SLUICE_E_DENIED = 24,
    SLUICE_E_NOT_FOUND = 25,
    SLUICE_E_UNSUPPORTED = 26,
    SLUICE_E_DEADLINE = 30,
    SLUICE_E_CANCELLED = 31,
    SLUICE_E_DEVICE = 40,
    SLUICE_E_PROGRAM = 43,
    SLUICE_E_PROGRAM_OFF = 44,
    SLUICE_E_CONNECT = 60,
    SLUICE_E_TIMEOUT = 61,
    SLUICE_E_CLOSED = 62,
    SLUICE_E_USAGE = 63
};

/* Whether the same request may pass when it is sent again: no; later; once it is changed. */
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
/* What all outputs of a batch must be: nothing, any JSON value, any JSON object, what a JSON Schema
 * says, the whole of a regular expression, one string of a JSON list of them. */
enum {
    SLUICE_CONSTRAINT_NONE = 0,
    SLUICE_CONSTRAINT_JSON = 1,
    SLUICE_CONSTRAINT_OBJECT = 2,
    SLUICE_CONSTRAINT_SCHEMA = 3,
    SLUICE_CONSTRAINT_PATTERN = 4,
    SLUICE_CONSTRAINT_CHOICE = 5,
    SLUICE_CONSTRAINT_GRAMMAR = 6
};
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
    /* NaN = not given */
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    /* -1 = not given */
    int64_t top_k, seed, max_tokens, min_tokens;
    int logprobs; /* -1 none, 0 of the chosen token, n of the n likeliest too */
    int ignore_eos;          /* end tokens, and stop_ids, are never sampled */
    int n;                   /* results per prompt, at least 1; they read it once */
    const char *const *stop; /* stop strings, UTF-8 */
    size_t stop_count;
    const int32_t *stop_ids;
    size_t stop_id_count;
    const int32_t *bias_tokens; /* logit bias: bias_count pairs */
    const float *bias_values;
    size_t bias_count;
} sluice_params;

/* One prompt: tokens, a text, or a conversation. All prompts of a batch are of one kind. */
typedef struct sluice_prompt {
    const int32_t *tokens;
    size_t token_count;
    const char *text; /* UTF-8 without NUL; used when tokens is NULL */
    size_t text_length;
    /* JSON {"messages":[{"role":"user","content":"..."}]}, of which the model's chat template makes
     * the prompt; also tools, chat_template_kwargs, add_generation_prompt, reasoning_effort. Used
     * when both are NULL. */
    const char *chat;
    size_t chat_length;
    const sluice_params *params; /* NULL = the batch's */
} sluice_prompt;

typedef struct sluice_top {
    int32_t token;
    float logprob;
} sluice_top;

typedef struct sluice_piece { /* tokens of one sequence, as they come */
    const int32_t *tokens;
    const float *logprobs; /* NULL when not asked for */
    size_t count;
    const sluice_top *tops; /* [count][top_count], likeliest first; NULL when not asked for */
    size_t top_count;
    const char *text; /* NULL when not asked for; not terminated */
    size_t text_length;
} sluice_piece;

typedef struct sluice_score {
    float logprob;     /* of the prompt's own token */
    int32_t top_token; /* the likeliest at its place */
    float top_logprob;
    uint32_t reserved;
} sluice_score;

typedef struct sluice_end {
    int finish;         /* SLUICE_FINISH_... */
    sluice_error error; /* when finish is SLUICE_FINISH_ERROR */
    uint32_t prompt_tokens, completion_tokens;
    uint64_t queued_us, first_token_us, total_us;
    uint32_t cached_tokens; /* of the prompt's, those that the daemon had computed before */
} sluice_end;

/* Every sequence of a batch gets exactly one `end`, also when the connection is lost; sequence s is
 * prompt s / n, result s % n, where all prompts have the same n, in general the running sum. After
 * the last one the batch is forgotten. Null callbacks are allowed. */
typedef struct sluice_callbacks {
    void (*tokens)(void *context, uint32_t sequence, const sluice_piece *piece);
    /* Of prompt positions first, first + 1, ...; the first of all is 1. Parts come in order. */
    void (*scores)(void *context, uint32_t sequence, size_t first, const sluice_score *scores,
                   size_t count);
    /* One row of `width` values; several with SLUICE_POOL_ALL, in order. */
    void (*embedding)(void *context, uint32_t sequence, size_t row, const float *values,
                      size_t width);
    void (*end)(void *context, uint32_t sequence, const sluice_end *end);
} sluice_callbacks;

/* Fill with sluice_batch_init() first: a generate batch that streams, for no prompt yet. */
typedef struct sluice_batch {
    size_t size; /* set by sluice_batch_init */
    int job;
    /* 0: a prompt that the daemon cannot take as it is (too long, a token out of the vocabulary)
     * ends alone, with its error, and the others run. 1: it refuses the whole batch. */
    int all_or_nothing;
    const sluice_prompt *prompts;
    size_t prompt_count;
    const sluice_params *params; /* for all; NULL = defaults */
    int priority;                /* -8 .. 7, higher first */
    uint64_t deadline_ms;        /* 0 = none */
    int stream;                  /* tokens as they come; otherwise all before the end */
    int want_text;
    int pooling, normalize; /* embed */
    int constraint;              /* generate: SLUICE_CONSTRAINT_... */
    const char *constraint_text; /* schema, expression, list or grammar; else NULL */
    sluice_callbacks callbacks;
    void *context;
    /* 1: nothing that the daemon computed before is used, and nothing is kept. */
    int no_cache;
    const char *cache_salt; /* what is kept is shared with all who give this secret of 1 to 256
                               bytes; NULL: with requests of the same user */
    const char *model; /* which, by its name, of a daemon that serves several, or an adapter of its
                          first; NULL: its first */
} sluice_batch;

/* ---- jobs: tensors for programs ------------------------------------------------------------- */

/* Element types, little-endian; a bool is a byte, 0 or 1. */
enum {
    SLUICE_DTYPE_BOOL = 1,
    SLUICE_DTYPE_U8 = 2,
    SLUICE_DTYPE_U16 = 3,
    SLUICE_DTYPE_U32 = 4,
    SLUICE_DTYPE_U64 = 5,
    SLUICE_DTYPE_I8 = 6,
    SLUICE_DTYPE_I16 = 7,
    SLUICE_DTYPE_I32 = 8,
    SLUICE_DTYPE_I64 = 9,
    SLUICE_DTYPE_F16 = 10,
    SLUICE_DTYPE_BF16 = 11,
    SLUICE_DTYPE_F32 = 12,
    SLUICE_DTYPE_F64 = 13
};

#define SLUICE_ARRAY_RANK_MAX 6
#define SLUICE_ARRAYS_MAX 8     /* inputs of an item */
#define SLUICE_ARGUMENTS_MAX 16 /* parameters of an item */

typedef struct sluice_array { /* row-major, without gaps */
    const char *name;
    int dtype;
    size_t rank;
    uint64_t shape[SLUICE_ARRAY_RANK_MAX];
    const void *data; /* not looked at where the job has an inputs_fd */
} sluice_array;

enum { SLUICE_ARGUMENT_NUMBER = 0, SLUICE_ARGUMENT_INTEGER = 1, SLUICE_ARGUMENT_BOOL = 2 };

typedef struct sluice_argument { /* a parameter of the program */
    const char *name;
    int type;
    int64_t integer; /* of INTEGER, within +-2^53, and of BOOL */
    double number;   /* of NUMBER, finite */
} sluice_argument;

typedef struct sluice_job_item {
    const sluice_array *inputs;
    size_t input_count;
    const sluice_argument *arguments;
    size_t argument_count;
} sluice_job_item;

/* Fill with sluice_job_init() first. Its items are what a batch's sequences are: each gets exactly one
 * `end`, and after the last one the job is forgotten. */
typedef struct sluice_job {
    size_t size; /* set by sluice_job_init */
    const char *program;
    const sluice_job_item *items;
    size_t item_count;
    int priority;         /* -8 .. 7, higher first */
    uint64_t deadline_ms; /* 0 = none */
    /* More bytes of inputs than this go by memory that is shared with the daemon, not through the
     * socket. */
    uint64_t inline_max;
    /* -1, or memory of the caller's (a memfd) in which all inputs lie, each at a multiple of 8, in the order of items and
     * of their arrays, to inputs_bytes in all; sealed against writing and shrinking, and without holes. */
    int inputs_fd;
    uint64_t inputs_bytes;
    /* -1, or memory into which the outputs are written likewise, in the program's order; sealed against shrinking,
     * without holes. Then `output` is not called. */
    int outputs_fd;
    uint64_t outputs_bytes;
    /* A part of an output, which is counted as the program does; parts come in order. */
    void (*output)(void *context, uint32_t item, uint32_t output, uint64_t at, const void *data,
                   size_t bytes);
    void (*end)(void *context, uint32_t item, const sluice_end *end);
    void *context;
} sluice_job;

typedef struct sluice_info {
    char model[128], device[128];
    uint32_t context_max; /* tokens, prompt and output together; 0 = the model was still loading */
    uint32_t vocabulary, batch_max, logprobs_max, n_max;
    uint64_t frame_max;
    int text; /* the daemon takes and gives text */
} sluice_info;

/* The library's version, as "0.1.0". */
SLUICE_API const char *sluice_version(void);
/* The name of an error's number, as "too_large". Also of numbers that this header does not list. */
SLUICE_API const char *sluice_error_name(int code);
/* The name of how a sequence ended, as "stop". */
SLUICE_API const char *sluice_finish_name(int finish);

/* Connects to the daemon. path NULL: $SLUICE_SOCKET, else the first that accepts of
 * $XDG_RUNTIME_DIR/sluice.sock and /run/sluice/sluice.sock. timeout_ms < 0 = no limit, here and
 * everywhere. On failure *error (may be NULL) names every path tried and why. */
SLUICE_API int sluice_connect(const char *path, int timeout_ms, sluice_client **ret_client,
                              sluice_error *error);
/* Closes the connection. Calls no callback: what was open is cancelled by the daemon. NULL is
 * allowed. */
SLUICE_API void sluice_close(sluice_client *client);
/* The error of the last call that failed. Valid until the next call. */
SLUICE_API const sluice_error *sluice_client_error(const sluice_client *client);
/* What the daemon said of itself and of its model when it was connected to. */
SLUICE_API const sluice_info *sluice_client_info(const sluice_client *client);

/* The descriptor for a loop to watch. Its number stays the same until the client is closed. */
SLUICE_API int sluice_client_fd(const sluice_client *client);
/* What to watch the descriptor for. POLLIN, POLLOUT or both; 0 once the connection is lost. */
SLUICE_API short sluice_client_events(const sluice_client *client);
/* Reads and writes what can be moved without waiting, and calls callbacks. Negative once the
 * connection is lost: every open sequence has got its end by then. */
SLUICE_API int sluice_client_process(sluice_client *client);

/* Sets all parameters to "the daemon's default". To be called before any is set. */
SLUICE_API void sluice_params_init(sluice_params *params);
/* Makes a generate batch that streams, without prompts. To be called before anything is set. */
SLUICE_API void sluice_batch_init(sluice_batch *batch);

/* Queues a batch. Prompts and params are copied. *ret_id (may be NULL) names it on this client.
 * -SLUICE_E_BUSY when more than 64 MiB would wait to be sent. */
SLUICE_API int sluice_submit(sluice_client *client, const sluice_batch *batch, uint64_t *ret_id);
/* Prepares a job without items, whose tensors go and come as is best. */
SLUICE_API void sluice_job_init(sluice_job *job);
/* Bytes of a tensor; 0 where its dtype is none, a dimension is 0, or it would have more than 2^53. */
SLUICE_API uint64_t sluice_array_bytes(const sluice_array *array);
/* Queues a job, as sluice_submit() a batch: all is copied, and *ret_id names it likewise. */
SLUICE_API int sluice_submit_job(sluice_client *client, const sluice_job *job, uint64_t *ret_id);
/* Cancels a batch. Its sequences end as cancelled, unless they ended before. */
SLUICE_API int sluice_cancel(sluice_client *client, uint64_t id);
/* Says that nothing more will be submitted, asked or cancelled. The daemon is told so once all of
 * it is sent, answers what it was asked, and closes the connection, which then is lost with
 * -SLUICE_E_CLOSED. What was asked has its answers by then. */
SLUICE_API int sluice_end_input(sluice_client *client);
/* The daemon-wide number of a batch, by which another connection can cancel. 0 = not accepted
 * (yet). */
SLUICE_API uint64_t sluice_request_number(const sluice_client *client, uint64_t id);
/* How many sequences have not got their end. */
SLUICE_API size_t sluice_open_sequences(const sluice_client *client);

/* Asks the daemon about itself. The answer is a JSON object, terminated; NULL when *error says why
 * there is none. head is the question's JSON object, NULL = none. */
enum {
    SLUICE_STATS =
        9, /* head {"requests":true}: also one's own requests, all of them for an admin */
    SLUICE_HEALTH = 10,
    SLUICE_MODEL = 11,
    SLUICE_DRAIN = 12,
    SLUICE_RESUME = 13,
    SLUICE_PROGRAMS = 19, /* head {"enable":"NAME"}: an admin's word that a program is on again */
    SLUICE_TIMELINE = 20  /* head {"from":N}: when the chunks of jobs ran, from number N on */
};
typedef void (*sluice_answer)(void *context, const char *json, const sluice_error *error);
SLUICE_API int sluice_ask(sluice_client *client, int what, const char *head, sluice_answer answer,
                          void *context);

/* Waits for one turn of the connection. -SLUICE_E_TIMEOUT when nothing happened in time. Also
 * returns 0, early, when a signal handler of the program ran meanwhile. */
SLUICE_API int sluice_wait(sluice_client *client, int timeout_ms);
/* Submits and waits until every sequence has ended, well or badly. What has not ended in time is
 * cancelled and gets its end, with SLUICE_E_TIMEOUT. */
SLUICE_API int sluice_run(sluice_client *client, const sluice_batch *batch, int timeout_ms);
/* The same of a job. */
SLUICE_API int sluice_run_job(sluice_client *client, const sluice_job *job, int timeout_ms);
/* Asks the daemon about itself and waits for its answer. As sluice_ask(); the answer is valid until
 * the next call of this function or the next two. */
SLUICE_API int sluice_control(sluice_client *client, int what, const char *head, int timeout_ms,
                              const char **ret_json);
/* The tokens of one prompt, which is a text or a conversation. special: with those that the model
 * puts around a text; a conversation has its own. What it gives is valid until the next call of
 * this, the next, or sluice_control(). */
SLUICE_API int sluice_tokenize(sluice_client *client, const sluice_prompt *prompt, int special,
                               int timeout_ms, const int32_t **ret_tokens, size_t *ret_count);
/* The text of tokens. special: special tokens are shown. Terminated; *ret_length tells it from
 * NULs. */
SLUICE_API int sluice_detokenize(sluice_client *client, const int32_t *tokens, size_t count,
                                 int special, int timeout_ms, const char **ret_text,
                                 size_t *ret_length);
/* Cancels a request by its daemon-wide number. From any connection of the same user, or of an
 * admin. */
SLUICE_API int sluice_cancel_request(sluice_client *client, uint64_t request, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
