#include "client/command/connect.h"

#include <stdio.h>
#include <string.h>

#define PATH_SIZE 512

enum status connect_daemon(const struct settings *settings, sluice_client **ret_client)
{
    sluice_error error;
    char path[PATH_SIZE];
    const char *socket = settings->socket;
    if (settings->instance && (socket || strchr(settings->instance, '/'))) {
        say(socket ? "give one of --socket and --instance" : "an instance is a name, not a path");
        return STATUS_USAGE;
    }
    if (settings->instance) {
        snprintf(path, sizeof(path), "/run/sluice/%s.sock", settings->instance);
        socket = path;
    }
    if (sluice_connect(socket, CONNECT_TIMEOUT_MS, ret_client, &error) == 0)
        return STATUS_OK;
    say("%s%s", error.code == SLUICE_E_CONNECT ? "cannot connect: " : "", error.text);
    /* Refused by a daemon that is there, for now or for good; all else is no connection. */
    return error.code == SLUICE_E_BUSY || error.code == SLUICE_E_DRAINING ? STATUS_RETRY
                                                                          : STATUS_CONNECT;
}
