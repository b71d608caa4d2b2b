/* A connection and what is asked over it: who hands each frame to whom it is for. Private to the
 * library.
 */
#pragma once

#include "client/sluice.h"
#include "protocol/base/error.h"

/* A client over a connected socket, which it owns from then on, also on failure. HELLO is queued.
 */
int session_make(int fd, sluice_client **ret_client, struct error *error);
