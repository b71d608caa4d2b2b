#include "daemon/request/request.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/jobs/job.h"
#include "daemon/request/constraint_cache.h"
#include "daemon/request/job_builder.h"
#include "daemon/request/text_stream.h"
#include "daemon/worker/mask_crew.h"
#include "protocol/base/mix.h"

_Static_assert(MESSAGE_STOP_IDS_MAX == GPU_STOP_IDS_MAX, "what is admitted must fit a plan");
_Static_assert(MESSAGE_BIAS_MAX == GPU_BIAS_MAX, "what is admitted must fit a plan");
_Static_assert(MESSAGE_LOGPROBS_MAX == GPU_LOGPROBS_MAX, "what is admitted must fit a result");
_Static_assert(sizeof(struct message_bias) == sizeof(struct gpu_bias), "both are id and value");

/* What a token's text is reckoned with while it waits for its reader. */
#define TEXT_PER_TOKEN 8u

struct request_memory {
    struct request_memory *next;
    _Alignas(16) unsigned char bytes[];
};

struct waiting_conn *response_sink_waiting(struct response_sink *sink, uint32_t model)
{
    if (!sink->waits_for)
        sink->waits_for = model + 1;
    if (sink->waits_for == model + 1)
        return &sink->waiting;
    if (!sink->more)
        sink->more = calloc(MODEL_LIST_MAX, sizeof(*sink->more));
    return sink->more ? &sink->more[model] : NULL;
}

void response_sink_free(struct response_sink *sink)
{
    free(sink->more);
    sink->more = NULL;
}

int request_make(uint32_t seq_room, struct request **ret_request, struct error *error)
{
    struct request *request = calloc(1, sizeof(*request));
    struct seq *seqs = calloc(seq_room, sizeof(*seqs));
    if (!request || !seqs) {
        free(request);
        free(seqs);
        return error_set(error, ERR_NO_MEMORY, "no memory for %u sequences", seq_room);
    }
    request->seqs = seqs;
    request->seq_room = seq_room;
    *ret_request = request;
    return 0;
}

void *request_keep(struct request *request, size_t size)
{
    struct request_memory *memory =
        size < PTRDIFF_MAX - sizeof(*memory) ? malloc(sizeof(*memory) + size) : NULL;
    if (!memory)
        return NULL;
    memory->next = request->memory;
    request->memory = memory;
    return memory->bytes;
}

static int grow(struct request *request, uint32_t need, struct error *error)
{
    if (need <= request->seq_room)
        return 0;
    uint32_t room = need > 2 * request->seq_room ? need : 2 * request->seq_room;
    struct seq *seqs = realloc(request->seqs, room * sizeof(*seqs));
    if (!seqs)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u sequences", room);
    memset(seqs + request->seq_room, 0, (room - request->seq_room) * sizeof(*seqs));
    request->seqs = seqs;
    request->seq_room = room;
    return 0;
}

int request_add_job(struct request *request, struct tensor_job *job, struct error *error)
{
    int rc = grow(request, request->seq_count + 1, error);
    if (!rc)
        request->seqs[request->seq_count++] = (struct seq){.params = request->params, .job = job};
    return rc;
}

/* The finaliser of splitmix64: results of one prompt must not share their random numbers, and the
 * first one has those of the seed that the client gave. */
static uint64_t seed_of(uint64_t seed, uint32_t result)
{
    if (result == 0)
        return seed;
    return mix64(seed + result * 0x9e3779b97f4a7c15u);
}

int request_add(struct request *request, const struct message_prompt *prompt, const int32_t *tokens,
                uint32_t token_count, const int32_t *stop_ids, const struct gpu_bias *bias,
                uint32_t bias_count, struct error *error)
{
    uint32_t n = prompt->sampling.n;
    int rc = grow(request, request->seq_count + n, error);
    if (rc)
        return rc;
    for (uint32_t result = 0; result < n; result++) {
        struct seq *seq = &request->seqs[request->seq_count++];
        seq->params = request->params;
        seq->constraint = request->constraint;
        seq->result = result;
        seq->sampling = prompt->sampling;
        seq->sampling.seed = seed_of(prompt->sampling.seed, result);
        seq->prompt = tokens;
        seq->prompt_len = token_count;
        seq->stop_ids = stop_ids;
        seq->stop_id_count = prompt->stop_id_count;
        seq->bias = bias;
        seq->bias_count = bias_count;
    }
    return 0;
}

int request_refuse(struct request *request, uint32_t n, const struct error *failure,
                   struct error *error)
{
    int rc = grow(request, request->seq_count + n, error);
    for (uint32_t result = 0; !rc && result < n; result++) {
        struct error *own = malloc(sizeof(*own));
        if (!own)
            return error_set(error, ERR_NO_MEMORY, "no memory for a refusal");
        *own = *failure;
        request->seqs[request->seq_count++] = (struct seq){.params = request->params,
                                                           .refused = true,
                                                           .finish = FINISH_ERROR,
                                                           .failure = own,
                                                           .out = own};
    }
    return rc;
}

void request_seal(struct request *request, uint64_t first_seq_id, uint64_t user_id)
{
    request->seq_unended = request->seq_unfreed = request->seq_count;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        seq->request = request;
        seq->id = first_seq_id + i;
        seq->number = i;
        seq->user_id = user_id;
        seq->priority = request->params.priority;
        seq->arrived_us = request->arrived_us;
        seq->deadline_us = request->deadline_us;
        deadline_init(&seq->deadline);
        seq->state = SEQ_WAITING;
    }
}

void request_free(struct request *request)
{
    for (uint32_t i = 0; i < request->seq_count; i++)
        seq_free_room(&request->seqs[i]);
    request_tensors_free(request->tensors);
    while (request->memory) {
        struct request_memory *memory = request->memory;
        request->memory = memory->next;
        free(memory);
    }
    constraint_cache_put(request->constraints, request->constraint);
    free(request->seqs);
    free(request);
}

void seq_state_set(struct seq *seq, enum seq_state state)
{
    assert((seq->state == SEQ_WAITING && (state == SEQ_SENT || state == SEQ_ENDED)) ||
           (seq->state == SEQ_SENT &&
            (state == SEQ_WAITING || state == SEQ_RUNNING || state == SEQ_ENDED)) ||
           (seq->state == SEQ_RUNNING && state == SEQ_ENDED));
    seq->state = state;
}

uint32_t seq_out_count(const struct seq *seq)
{
    uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
    return seq->text_stream && seq->text_stream->end < count ? seq->text_stream->end : count;
}

uint32_t seq_out_max(const struct seq *seq)
{
    if (seq->refused || seq->job)
        return 0;
    switch (seq->params.job) {
    case JOB_GENERATE:
        return seq->sampling.max_tokens;
    case JOB_SCORE:
        return seq_score_count(seq);
    case JOB_EMBED:
    case JOB_PROGRAM:
        break;
    }
    return seq->params.pooling == POOLING_ALL ? seq->prompt_len : 1;
}

uint64_t seq_tokens(const struct seq *seq)
{
    return (uint64_t)seq->prompt_len +
           (seq->params.job == JOB_GENERATE ? seq->sampling.max_tokens : 0);
}

static size_t aligned(size_t size)
{
    return (size + 15) & ~(size_t)15;
}

/* Where each kind of results lies, one behind the other. */
struct result_room {
    size_t failure, tokens, logprobs, tops, scores, rows, keys, tensors;
};

static struct result_room result_room(const struct seq *seq, uint32_t hidden)
{
    /* At most 2^32 elements of some 160 bytes each: far from the end of size_t. */
    size_t count = seq_out_max(seq);
    struct result_room room = {.failure = aligned(sizeof(*seq->failure)),
                               .keys = seq->out_key_count * sizeof(*seq->out_keys)};
    if (seq->job) {
        /* Far below 2^48, see PROGRAM_SIZE_MAX. */
        room.tensors = seq->job->shared ? 0 : seq->job->out_bytes;
    } else if (seq->params.job == JOB_GENERATE) {
        room.tokens = aligned(count * sizeof(*seq->out_tokens));
        if (seq->sampling.logprobs >= 0)
            room.logprobs = aligned(count * sizeof(*seq->out_logprobs));
        if (seq->sampling.logprobs > 0)
            room.tops = aligned(count * (size_t)seq->sampling.logprobs * sizeof(*seq->out_tops));
    } else if (seq->params.job == JOB_SCORE) {
        room.scores = aligned(count * sizeof(*seq->out_scores));
        if (seq->sampling.logprobs > 1) /* a score has the likeliest */
            room.tops = aligned(count * (size_t)seq->sampling.logprobs * sizeof(*seq->out_tops));
    } else {
        room.rows = aligned(count * hidden * sizeof(*seq->out_rows));
    }
    return room;
}

static size_t room_size(const struct result_room *room)
{
    return room->failure + room->tokens + room->logprobs + room->tops + room->scores + room->rows +
           room->keys + room->tensors;
}

uint64_t seq_result_bytes(const struct seq *seq, uint32_t hidden)
{
    struct result_room room = result_room(seq, hidden);
    uint64_t mask =
        seq->constraint ? sizeof(*seq->mask) + seq->constraint->words * sizeof(uint32_t) : 0;
    return room_size(&room) + mask +
           (seq->text_stream ? (uint64_t)seq_out_max(seq) * TEXT_PER_TOKEN : 0);
}

int seq_make_room(struct seq *seq, uint32_t hidden, struct error *error)
{
    struct result_room room = result_room(seq, hidden);
    if (seq->out) /* what it has stays; its mask went with the worker */
        return seq->constraint ? seq_mask_make(seq->constraint, &seq->mask, error) : 0;
    unsigned char *out = malloc(room_size(&room));
    if (!out)
        return error_set(error, ERR_NO_MEMORY, "no memory for the results of a sequence");
    int rc = seq->constraint ? seq_mask_make(seq->constraint, &seq->mask, error) : 0;
    if (rc) {
        free(out);
        return rc;
    }
    seq->out = out;
    seq->failure = (struct error *)(void *)out;
    seq->failure->code = 0;
    out += room.failure;
    seq->out_tokens = room.tokens ? (int32_t *)(void *)out : NULL;
    out += room.tokens;
    seq->out_logprobs = room.logprobs ? (float *)(void *)out : NULL;
    out += room.logprobs;
    seq->out_tops = room.tops ? (struct gpu_top *)(void *)out : NULL;
    out += room.tops;
    seq->out_scores = room.scores ? (struct message_score *)(void *)out : NULL;
    seq->out_rows = room.rows ? (float *)(void *)out : NULL;
    out += room.scores + room.rows; /* a job has one of them */
    seq->out_keys = room.keys ? (struct prefix_key *)(void *)out : NULL;
    if (room.tensors > 0)
        job_place_outputs(seq->job, out);
    return 0;
}

void seq_renew(struct seq *seq)
{
    seq->handed_back = false;
    seq->again = true;
    seq->owed = seq->low = seq->top = false;
    (seq - seq->result)->homes = 0;
    seq->stamps.ended_us = 0;
    atomic_store_explicit(&seq->out_flags, 0, memory_order_relaxed);
    const size_t worker = offsetof(struct seq, run_link);
    memset((char *)seq + worker, 0, sizeof(*seq) - worker);
}

void seq_free_room(struct seq *seq)
{
    text_stream_free(seq);
    seq_mask_free(seq->mask);
    seq->mask = NULL;
    free(seq->out);
    seq->out = NULL;
}
