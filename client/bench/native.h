/* Requests by Sluice's own protocol, over libsluice: several connections, in turn. */
#pragma once

#include "client/bench/transport.h"

/* path NULL: where libsluice looks. */
int native_open(const char *path, uint32_t connections, struct transport **ret_transport,
                struct transport_info *ret_info, struct error *error);
