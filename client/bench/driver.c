#include "client/bench/driver.h"

#include <assert.h>

static void add(atomic_uint_least64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

void driver_init(struct driver *driver, const struct workload *workload, struct record *records,
                 void **calls, struct transport *transport, struct driver_live *live)
{
    *driver = (struct driver){
        .workload = workload, .transport = transport, .calls = calls, .stride = 1, .live = live};
    recorder_init(&driver->recorder, records);
}

void driver_start(struct driver *driver, uint32_t first, time_us start_us)
{
    driver->first = driver->next = first * driver->workload->turns;
    driver->start_us = start_us;
}

void driver_free(struct driver *driver)
{
    recorder_free(&driver->recorder);
    later_free(&driver->later);
}

static bool any_left(const struct driver *driver)
{
    return driver->next < driver->workload->count || driver->later.count > 0;
}

/* Whether a turn that follows is due before the next session begins. */
static bool one_follows(const struct driver *driver)
{
    return driver->later.count > 0 &&
           (driver->next >= driver->workload->count ||
            driver->later.items[0].due_us <= driver->workload->items[driver->next].due_us);
}

static uint64_t due_us(const struct driver *driver)
{
    return one_follows(driver) ? driver->later.items[0].due_us
                               : driver->workload->items[driver->next].due_us;
}

static void end_sending(struct driver *driver)
{
    driver->next = driver->workload->count;
    driver->later.count = 0;
    driver->stopped = true;
}

static bool is_over(const struct driver *driver, uint64_t at_us)
{
    return driver->until_us && at_us > driver->until_us;
}

static void cancel(struct driver *driver, uint32_t index)
{
    /* Marked first: the answer may come before cancel() returns. */
    driver->recorder.records[index].outcome = OUTCOME_CANCELLED;
    driver->transport->cancel(driver->transport, driver->calls[index]);
}

static void send_item(struct driver *driver, uint32_t index, uint64_t due, uint64_t at_us)
{
    const struct item *item = &driver->workload->items[index];
    struct record *record = &driver->recorder.records[index];
    struct error error;
    *record = (struct record){
        .due_us = due,
        .ready_us = due,
        .sent_us = at_us,
        .prompt_tokens = item->prompt_tokens,
        .outcome = OUTCOME_OPEN,
    };
    if (driver->freed_us > due)
        record->ready_us = driver->freed_us;
    driver->open++;
    add(&driver->live->sent, 1);
    add(&driver->live->running, 1);
    if (driver->transport->submit(driver->transport, driver, index, &driver->calls[index],
                                  &error)) {
        const struct driver_end end = {.error = &error, .output_tokens = UINT32_MAX};
        driver_end(driver, index, &end, driver->start_us + at_us);
    } else if (item->cancel_after == 0) {
        cancel(driver, index);
    }
}

bool driver_send(struct driver *driver, time_us now_us)
{
    uint64_t at_us = now_us - driver->start_us;
    if (now_us < driver->start_us)
        return false;
    if (is_over(driver, at_us))
        end_sending(driver);
    if (!any_left(driver) || due_us(driver) > at_us ||
        (driver->open_max && driver->open >= driver->open_max))
        return false;
    struct later_item item = {.due_us = due_us(driver), .index = driver->next};
    if (one_follows(driver))
        item = later_take(&driver->later);
    else
        driver->next += driver->stride * driver->workload->turns;
    send_item(driver, item.index, item.due_us, at_us);
    return true;
}

time_us driver_next_us(const struct driver *driver)
{
    if (!any_left(driver))
        return 0;
    if (driver->open_max && driver->open >= driver->open_max)
        return driver->until_us ? driver->start_us + driver->until_us + 1 : 0;
    return driver->start_us + due_us(driver);
}

bool driver_done(const struct driver *driver)
{
    return !any_left(driver) && driver->open == 0;
}

void driver_stop(struct driver *driver)
{
    uint32_t turns = driver->workload->turns;
    end_sending(driver);
    for (uint32_t i = driver->first; i < driver->workload->count; i += driver->stride * turns)
        for (uint32_t turn = 0; turn < turns; turn++)
            if (driver->recorder.records[i + turn].outcome == OUTCOME_OPEN)
                cancel(driver, i + turn);
}

void driver_answer(struct driver *driver, uint32_t index, const int32_t *tokens, uint32_t count)
{
    workload_answer(driver->workload, index, driver->recorder.records[index].output_tokens, tokens,
                    count);
}

void driver_tokens(struct driver *driver, uint32_t index, uint32_t count, time_us now_us)
{
    struct record *record = &driver->recorder.records[index];
    uint64_t at_us = now_us - driver->start_us;
    if (count == 0)
        return;
    if (record->chunks == 0) {
        add(&driver->live->first_count, 1);
        add(&driver->live->first_sum_us, at_us - record->due_us);
    }
    recorder_chunk(&driver->recorder, index, count, at_us);
    record->output_tokens += count;
    add(&driver->live->tokens, count);
    if (record->outcome == OUTCOME_OPEN &&
        record->output_tokens >= driver->workload->items[index].cancel_after)
        cancel(driver, index);
}

/* The session's next turn will be due. */
static void follow(struct driver *driver, uint32_t index, uint64_t end_us)
{
    const struct workload *workload = driver->workload;
    struct error error;
    if (driver->stopped || (index + 1) % workload->turns == 0)
        return;
    if (later_put(&driver->later, end_us + workload->item_turns[index + 1].think_us, index + 1)) {
        driver->recorder.records[index + 1] = (struct record){
            .due_us = end_us, .ready_us = end_us, .sent_us = end_us, .end_us = end_us};
        error_set(&error, ERR_NO_MEMORY, "no memory for a further turn");
        recorder_fail(&driver->recorder, index + 1, &error);
    }
}

void driver_end(struct driver *driver, uint32_t index, const struct driver_end *end, time_us now_us)
{
    struct record *record = &driver->recorder.records[index];
    assert(driver->open > 0 && record->outcome >= OUTCOME_OPEN);
    driver->calls[index] = NULL;
    record->end_us = now_us - driver->start_us;
    if (driver->open == driver->open_max)
        driver->freed_us = record->end_us;
    driver->open--;
    if (end->output_tokens != UINT32_MAX)
        record->output_tokens = end->output_tokens;
    record->cached_tokens = end->cached_tokens;
    bool failed =
        end->error != NULL; /* also where it was cancelled, and refused before that came */
    if (failed)
        recorder_fail(&driver->recorder, index, end->error);
    else
        record->outcome = end->cancelled ? OUTCOME_CANCELLED : OUTCOME_OK;
    if (!failed)
        follow(driver, index, record->end_us);
    atomic_fetch_sub_explicit(&driver->live->running, 1, memory_order_relaxed);
    add(failed ? &driver->live->failed : &driver->live->done, 1);
}
