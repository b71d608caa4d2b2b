/* The connection that a command line asks for. */
#pragma once

#include "client/command/settings.h"
#include "client/command/status.h"
#include "client/sluice.h"

#define CONNECT_TIMEOUT_MS 10000
#define ANSWER_TIMEOUT_MS 10000

/* Says why when there is none, and returns the exit status. */
enum status connect_daemon(const struct settings *settings, sluice_client **ret_client);
