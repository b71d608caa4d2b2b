#include "client/terminal/connect.h"

#include <stdio.h>
#include <string.h>

enum status connect_socket(const struct settings *settings, char room[CONNECT_PATH_SIZE],
                           const char **ret_socket)
{
    const char *socket = settings->socket;
    if (settings->instance && (socket || strchr(settings->instance, '/'))) {
        say(socket ? "give one of --socket and --instance" : "an instance is a name, not a path");
        return STATUS_USAGE;
    }
    if (socket ? !*socket : settings->instance && !*settings->instance) {
        say(socket ? "--socket: the path is empty" : "--instance: the name is empty");
        return STATUS_USAGE;
    }
    if (settings->instance) {
        snprintf(room, CONNECT_PATH_SIZE, "/run/sluice/%s.sock", settings->instance);
        socket = room;
    }
    *ret_socket = socket;
    return STATUS_OK;
}

enum status connect_daemon(const struct settings *settings, sluice_client **ret_client)
{
    sluice_error error;
    char room[CONNECT_PATH_SIZE];
    const char *socket;
    enum status status = connect_socket(settings, room, &socket);
    if (status != STATUS_OK)
        return status;
    if (sluice_connect(socket, CONNECT_TIMEOUT_MS, ret_client, &error) == 0)
        return STATUS_OK;
    say("%s%s", error.code == SLUICE_E_CONNECT ? "cannot connect: " : "", error.text);
    /* Refused by a daemon that is there, for now or for good; all else is no connection. */
    return error.code == SLUICE_E_BUSY || error.code == SLUICE_E_DRAINING ? STATUS_RETRY
                                                                          : STATUS_CONNECT;
}
