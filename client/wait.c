/* Blocking calls, on top of what any loop would do. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/ask.h"
#include "client/batch.h"
#include "client/client.h"
#include "client/failure.h"

time_us client_until(int timeout_ms)
{
    return timeout_ms < 0 ? 0 : clock_now_us() + (time_us)timeout_ms * 1000 + 1;
}

int client_check_blocking(sluice_client *client)
{
    struct error error;
    if (!client->turning)
        return 0;
    error_set(&error, ERR_USAGE, "a callback may not wait");
    return client_fail(client, &error);
}

/* Rounded up, so that a wait does not end early and spin. */
static int left_ms(time_us until_us)
{
    time_us now_us = clock_now_us();
    if (until_us == 0)
        return -1;
    if (until_us <= now_us)
        return 0;
    time_us left = (until_us - now_us + 999) / 1000;
    return left < INT32_MAX ? (int)left : INT32_MAX;
}

int client_wait(sluice_client *client, time_us until_us)
{
    struct pollfd ready = {client->fd, sluice_client_events(client), 0};
    if (client->lost.code)
        return -client->lost.code;
    int count = poll(&ready, 1, left_ms(until_us));
    if (count < 0 && errno == EINTR)
        return 0;
    if (count == 0)
        return 1;
    return client_turn(client);
}

int sluice_wait(sluice_client *client, int timeout_ms)
{
    struct error error;
    int rc = client_check_blocking(client);
    if (!rc)
        rc = client_wait(client, client_until(timeout_ms));
    if (rc == 1) {
        error_set(&error, ERR_TIMEOUT, "nothing happened within %d ms", timeout_ms);
        return client_fail(client, &error);
    }
    return rc;
}

static void give_up(sluice_client *client, struct batch *batch, const struct error *error)
{
    sluice_cancel(client, batch->id);
    client->turning = true;
    batch_abandon(client, batch, error);
    client->turning = false;
}

int sluice_run(sluice_client *client, const sluice_batch *batch, int timeout_ms)
{
    struct error error;
    struct batch *open = NULL;
    uint64_t id;
    time_us until_us = client_until(timeout_ms);
    int rc = client_check_blocking(client);
    if (!rc)
        rc = sluice_submit(client, batch, &id);
    while (!rc && (open = batch_find(client, id)))
        rc = client_wait(client, until_us);
    if (rc != 1)
        return rc;
    error_set(&error, ERR_TIMEOUT, "not finished within %d ms", timeout_ms);
    give_up(client, open, &error);
    return client_fail(client, &error);
}

/* ---- control -----------------------------------------------------------------------------------
 */

struct control {
    bool answered;
    char *json;
    sluice_error error;
};

static void take_answer(void *context, const char *json, const sluice_error *error)
{
    struct control *control = context;
    control->answered = true;
    if (json)
        control->json = strdup(json);
    else
        control->error = *error;
}

int ask_await(sluice_client *client, uint64_t id, const bool *answered, int timeout_ms)
{
    struct error error;
    time_us until_us = client_until(timeout_ms);
    int rc = 0;
    while (!rc && !*answered)
        rc = client_wait(client, until_us);
    if (*answered) /* and lost, perhaps, by what came behind the answer */
        return 0;
    if (rc == 1) {
        ask_forget(client, id);
        error_set(&error, ERR_TIMEOUT, "no answer within %d ms", timeout_ms);
        return client_fail(client, &error);
    }
    return rc;
}

static int finish(sluice_client *client, struct control *control)
{
    struct error error;
    if (control->json) {
        free(client->answer);
        client->answer = control->json;
        return 0;
    }
    if (!control->error.code) {
        error_set(&error, ERR_NO_MEMORY, "no memory for the answer");
        return client_fail(client, &error);
    }
    client->error = control->error;
    return -control->error.code;
}

int sluice_control(sluice_client *client, int what, const char *head, int timeout_ms,
                   const char **ret_json)
{
    struct control control = {0};
    uint64_t id = client->next_id;
    int rc = client_check_blocking(client);
    if (!rc)
        rc = sluice_ask(client, what, head, take_answer, &control);
    if (!rc)
        rc = ask_await(client, id, &control.answered, timeout_ms);
    if (rc)
        return rc;
    rc = finish(client, &control);
    if (!rc)
        *ret_json = client->answer;
    return rc;
}

int sluice_cancel_request(sluice_client *client, uint64_t request, int timeout_ms)
{
    struct control control = {0};
    uint64_t id = client->next_id;
    int rc = client_check_blocking(client);
    if (!rc)
        rc = ask_cancel(client, request, take_answer, &control);
    if (!rc)
        rc = ask_await(client, id, &control.answered, timeout_ms);
    return rc ? rc : finish(client, &control);
}
