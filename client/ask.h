/* Questions to the daemon about itself that have no answer yet. Private to client/.
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

struct ask {
    struct list link; /* client.asks */
    uint64_t id;
    uint8_t type;
    sluice_answer answer; /* NULL: nobody waits for it any more */
    void *context;
};

/* As sluice_ask(), for a request of any connection. */
int ask_cancel(sluice_client *client, uint64_t request, sluice_answer answer, void *context);
/* Whether the frame answers a question, as its id says. */
bool ask_owns(const sluice_client *client, const struct frame *frame);
int ask_take(sluice_client *client, const struct frame *frame, struct error *error);
void ask_forget(sluice_client *client, uint64_t id);
void ask_fail_all(sluice_client *client, const struct error *error);
void ask_free(struct ask *ask);
