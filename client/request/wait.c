/* Blocking calls, on top of what any loop would do. */
#include <stdlib.h>
#include <string.h>

#include "client/net/connection.h"
#include "client/request/ask.h"
#include "client/request/batch.h"

int sluice_wait(sluice_client *client, int timeout_ms)
{
    struct error error;
    int rc = connection_check_blocking(client);
    if (!rc)
        rc = connection_wait(client, connection_until(timeout_ms));
    if (rc == 1) {
        error_set(&error, ERR_TIMEOUT, "nothing happened within %d ms", timeout_ms);
        return connection_fail(client, &error);
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

/* What was submitted under this id, until its last end. */
static int await(sluice_client *client, uint64_t id, time_us until_us, int timeout_ms)
{
    struct error error;
    struct batch *open = NULL;
    int rc = 0;
    while (!rc && (open = batch_find(client, id)))
        rc = connection_wait(client, until_us);
    if (rc != 1)
        return rc;
    error_set(&error, ERR_TIMEOUT, "not finished within %d ms", timeout_ms);
    give_up(client, open, &error);
    return connection_fail(client, &error);
}

int sluice_run(sluice_client *client, const sluice_batch *batch, int timeout_ms)
{
    uint64_t id;
    time_us until_us = connection_until(timeout_ms);
    int rc = connection_check_blocking(client);
    if (!rc)
        rc = sluice_submit(client, batch, &id);
    return rc ? rc : await(client, id, until_us, timeout_ms);
}

int sluice_run_job(sluice_client *client, const sluice_job *job, int timeout_ms)
{
    uint64_t id;
    time_us until_us = connection_until(timeout_ms);
    int rc = connection_check_blocking(client);
    if (!rc)
        rc = sluice_submit_job(client, job, &id);
    return rc ? rc : await(client, id, until_us, timeout_ms);
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
        return connection_fail(client, &error);
    }
    client->error = control->error;
    return -control->error.code;
}

int sluice_control(sluice_client *client, int what, const char *head, int timeout_ms,
                   const char **ret_json)
{
    struct control control = {0};
    uint64_t id = client->next_id;
    int rc = connection_check_blocking(client);
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
    int rc = connection_check_blocking(client);
    if (!rc)
        rc = ask_cancel(client, request, take_answer, &control);
    if (!rc)
        rc = ask_await(client, id, &control.answered, timeout_ms);
    return rc ? rc : finish(client, &control);
}
