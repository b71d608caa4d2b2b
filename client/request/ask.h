/* Questions to the daemon, about itself or about texts, that have no answer yet. Private to the
 * library.
 *
 * Owned by the client, freed once the answer was told.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/sluice.h"
#include "protocol/base/error.h"
#include "protocol/base/list.h"
#include "protocol/frame.h"

/* An answer with a payload: the frame is valid during the call. Negative, with *error set, when it
 * is none: then the connection is lost. With a NULL frame *error says why there is no answer. */
typedef int (*ask_frame)(void *context, const struct frame *frame, struct error *error);

struct ask {
    struct list link; /* client.asks */
    uint64_t id;
    uint8_t type;
    sluice_answer answer; /* both NULL: nobody waits for it any more */
    ask_frame take;
    void *context;
};

/* Opens a question whose frame the caller then sends under the id client->next_id - 1, or takes
 * back when it cannot. */
int ask_open(sluice_client *client, uint8_t type, ask_frame take, void *context);
int ask_take_back(sluice_client *client, int code, const char *why);
/* Blocks until it was answered. */
int ask_await(sluice_client *client, uint64_t id, const bool *answered, int timeout_ms);

/* As sluice_ask(), for a request of any connection. */
int ask_cancel(sluice_client *client, uint64_t request, sluice_answer answer, void *context);
/* Whether the frame answers a question, as its id says. */
bool ask_owns(const sluice_client *client, const struct frame *frame);
int ask_take(sluice_client *client, const struct frame *frame, struct error *error);
void ask_forget(sluice_client *client, uint64_t id);
void ask_fail_all(sluice_client *client, const struct error *error);
void ask_free(struct ask *ask);
