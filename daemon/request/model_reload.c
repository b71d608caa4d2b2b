#include "daemon/request/model_reload.h"

#include <assert.h>
#include <string.h>

#include "daemon/request/request.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"

/* ---- what is asked -----------------------------------------------------------------------------
 */

static int check_phase(const struct server *server, struct error *error)
{
    int rc = request_builder_phase(server, error);
    if (!rc && server->phase == SERVER_LOADING)
        rc = error_set(error, ERR_LOADING, "the daemon is still loading");
    if (!rc && server->leaving)
        rc = error_set(error, ERR_DRAINING, "the daemon ends");
    return rc;
}

/* Refused by name: what a version cannot be changed of. */
static int check_model(const struct server *server, const struct served_model *model,
                       struct error *error)
{
    const char *name = model->info.id;
    if (model->number == 0 && (server->adapters.count > 0 || server->options->adapters_max > 0 ||
                               server->options->adapter_dir[0]))
        return error_set(error, ERR_UNSUPPORTED, "%s is not reloaded: it has, or may get, adapters",
                         name);
    if (model->info.ranks > 1)
        return error_set(error, ERR_UNSUPPORTED,
                         "%s is not reloaded: its layers are shared out (tp, pp)", name);
    if (model->text && model->text->head.labels > 0)
        return error_set(error, ERR_UNSUPPORTED, "%s is not reloaded: it has a head of classes",
                         name);
    if (server->options->profile_steps > 0)
        return error_set(error, ERR_UNSUPPORTED, "%s is not reloaded: its steps are profiled",
                         name);
    return 0;
}

int model_reload_ask(struct server *server, struct served_model *model, const char *directory,
                     struct error *error)
{
    const struct served_model *now = server->reload.model;
    if (!server->reload_api || server->model_count == 0)
        return error_set(error, ERR_UNSUPPORTED, "this daemon has no model that is reloaded");
    int rc = check_phase(server, error);
    if (!rc)
        rc = check_model(server, model, error);
    if (!rc && directory[0] && directory[0] != '/')
        rc = error_set(error, ERR_BAD_VALUE, "directory must begin with /");
    if (!rc && server->reload.hangs)
        rc = error_set(error, ERR_BAD_STATE,
                       "a version of %s that was refused hangs: none is loaded before it has ended",
                       now->info.id);
    if (!rc && now)
        rc = error_set(error, ERR_BUSY, "%s is being reloaded (%s): one at a time", now->info.id,
                       model_reload_word(server, now));
    if (rc == -ERR_BUSY)
        error->retry_after_ms = 1000;
    if (!rc && model->sleep.state != MODEL_AWAKE)
        rc = error_set(error, ERR_BAD_STATE, "%s is %s: it is reloaded while it is awake",
                       model->info.id, model_sleep_word(model));
    if (rc)
        return rc;
    model->version.refusal.code = 0;
    server->reload = (struct model_reload){.state = RELOAD_LOADING, .model = model};
    log_line(LOG_NOTICE, "model", "%s: version %u is loaded from %s beside version %u",
             model->info.id, model->version.number + 2,
             directory[0] ? directory : "the files it is served from", model->version.number + 1);
    server->reload_api->begin(server->reload_context, model, directory);
    return 0;
}

bool model_reload_on(const struct server *server, const struct served_model *model)
{
    return server->reload.model == model;
}

bool model_reload_holds(const struct server *server, const struct served_model *model)
{
    const struct model_reload *reload = &server->reload;
    return model_reload_on(server, model) && (!reload->hangs || reload->engaged);
}

const char *model_reload_word(const struct server *server, const struct served_model *model)
{
    static const char *const words[] = {[RELOAD_NONE] = "none",
                                        [RELOAD_LOADING] = "loading",
                                        [RELOAD_TESTING] = "testing",
                                        [RELOAD_RETIRING] = "retiring",
                                        [RELOAD_ENDING] = "ending"};
    if (model_reload_on(server, model) && !server->reload.hangs)
        return words[server->reload.state];
    return model->version.refusal.code ? "failed" : "none";
}

const char *model_reload_differs(const struct gpu_model *was, const struct gpu_model *is)
{
    if (was->vocab != is->vocab || was->hidden != is->hidden || was->layers != is->layers ||
        was->block_tokens != is->block_tokens || was->context_max != is->context_max ||
        was->kv_token_bytes != is->kv_token_bytes || was->group_count != is->group_count)
        return "its shape (config.json)";
    if (strcmp(was->arch, is->arch) != 0)
        return "its architecture";
    if (strcmp(was->dtype, is->dtype) != 0 || strcmp(was->kv_dtype, is->kv_dtype) != 0 ||
        was->invariant != is->invariant)
        return "what it is computed in (dtype = says what to compute in)";
    if (was->eos_count != is->eos_count || was->bos != is->bos ||
        memcmp(was->eos, is->eos, was->eos_count * sizeof(*was->eos)) != 0)
        return "its end tokens";
    if (memcmp(&was->sampler, &is->sampler, sizeof(is->sampler)) != 0 ||
        was->max_tokens != is->max_tokens)
        return "the defaults of generation_config.json";
    return NULL;
}

/* ---- which version -----------------------------------------------------------------------------
 */

uint32_t model_reload_version(const struct server *server, const struct served_model *model,
                              uint64_t *ret_load)
{
    const struct model_reload *reload = &server->reload;
    bool other = reload->admits && reload->model == model;
    *ret_load = other ? reload->other_load : model->load;
    return model->version.number + other;
}

struct replica *const *model_reload_replicas(const struct server *server,
                                             const struct request *request)
{
    const struct served_model *model = request->model;
    if (request->version == model->version.number)
        return model->replicas;
    assert(server->reload.model == model);
    return server->reload.others;
}

struct replica *const *model_reload_others(const struct server *server, uint32_t *ret_count)
{
    const struct model_reload *reload = &server->reload;
    bool any = reload->model && reload->others[0];
    *ret_count = any ? reload->model->replica_count : 0;
    return any ? reload->others : NULL;
}

void model_reload_count(const struct request *request, int64_t sequences)
{
    if (request->model)
        request->model->version.live[request->version & 1] += (uint64_t)sequences;
}

bool model_reload_idle(const struct server *server)
{
    const struct model_version *version = &server->reload.model->version;
    return version->live[~version->number & 1] == 0;
}

/* ---- what is told ------------------------------------------------------------------------------
 */

void model_reload_loaded(struct server *server, struct replica *const *fresh)
{
    struct model_reload *reload = &server->reload;
    assert(reload->state == RELOAD_LOADING);
    reload->state = RELOAD_TESTING;
    reload->other_load = ++server->loads;
    memcpy(reload->others, fresh, reload->model->replica_count * sizeof(*fresh));
}

/* What differs between versions; the rest is the same, and is read by other threads. */
static void describe(struct gpu_model *info, const struct gpu_model *fresh)
{
    info->parameters = fresh->parameters;
    info->weight_bytes = fresh->weight_bytes;
    info->step_parameters = fresh->step_parameters;
    info->host_bytes = fresh->host_bytes;
    info->format_count = fresh->format_count;
    memcpy(info->formats, fresh->formats, sizeof(info->formats));
}

void model_reload_take_over(struct server *server, const struct gpu_model *info, uint64_t kv_tokens)
{
    struct model_reload *reload = &server->reload;
    struct served_model *model = reload->model;
    assert(reload->state == RELOAD_TESTING && model_reload_idle(server));
    for (uint32_t i = 0; i < model->replica_count; i++) {
        struct replica *fresh = reload->others[i];
        reload->others[i] = model->replicas[i];
        model->replicas[i] = fresh;
    }
    const uint64_t load = reload->other_load;
    reload->other_load = model->load;
    model->load = load;
    describe(&model->info, info);
    model->kv_tokens = kv_tokens;
    model->version.number++;
    model->version.reloads_total++;
    reload->state = RELOAD_RETIRING;
    reload->due_us = 0;
    log_line(LOG_NOTICE, "model", "%s: version %u serves; %llu sequences end on the one before",
             model->info.id, model->version.number + 1,
             (unsigned long long)model->version.live[~model->version.number & 1]);
}

void model_reload_refuse(struct server *server, const struct error *error)
{
    struct model_reload *reload = &server->reload;
    struct model_version *version = &reload->model->version;
    assert(reload->state == RELOAD_LOADING || reload->state == RELOAD_TESTING);
    version->refusal = *error;
    version->refusals_total++;
    reload->state = RELOAD_ENDING;
    reload->due_us = 0;
    log_line(LOG_ERROR, "model", "%s is not reloaded, and version %u serves on: %s",
             reload->model->info.id, version->number + 1, error->text);
}

void model_reload_hang(struct server *server, bool engaged)
{
    struct model_reload *reload = &server->reload;
    assert(reload->state == RELOAD_ENDING);
    reload->hangs = true;
    reload->engaged = engaged;
    reload->due_us = 0;
    if (engaged)
        reload->model->sleep.asked = false;
    log_line(LOG_ERROR, "model", "%s: the version that was refused hangs, and is left to itself%s",
             reload->model->info.id,
             engaged ? "; until it has ended the model does not sleep" : "");
}

void model_reload_forget(struct server *server)
{
    assert(model_reload_idle(server));
    memset(server->reload.others, 0, sizeof(server->reload.others));
}

void model_reload_over(struct server *server)
{
    struct model_reload *reload = &server->reload;
    const struct served_model *model = reload->model;
    assert(!reload->others[0]);
    if (reload->state == RELOAD_RETIRING)
        log_line(LOG_NOTICE, "model", "%s: version %u has ended, and its memory is given back",
                 model->info.id, model->version.number);
    *reload = (struct model_reload){.state = RELOAD_NONE};
}
