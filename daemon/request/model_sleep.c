#include "daemon/request/model_sleep.h"

#include <inttypes.h>

#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "protocol/base/log.h"

const char *model_sleep_word(const struct served_model *model)
{
    static const char *const words[] = {[MODEL_AWAKE] = "awake",
                                        [MODEL_RESTING] = "falling asleep",
                                        [MODEL_FALLING] = "falling asleep",
                                        [MODEL_ASLEEP] = "asleep",
                                        [MODEL_WAKING] = "waking"};
    return words[model->sleep.state];
}

static bool is_idle(const struct served_model *model)
{
    return model->waiting.count == 0 && model->running == 0;
}

/* What waits parked has no room for its results: waking would help nobody. */
static bool wants_waking(const struct served_model *model)
{
    return model->waiting.level_bits != 0;
}

/* ---- on its way --------------------------------------------------------------------------------
 */

static bool is_on_its_way(const struct model_sleep *sleep)
{
    return sleep->state == MODEL_FALLING || sleep->state == MODEL_WAKING;
}

bool model_sleep_stalled(const struct server *server)
{
    for (uint32_t i = 0; i < server->model_count; i++)
        if (server->models[i].sleep.stalled)
            return true;
    return false;
}

/* It changes while weights come, from files or host memory, while they are kept there, and while
 * mapped pages of them are registered again, or no longer. */
static uint64_t how_far(const struct served_model *model)
{
    uint64_t far = 0;
    for (uint32_t i = 0; i < model->replica_count; i++) {
        const struct replica *replica = model->replicas[i];
        struct gpu_memory memory;
        replica->api->memory(replica, 0, &memory);
        far += replica->api->progress(replica) + 2 * memory.kept_pinned + memory.kept_mapped;
    }
    return far;
}

static void begin_way(const struct server *server, struct served_model *model,
                      enum model_state state)
{
    model->sleep.state = state;
    model->sleep.moved = how_far(model);
    model->sleep.moved_us = server->turn_us;
}

static void end_way(struct served_model *model, enum model_state state)
{
    model->sleep.state = state;
    model->sleep.stalled = false;
}

static void tend_way(struct served_model *model, time_us now_us)
{
    struct model_sleep *sleep = &model->sleep;
    uint64_t moved = how_far(model);
    if (moved != sleep->moved) {
        sleep->moved = moved;
        sleep->moved_us = now_us;
        sleep->stalled = false;
    } else if (!sleep->stalled && now_us >= sleep->moved_us + MODEL_STALL_US) {
        sleep->stalled = true;
        log_line(LOG_ERROR, "model", "%s is %s without progress for %u s: the daemon is stuck",
                 model->info.id, model_sleep_word(model), MODEL_STALL_US / 1000000u);
    }
}

/* ---- down --------------------------------------------------------------------------------------
 */

static void fall(struct server *server, struct served_model *model, const char *why)
{
    begin_way(server, model, MODEL_FALLING);
    model->sleep.asked = false;
    log_line(LOG_NOTICE, "model", "%s falls asleep: %s", model->info.id, why);
    server->sleep_api->sleep(server->sleep_context, model->number);
}

static bool is_due(const struct model_sleep *sleep, time_us now_us)
{
    return sleep->after_us > 0 && now_us >= sleep->used_us + sleep->after_us;
}

/* An adapter is being read into its engines. */
static bool is_adapted(const struct server *server, const struct served_model *model)
{
    return model->number == 0 && served_adapters_busy(&server->adapters);
}

/* Its time to fall asleep begins once all are loaded. */
static bool may_fall(const struct server *server, const struct served_model *model)
{
    return server->phase != SERVER_LOADING && !is_adapted(server, model) &&
           !model_reload_holds(server, model);
}

static void tend_awake(struct server *server, struct served_model *model, time_us now_us)
{
    struct model_sleep *sleep = &model->sleep;
    if (!is_idle(model)) {
        sleep->used_us = now_us;
        return;
    }
    if (!may_fall(server, model))
        return;
    if (sleep->asked)
        fall(server, model, "an admin asked for it");
    else if (is_due(sleep, now_us))
        fall(server, model, "nobody used it for sleep-after");
}

/* ---- who has the memory ------------------------------------------------------------------------
 */

static bool share_device(const struct served_model *a, const struct served_model *b)
{
    for (uint32_t i = 0; i < a->replica_count; i++)
        for (uint32_t j = 0; j < b->replica_count; j++)
            if (replica_shares_device(a->replicas[i], b->replicas[j]))
                return true;
    return false;
}

/* Whoever is on its way down makes room soon. */
static bool one_leaves(const struct server *server, const struct served_model *model)
{
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct served_model *other = &server->models[i];
        bool leaves = other->sleep.state == MODEL_RESTING || other->sleep.state == MODEL_FALLING;
        if (leaves && other != model && share_device(model, other))
            return true;
    }
    return false;
}

static bool lacks_memory(const struct model_sleep *sleep)
{
    return sleep->refused_us && sleep->refusal.code == ERR_DEVICE_MEMORY;
}

/* Whom it made way for is there and has memory, or wants nothing any more. */
static bool is_repaid(const struct server *server, const struct model_sleep *sleep)
{
    const struct served_model *other = sleep->gave ? &server->models[sleep->gave - 1] : NULL;
    return !other || (other->sleep.state != MODEL_WAKING && !other->sleep.starved_us &&
                      (other->sleep.state != MODEL_ASLEEP || !wants_waking(other)));
}

static bool can_leave(const struct server *server, const struct served_model *model)
{
    return !model_reload_holds(server, model);
}

/* It takes turns with another, which is at something. */
static bool waits_for_turn(const struct server *server, const struct model_sleep *sleep)
{
    if (!sleep->beside)
        return false;
    const struct served_model *other = &server->models[sleep->beside - 1];
    if (other->sleep.state == MODEL_AWAKE)
        return !is_idle(other) && can_leave(server, other);
    return other->sleep.state != MODEL_ASLEEP;
}

/* Not while another is about to make room, or it would take back what it gave. */
static bool may_try(const struct server *server, const struct served_model *model)
{
    if (!is_repaid(server, &model->sleep) || waits_for_turn(server, &model->sleep) ||
        server->phase == SERVER_LOADING || server->phase == SERVER_FAILED)
        return false;
    return !lacks_memory(&model->sleep) || !one_leaves(server, model);
}

/* No other model has what it needs. */
static bool is_refused_for_good(const struct server *server, const struct served_model *model,
                                time_us now_us)
{
    const struct model_sleep *sleep = &model->sleep;
    if (!sleep->refused_us || now_us - sleep->refused_us < MODEL_WAKE_MOST_US)
        return false;
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct served_model *other = &server->models[i];
        if (other != model && other->sleep.state != MODEL_ASLEEP && share_device(model, other))
            return sleep->refusal.code != ERR_DEVICE_MEMORY;
    }
    return true;
}

/* ---- up ----------------------------------------------------------------------------------------
 */

static void wake(struct server *server, struct served_model *model)
{
    begin_way(server, model, MODEL_WAKING);
    model->sleep.gave = model->sleep.beside = 0;
    log_line(LOG_NOTICE, "model", "%s wakes: %" PRIu64 " sequences wait", model->info.id,
             model->waiting.count);
    server->sleep_api->wake(server->sleep_context, model->number);
}

/* All that waits for it ends with the reason. */
static void refuse_waiting(struct server *server, struct served_model *model, time_us now_us)
{
    const struct error *error = &model->sleep.refusal;
    struct seq *seq;
    log_line(LOG_ERROR, "model", "%s cannot wake, and %" PRIu64 " sequences are refused: %s",
             model->info.id, model->waiting.count, error->text);
    waiting_unpark(&model->waiting);
    while ((seq = waiting_first(&model->waiting))) {
        waiting_remove(&model->waiting, seq);
        seq->finish = FINISH_ERROR;
        seq->failure = &model->sleep.refusal;
        request_table_end(server, seq, now_us);
    }
    model->sleep.refused_us = model->sleep.retry_us = 0;
    model->sleep.tries = 0;
}

static void tend_asleep(struct server *server, struct served_model *model, time_us now_us)
{
    struct model_sleep *sleep = &model->sleep;
    if (!wants_waking(model)) {
        sleep->refused_us = 0; /* who asks next has its own time */
        return;
    }
    sleep->used_us = now_us;
    if (is_refused_for_good(server, model, now_us))
        refuse_waiting(server, model, now_us);
    else if (now_us >= sleep->retry_us && may_try(server, model))
        wake(server, model);
}

/* ---- making way --------------------------------------------------------------------------------
 */
static bool starves(const struct served_model *model)
{
    for (uint32_t i = 0; model->running > 0 && i < model->replica_count; i++)
        if (model->replicas[i]->api->room(model->replicas[i]).starves)
            return true;
    return false;
}

/* Its worker asks for memory again and again, and tells of each refusal: a turn comes. */
static void tend_starved(const struct server *server, struct served_model *model, time_us now_us)
{
    struct model_sleep *sleep = &model->sleep;
    if (server->model_count < 2 || !starves(model))
        sleep->starved_us = 0;
    else if (!sleep->starved_us)
        sleep->starved_us = now_us;
}

static bool woke_before(const struct served_model *a, const struct served_model *b)
{
    return a->sleep.since_us != b->sleep.since_us ? a->sleep.since_us < b->sleep.since_us
                                                  : a->number < b->number;
}

static bool wants_turn(const struct served_model *model)
{
    return model->sleep.state == MODEL_ASLEEP && model->sleep.beside;
}

/* For one whose turn it is, the other. For one that starves of those who do as well only such as
 * woke after it, if it can do the same for them; and one that is busy later than one that is idle,
 * since what it runs may end and do. */
static bool may_leave(const struct server *server, const struct served_model *leaver,
                      const struct served_model *model, time_us now_us)
{
    const time_us since_us = model->sleep.starved_us;
    if (wants_turn(model))
        return leaver->number + 1 == model->sleep.beside;
    if (!since_us)
        return true;
    if (leaver->sleep.starved_us && !(woke_before(model, leaver) && can_leave(server, model)))
        return false;
    return now_us >= since_us + (is_idle(leaver) ? MODEL_STARVE_US : MODEL_STARVE_BUSY_US);
}

/* Idle ones before busy ones, and of those who was used the longest ago; then those that starve,
 * who woke last first; then who is awake for the longest. */
static bool leaves_before(const struct served_model *a, const struct served_model *b)
{
    if (is_idle(a) != is_idle(b))
        return is_idle(a);
    if (is_idle(a))
        return a->sleep.used_us < b->sleep.used_us;
    if (!a->sleep.starved_us != !b->sleep.starved_us)
        return a->sleep.starved_us;
    return a->sleep.starved_us ? woke_before(b, a) : a->sleep.since_us < b->sleep.since_us;
}

static time_us stays_until(const struct server *server, const struct model_sleep *sleep)
{
    time_us from_us = sleep->turn_us > sleep->since_us ? sleep->turn_us : sleep->since_us;
    return from_us + server->options->model_stay;
}

/* Of those who have stayed. */
static struct served_model *find_leaver(struct server *server, const struct served_model *model,
                                        time_us now_us)
{
    struct served_model *best = NULL;
    for (uint32_t i = 0; i < server->model_count; i++) {
        struct served_model *other = &server->models[i];
        const struct model_sleep *sleep = &other->sleep;
        if (other == model || sleep->state != MODEL_AWAKE || !can_leave(server, other) ||
            now_us < stays_until(server, sleep) || !share_device(model, other) ||
            !may_leave(server, other, model, now_us))
            continue;
        if (!best || leaves_before(other, best))
            best = other;
    }
    return best;
}

static void rest(struct served_model *leaver, const struct served_model *model)
{
    struct model_sleep *sleep = &leaver->sleep;
    sleep->state = MODEL_RESTING;
    sleep->hands_back = sleep->starved_us && model->sleep.starved_us;
    if (sleep->hands_back || wants_turn(model))
        sleep->beside = model->number + 1;
    log_line(LOG_NOTICE, "model", "%s rests: %s needs its memory%s", leaver->info.id,
             model->info.id, sleep->hands_back ? ", and neither gets on beside the other" : "");
}

static void make_way(struct server *server, struct served_model *model, time_us now_us)
{
    struct served_model *leaver =
        one_leaves(server, model) ? NULL : find_leaver(server, model, now_us);
    if (!leaver)
        return;
    leaver->sleep.gave = model->number + 1;
    if (wants_turn(model))
        model->sleep.gave = 0; /* it has its turn */
    if (is_idle(leaver) && !is_adapted(server, leaver))
        fall(server, leaver, "another needs its memory");
    else
        rest(leaver, model);
}

/* It drains, for one that is to wake, and starves beside a third: what it has would not end. */
static void see_who_starves(struct server *server, struct served_model *model, time_us now_us)
{
    struct model_sleep *sleep = &model->sleep;
    if (!sleep->starved_us || now_us < sleep->starved_us + MODEL_STARVE_BUSY_US)
        return;
    for (uint32_t i = 0; i < server->model_count && !sleep->hands_back; i++) {
        const struct served_model *other = &server->models[i];
        sleep->hands_back = other != model && other->sleep.starved_us && share_device(model, other);
        if (sleep->hands_back)
            sleep->beside = i + 1;
    }
}

static void tend_resting(struct server *server, struct served_model *model, time_us now_us)
{
    if (model->running == 0 && !is_adapted(server, model)) {
        fall(server, model, "another needs its memory");
        return;
    }
    see_who_starves(server, model, now_us);
    for (uint32_t i = 0; model->sleep.hands_back && i < model->replica_count; i++) {
        model->replicas[i]->api->hand_back(model->replicas[i]);
        model->replicas[i]->mailed = true;
    }
}

/* ---- the turn ----------------------------------------------------------------------------------
 */

/* One at a time, so that they do not take each other's memory half. */
static void wake_early(struct server *server)
{
    struct served_model *next = NULL;
    for (uint32_t i = 0; i < server->model_count; i++) {
        struct served_model *model = &server->models[i];
        if (model->sleep.state == MODEL_WAKING)
            return;
        if (model->sleep.early && model->sleep.state != MODEL_FALLING && !next)
            next = model;
    }
    if (!next || server->phase != SERVER_READY)
        return;
    next->sleep.early = false;
    if (next->sleep.state == MODEL_ASLEEP)
        wake(server, next);
}

void model_sleep_turn(struct server *server, time_us now_us)
{
    if (!server->sleep_api)
        return;
    wake_early(server);
    for (uint32_t i = 0; i < server->model_count; i++) {
        struct served_model *model = &server->models[i];
        struct model_sleep *sleep = &model->sleep;
        tend_starved(server, model, now_us);
        if (sleep->state == MODEL_AWAKE)
            tend_awake(server, model, now_us);
        else if (sleep->state == MODEL_RESTING)
            tend_resting(server, model, now_us);
        else if (sleep->state == MODEL_ASLEEP)
            tend_asleep(server, model, now_us);
        else if (is_on_its_way(sleep))
            tend_way(model, now_us);
        if (sleep->state == MODEL_ASLEEP && (lacks_memory(sleep) || sleep->beside) &&
            wants_waking(model))
            make_way(server, model, now_us);
        if (sleep->starved_us && !sleep->hands_back && server->phase != SERVER_LOADING)
            make_way(server, model, now_us);
    }
}

static void earlier(time_us *due_us, time_us at_us)
{
    if (!*due_us || at_us < *due_us)
        *due_us = at_us;
}

/* When the first of those that are awake has stayed for long enough. */
static void stay_due(const struct server *server, const struct served_model *model, time_us *due_us)
{
    for (uint32_t i = 0; i < server->model_count; i++) {
        const struct served_model *other = &server->models[i];
        time_us at_us = stays_until(server, &other->sleep);
        if (other != model && other->sleep.state == MODEL_AWAKE && at_us > server->turn_us)
            earlier(due_us, at_us);
    }
}

time_us model_sleep_due(const struct server *server)
{
    time_us due_us = 0;
    for (uint32_t i = 0; server->sleep_api && i < server->model_count; i++) {
        const struct served_model *model = &server->models[i];
        const struct model_sleep *sleep = &model->sleep;
        if (sleep->state == MODEL_AWAKE && sleep->after_us && is_idle(model) &&
            may_fall(server, model))
            earlier(&due_us, sleep->used_us + sleep->after_us);
        if (is_on_its_way(sleep) && !sleep->stalled)
            earlier(&due_us, sleep->moved_us + MODEL_STALL_US);
        if (sleep->state != MODEL_ASLEEP || !wants_waking(model))
            continue;
        if (may_try(server, model))
            earlier(&due_us,
                    sleep->retry_us > server->turn_us ? sleep->retry_us : server->turn_us + 1);
        if (lacks_memory(sleep) || sleep->beside)
            stay_due(server, model, &due_us);
    }
    return due_us;
}

/* ---- what is asked, and told -------------------------------------------------------------------
 */

int model_sleep_ask(struct server *server, struct served_model *model, struct error *error)
{
    if (!server->sleep_api || server->model_count == 0)
        return error_set(error, ERR_UNSUPPORTED, "this daemon has no model that sleeps");
    if (server->reload.hangs && model_reload_holds(server, model))
        return error_set(error, ERR_BAD_STATE,
                         "%s does not sleep: a version of it that was refused hangs on its devices",
                         model->info.id);
    if (model->sleep.state == MODEL_AWAKE)
        model->sleep.asked = true;
    return 0;
}

void model_wake_ask(struct server *server, struct served_model *model, time_us now_us)
{
    model->sleep.asked = false;
    model->sleep.used_us = now_us;
    model->sleep.early |= model->sleep.state == MODEL_FALLING; /* as soon as it is asleep */
    if (server->sleep_api && model->sleep.state == MODEL_ASLEEP && server->phase != SERVER_FAILED)
        wake(server, model);
}

void model_slept(struct server *server, uint32_t number, time_us now_us)
{
    struct served_model *model = &server->models[number];
    end_way(model, MODEL_ASLEEP);
    if (number == 0) {
        adapter_tiers_drop(server); /* what waits for an adapter waits for the model first */
        served_adapters_closed(&server->adapters);
    }
    if (model->sleep.beside)
        server->models[model->sleep.beside - 1].sleep.turn_us = now_us;
    model->sleep.sleeps_total++;
    log_line(LOG_NOTICE, "model", "%s is asleep", model->info.id);
    for (uint32_t i = 0; i < server->model_count; i++) /* there is memory now */
        server->models[i].sleep.retry_us = 0;
}

void model_woke(struct server *server, uint32_t number, time_us now_us)
{
    struct served_model *model = &server->models[number];
    struct model_sleep *sleep = &model->sleep;
    *sleep = (struct model_sleep){.state = MODEL_AWAKE,
                                  .after_us = sleep->after_us,
                                  .used_us = now_us,
                                  .since_us = now_us,
                                  .refusal = sleep->refusal, /* sequences that ended have it */
                                  .sleeps_total = sleep->sleeps_total,
                                  .wakes_total = sleep->wakes_total + 1};
    model->load = ++server->loads; /* nothing of what it had cached is there */
    log_line(LOG_NOTICE, "model", "%s is awake", model->info.id);
}

static bool may_pass(int code)
{
    return code == ERR_DEVICE_MEMORY || code == ERR_NO_MEMORY || code == ERR_IO;
}

void model_wake_refused(struct server *server, uint32_t number, const struct error *error,
                        time_us now_us)
{
    struct served_model *model = &server->models[number];
    struct model_sleep *sleep = &model->sleep;
    uint64_t wait_us = MODEL_WAKE_RETRY_US << (sleep->tries < 5 ? sleep->tries : 5);
    end_way(model, MODEL_ASLEEP);
    sleep->failing = true;
    sleep->refusal = *error;
    sleep->refusal.retry_after_ms = 1000;
    if (!may_pass(error->code)) {
        refuse_waiting(server, model, now_us);
        return;
    }
    log_line(LOG_WARNING, "model", "%s cannot wake now: %s", model->info.id, error->text);
    sleep->tries++;
    sleep->retry_us =
        now_us + (wait_us < MODEL_WAKE_RETRY_MOST_US ? wait_us : MODEL_WAKE_RETRY_MOST_US);
    if (!sleep->refused_us && wants_waking(model))
        sleep->refused_us = now_us;
    if (error->code == ERR_DEVICE_MEMORY && wants_waking(model))
        make_way(server, model, now_us);
}
