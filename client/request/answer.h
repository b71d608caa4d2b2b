/* What the daemon says to batches: frames in, callbacks out. Private to the library. */
#pragma once

#include "client/sluice.h"
#include "protocol/base/error.h"
#include "protocol/frame.h"

/* Negative when the daemon does not keep to the protocol, or has given up the connection. */
int answer_take(sluice_client *client, const struct frame *frame, struct error *error);
