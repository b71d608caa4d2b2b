/* Submitting: from the program's structs to a frame, with what must be checked before. What the
 * daemon knows better (ranges, its limits, the vocabulary) it refuses itself. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/net/connection.h"
#include "client/request/batch.h"
#include "protocol/base/utf8.h"
#include "protocol/message.h"

#define SEED_MAX ((int64_t)1 << 53)
#define CANCEL_SIZE (FRAME_HEADER_SIZE + 8)

/* What a SUBMIT is written from, while it is. */
struct draft {
    struct message_submit_out out;
    struct message_prompt *prompts;
    const struct message_bias **bias; /* one list per prompt */
    uint32_t *bias_count;
    uint32_t sequences;
};

void sluice_params_init(sluice_params *params)
{
    *params = (sluice_params){
        .size = sizeof(*params),
        .temperature = NAN,
        .top_p = NAN,
        .min_p = NAN,
        .repetition_penalty = NAN,
        .presence_penalty = NAN,
        .frequency_penalty = NAN,
        .top_k = -1,
        .seed = -1,
        .max_tokens = -1,
        .min_tokens = -1,
        .logprobs = -1,
        .n = 1,
    };
}

void sluice_batch_init(sluice_batch *batch)
{
    *batch = (sluice_batch){
        .size = sizeof(*batch),
        .job = SLUICE_GENERATE,
        .stream = 1,
        .pooling = SLUICE_POOL_LAST,
        .normalize = 1,
    };
}

static int check_text(const char *text, size_t length, const char *what, uint32_t index,
                      struct error *error)
{
    size_t valid = utf8_valid(text, length);
    if (valid == length)
        return 0;
    return error_set(error, ERR_BAD_VALUE,
                     "%s of prompt %u is not UTF-8, or has a NUL, at byte %zu", what, index, valid);
}

static int check_whole(int64_t value, int64_t max, const char *name, uint32_t index,
                       struct error *error)
{
    if (value >= -1 && value <= max)
        return 0;
    return error_set(error, ERR_BAD_VALUE, "%s of prompt %u must be 0 to %" PRId64, name, index,
                     max);
}

static int check_params(const sluice_params *params, uint32_t index, struct error *error)
{
    if (params->size != sizeof(*params))
        return error_set(error, ERR_USAGE, "sluice_params_init() was not called");
    int rc = check_whole(params->max_tokens, INT32_MAX, "max_tokens", index, error);
    if (!rc)
        rc = check_whole(params->min_tokens, INT32_MAX, "min_tokens", index, error);
    if (!rc)
        rc = check_whole(params->top_k, INT32_MAX, "top_k", index, error);
    if (!rc)
        rc = check_whole(params->seed, SEED_MAX, "seed", index, error);
    if (rc)
        return rc;
    if (params->n < 1 || params->n > MESSAGE_N_MAX)
        return error_set(error, ERR_BAD_VALUE, "n of prompt %u must be 1 to %d", index,
                         MESSAGE_N_MAX);
    if (params->stop_count > MESSAGE_STOP_MAX || params->stop_id_count > MESSAGE_STOP_IDS_MAX ||
        params->bias_count > MESSAGE_BIAS_MAX)
        return error_set(error, ERR_TOO_LARGE,
                         "prompt %u has more than %d stop strings, %d stop ids or %d biases", index,
                         MESSAGE_STOP_MAX, MESSAGE_STOP_IDS_MAX, MESSAGE_BIAS_MAX);
    return 0;
}

/* The one place where the program's parameters become the wire's. */
static void copy_sampling(struct sampling *sampling, const sluice_params *params)
{
    sampling->sampler = (struct sampler){
        .temperature = (float)params->temperature,
        .top_p = (float)params->top_p,
        .min_p = (float)params->min_p,
        .top_k = params->top_k >= 0 ? (int32_t)params->top_k : sampling->sampler.top_k,
        .repetition_penalty = (float)params->repetition_penalty,
        .presence_penalty = (float)params->presence_penalty,
        .frequency_penalty = (float)params->frequency_penalty,
    };
    if (params->max_tokens >= 0)
        sampling->max_tokens = (uint32_t)params->max_tokens;
    if (params->min_tokens >= 0)
        sampling->min_tokens = (uint32_t)params->min_tokens;
    if (params->seed >= 0) {
        sampling->seed = (uint64_t)params->seed;
        sampling->seed_given = true;
    }
    sampling->ignore_eos = params->ignore_eos != 0;
    if (params->logprobs >= 0)
        sampling->logprobs = params->logprobs;
    if (params->n > 1)
        sampling->n = (uint32_t)params->n;
}

static int copy_bias(struct draft *draft, const sluice_params *params, uint32_t index,
                     struct error *error)
{
    if (params->bias_count == 0)
        return 0;
    struct message_bias *bias = malloc(params->bias_count * sizeof(*bias));
    if (!bias)
        return error_set(error, ERR_NO_MEMORY, "no memory for a logit bias");
    for (size_t i = 0; i < params->bias_count; i++)
        bias[i] = (struct message_bias){params->bias_tokens[i], params->bias_values[i]};
    draft->bias[index] = bias;
    draft->bias_count[index] = (uint32_t)params->bias_count;
    return 0;
}

static int copy_params(struct draft *draft, const sluice_params *params, uint32_t index,
                       struct error *error)
{
    struct message_prompt *prompt = &draft->prompts[index];
    int rc = check_params(params, index, error);
    if (rc)
        return rc;
    copy_sampling(&prompt->sampling, params);
    for (size_t i = 0; i < params->stop_count; i++) {
        size_t length = strlen(params->stop[i]);
        rc = check_text(params->stop[i], length, "a stop string", index, error);
        if (rc)
            return rc;
        if (length > MESSAGE_STOP_BYTES_MAX)
            return error_limit(error, ERR_TOO_LARGE, MESSAGE_STOP_BYTES_MAX, length,
                               "a stop string of prompt %u has more than %d bytes", index,
                               MESSAGE_STOP_BYTES_MAX);
        prompt->stop[i] = params->stop[i];
        prompt->stop_length[i] = (uint32_t)length;
    }
    prompt->stop_count = (uint32_t)params->stop_count;
    prompt->stop_id_count = (uint32_t)params->stop_id_count;
    if (params->stop_id_count > 0)
        memcpy(prompt->stop_ids, params->stop_ids, params->stop_id_count * sizeof(int32_t));
    return copy_bias(draft, params, index, error);
}

/* 0 tokens, 1 a text, 2 a conversation. */
static int kind_of(const sluice_prompt *prompt)
{
    return prompt->tokens ? 0 : prompt->text ? 1 : 2;
}

static size_t length_of(const sluice_prompt *prompt)
{
    if (prompt->tokens)
        return prompt->token_count;
    return prompt->text ? prompt->text_length : prompt->chat ? prompt->chat_length : 0;
}

static int copy_prompt(struct draft *draft, const sluice_batch *batch, uint32_t index,
                       struct error *error)
{
    const sluice_prompt *from = &batch->prompts[index];
    const sluice_params *params = from->params ? from->params : batch->params;
    struct message_prompt *to = &draft->prompts[index];
    to->sampling = sampling_unset();
    if (length_of(from) == 0)
        return error_set(error, ERR_EMPTY, "prompt %u is empty", index);
    if (kind_of(from) != kind_of(&batch->prompts[0]))
        return error_set(error, ERR_USAGE, "a batch is all tokens, all texts or all conversations");
    if (length_of(from) > UINT32_MAX)
        return error_set(error, ERR_TOO_LARGE, "prompt %u is too long", index);
    if (from->tokens) {
        to->tokens = from->tokens;
        to->token_count = (uint32_t)from->token_count;
    } else if (!from->text) {
        to->chat = from->chat;
        to->chat_length = (uint32_t)from->chat_length;
    } else {
        int rc = check_text(from->text, from->text_length, "the text", index, error);
        if (rc)
            return rc;
        to->text = from->text;
        to->text_length = from->text_length;
    }
    draft->sequences += params ? (uint32_t)params->n : 1;
    return params ? copy_params(draft, params, index, error) : 0;
}

_Static_assert((int)SLUICE_CONSTRAINT_CHOICE == MESSAGE_CONSTRAINT_CHOICE &&
                   (int)SLUICE_CONSTRAINT_JSON == MESSAGE_CONSTRAINT_JSON,
               "the library's numbers are the message's");

static int check_batch(const sluice_batch *batch, struct error *error)
{
    if (batch->size != sizeof(*batch))
        return error_set(error, ERR_USAGE, "sluice_batch_init() was not called");
    if (batch->job < SLUICE_GENERATE || batch->job > SLUICE_EMBED)
        return error_set(error, ERR_USAGE, "%d is no job", batch->job);
    if (batch->pooling < SLUICE_POOL_LAST || batch->pooling > SLUICE_POOL_ALL)
        return error_set(error, ERR_USAGE, "%d is no pooling", batch->pooling);
    if (batch->constraint < SLUICE_CONSTRAINT_NONE || batch->constraint > SLUICE_CONSTRAINT_GRAMMAR)
        return error_set(error, ERR_USAGE, "%d is no constraint", batch->constraint);
    if (batch->constraint && batch->job != SLUICE_GENERATE)
        return error_set(error, ERR_USAGE, "a constraint is of what is generated");
    if ((batch->constraint >= SLUICE_CONSTRAINT_SCHEMA) != (batch->constraint_text != NULL))
        return error_set(error, ERR_USAGE, "a constraint lacks its text, or has one that it has not");
    if (batch->model && (!*batch->model || strlen(batch->model) >= MESSAGE_NAME_MAX))
        return error_set(error, ERR_USAGE, "model must have 1 to %d bytes", MESSAGE_NAME_MAX - 1);
    if (batch->cache_salt && (!*batch->cache_salt || strlen(batch->cache_salt) > MESSAGE_SALT_MAX))
        return error_set(error, ERR_USAGE, "cache_salt must have 1 to %d bytes", MESSAGE_SALT_MAX);
    if (batch->prompt_count == 0)
        return error_set(error, ERR_EMPTY, "the batch is empty");
    if (batch->prompt_count > MESSAGE_BATCH_MAX)
        return error_limit(error, ERR_TOO_LARGE, MESSAGE_BATCH_MAX, batch->prompt_count,
                           "a batch of %zu prompts, at most %d are possible", batch->prompt_count,
                           MESSAGE_BATCH_MAX);
    return 0;
}

static void draft_free(struct draft *draft)
{
    for (uint32_t i = 0; draft->bias && i < draft->out.prompt_count; i++)
        free((void *)draft->bias[i]);
    free(draft->bias);
    free(draft->bias_count);
    free(draft->prompts);
}

/* On failure, too, the draft is the caller's to free. */
static int draft_make(const sluice_batch *batch, struct draft *draft, struct error *error)
{
    int rc = check_batch(batch, error);
    if (rc)
        return rc;
    size_t count = batch->prompt_count;
    draft->out = (struct message_submit_out){
        .params.job = (enum job)batch->job,
        .params.priority = batch->priority,
        .params.deadline_ms = batch->deadline_ms,
        .params.stream = batch->stream != 0,
        .params.want_text = batch->want_text != 0,
        .params.partial = count > 1 && !batch->all_or_nothing,
        .params.normalize = batch->normalize != 0,
        .params.pooling = (enum pooling)batch->pooling,
        .constraint = {.kind = (enum message_constraint_kind)batch->constraint,
                       .text = batch->constraint_text,
                       .length = batch->constraint_text ? strlen(batch->constraint_text) : 0},
        .params.no_cache = batch->no_cache != 0,
        .params.cache_salt = batch->cache_salt,
        .params.model = batch->model,
        .prompt_count = (uint32_t)count,
    };
    draft->prompts = calloc(count, sizeof(*draft->prompts));
    draft->bias = calloc(count, sizeof(struct message_bias *));
    draft->bias_count = calloc(count, sizeof(*draft->bias_count));
    if (!draft->prompts || !draft->bias || !draft->bias_count)
        return error_set(error, ERR_NO_MEMORY, "no memory for a batch of %zu prompts", count);
    for (uint32_t i = 0; i < count && !rc; i++)
        rc = copy_prompt(draft, batch, i, error);
    draft->out.prompts = draft->prompts;
    draft->out.bias = draft->bias;
    draft->out.bias_count = draft->bias_count;
    return rc;
}

static int send_draft(sluice_client *client, const struct draft *draft, const sluice_batch *batch,
                      uint64_t *ret_id, struct error *error)
{
    size_t size = message_submit_size_bound(&draft->out);
    int rc = connection_check_room(client, size, error);
    if (rc)
        return rc;
    void *room = connection_room(client, size);
    struct batch *open = room ? batch_add(client, client->next_id, draft->sequences, batch) : NULL;
    if (!open)
        return error_set(error, ERR_NO_MEMORY, "no memory for a batch");
    size_t used = message_encode_submit(room, size, open->id, &draft->out);
    if (used == 0) {
        batch_drop(client, open);
        return error_set(error, ERR_TOO_LARGE,
                         "the batch has too many prompts or parameters for "
                         "one message");
    }
    client->next_id++;
    if (ret_id)
        *ret_id = open->id;
    connection_wrote(client, used);
    return 0;
}

int sluice_submit(sluice_client *client, const sluice_batch *batch, uint64_t *ret_id)
{
    struct error error;
    struct draft draft = {0};
    if (connection_check_speaking(client))
        return -client->error.code;
    int rc = draft_make(batch, &draft, &error);
    if (!rc)
        rc = send_draft(client, &draft, batch, ret_id, &error);
    draft_free(&draft);
    return rc ? connection_fail(client, &error) : 0;
}

int sluice_cancel(sluice_client *client, uint64_t id)
{
    struct error error;
    struct batch *batch = batch_find(client, id);
    if (connection_check_speaking(client))
        return -client->error.code;
    if (!batch || batch->unended == 0) {
        error_set(&error, ERR_NOT_FOUND, "batch %" PRIu64 " is unknown or has ended", id);
        return connection_fail(client, &error);
    }
    void *room = connection_room(client, CANCEL_SIZE);
    if (!room) {
        error_set(&error, ERR_NO_MEMORY, "no memory to cancel");
        return connection_fail(client, &error);
    }
    connection_wrote(client, message_encode_cancel(room, CANCEL_SIZE, id, 0));
    return 0;
}

uint64_t sluice_request_number(const sluice_client *client, uint64_t id)
{
    const struct batch *batch = batch_find(client, id);
    return batch ? batch->request : 0;
}
