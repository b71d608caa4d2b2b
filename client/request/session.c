#include "client/request/session.h"

#include "client/net/address.h"
#include "client/net/connection.h"
#include "client/net/failure.h"
#include "client/request/answer.h"
#include "client/request/ask.h"
#include "client/request/batch.h"

static int take_frame(sluice_client *client, const struct frame *frame, struct error *error)
{
    return ask_owns(client, frame) ? ask_take(client, frame, error)
                                   : answer_take(client, frame, error);
}

static void fail_all(sluice_client *client, const struct error *error)
{
    ask_fail_all(client, error);
    while (!list_empty(&client->batches))
        batch_fail(client, container_of(client->batches.next, struct batch, link), error);
}

static void drop_all(sluice_client *client)
{
    struct list *link;
    while (!list_empty(&client->batches))
        batch_drop(client, container_of(client->batches.next, struct batch, link));
    while ((link = list_take(&client->asks)))
        ask_free(container_of(link, struct ask, link));
}

int session_make(int fd, sluice_client **ret_client, struct error *error)
{
    static const struct connection_handler handler = {take_frame, fail_all, drop_all};
    return connection_make(fd, &handler, ret_client, error);
}

int sluice_connect(const char *path, int timeout_ms, sluice_client **ret_client,
                   sluice_error *error)
{
    struct address address;
    struct error failure = {0};
    sluice_client *client = NULL;
    time_us until_us = connection_until(timeout_ms);
    int fd;
    address_find(path, &address);
    int rc = address_connect(&address, until_us, &fd, &failure);
    if (!rc)
        rc = session_make(fd, &client, &failure);
    if (!rc)
        rc = connection_greet(client, until_us, &failure);
    if (rc) {
        if (client)
            connection_free(client);
        if (error)
            failure_publish(&failure, error);
        return rc;
    }
    *ret_client = client;
    return 0;
}

void sluice_close(sluice_client *client)
{
    if (client)
        connection_free(client);
}
