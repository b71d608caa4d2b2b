/* A request (one SUBMIT) and its sequences, the unit of scheduling.
 *
 * A sequence has one owner at a time. The loop makes it, keeps it while it waits, and hands it to a
 * replica's worker by pushing it into the worker's mailbox; the worker hands it back by pushing it
 * into the completion queue with COMPLETION_ENDED. What the other side may read meanwhile is said
 * per field. Mailbox links are embedded, so handing over, cancelling and completing cannot fail.
 *
 * Way of a sequence: WAITING (loop) -> SENT (mailbox) -> RUNNING (worker; PREEMPTED and back) ->
 * ENDED (loop again) -> freed with its request, when all sequences of it have ended and their last
 * frames were written. seq_state_set() asserts that only these changes happen.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/model_list.h"
#include "daemon/base/seq.h"
#include "daemon/request/backlog.h"
#include "daemon/request/wait_queue.h"
#include "gpu/gpu.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"
#include "protocol/message.h"

struct constraint_cache;
struct user;
struct replica;
struct seq;
struct served_model;
struct text_stream;

/* Whose a request is, and who is told of its sequences: a connection, or an HTTP exchange. Embedded
 * there; request_table_orphan() for each of its requests before it goes. */
struct response_sink {
    /* A sequence has something to tell: tokens, or its end; after that request_table_release(). */
    void (*news)(struct response_sink *sink, struct seq *seq);
    uint64_t number;               /* for the log; never used again */
    struct user *user;             /* whose bounds its requests count against */
    struct backlog_source backlog; /* its texts, among its user's */
    struct list requests;          /* request.sink_link */
    uint32_t request_count;
    uint64_t results; /* bytes of its results; see struct load */
    bool admin;       /* may ask for any priority */
    bool many;        /* its user stands for several that are not named: they share by salt alone */
    /* Among those who wait for the model that it asked for first, and for jobs; and for the others:
     * owned, [MODEL_LIST_MAX], NULL until it asks for one of them. */
    struct waiting_conn waiting, jobs_waiting, *more;
    uint32_t waits_for; /* that model's number and 1; 0: none yet */
};

/* Its part in the queue of a model, which is made; NULL when there is no memory. */
struct waiting_conn *response_sink_waiting(struct response_sink *sink, uint32_t model);
/* With the sink: no request of it is left. */
void response_sink_free(struct response_sink *sink);

struct request {
    uint64_t id;                /* daemon-wide, never 0 */
    uint64_t client_id;         /* the client's own, on its connection */
    struct response_sink *sink; /* NULL once the client is gone */
    struct user *user;          /* whose bounds it counts against */
    struct list sink_link, user_link;
    struct list id_link, client_link; /* the server's indexes, by id and by the client's own */
    struct request_params params;
    struct served_model *model; /* that it is for; of jobs NULL */
    uint32_t version;           /* of it, that computes all of the request (model_reload.h) */
    struct waiting_conn
        *waiting;     /* the sink's part in its queue; NULL once that is gone, or of jobs */
    uint32_t adapter; /* number, held; 0: none */
    struct constraint_held *constraint; /* a reference; NULL: none */
    struct constraint_cache *constraints; /* whose it was */
    bool together;         /* one answer when all have ended: its results are kept until then */
    uint64_t answer_bytes; /* together: its results at most, and what is known of the answer */
    uint64_t result_bytes; /* together: that, from the first sending until all are released */
    time_us arrived_us;
    time_us deadline_us; /* 0 = none */
    uint32_t seq_count;
    uint32_t seq_unended;                /* sequences that have no DONE or ERROR yet */
    struct seq *seqs;                    /* array of seq_count */
    uint32_t seq_room;                   /* while it is made: how many the array holds */
    uint32_t seq_unfreed;                /* sequences whose last frame is not written */
    uint64_t prompt_tokens, out_tokens;  /* of its sequences that have ended, for the log */
    uint32_t finished[FINISH_ERROR + 1]; /* how many ended so */
    struct request_memory *memory;       /* chain of request_keep() */
    struct request_tensors *tensors;     /* of jobs: what their inputs lie in, see job_builder.h; kept */
};

/* ---- loop thread ------------------------------------------------------------------------------
 */

/* When it ends at the latest; 0 = never. */
static inline time_us request_deadline(const struct request_params *params, time_us arrived_us)
{
    return params->deadline_ms > 0 ? arrived_us + params->deadline_ms * 1000 : 0;
}

/* A request without sequences, with room for `seq_room` of them; all else is zero. */
int request_make(uint32_t seq_room, struct request **ret_request, struct error *error);
/* Memory that goes with the request, aligned to 16. NULL when there is none. */
void *request_keep(struct request *request, size_t size);
/* Appends the prompt's n sequences. `tokens`, stop_ids and bias must be kept by the request. */
int request_add(struct request *request, const struct message_prompt *prompt, const int32_t *tokens,
                uint32_t token_count, const int32_t *stop_ids, const struct gpu_bias *bias,
                uint32_t bias_count, struct error *error);
/* Whether an error is about the prompt itself, so that others beside it may be taken. */
static inline bool request_refuses_alone(int code)
{
    return error_retry(code) == RETRY_FIX || code == ERR_UNSUPPORTED;
}
/* Appends a job, which the request keeps. */
int request_add_job(struct request *request, struct tensor_job *job, struct error *error);
/* Appends n sequences of a prompt that was not taken. */
int request_refuse(struct request *request, uint32_t n, const struct error *failure,
                   struct error *error);
/* Makes what is common known to its sequences, and numbers them from first_seq_id on. From here on
 * the array stays where it is. */
void request_seal(struct request *request, uint64_t first_seq_id, uint64_t user_id);
/* All sequences are ENDED, or none was ever sent; on no list any more. */
void request_free(struct request *request);

/* Asserts that the change is one of those above. */
void seq_state_set(struct seq *seq, enum seq_state state);
/* Bytes of that memory, at most. hidden: floats of an embedding row. */
uint64_t seq_result_bytes(const struct seq *seq, uint32_t hidden);
/* Makes the memory for its results, before it is sent; what it has already stays. */
int seq_make_room(struct seq *seq, uint32_t hidden, struct error *error);
/* It was handed back, and is to be sent once more with what it has. */
void seq_renew(struct seq *seq);
void seq_free_room(struct seq *seq);
/* How many it has so far; tokens after a stop string do not count. */
uint32_t seq_out_count(const struct seq *seq);
/* How many tokens, scores or rows it can have at most. */
uint32_t seq_out_max(const struct seq *seq);
/* What it counts in `queue-tokens`. */
uint64_t seq_tokens(const struct seq *seq);
