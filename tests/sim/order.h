/* One SUBMIT as its client sees it: what was asked, what has come, and whether that is right. Every
 * frame is held against the question's answer as it comes; the sequence's end, against all of it.
 */
#pragma once

#include "protocol/message.h"
#include "tests/sim/question.h"
#include "tests/sim/scene.h"

#define ORDER_SEQS 24

struct order_seq {
    const struct question *question;
    uint32_t max_tokens; /* what was asked for; 0 = as many as fit */
    uint32_t got;        /* tokens, scores or rows */
    bool ended;
};

struct order {
    uint64_t id;      /* the client's; 0 = this order is free */
    uint64_t request; /* the daemon's, once accepted */
    enum job job;
    enum pooling pooling;
    bool normalize, stream;
    bool texts, chats; /* the prompts are sent as texts, or as conversations */
    bool bulky;        /* the conversations are long */
    bool no_cache;
    uint32_t model;      /* number */
    const char *name;    /* of the model; NULL: there is one */
    const char *adapter; /* its name; NULL: none */
    const char *salt;    /* of two that anybody may give; NULL: none */
    int32_t priority, priority_max, logprobs;
    uint64_t deadline_ms;
    time_us sent_us;
    uint32_t seq_count, prompt_count;
    uint32_t prompt_n[ORDER_SEQS]; /* results of each prompt */
    struct order_seq seqs[ORDER_SEQS];
    uint64_t tokens;  /* what it counts in queue-tokens at most */
    bool cancelled;   /* somebody asked for its end */
    bool patient;     /* must come to its end: no deadline, nobody cancels */
    bool over;        /* LAST came */
    uint32_t refused; /* error code of the whole order */
    uint32_t retry_ms;
    uint32_t failed; /* sequences that ended with an ERROR */
};

/* What the daemon may do to sequences of a model now. */
struct order_mood {
    bool ending;          /* the process was asked to end: what is late is cancelled */
    bool device_failed;   /* sequences may end with a retryable error */
    bool short_of_memory; /* and with device_memory */
    uint64_t refusals;    /* a bit for each code that a waking of the model was refused with */
    uint32_t room;        /* tokens of a sequence at most: the context, or what KV holds */
    uint64_t sequences_max, tokens_max, batch_max;
    uint64_t results_max;
    int32_t priority_max; /* of those who are no admins */
    uint32_t hidden;
    bool flood; /* those who flood ask at the highest priority, and others below */
};

/* priority_max: what its client may ask for; floods: it asks for that, and often for much. */
void order_draw(struct order *order, struct scene *scene, const struct questions *questions,
                const struct order_mood *mood, int32_t priority_max, bool floods);
/* Appends the frame; returns its size. */
size_t order_encode(const struct order *order, void *buffer, size_t size);

/* A frame with this order's id. */
void order_take(struct order *order, struct scene *scene, const struct questions *questions,
                const struct frame *frame, const struct order_mood *mood);
