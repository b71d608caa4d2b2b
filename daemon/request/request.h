/* A request (one SUBMIT) and its sequences, the unit of scheduling.
 *
 * A sequence has one owner at a time. The loop makes it, keeps it while it waits, and hands it to a
 * replica's worker by pushing it into the worker's mailbox; the worker hands it back by pushing it
 * into the completion queue with COMPLETION_ENDED. What the other side may read meanwhile is said per field.
 * Mailbox links are embedded, so handing over, cancelling and completing cannot fail.
 *
 * Way of a sequence: WAITING (loop) -> SENT (mailbox) -> RUNNING (worker; PREEMPTED and back) ->
 * ENDED (loop again) -> freed with its request, when all sequences of it have ended and their last
 * frames were written. seq_state_set() asserts that only these changes happen.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/request/backlog.h"
#include "daemon/request/deadlines.h"
#include "daemon/base/mailbox.h"
#include "daemon/request/wait_queue.h"
#include "gpu/gpu.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"
#include "protocol/message.h"

struct user;
struct replica;
struct seq;
struct text_stream;

/* Whose a request is, and who is told of its sequences: a connection, or an HTTP exchange. Embedded
 * there; request_table_orphan() for each of its requests before it goes. */
struct response_sink {
    /* A sequence has something to tell: tokens, or its end; after that request_table_release(). */
    void (*news)(struct response_sink *sink, struct seq *seq);
    uint64_t number;   /* for the log; never used again */
    struct user *user; /* whose bounds its requests count against */
    struct backlog_source backlog; /* its texts, among its user's */
    struct list requests; /* request.sink_link */
    uint32_t request_count;
    uint32_t running;   /* sequences of it that a replica holds */
    uint64_t results;   /* bytes of its results; see struct load */
    bool admin;         /* may ask for any priority */
    struct waiting_conn waiting;
};

/* Where a sequence is while the worker has it. */
enum seq_phase {
    PHASE_WAITING,  /* for a slot; also after preemption, when no step in flight names it */
    PHASE_PREFILL,  /* has a slot, its prompt is not yet read */
    PHASE_DECODE,   /* has a slot, each step gives a token */
    PHASE_DRAINING,     /* its last row is in flight, its slot is already given up */
    PHASE_PREEMPTED /* gave up its slot; rows in flight still count */
};

enum seq_state { SEQ_WAITING, SEQ_SENT, SEQ_RUNNING, SEQ_PREEMPTED, SEQ_ENDED };

struct request {
    uint64_t id;        /* daemon-wide, never 0 */
    uint64_t client_id; /* the client's own, on its connection */
    struct response_sink *sink; /* NULL once the client is gone */
    struct user *user;  /* whose bounds it counts against */
    struct list sink_link, user_link;
    struct list id_link, client_link; /* the server's indexes, by id and by the client's own */
    enum job job;
    int32_t priority;
    bool stream, want_text, normalize;
    bool together;       /* one answer when all have ended: its results are kept until then */
    uint64_t answer_bytes; /* together: its results at most, and what is known of the answer */
    uint64_t result_bytes; /* together: that, from the first sending until all are released */
    enum pooling pooling;
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
};

/* Times of one sequence, for timings, histograms and the log; 0 = did not happen. */
struct seq_stamps {
    time_us scheduled_us;   /* worker: first step that contained it was planned */
    time_us first_token_us; /* worker: its first token was there */
    time_us last_token_us;
    time_us ended_us;
};

struct seq {
    /* Set by the loop before SENT, read by everyone afterwards, never changed. */
    struct request *request; /* loop only: the worker must not follow it */
    uint64_t id;             /* daemon-wide number, for the log */
    uint32_t number;         /* within the request, as the client counts */
    uint64_t user_id;        /* for fairness and logs */
    uint64_t sink;       /* number of its sink */
    /* Sent before its turn: for it the youngest of this sink's sequences gives its slot up, or
     * else of this user's. Its priority is above all others' then. */
    bool owed;
    uint64_t way_audience, way_user;
    enum job job;
    enum pooling pooling;
    bool normalize;
    int32_t priority;
    time_us arrived_us, deadline_us;
    struct sampling sampling; /* seed and max_tokens are always set here */
    const int32_t *prompt;    /* owned by the request, prompt_len ids */
    uint32_t prompt_len;
    uint32_t stop_id_count, bias_count;
    const int32_t *stop_ids;
    const struct gpu_bias *bias;

    /* Written by the worker, read by the loop up to `out_count` (release and acquire).
     * Made by the loop when the sequence is sent; room for sampling.max_tokens, or for the prompt's
     * scores or embedding rows. Pages not written cost nothing. */
    atomic_uint out_count; /* tokens, scores or embedding rows */
    int32_t *out_tokens;
    float *out_logprobs;      /* with sampling.logprobs >= 0 */
    struct gpu_top *out_tops; /* [max_tokens][sampling.logprobs], with logprobs > 0 */
    struct message_score *out_scores;
    float *out_rows; /* embed: rows of `hidden` floats */

    /* Set by the worker before it pushes the sequence with COMPLETION_ENDED. */
    enum finish finish;
    struct error *failure; /* loop's memory, filled by the worker when finish is FINISH_ERROR */
    struct seq_stamps stamps;
    uint32_t preemptions;

    /* Mailbox links. in and cancel (at most once): loop -> worker. out: worker -> loop. */
    struct mailbox_link in_link, cancel_link, out_link;
    enum finish cancel_reason; /* set before cancel_link is pushed: how the sequence then ends */
    atomic_uint out_flags; /* enum completion_flag, one word so that nothing is lost; see completion queue.h */

    /* Loop only. */
    enum seq_state state;
    struct list wait_link;       /* waiting queue, then its sink's news */
    struct waiting_share *share; /* whom its tokens are charged to, */
    struct waiting_lane *lane;   /* and this connection; NULL once that is gone */
    bool low;                    /* taken by the share of lower priorities */
    uint32_t charged;            /* of out_count */
    uint64_t result_bytes;       /* counted in struct load from its sending to its release */
    struct deadline deadline;
    uint32_t sent_count;    /* of out_count: already encoded into the connection's output */
    void *out;              /* what all out_ pointers and `failure` point into; owned */
    bool cancel_sent;
    bool released; /* told, or nobody is there to tell */
    struct replica *replica;
    struct text_stream *transcript; /* its text; NULL when nobody asks for that */

    /* Worker only; zero when the sequence is sent. See daemon/sched/sched.h. */
    struct list run_link;
    enum seq_phase phase;
    uint64_t order;       /* of arrival at this worker: the greatest is the youngest */
    uint32_t slot;        /* while PHASE_PREFILL or PHASE_DECODE */
    uint32_t num_computed; /* positions whose KV is written by steps planned so far */
    uint32_t prefill_len;  /* prompt, or prompt and generated tokens after preemption */
    uint32_t emit_from;   /* score, embed all: positions below were answered before a preemption */
    uint32_t in_flight;   /* rows of it in steps not completed */
    uint64_t last_scheduled_step;  /* last step that advanced it, or when it began to wait */
    bool way_made;        /* owed: once */
};

/* ---- loop thread ------------------------------------------------------------------------------
 */

/* A request without sequences, with room for `seq_room` of them; all else is zero. */
int request_make(uint32_t seq_room, struct request **ret_request, struct error *error);
/* Memory that goes with the request, aligned to 16. NULL when there is none. */
void *request_keep(struct request *request, size_t size);
/* Appends the prompt's n sequences. `tokens`, stop_ids and bias must be kept by the request. */
int request_add(struct request *request, const struct message_prompt *prompt, const int32_t *tokens,
                uint32_t token_count, const int32_t *stop_ids, const struct gpu_bias *bias,
                uint32_t bias_count, struct error *error);
/* Makes what is common known to its sequences, and numbers them from first_seq_id on. From here on
 * the array stays where it is. */
void request_seal(struct request *request, uint64_t first_seq_id, uint64_t user_id);
/* All sequences are ENDED, or none was ever sent; on no list any more. */
void request_free(struct request *request);

/* Asserts that the change is one of those above. */
void seq_state_set(struct seq *seq, enum seq_state state);
/* Bytes of that memory, at most. hidden: floats of an embedding row. */
uint64_t seq_result_bytes(const struct seq *seq, uint32_t hidden);
/* Makes the memory for its results, before it is sent. */
int seq_make_room(struct seq *seq, uint32_t hidden, struct error *error);
void seq_free_room(struct seq *seq);
/* How many it has so far; tokens after a stop string do not count. */
uint32_t seq_out_count(const struct seq *seq);
/* How many tokens, scores or rows it can have at most. */
uint32_t seq_out_max(const struct seq *seq);
/* What it counts in `queue-tokens`. */
uint64_t seq_tokens(const struct seq *seq);
