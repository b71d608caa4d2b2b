#include "tests/loadgen/virtual.h"

#include <stdlib.h>

#include "protocol/base/list.h"

static time_us after_stall(const struct virtual_server *server, time_us at_us)
{
    bool within = at_us >= VIRTUAL_START + server->stall_from_us &&
                  at_us < VIRTUAL_START + server->stall_until_us;
    return within ? VIRTUAL_START + server->stall_until_us : at_us;
}

static int submit(struct transport *transport, struct driver *driver, uint32_t index,
                  void **ret_call, struct error *error)
{
    struct virtual_server *server = container_of(transport, struct virtual_server, transport);
    struct virtual_call *call = &server->calls[index];
    if (index >= server->fail_from && index < server->fail_until)
        return error_set(error, ERR_BUSY, "refused");
    *call = (struct virtual_call){
        .driver = driver,
        .index = index,
        .tokens = driver->workload->items[index].output_tokens,
        .next_us = after_stall(server, server->now_us + server->first_delay_us),
    };
    *ret_call = call;
    return 0;
}

static void cancel(struct transport *transport, void *of)
{
    (void)transport;
    ((struct virtual_call *)of)->cancelled = true;
}

static struct virtual_call *earliest(const struct virtual_server *server)
{
    struct virtual_call *best = NULL;
    for (uint32_t i = 0; i < server->room; i++) {
        struct virtual_call *call = &server->calls[i];
        if (call->next_us && (!best || call->next_us < best->next_us))
            best = call;
    }
    return best;
}

static void step(struct virtual_server *server, struct virtual_call *call)
{
    struct driver_end end = {.cancelled = call->cancelled, .output_tokens = call->given};
    const struct workload *workload = call->driver->workload;
    int32_t token = server->answers_from + (int32_t)call->given;
    if (server->answers_from > 0 && call->index % workload->turns > 0)
        end.cached_tokens = workload->items[call->index - 1].prompt_tokens;
    if (!call->cancelled && server->answers_from > 0)
        driver_answer(call->driver, call->index, &token, 1);
    if (!call->cancelled) {
        call->given++;
        driver_tokens(call->driver, call->index, 1, server->now_us);
        end.output_tokens = call->given;
        end.cancelled = call->cancelled;
    }
    call->next_us = after_stall(server, server->now_us + server->gap_us);
    if (call->cancelled || call->given == call->tokens) {
        call->next_us = 0;
        driver_end(call->driver, call->index, &end, server->now_us);
    }
}

void virtual_init(struct virtual_server *server, uint32_t room)
{
    *server = (struct virtual_server){
        .transport = {.submit = submit, .cancel = cancel},
        .now_us = VIRTUAL_START,
        .calls = calloc(room, sizeof(struct virtual_call)),
        .room = room,
    };
}

void virtual_free(struct virtual_server *server)
{
    free(server->calls);
}

void virtual_run(struct virtual_server *server, struct driver *driver, time_us sleep_from_us,
                 time_us sleep_until_us)
{
    while (!driver_done(driver)) {
        struct virtual_call *call = earliest(server);
        time_us send_us = driver_next_us(driver);
        if (send_us && send_us < server->now_us)
            send_us = server->now_us;
        if (send_us >= VIRTUAL_START + sleep_from_us && send_us < VIRTUAL_START + sleep_until_us)
            send_us = VIRTUAL_START + sleep_until_us;
        if (call && (!send_us || call->next_us <= send_us)) {
            server->now_us = call->next_us;
            step(server, call);
        } else if (send_us) {
            server->now_us = send_us;
            driver_send(driver, server->now_us);
        } else {
            return; /* nothing will ever happen again: the test sees that it is not done */
        }
    }
}
