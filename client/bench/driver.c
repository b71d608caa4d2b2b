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
    driver->first = driver->next = first;
    driver->start_us = start_us;
}

void driver_free(struct driver *driver)
{
    recorder_free(&driver->recorder);
}

static uint64_t due_us(const struct driver *driver)
{
    return driver->workload->items[driver->next].due_us;
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

static void send_item(struct driver *driver, uint32_t index, uint64_t at_us)
{
    const struct item *item = &driver->workload->items[index];
    struct record *record = &driver->recorder.records[index];
    struct error error;
    *record = (struct record){
        .due_us = item->due_us,
        .ready_us = item->due_us,
        .sent_us = at_us,
        .prompt_tokens = item->prompt_tokens,
        .outcome = OUTCOME_OPEN,
    };
    if (driver->freed_us > item->due_us)
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
    if (driver->next < driver->workload->count && is_over(driver, at_us))
        driver->next = driver->workload->count;
    if (driver->next >= driver->workload->count || due_us(driver) > at_us ||
        (driver->open_max && driver->open >= driver->open_max))
        return false;
    uint32_t index = driver->next;
    driver->next += driver->stride;
    send_item(driver, index, at_us);
    return true;
}

time_us driver_next_us(const struct driver *driver)
{
    if (driver->next >= driver->workload->count)
        return 0;
    if (driver->open_max && driver->open >= driver->open_max)
        return driver->until_us ? driver->start_us + driver->until_us + 1 : 0;
    return driver->start_us + due_us(driver);
}

bool driver_done(const struct driver *driver)
{
    return driver->next >= driver->workload->count && driver->open == 0;
}

void driver_stop(struct driver *driver)
{
    driver->next = driver->workload->count;
    for (uint32_t i = driver->first; i < driver->workload->count; i += driver->stride)
        if (driver->recorder.records[i].outcome == OUTCOME_OPEN)
            cancel(driver, i);
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
    atomic_fetch_sub_explicit(&driver->live->running, 1, memory_order_relaxed);
    add(failed ? &driver->live->failed : &driver->live->done, 1);
}
