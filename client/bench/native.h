/* Requests by Sluice's own protocol, over libsluice: several connections, in turn. */
#pragma once

#include "client/bench/transport.h"

/* path NULL: where libsluice looks. model, borrowed: which of several, or an adapter; NULL: the
 * first. One that is not there is ERR_NOT_FOUND. */
int native_open(const char *path, const char *model, uint32_t connections,
                struct transport **ret_transport, struct transport_info *ret_info,
                struct error *error);
