#include "client/job/job.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/job/render.h"
#include "client/terminal/connect.h"
#include "client/terminal/interrupt.h"

#define CANCEL_TIMEOUT_US 3000000u
#define SAID_MAX 20u /* messages on stderr; more of them help nobody */

static struct item *item_at(const struct job *job, uint64_t number)
{
    return &job->ring[number % JOB_RING];
}

/* ---- what items report -------------------------------------------------------------------------
 */

void job_held(struct job *job, size_t more)
{
    job->held += more;
}

void job_tokens(struct job *job, size_t count)
{
    job->tokens += count;
}

/* Never accepted, for want of room: the daemon has nothing of it. */
static bool was_refused(const struct job *job, const struct item *item)
{
    int code = item->results[0].end.error.code;
    return item->results[0].end.finish == SLUICE_FINISH_ERROR &&
           (code == SLUICE_E_BUSY || code == SLUICE_E_LOADING) &&
           sluice_request_number(job->client, item->id) == 0;
}

static void finish_item(struct job *job, struct item *item)
{
    const sluice_end *end = &item->results[0].end;
    item->state = ITEM_ENDED;
    job->done++;
    /* With these, nothing that follows would fare better. */
    if (end->finish == SLUICE_FINISH_ERROR &&
        (end->error.code == SLUICE_E_CLOSED || end->error.code == SLUICE_E_DRAINING))
        job->input_over = true;
}

void job_item_ended(struct job *job, struct item *item)
{
    if (job->settings->file && !job->give_up_us && was_refused(job, item)) {
        if (window_refused(&job->window, item->results[0].end.error.retry_after_ms, job->now_us)) {
            item_reset(item);
            job->waiting++;
            job->next_send = job->first;
            return;
        }
    } else {
        window_ended(&job->window, job->now_us);
    }
    finish_item(job, item);
}

/* ---- in ----------------------------------------------------------------------------------------
 */

static void take_work(struct job *job, const struct work *work, size_t bytes)
{
    struct item *item = item_at(job, job->next);
    item_init(item, job, work, bytes);
    item->line = job->source.line;
    item->index = job->index;
    job->index += item->result_count;
    job->held += bytes;
    job->waiting++;
    job->next++;
}

/* What cannot even be sent ends here. */
static void fail_item(struct job *job, struct item *item, const sluice_error *error)
{
    for (uint32_t i = 0; i < item->result_count; i++) {
        item->results[i].ended = true;
        item->results[i].end = (sluice_end){.finish = SLUICE_FINISH_ERROR, .error = *error};
    }
    item->open = 0;
    job->waiting--;
    finish_item(job, item);
}

/* A line that is no prompt has its place among the results, and the others run. */
static void take_bad(struct job *job, struct work *work, size_t bytes, const struct error *error)
{
    work->params.n = 1;
    take_work(job, work, bytes);
    struct item *item = item_at(job, job->next - 1);
    sluice_error told = {.code = error->code, .retry = SLUICE_RETRY_FIX};
    snprintf(told.text, sizeof(told.text), "%s", error->text);
    item->bad = true;
    fail_item(job, item, &told);
}

static void read_input(struct job *job)
{
    struct error error;
    struct work work;
    size_t bytes;
    job->source_waits = false;
    while (!job->input_over && job->next - job->first < JOB_RING &&
           (job->held < JOB_HELD_MAX || job->next == job->first)) {
        switch (source_next(&job->source, &work, &bytes, &error)) {
        case SOURCE_WORK:
            take_work(job, &work, bytes);
            break;
        case SOURCE_WAIT:
            job->source_waits = true;
            return;
        case SOURCE_BAD:
            take_bad(job, &work, bytes, &error);
            break;
        case SOURCE_FAILED:
            progress_clear(&job->progress);
            say("%s", error.text);
            job->status = STATUS_USAGE;
            job->input_over = true;
            return;
        case SOURCE_END:
            job->input_over = true;
            return;
        }
    }
}

/* ---- to the daemon -----------------------------------------------------------------------------
 */

static bool lacks_text(const struct job *job, const struct item *item)
{
    const sluice_info *info = sluice_client_info(job->client);
    /* Of a model that is named the daemon alone knows. */
    return (item->work.prompt || item->work.chat) && !info->text && info->context_max > 0 &&
           !item->work.named;
}

const char *job_model(const struct job *job, const struct item *item)
{
    if (item->work.named)
        return item->work.named;
    return job->client ? sluice_client_info(job->client)->model : job->model;
}

/* A request that names another model than the one that it goes to. */
static bool lacks_model(const struct job *job, const struct item *item)
{
    return item->work.model && strcmp(item->work.model, job_model(job, item));
}

static void describe(const struct job *job, struct item *item, sluice_batch *batch,
                     sluice_prompt *prompt, sluice_params *params)
{
    const sluice_info *info = sluice_client_info(job->client);
    struct error unused;
    work_params(&item->work, params);
    *prompt = (sluice_prompt){
        .tokens = item->work.prompt || item->work.chat ? NULL : item->work.tokens.tokens,
        .token_count = item->work.tokens.count,
        .text = item->work.prompt,
        .text_length = item->work.prompt ? strlen(item->work.prompt) : 0,
        .chat = item->work.chat,
        .chat_length = item->work.chat_length,
    };
    sluice_batch_init(batch);
    batch->job = job->kind;
    batch->prompts = prompt;
    batch->prompt_count = 1;
    batch->params = params;
    batch->priority = (int)item->work.priority;
    batch->deadline_ms = (uint64_t)item->work.deadline_ms;
    batch->no_cache = !item->work.cache;
    batch->cache_salt = item->work.cache_salt;
    batch->model = item->work.named;
    batch->stream = job->settings->stream && !job->settings->json && !job->settings->file;
    /* An answer in kind: numbers to numbers, unless there is room for both. */
    item->text = job->kind == SLUICE_GENERATE &&
                 (item->work.prompt || item->work.chat ||
                  (info->text && (job->settings->json || item->work.form != LINE_OWN)));
    batch->want_text = item->text;
    work_pooling(&item->work, &batch->pooling, &unused);
    batch->normalize = item->work.normalize;
    batch->constraint = job->constraint.kind;
    batch->constraint_text = job->constraint.text;
    batch->callbacks = item_callbacks;
    batch->context = item;
}

/* False when nothing more can be sent now. */
static bool send_item(struct job *job, struct item *item)
{
    sluice_batch batch;
    sluice_prompt prompt;
    sluice_params params;
    sluice_error error = {.code = SLUICE_E_UNSUPPORTED};
    if (lacks_text(job, item)) {
        snprintf(error.text, sizeof(error.text),
                 "the daemon serves %s, which has no tokenizer: give tokens, not a prompt",
                 sluice_client_info(job->client)->model);
        fail_item(job, item, &error);
        return true;
    }
    if (lacks_model(job, item)) {
        error.code = SLUICE_E_NOT_FOUND;
        snprintf(error.text, sizeof(error.text), "there is no model %.64s here, but %s",
                 item->work.model, job_model(job, item));
        fail_item(job, item, &error);
        return true;
    }
    describe(job, item, &batch, &prompt, &params);
    int rc = sluice_submit(job->client, &batch, &item->id);
    if (rc == -SLUICE_E_BUSY && sluice_client_events(job->client) & POLLOUT)
        return false;
    if (rc) {
        fail_item(job, item, sluice_client_error(job->client));
        return true;
    }
    item->state = ITEM_SENT;
    job->waiting--;
    window_sent(&job->window, job->now_us);
    return true;
}

static void send_waiting(struct job *job)
{
    uint64_t number = job->next_send > job->first ? job->next_send : job->first;
    for (; job->waiting > 0 && number < job->next; number++) {
        struct item *item = item_at(job, number);
        if (item->state != ITEM_WAITING)
            continue;
        if (!window_has_room(&job->window, job->now_us) || !send_item(job, item))
            break;
    }
    job->next_send = number;
}

/* ---- out ---------------------------------------------------------------------------------------
 */

static void say_end(struct job *job, const struct item *item, const sluice_end *end)
{
    char place[64] = "";
    if (job->said == SAID_MAX) {
        job->unsaid++;
        return;
    }
    job->said++;
    if (item->line > 0 && !item->bad)
        snprintf(place, sizeof(place), "line %" PRIu64 ": ", item->line);
    progress_clear(&job->progress);
    if (item->bad)
        say("%s", end->error.text);
    else if (end->finish == SLUICE_FINISH_ERROR)
        say("%s%s: %s", place, sluice_error_name(end->error.code), end->error.text);
    else
        say("%s%s", place,
            end->finish == SLUICE_FINISH_DEADLINE ? "the deadline passed" : "cancelled");
}

/* The results of a prompt mostly fail for the same reason, which is said once. */
static void report(struct job *job, const struct item *item)
{
    const sluice_end *before = NULL;
    for (uint32_t i = 0; i < item->result_count; i++) {
        const sluice_end *end = &item->results[i].end;
        enum status status = status_of_end(end);
        if (status == STATUS_OK)
            continue;
        if (job->status == STATUS_OK)
            job->status = status;
        if (!job->give_up_us && !(before && before->finish == end->finish &&
                                  !strcmp(before->error.text, end->error.text)))
            say_end(job, item, end);
        before = end;
    }
}

static bool print_item(struct job *job, struct item *item)
{
    bool whole = job->settings->file || !job->settings->stream;
    if (!job->settings->json && item->work.form == LINE_OWN)
        return render_plain(&job->output, item, job->kind, whole);
    if (item->state == ITEM_ENDED && item->work.form != LINE_OWN)
        batch_form_ask(job, item);
    if (item->state == ITEM_ENDED)
        render_json(&job->output, item, job->kind);
    return item->state == ITEM_ENDED;
}

static void print_results(struct job *job)
{
    while (job->first < job->next) {
        struct item *item = item_at(job, job->first);
        if (!print_item(job, item))
            break;
        output_flush(&job->output);
        report(job, item);
        job->held -= item->bytes;
        job->printed += item->input + 1;
        item_clear(item);
        job->first++;
    }
    output_flush(&job->output);
}

/* ---- turns -------------------------------------------------------------------------------------
 */

static void interrupt(struct job *job)
{
    job->give_up_us = job->now_us + CANCEL_TIMEOUT_US;
    job->input_over = true;
    for (uint64_t i = job->first; i < job->next; i++)
        if (item_at(job, i)->state == ITEM_SENT)
            sluice_cancel(job->client, item_at(job, i)->id);
}

static int poll_timeout_ms(const struct job *job)
{
    time_us until_us = 0;
    if (job->waiting > 0 && job->window.closed_until_us > job->now_us)
        until_us = job->window.closed_until_us;
    if (job->progress.active && (!until_us || job->progress.next_us < until_us))
        until_us = job->progress.next_us;
    if (job->give_up_us && (!until_us || job->give_up_us < until_us))
        until_us = job->give_up_us;
    if (!until_us)
        return -1;
    return until_us > job->now_us ? (int)((until_us - job->now_us) / 1000 + 1) : 0;
}

static void wait_turn(struct job *job)
{
    short events = sluice_client_events(job->client);
    bool can_read = job->source_waits && !job->input_over;
    struct pollfd fds[3] = {
        {events ? sluice_client_fd(job->client) : -1, events, 0},
        {job->give_up_us ? -1 : interrupt_fd(), POLLIN, 0},
        {can_read ? job->source.input.fd : -1, POLLIN, 0},
    };
    poll(fds, 3, poll_timeout_ms(job));
    job->now_us = clock_now_us();
    if (fds[0].revents && sluice_client_process(job->client))
        job->input_over = true;
    if (interrupt_came() && !job->give_up_us)
        interrupt(job);
}

static void show_progress(struct job *job)
{
    const struct source *source = &job->source;
    struct progress_state state = {
        .done = job->done,
        .tokens = job->tokens,
        .running = job->window.used,
        .waiting = job->waiting,
        .fraction = source->size ? (double)job->printed / (double)source->size : -1,
    };
    if (job->settings->file)
        progress_show(&job->progress, &state, job->now_us);
}

static void run_turns(struct job *job)
{
    for (;;) {
        if (!job->give_up_us) {
            read_input(job);
            send_waiting(job);
        }
        print_results(job);
        if (job->output.broken && !job->give_up_us)
            interrupt(job);
        if (job->first == job->next && job->input_over)
            return;
        if (job->give_up_us && (job->window.used == 0 || job->now_us >= job->give_up_us))
            return;
        show_progress(job);
        wait_turn(job);
    }
}

/* What had ended behind something that never will. */
static void print_rest(struct job *job)
{
    for (; job->first < job->next; job->first++) {
        struct item *item = item_at(job, job->first);
        if (item->state == ITEM_ENDED)
            print_item(job, item);
        item_clear(item);
    }
    output_flush(&job->output);
}

enum status job_run(int kind, const struct option_group *groups, const struct settings *settings)
{
    struct job job = {.kind = kind, .settings = settings};
    struct error error;
    int pooling;
    if (work_pooling(&settings->work, &pooling, &error) ||
        constraint_make(settings, &job.constraint, &error) ||
        source_open(&job.source, kind, groups, settings, &error)) {
        say("%s", error.text);
        constraint_drop(&job.constraint);
        return STATUS_USAGE;
    }
    enum status status = connect_daemon(settings, &job.client);
    job.ring = status ? NULL : calloc(JOB_RING, sizeof(*job.ring));
    if (status || !job.ring) {
        source_close(&job.source);
        constraint_drop(&job.constraint);
        sluice_close(job.client);
        return status ? status : STATUS_SERVER;
    }
    interrupt_watch();
    window_init(&job.window);
    job.now_us = clock_now_us();
    progress_init(&job.progress, job.now_us);
    run_turns(&job);
    progress_clear(&job.progress);
    if (job.unsaid > 0)
        say("%" PRIu64 " more failed", job.unsaid);
    snprintf(job.model, sizeof(job.model), "%s", sluice_client_info(job.client)->model);
    sluice_close(job.client);
    job.client = NULL;
    print_rest(&job);
    token_names_free(&job.names);
    source_close(&job.source);
    constraint_drop(&job.constraint);
    buffer_free(&job.output.buffer);
    free(job.ring);
    if (interrupt_came())
        return STATUS_INTERRUPTED;
    return job.status == STATUS_OK && job.output.broken ? STATUS_SERVER : job.status;
}
