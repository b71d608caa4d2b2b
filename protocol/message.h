/* Messages: the typed content of frames. The message_*.c files alone know the JSON on the wire.
 *
 * Decoding fills plain structs whose pointers borrow from the frame and from the parsed document,
 * which message_submit_free() gives back. Encoding appends one whole frame to a caller's buffer and
 * returns its size, or 0 when it did not fit (then nothing counts as written). Any thread.
 *
 * The text of a decoding error may name a field as the sender wrote it: it goes back to the sender
 * and is not logged. Request ids are 1 to 2^53, the integers that strict JSON carries; other 64-bit
 * numbers in heads are cut to that.
 *
 * The same files serve client and daemon. wire.md describes every field to the byte.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/json.h"
#include "protocol/base/sampler.h"
#include "protocol/frame.h"

#define MESSAGE_NAME_MAX 128 /* model id, device and client names, bytes with the terminator */
#define MESSAGE_DIRECTORY_MAX 1024 /* that an admin names, likewise */
#define MESSAGE_STOP_MAX 16  /* stop strings of a sequence */
#define MESSAGE_STOP_BYTES_MAX 256
#define MESSAGE_STOP_IDS_MAX 64
#define MESSAGE_BIAS_MAX 1024 /* logit_bias entries */
#define MESSAGE_NEXT_MAX 16
#define MESSAGE_LOGPROBS_MAX 20
#define MESSAGE_N_MAX 128
#define MESSAGE_SALT_MAX 256    /* bytes of cache_salt */
#define MESSAGE_BATCH_MAX 65536 /* what the encoding can carry; the daemon's own limit is smaller  \
                                 */

enum job { JOB_GENERATE, JOB_SCORE, JOB_EMBED, JOB_PROGRAM }; /* the last: tensors, see JOB */
enum pooling { POOLING_LAST, POOLING_MEAN, POOLING_ALL };
enum finish { FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_DEADLINE, FINISH_ERROR };

const char *job_name(enum job job);
const char *finish_name(enum finish finish);

/* HELLO {"versions":[min,max],"client":"sluice 0.1.0"} */
struct message_hello {
    uint32_t version_min, version_max;
    char client[MESSAGE_NAME_MAX];
};

/* WELCOME
 * {"version":1,"frame_max":...,"batch_max":...,"context_max":...,"vocabulary":...,"model":"...",
 *          "device":"...","text":true,"logprobs_max":...,"n_max":...} */
struct message_welcome {
    uint32_t version;
    uint64_t frame_max;   /* bytes */
    uint32_t batch_max;   /* sequences of a SUBMIT, each n counted */
    uint32_t context_max; /* tokens, prompt and output together; 0 while the model is loading */
    uint32_t vocabulary;
    uint32_t logprobs_max, n_max;
    bool text; /* the daemon has a tokenizer: texts are taken and given */
    char model[MESSAGE_NAME_MAX];
    char device[MESSAGE_NAME_MAX];
};

/* What a request asks for with all its prompts. */
struct request_params {
    enum job job;
    int32_t priority;       /* -8 .. 7; higher goes first */
    uint64_t deadline_ms;   /* from arrival; 0 = none */
    bool stream;            /* TOKENS as they come; otherwise all at the end */
    bool want_text;         /* answers carry text beside tokens */
    bool partial;           /* a prompt that is refused by itself fails alone */
    bool normalize;         /* embed */
    enum pooling pooling;   /* embed */
    bool no_cache;          /* it finds nothing that was computed before, and leaves nothing */
    bool no_drafts;         /* generate: none of its next tokens is guessed */
    const char *cache_salt; /* it shares what is cached with all who give this; NULL: with its
                               user's own. Borrowed from the document */
    const char *adapter; /* its name; NULL: the model as it is. Likewise */
    const char *model;   /* its name; NULL: the daemon's first. Likewise */
};

/* What a sequence asks for. A field that was not given keeps the value that stood there before
 * decoding: the daemon fills in the model's defaults first. */
struct sampling {
    struct sampler sampler;
    uint64_t seed;
    bool seed_given;     /* otherwise the daemon draws one */
    uint32_t max_tokens; /* 0 = as many as the context holds */
    uint32_t min_tokens;
    bool ignore_eos;
    int32_t logprobs; /* -1 none, 0 of the chosen token, n of the n likeliest too */
    uint32_t n;       /* results per prompt */
};

/* What the outputs of a request must be. The text is a JSON Schema, a regular expression that the
 * whole output is, a JSON list of the strings of which it is one, or a grammar in GBNF; of `json`
 * and `object` there is none. */
enum message_constraint_kind {
    MESSAGE_CONSTRAINT_NONE,
    MESSAGE_CONSTRAINT_JSON,   /* any JSON value */
    MESSAGE_CONSTRAINT_OBJECT, /* any JSON object */
    MESSAGE_CONSTRAINT_SCHEMA,
    MESSAGE_CONSTRAINT_PATTERN,
    MESSAGE_CONSTRAINT_CHOICE,
    MESSAGE_CONSTRAINT_GRAMMAR,
    MESSAGE_CONSTRAINT_STRUCTURE /* the daemon's own, which no message has */
};

struct message_constraint {
    enum message_constraint_kind kind;
    const char *text; /* borrowed; NULL where there is none */
    size_t length;
};

const char *message_constraint_name(enum message_constraint_kind kind); /* "schema" */
static inline bool message_constraint_has_text(enum message_constraint_kind kind)
{
    return kind >= MESSAGE_CONSTRAINT_SCHEMA;
}

/* One prompt of a SUBMIT. Sequence numbers of results count prompts in order, n results each:
 * prompt p, result r has sequence number p * n + r when all prompts have the same n, in general the
 * running sum. */
struct message_prompt {
    struct sampling sampling;
    const int32_t *tokens; /* borrowed from the payload; NULL when the prompt is a text */
    uint32_t token_count;
    const char *text; /* borrowed from the document, UTF-8; NULL when the prompt is none */
    size_t text_length;
    const char *chat; /* a conversation, borrowed from the payload, not looked at; else NULL */
    uint32_t chat_length;
    uint32_t stop_count;
    const char *stop[MESSAGE_STOP_MAX]; /* borrowed from the document */
    uint32_t stop_length[MESSAGE_STOP_MAX];
    uint32_t stop_id_count;
    int32_t stop_ids[MESSAGE_STOP_IDS_MAX];
    uint32_t next_count; /* score: not its own tokens, but these, each as the one behind it */
    int32_t next[MESSAGE_NEXT_MAX];
    const json *bias; /* object {"token id": value}, or NULL; read by message_bias() */
};

/* SUBMIT head:
 * {"job":"generate","priority":0,"deadline_ms":0,"stream":true,"text":false,
 *  "cache":true,"cache_salt":"...","adapter":"...","model":"...",
 *  "lengths":[5,7],            packed int32 tokens of all prompts in the payload, in this order
 *  "texts":["...","..."],      instead of lengths; needs a daemon with a tokenizer
 *  "chats":[120,87],           instead of both: bytes of conversations in the payload, in this
 * order "max_tokens":16, ... any field of struct sampling, "stop":["..."], "stop_token_ids":[..],
 *  "logit_bias":{"17":-1.5},   for all prompts
 *  "constraint":"schema","constraint_text":"{...}",      generate only, for all prompts
 *  "each":[{...},{...}],       optional: the same sampling fields, per prompt, over those for all
 *  "pooling":"last","normalize":true}                    embed only
 */
struct message_submit {
    struct request_params params;
    struct message_constraint constraint; /* borrows from the document */
    uint32_t prompt_count;
    uint32_t
        result_count; /* of all prompts, n each; one whose n is wrong is refused when it is read */
    json *document;   /* owned; message_submit_free() */
    const unsigned char *payload;
    const struct message_prompt *common; /* see message_submit_prompt() */
    void *storage;                       /* owned */
};

/* Decodes what is common; limits on counts are checked before anything is allocated.
 * defaults: the model's sampling defaults, for fields that were not given; its n is at least 1.
 * Sampling fields belong to generate alone, pooling and normalize (both default to last and true)
 * to embed. */
struct message_limits {
    uint32_t batch_max, n_max, logprobs_max, stop_max;
    uint32_t json_depth_max;
    uint32_t vocabulary; /* tokens outside [0, vocabulary) are refused with ERR_BAD_TOKEN; 0:
                            unchecked */
    /* What a message's "model" chooses in the place of what these and the defaults say of the first
     * model; NULL: any name will do. */
    int (*choose)(void *context, const char *name, struct message_limits *limits,
                  struct sampling *defaults, struct error *error);
    void *context;
};
int message_decode_submit(const struct frame *frame, const struct message_limits *limits,
                          const struct sampling *defaults, struct message_submit *ret_submit,
                          struct error *error);
/* Prompt `index` of the batch (in order from 0, each once), with its own fields over the common
 * ones. Errors name the prompt's index. */
int message_submit_prompt(struct message_submit *submit, uint32_t index,
                          struct message_prompt *ret_prompt, struct error *error);
/* The first of the texts, to go through with json_next() beside message_submit_prompt(); NULL when
 * the prompts are something else. Likewise the first of the chats' lengths. */
const json *message_submit_texts(const struct message_submit *submit);
const json *message_submit_chats(const struct message_submit *submit);
/* The payload is read from there on: before the first prompt. */
void message_submit_payload(struct message_submit *submit, const unsigned char *payload);
void message_submit_free(struct message_submit *submit);

/* A member cache_salt, which the daemon's HTTP has as well. */
int message_salt(const json *value, const char **ret_salt, struct error *error);
/* Of a request: from -8 to 7, and milliseconds up to 2^40. */
int message_priority(const json *value, int32_t *ret_priority, struct error *error);
int message_deadline(const json *value, uint64_t *ret_ms, struct error *error);

struct message_bias {
    int32_t token;
    float value;
};
/* Reads prompt->bias into at most `max` entries. */
int message_bias(const json *bias, uint32_t vocabulary, struct message_bias *entries, uint32_t max,
                 uint32_t *ret_count, struct error *error);

/* A client's side of SUBMIT: the common sampling fields, then prompts by their tokens or texts.
 * Fields equal to `sampling_unset()` are not written, so that the daemon's defaults hold. Encoding
 * returns 0 also when the head is over FRAME_HEAD_MAX: the batch must be split then. */
struct sampling sampling_unset(void);
struct message_submit_out {
    struct request_params params;
    struct message_constraint constraint;
    uint32_t prompt_count;
    const struct message_prompt *prompts;   /* all tokens, all texts, or all chats */
    const struct message_bias *const *bias; /* per prompt, may be NULL */
    const uint32_t *bias_count;
};
size_t message_encode_submit(void *buffer, size_t size, uint64_t id,
                             const struct message_submit_out *submit);
size_t
message_submit_size_bound(const struct message_submit_out *submit); /* enough for the above */

/* TOKENIZE {"bytes":12,"chat":false,"special":true}, the text or conversation in the payload;
 * answered by {"count":5} and int32 tokens. DETOKENIZE {"count":5,"special":true} and tokens;
 * answered by
 * {"bytes":12} and the text. All four borrow from the frame; texts are UTF-8 without NUL. */
struct message_tokenize {
    const char *text;
    uint32_t length; /* bytes, at least 1 */
    bool chat;       /* a conversation, not looked at here */
    bool special;    /* the tokens that the model puts around texts are added; false with chat */
    char model[MESSAGE_NAME_MAX]; /* whose tokens; "": the daemon's first */
};
struct message_detokenize {
    const int32_t *tokens; /* those of a question are within the vocabulary */
    uint32_t count;
    bool special; /* special tokens are shown as text */
    char model[MESSAGE_NAME_MAX]; /* as above */
};
size_t message_encode_tokenize(void *buffer, size_t size, uint64_t id,
                               const struct message_tokenize *question);
int message_decode_tokenize(const struct frame *frame, struct message_tokenize *ret_question,
                            struct error *error);
size_t message_encode_detokenize(void *buffer, size_t size, uint64_t id,
                                 const struct message_detokenize *question);
int message_decode_detokenize(const struct frame *frame, uint32_t vocabulary,
                              struct message_detokenize *ret_question, struct error *error);
/* The answers: tokens to TOKENIZE, a text to DETOKENIZE. */
size_t message_encode_tokenized(void *buffer, size_t size, uint64_t id, const int32_t *tokens,
                                uint32_t count);
int message_decode_tokenized(const struct frame *frame, const int32_t **ret_tokens,
                             uint32_t *ret_count, struct error *error);
size_t message_encode_detokenized(void *buffer, size_t size, uint64_t id, const char *text,
                                  uint32_t length);
int message_decode_detokenized(const struct frame *frame, const char **ret_text,
                               uint32_t *ret_length, struct error *error);
/* Room that each of the four takes at most, with so many bytes of payload. */
static inline size_t message_text_size(size_t payload)
{
    return FRAME_HEADER_SIZE + 96 + frame_pad(payload);
}

/* TOKENS: payload of records, each padded to 8 bytes, no head:
 *   u32 sequence, u16 count, u16 flags, i32 tokens[count],
 *   then, with TOKENS_LOGPROBS: f32 logprobs[count],
 *   then, with TOKENS_TOP:      u32 top; count * top * {i32 token, f32 logprob},
 *   then, with TOKENS_TEXT:     u32 bytes; UTF-8 text. */
#define TOKENS_LOGPROBS 0x0001u
#define TOKENS_TOP 0x0002u
#define TOKENS_TEXT 0x0004u
#define TOKENS_COUNT_MAX 32767u

struct message_top {
    int32_t token;
    float logprob;
};
struct message_tokens {
    uint32_t sequence;
    uint16_t count, flags;
    const int32_t *tokens;
    const float *logprobs;
    uint32_t top_count;
    const struct message_top *top; /* [count][top_count] */
    const char *text;
    uint32_t text_length;
};
/* Size of one record; written by message_put_tokens into a payload under construction. */
size_t message_tokens_size(const struct message_tokens *record);
size_t message_put_tokens(void *buffer, size_t size, const struct message_tokens *record);
/* Next record at *offset of a TOKENS payload; 0 = one was read, 1 = end, negative = malformed. */
int message_next_tokens(const struct frame *frame, size_t *offset,
                        struct message_tokens *ret_record, struct error *error);

/* DONE
 * {"sequence":0,"finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":7,"cached_tokens":4},
 *       "timings":{"queued_us":..,"first_token_us":..,"total_us":..}} */
struct message_done {
    uint32_t sequence;
    enum finish finish;
    uint32_t prompt_tokens, completion_tokens;
    uint32_t cached_tokens;  /* of the prompt's, those that were not computed; not told when 0 */
    uint64_t queued_us;      /* arrival to first scheduled */
    uint64_t first_token_us; /* arrival to first token (0 when there was none) */
    uint64_t total_us;       /* arrival to end */
};
size_t message_encode_done(void *buffer, size_t size, uint64_t id, uint16_t flags,
                           const struct message_done *done);
int message_decode_done(const struct frame *frame, struct message_done *ret_done,
                        struct error *error);

/* ERROR
 * {"code":"busy","text":"...","sequence":3,"limit":..,"value":..,"retry_after_ms":..,"retry":"later"}
 * Without "sequence" the whole request failed (id != 0) or the connection (id == 0; then it
 * closes). */
#define MESSAGE_NO_SEQUENCE UINT32_MAX
struct message_error {
    uint32_t sequence;
    struct error error;
};
size_t message_encode_error(void *buffer, size_t size, uint64_t id, uint16_t flags,
                            const struct message_error *message);
int message_decode_error(const struct frame *frame, struct message_error *ret_message,
                         struct error *error);

/* RESULT, binary, of one sequence: payload
 *   u32 sequence, u16 kind (1 score, 2 embed), u16 flags, u32 first, u32 count, u32 width, u32 0,
 * then score: count * {f32 logprob, i32 top token, f32 top logprob, u32 0}, for prompt positions
 * first.. (from 1) embed: count * width floats, rows first.. */
struct message_score {
    float logprob;
    int32_t top_token;
    float top_logprob;
    uint32_t reserved;
};
struct message_result {
    uint32_t sequence;
    uint16_t kind;
    uint32_t first, count, width;
    const struct message_score *scores;
    const float *rows;
};
#define RESULT_SCORE 1u
#define RESULT_EMBED 2u
size_t message_encode_result(void *buffer, size_t size, uint64_t id,
                             const struct message_result *result);
int message_decode_result(const struct frame *frame, struct message_result *ret_result,
                          struct error *error);

/* The rest: small JSON heads. */
size_t message_encode_hello(void *buffer, size_t size, const struct message_hello *hello);
int message_decode_hello(const struct frame *frame, struct message_hello *ret_hello,
                         struct error *error);
size_t message_encode_welcome(void *buffer, size_t size, const struct message_welcome *welcome);
int message_decode_welcome(const struct frame *frame, struct message_welcome *ret_welcome,
                           struct error *error);
size_t message_encode_accept(void *buffer, size_t size, uint64_t id, uint64_t request);
int message_decode_accept(const struct frame *frame, uint64_t *ret_request, struct error *error);
/* CANCEL: request 0 = the frame's own id of this connection; 0 is returned for one beyond 2^53. */
size_t message_encode_cancel(void *buffer, size_t size, uint64_t id, uint64_t request);
int message_decode_cancel(const struct frame *frame, uint64_t *ret_request, struct error *error);
/* STATS, HEALTH, MODEL, DRAIN, RESUME: the head is the JSON text given (may be empty). The daemon
 * builds answers with json_writer (daemon/api/status.c). */
size_t message_encode_control(void *buffer, size_t size, uint8_t type, uint16_t flags, uint64_t id,
                              const char *head, size_t head_length);
/* MODEL: which, "" for the daemon's first; and, of an admin, that it is to sleep or to wake, or that
 * another version of it takes over. */
struct message_model {
    char model[MESSAGE_NAME_MAX];
    bool change, sleep;
    bool reload; /* another version is to take over: from that directory, "": its own */
    char directory[MESSAGE_DIRECTORY_MAX];
};
int message_decode_model(const struct frame *frame, struct message_model *ret_model,
                         struct error *error);
/* What a STATS asks for beside the figures; each false when it is not given. */
struct message_stats {
    bool requests;   /* the list of one's own requests (all for an admin) */
    bool buckets;    /* the histograms' buckets */
    bool prometheus; /* nothing but the figures as Prometheus text */
};
int message_decode_stats(const struct frame *frame, struct message_stats *ret_stats,
                         struct error *error);
