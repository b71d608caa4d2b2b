#include "daemon/request/request_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/request/constraint_cache.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "daemon/request/text_stream.h"
#include "protocol/base/log.h"

#define JSON_DEPTH 8

int request_builder_phase(const struct server *server, struct error *error)
{
    int rc = 0;
    if (server->phase == SERVER_FAILED)
        rc = error_set(error, server->failure.code, "%s", error_text(server->failure.code));
    else if (server->draining)
        rc = error_set(error, ERR_DRAINING, "the daemon is draining and accepts no new work");
    else if (server->phase == SERVER_LOADING && server->options->fail_if_loading)
        rc = error_set(error, ERR_LOADING, "the model is still loading (fail-if-loading is set)");
    if (rc)
        error->retry_after_ms = 1000;
    return rc;
}

int request_builder_model(const struct server *server, struct error *error)
{
    if (server_has_model(server) || !server->jobs.programs)
        return 0;
    return error_set(error, ERR_UNSUPPORTED, "this daemon serves programs and no model");
}

struct sampling request_builder_defaults(const struct served_model *model)
{
    return (struct sampling){.sampler = model->info.sampler, .logprobs = -1, .n = 1};
}

struct message_limits request_builder_limits(const struct server *server,
                                             const struct served_model *model)
{
    return (struct message_limits){
        .batch_max = server->limits.batch_max,
        .n_max = server->limits.n_max,
        .logprobs_max = server->limits.logprobs_max,
        .stop_max = server->limits.stop_max,
        .json_depth_max = JSON_DEPTH,
        .vocabulary = model->info.vocab,
    };
}

/* With whom it shares what is cached: who gives the same salt, or has the same name in full. */
static void find_root(struct request_builder *builder, const struct response_sink *sink,
                      const struct request_params *params, uint64_t load)
{
    struct server *server = builder->server;
    const struct served_model *model = builder->request->model;
    if (!model)
        return;
    const struct served_adapter *adapter =
        served_adapters_at(&server->adapters, builder->request->adapter);
    const char *salt = params->cache_salt ? params->cache_salt : sink->user->name;
    if (!server->options->prefix_cache || model->info.block_tokens == 0 || params->no_cache ||
        (sink->many && !params->cache_salt))
        return;
    builder->caches = true;
    builder->root =
        prefix_key_root(&model->info, load, adapter ? adapter->load : 0,
                        params->cache_salt ? PREFIX_GIVEN : PREFIX_USER, salt, strlen(salt));
}

/* They are the first model's. */
static int find_adapter(const struct server *server, const struct served_model *model,
                        const char *name, uint32_t *ret_number, struct error *error)
{
    bool has = name && model && model->number == 0;
    *ret_number = has ? served_adapters_find(&server->adapters, name) : 0;
    if (!name || *ret_number)
        return 0;
    return error_set(error, ERR_NOT_FOUND, "there is no adapter %.64s here", name);
}

int request_builder_open(struct request_builder *builder, struct server *server,
                         struct served_model *model, struct response_sink *sink, uint64_t sequences,
                         const struct request_params *params, time_us arrived_us,
                         struct error *error)
{
    uint32_t most = server->limits.batch_max, adapter;
    *builder = (struct request_builder){.server = server};
    struct waiting_conn *waiting = model ? response_sink_waiting(sink, model->number) : NULL;
    bool tokens = params->job == JOB_GENERATE || params->job == JOB_SCORE;
    int rc = model && tokens ? model_text_generates(model->text, error) : 0;
    if (!rc)
        rc = find_adapter(server, model, params->adapter, &adapter, error);
    if (!rc && model && (!waiting || !users_waiting(&server->users, sink->user, model->number)))
        rc = error_set(error, ERR_NO_MEMORY, "no memory for a request");
    if (!rc)
        rc = request_make(sequences < most ? (uint32_t)sequences : most, &builder->request, error);
    if (rc)
        return rc;
    served_adapters_hold(&server->adapters, adapter);
    uint64_t load = 0;
    builder->request->model = model;
    if (model)
        builder->request->version = model_reload_version(server, model, &load);
    builder->request->waiting = waiting;
    builder->request->adapter = adapter;
    find_root(builder, sink, params, load);
    builder->request->params = *params;
    builder->request->params.cache_salt = NULL; /* the document goes */
    builder->request->params.adapter = builder->request->params.model = NULL;
    builder->request->arrived_us = arrived_us;
    builder->request->deadline_us = request_deadline(params, arrived_us);
    return 0;
}

void request_builder_drop(struct request_builder *builder)
{
    if (builder->request) {
        served_adapters_leave(&builder->server->adapters, builder->request->adapter);
        request_free(builder->request);
    }
    builder->request = NULL;
}

void request_builder_constrain(struct request_builder *builder, struct constraint_held *held)
{
    if (!held)
        return;
    builder->request->constraint = constraint_held_take(held);
    builder->request->constraints = builder->request->model->constraints;
}

int request_builder_unconstrained(const struct message_prompt *prompt, const char **ret_field,
                                  struct error *error)
{
    const struct {
        const char *name, *why;
        bool given;
    } fields[] = {
        {"ignore_eos", "a constrained output ends where its constraint does",
         prompt->sampling.ignore_eos},
        {"min_tokens", "a constrained output ends where its constraint does",
         prompt->sampling.min_tokens > 0},
        {"stop", "it would end a constrained output amid it", prompt->stop_count > 0},
        {"stop_token_ids", "they would end a constrained output amid it",
         prompt->stop_id_count > 0},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (!fields[i].given)
            continue;
        *ret_field = fields[i].name;
        return error_set(error, ERR_UNSUPPORTED, "%s beside a constraint: %s", fields[i].name,
                         fields[i].why);
    }
    return 0;
}

/* Copies what a prompt borrows from the document. */
static int keep_ids(struct request_builder *builder, const struct message_prompt *prompt,
                    const int32_t **ret_ids, struct error *error)
{
    size_t size = prompt->stop_id_count * sizeof(int32_t);
    int32_t *ids = size > 0 ? request_keep(builder->request, size) : NULL;
    if (size > 0 && !ids)
        return error_set(error, ERR_NO_MEMORY, "no memory for stop tokens");
    if (size > 0)
        memcpy(ids, prompt->stop_ids, size);
    *ret_ids = ids;
    return 0;
}

static int keep_tokens(struct request_builder *builder, const int32_t *tokens, uint32_t count,
                       const int32_t **ret_tokens, struct error *error)
{
    int32_t *kept = request_keep(builder->request, count * sizeof(*kept));
    if (!kept)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u tokens", count);
    memcpy(kept, tokens, count * sizeof(*kept));
    *ret_tokens = kept;
    return 0;
}

static int keep_next(struct request_builder *builder, const struct message_prompt *prompt,
                     const int32_t **ret_next, struct error *error)
{
    uint32_t vocabulary = builder->request->model->info.vocab;
    for (uint32_t i = 0; i < prompt->next_count; i++)
        if ((uint32_t)prompt->next[i] >= vocabulary)
            return error_limit(error, ERR_BAD_TOKEN, vocabulary, 0,
                               "a token that may come next is none of the vocabulary of %u",
                               vocabulary);
    return prompt->next_count > 0
               ? keep_tokens(builder, prompt->next, prompt->next_count, ret_next, error)
               : 0;
}

static int keep_bias(struct request_builder *builder, const struct message_prompt *prompt,
                     const struct gpu_bias **ret_bias, uint32_t *ret_count, struct error *error)
{
    struct message_bias entries[MESSAGE_BIAS_MAX];
    uint32_t count = 0;
    struct gpu_bias *bias = NULL;
    int rc = prompt->bias ? message_bias(prompt->bias, builder->request->model->info.vocab, entries,
                                         MESSAGE_BIAS_MAX, &count, error)
                          : 0;
    if (!rc && count > 0) {
        bias = request_keep(builder->request, count * sizeof(*bias));
        if (!bias)
            rc = error_set(error, ERR_NO_MEMORY, "no memory for a logit bias");
    }
    for (uint32_t i = 0; !rc && i < count; i++)
        bias[i] = (struct gpu_bias){.token = entries[i].token, .value = entries[i].value};
    if (!rc) {
        *ret_bias = bias;
        *ret_count = count;
    }
    return rc;
}

/* Names of its whole blocks: those of the prompt, and how many may come behind. */
static int add_names(struct request_builder *builder, const int32_t *tokens, uint32_t count,
                     uint32_t first, struct error *error)
{
    const struct request *request = builder->request;
    uint32_t block = request->model->info.block_tokens;
    if (!builder->caches)
        return 0;
    struct prefix_key *keys = request_keep(builder->request, (count / block + 1) * sizeof(*keys));
    if (!keys)
        return error_set(error, ERR_NO_MEMORY, "no memory for the names of a prompt's blocks");
    uint32_t blocks = prefix_keys(builder->root, tokens, count, block, keys);
    for (uint32_t i = first; i < request->seq_count; i++) {
        struct seq *seq = &request->seqs[i];
        uint64_t end = (uint64_t)count + seq->sampling.max_tokens - 1;
        seq->caches = true;
        seq->key_root = builder->root;
        seq->keys = keys;
        seq->key_count = blocks;
        seq->out_key_count = seq->params.job == JOB_GENERATE ? (uint32_t)(end / block) - blocks : 0;
    }
    return 0;
}

/* Its text, where text is wanted or is to be looked for stop strings. */
static int add_text(struct request_builder *builder, const struct message_prompt *prompt,
                    uint32_t first, struct error *error)
{
    struct request *request = builder->request;
    const struct served_model *model = request->model;
    bool wanted = request->params.want_text && request->params.job == JOB_GENERATE;
    if (!wanted && prompt->stop_count == 0)
        return 0;
    int rc = model_text_texts(model->text, error);
    if (rc)
        return rc;
    return text_stream_make(request->seqs + first, request->seq_count - first, prompt, wanted,
                            model->text->tokenizer, &model->info, error);
}

int request_builder_prompt(struct request_builder *builder, struct message_prompt *prompt,
                           const int32_t *tokens, uint32_t token_count, struct error *error)
{
    struct server *server = builder->server;
    struct request *request = builder->request;
    const int32_t *stop_ids = NULL, *next = NULL, *kept = NULL;
    const struct gpu_bias *bias = NULL;
    uint32_t bias_count = 0, first = request->seq_count;
    const char *field;
    const struct admission_limits limits = server_limits(server, request->model);
    int rc = request_builder_model(server, error);
    if (!rc && request->constraint)
        rc = request_builder_unconstrained(prompt, &field, error);
    if (!rc)
        rc = admission_prompt(&limits, request->params.job, token_count,
                              request->model->info.max_tokens, &prompt->sampling, error);
    if (!rc)
        rc = keep_ids(builder, prompt, &stop_ids, error);
    if (!rc)
        rc = keep_bias(builder, prompt, &bias, &bias_count, error);
    if (!rc)
        rc = keep_next(builder, prompt, &next, error);
    if (!rc)
        rc = keep_tokens(builder, tokens, token_count, &kept, error);
    if (rc)
        return rc;
    if (!prompt->sampling.seed_given)
        prompt->sampling.seed = server_draw(server);
    rc = request_add(request, prompt, kept, token_count, stop_ids, bias, bias_count, error);
    for (uint32_t i = first; i < request->seq_count; i++) {
        request->seqs[i].next = next;
        request->seqs[i].next_count = prompt->next_count;
    }
    if (!rc)
        rc = add_names(builder, kept, token_count, first, error);
    for (uint32_t i = first; !rc && i < request->seq_count; i++)
        builder->total += seq_tokens(&request->seqs[i]);
    return rc ? rc : add_text(builder, prompt, first, error);
}

/* Whether what it comes to can be kept until it is read: each result by itself, or the answer that
 * they make together. */
static int admission_results(struct request_builder *builder, struct error *error)
{
    struct server *server = builder->server;
    struct request *request = builder->request;
    const uint32_t hidden = request->model ? request->model->info.hidden : 0;
    uint64_t most = 0;
    for (uint32_t i = 0; i < request->seq_count; i++) {
        uint64_t bytes = seq_result_bytes(&request->seqs[i], hidden);
        request->answer_bytes += bytes;
        most = bytes > most ? bytes : most;
    }
    return admission_result(&server->limits, request->together ? request->answer_bytes : most,
                            error);
}

/* What the configuration says of the user, or of the key that names it, holds from its next
 * request. */
static void weigh(struct server *server, struct served_model *model, struct user *user)
{
    uint32_t usual = grants_weight(&server->grants, user->grant_id, TURN_WEIGHT);
    struct waiting_user *waiting = users_waiting(&server->users, user, model->number);
    waiting_weigh(&model->waiting, waiting, grants_weight(&server->grants, user->id, usual));
}

int request_builder_admit(struct request_builder *builder, const struct response_sink *sink,
                          struct error *error)
{
    struct server *server = builder->server;
    struct request *request = builder->request;
    const struct user *user = sink->user;
    int32_t usual = grants_priority(&server->grants, user->grant_id, false,
                                    (int32_t)server->options->priority_max);
    int rc = admission_priority(grants_priority(&server->grants, user->id, sink->admin, usual),
                                request->params.priority, error);
    if (!rc)
        rc = admission_results(builder, error);
    if (!rc)
        rc = admission_batch(&server->limits, &server->load, &user->load, request->seq_count,
                             builder->total, server_retry_ms(server), error);
    if (!rc && request->deadline_us)
        rc = deadlines_reserve(&server->deadlines, request->seq_count, error);
    if (!rc)
        weigh(server, request->model ? request->model : &server->models[0], sink->user);
    return rc;
}

void request_builder_name(struct request_builder *builder, uint64_t client_id,
                          const struct user *user)
{
    struct server *server = builder->server;
    struct request *request = builder->request;
    request->id = server->next_request++;
    request->client_id = client_id;
    request_seal(request, server->next_seq, user->id);
    server->next_seq += request->seq_count;
}

void request_builder_enter(struct request_builder *builder, struct response_sink *sink)
{
    request_table_enter(builder->server, builder->request, sink);
    builder->request = NULL;
}

int request_builder_room(const struct server *server, const struct user *user, uint64_t sequences,
                         struct error *error)
{
    /* Its tokens are not known yet: one each at least. */
    return admission_batch(&server->limits, &server->load, &user->load, sequences, sequences,
                           server_retry_ms(server), error);
}

void request_builder_hold(struct server *server, struct user *user, uint64_t sequences)
{
    server->load.sequences += sequences;
    server->load.tokens += sequences;
    user->load.sequences += sequences;
    user->load.tokens += sequences;
}

void request_builder_unhold(struct server *server, struct user *user, uint64_t sequences)
{
    server->load.sequences -= sequences;
    server->load.tokens -= sequences;
    user->load.sequences -= sequences;
    user->load.tokens -= sequences;
}

void request_builder_log_refusal(const struct server *server, const char *user, unsigned status,
                                 const struct error *error)
{
    char more[96] = "";
    if (!server->options->log_requests || !log_enabled(LOG_INFO))
        return;
    /* A length or a count is no content; a token that is out of range would be. */
    if (error->limit && (error->code == ERR_TOO_LARGE || error->code == ERR_BUSY))
        snprintf(more, sizeof(more), " value=%" PRIu64 " limit=%" PRIu64, error->value,
                 error->limit);
    if (status)
        snprintf(more + strlen(more), sizeof(more) - strlen(more), " status=%u", status);
    log_line(LOG_INFO, "request", "refused user=%s code=%s%s", user ? user : "unknown",
             error_name(error->code), more);
}

void request_builder_count_refusal(struct server *server, struct user *user,
                                   const struct error *error)
{
    if (user)
        users_figures(&server->users, user, server->options->metrics_users)->refusals++;
    if (error_retry(error->code) == RETRY_LATER)
        server->counts.refused_busy_total++;
    else
        server->counts.refused_final_total++;
}

void request_builder_refused(struct server *server, struct user *user, const struct error *error)
{
    request_builder_count_refusal(server, user, error);
    request_builder_log_refusal(server, user ? user->name : NULL, 0, error);
}
