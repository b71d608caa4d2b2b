/* The connection that a command line asks for. */
#pragma once

#include "client/option/settings.h"
#include "client/sluice.h"
#include "client/terminal/status.h"

#define CONNECT_TIMEOUT_MS 10000
#define ANSWER_TIMEOUT_MS 10000

#define CONNECT_PATH_SIZE 512

/* The socket that --socket or --instance names, the latter's path in `room`; NULL where neither is
 * given. Says what is wrong with them. */
enum status connect_socket(const struct settings *settings, char room[CONNECT_PATH_SIZE],
                           const char **ret_socket);
/* Says why when there is none, and returns the exit status. */
enum status connect_daemon(const struct settings *settings, sluice_client **ret_client);
