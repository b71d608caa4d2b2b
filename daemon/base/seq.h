/* A sequence, the unit of scheduling: one continuation of one prompt of a request.
 *
 * It has one owner at a time. The loop makes it, keeps it while it waits, and hands it to a
 * replica's worker by pushing it into the worker's mailbox; the worker hands it back by pushing it
 * into the completion queue with COMPLETION_ENDED: it has ended, or, where its model makes way and
 * it got no memory (handed_back), waits once more, with what it has so far. What the other side may
 * read meanwhile is said per field. Mailbox links are embedded, so handing over, cancelling and
 * completing cannot fail.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/prefix_key.h"
#include "daemon/base/seq_mask.h"
#include "gpu/gpu.h"
#include "protocol/base/clock.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"
#include "protocol/message.h"

struct constraint_held;
struct tensor_job;
struct replica;
struct request;
struct sched_share;
struct text_stream;
struct waiting_lane;
struct waiting_share;

/* Where a sequence is while the worker has it. */
enum seq_phase {
    PHASE_WAITING,  /* for a slot; also after preemption, when no step in flight names it */
    PHASE_PREFILL,  /* has a slot, its prompt is not yet read */
    PHASE_DECODE,   /* has a slot, each step gives a token */
    PHASE_DRAINING, /* its last row is in flight, its slot is already given up */
    PHASE_PREEMPTED /* gave up its slot; rows in flight still count */
};

/* A sequence and the prefix cache of its replica (daemon/sched/sched_cache.c). The worker's. */
struct seq_cache {
    struct list read_link;       /* among those that read a prompt which others may need, */
    bool reading;                /* and whether it is there */
    const struct seq *waits_for; /* one of those, that computes what this one needs first */
    uint32_t waits_blocks;       /* how many blocks of it that are */
    uint32_t expected;      /* positions that it will find, as it looked when it began to wait */
    uint32_t hit, hit_node; /* blocks that it would find, */
    uint64_t hit_version;   /* as of this state of the cache; 0: not looked for */
    uint32_t node;          /* the deepest that it stands on */
    uint32_t named, made;   /* blocks that were found or named; and those whose step is on */
    uint32_t made_first, made_last; /* nodes of those between, a chain */
    uint32_t names;                 /* blocks whose names are known */
    uint32_t found;                 /* blocks that it began with */
    uint32_t done;                  /* blocks whose steps have ended */
    bool stopped;                   /* no more of it is kept until it starts again */
    bool fetching;                  /* copies from the host's memory are in flight for it */
    bool fetched;                   /* and nothing more of that is of use, until it waits again */
    uint32_t fetch_end;             /* blocks up to here were fetched since it waits */
    bool wanted;                    /* while it waits: its prompt's blocks are marked as such */
};

/* Guesses of its next tokens (daemon/sched/sched_drafts.c). The worker's. */
struct seq_draft {
    uint32_t in_flight;  /* of its row in flight: how far it comes is known when that has ended */
    uint32_t uncounted;  /* that stood, of its last row, where the device counts tokens */
    bool by_ids;         /* its last row had some: the next gives its token by its number */
    bool waits;          /* its next row waits for the tokens in flight, to guess behind them */
    uint32_t pause;      /* tokens without guesses, from now on */
    uint32_t pause_next; /* after the next row of which none stands */
    double rate;         /* of guesses, those that stood; older ones weigh less */
    uint32_t next;       /* of its next row */
    uint32_t read;       /* positions below it the draft model has read */
    int32_t ids[GPU_DRAFTS_MAX];
};

enum seq_state { SEQ_WAITING, SEQ_SENT, SEQ_RUNNING, SEQ_PREEMPTED, SEQ_ENDED };

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
    uint32_t result;         /* which of its prompt's n */
    uint32_t had;            /* of its prompt: another result sent to its replica reads it, maybe */
    uint64_t user_id;        /* for fairness and logs */
    uint64_t sink;           /* number of its sink */
    /* Sent before its turn: for it the youngest of this sink's sequences gives its slot up, or
     * else of this user's. Its priority is above all others' then. */
    bool owed;
    uint64_t way_sink, way_user;
    bool low; /* sent while higher priorities waited: by the share of the lower ones */
    struct request_params params; /* its request's */
    int32_t priority;             /* theirs, or that of who is owed */
    time_us arrived_us, deadline_us;
    struct sampling sampling; /* seed and max_tokens are always set here */
    const int32_t *prompt;    /* owned by the request, prompt_len ids */
    uint32_t prompt_len;
    uint32_t adapter; /* number; 0: none */
    uint32_t stop_id_count, bias_count;
    const int32_t *stop_ids;
    uint32_t next_count; /* score: not its own tokens, but these, each as the one behind it */
    const int32_t *next;
    const struct gpu_bias *bias;
    struct constraint_held *constraint; /* its request's reference; NULL: none */
    /* The prefix cache: `keys` are names of the prompt's whole blocks, kept by the request. */
    bool caches; /* it finds what is there, and leaves its own */
    struct prefix_key key_root;
    const struct prefix_key *keys;
    uint32_t key_count, out_key_count; /* out: of the blocks behind those */
    struct tensor_job *job; /* tensors for a program, and then no tokens; owned by the request, see daemon/jobs/job.h */

    /* Written by the worker, read by the loop up to `out_count` (release and acquire).
     * Made by the loop when the sequence is sent; room for sampling.max_tokens, or for the prompt's
     * scores or embedding rows. Pages not written cost nothing. */
    atomic_uint out_count; /* tokens, scores or embedding rows */
    int32_t *out_tokens;
    float *out_logprobs;      /* with sampling.logprobs >= 0 */
    struct gpu_top *out_tops; /* [max_tokens][sampling.logprobs], with logprobs > 0; of scores,
                                 [prompt_len - 1][...], with logprobs > 1 */
    struct message_score *out_scores;
    struct seq_mask *mask; /* of one that is constrained; the worker's until it has ended */
    float *out_rows; /* embed: rows of `hidden` floats */
    struct prefix_key *out_keys; /* names of the blocks behind; the worker's */

    /* Set by the worker before it pushes the sequence with COMPLETION_ENDED. */
    bool handed_back; /* it has not ended, and nothing of it is here any more; finish is nothing */
    enum finish finish;
    struct error *failure; /* loop's memory, filled by the worker when finish is FINISH_ERROR */
    struct seq_stamps stamps;
    uint32_t preemptions;
    uint32_t cached; /* tokens of its prompt that were in the cache when it first started */
    uint32_t drafted, accepted; /* of its rows' guesses: those compared, those that stood */

    /* Mailbox links. in and cancel (at most once): loop -> worker. out: worker -> loop. */
    struct mailbox_link in_link, cancel_link, out_link;
    enum finish cancel_reason; /* set before cancel_link is pushed: how the sequence then ends */
    atomic_uint out_flags; /* enum completion_flag, one word so that nothing is lost; see completion
                              mailbox.h */

    /* Loop only. */
    enum seq_state state;
    struct list wait_link;       /* waiting queue, then its sink's news */
    struct waiting_share *share; /* whom its tokens are charged to, */
    struct waiting_lane *lane;   /* and this connection; NULL once that is gone */
    bool top;                    /* taken while only lower priorities waited */
    uint32_t charged;            /* of out_count */
    uint32_t expected;           /* tokens to come that its user's counter has already */
    uint64_t result_bytes;       /* counted in struct load from its sending to its release */
    struct deadline deadline;
    uint32_t sent_count; /* of out_count: already encoded into the connection's output */
    void *out;           /* what all out_ pointers and `failure` point into; owned */
    bool cancel_sent;
    uint32_t wanted; /* while it waits: a bit for each replica that keeps its beginning for it */
    bool again;    /* it was handed back: what it was counted for when it was sent first is */
    bool released; /* told, or nobody is there to tell */
    bool refused;  /* its prompt was not taken: it ends as it enters, with `failure` */
    struct replica *replica;
    uint32_t homes; /* result 0: a bit for each replica that some result of the prompt was sent to */
    struct text_stream *text_stream; /* its text; NULL when nobody asks for that */

    /* Worker only; zero when the sequence is sent. See daemon/sched/sched.h. */
    struct list run_link;
    enum seq_phase phase;
    uint64_t turn;         /* its user's counter behind its prompt (base/turns.h); the loop's */
    uint64_t order;        /* of arrival at this worker: the greatest is the youngest */
    uint32_t slot;         /* while PHASE_PREFILL or PHASE_DECODE */
    uint32_t num_computed; /* positions whose KV is written by steps planned so far */
    uint32_t prefill_len;  /* prompt, or prompt and generated tokens after preemption */
    uint32_t emit_from;    /* score, embed all: positions below were answered before a preemption */
    uint32_t in_flight;    /* rows of it in steps not completed */
    uint64_t last_scheduled_step; /* last step that advanced it, or when it began to wait */
    bool way_made;                /* owed: once */
    bool gave_way;                /* to one of a higher priority: once */
    bool place_made;              /* somebody gave way for it, and it waits */
    uint32_t known_len;   /* constrained: tokens up to there were told and not sampled */
    bool kept;            /* constrained: its last row keeps logits that no sampling has taken */
    bool being_sampled;   /* one is in flight, counted in in_flight */
    struct sched_share *siblings; /* what it has in common with others of its prompt, or NULL */
    struct seq_cache cache;
    struct seq_draft draft;
};

/* Of a score: those of its tokens that have one before them, or those that may come next. */
static inline uint32_t seq_score_count(const struct seq *seq)
{
    return seq->next_count > 0 ? seq->next_count : seq->prompt_len - 1;
}

/* Whether it begins with what is cached: no job that gives something for every position does. */
static inline bool seq_finds(const struct seq *seq)
{
    return seq->caches && (seq->params.job == JOB_GENERATE ||
                           (seq->params.job == JOB_SCORE && seq->next_count > 0) ||
                           (seq->params.job == JOB_EMBED && seq->params.pooling == POOLING_LAST));
}
