/* No daemon is asked: nothing else may run on the device meanwhile, and what measures is what
 * serves. So this becomes sluiced, which has the device and the worker. */
#include "client/command/calibrate.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/terminal/status.h"

#define ARGUMENTS_MAX 9

/* The one that was installed with this program, before any other. */
static void beside(char path[PATH_MAX + sizeof("sluiced")])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, "sluiced");
}

enum status calibrate_command(const struct command *command, const struct settings *settings,
                              int argc, char **argv)
{
    char own[PATH_MAX + sizeof("sluiced")];
    const char *arguments[ARGUMENTS_MAX] = {"sluiced", "--program", argc == 1 ? argv[0] : NULL,
                                            "--calibrate"};
    int count = 4;
    if (argc != 1) {
        say("%s: one program is expected, by its file (see sluice %s --help)", command->name,
            command->name);
        return STATUS_USAGE;
    }
    if (settings->socket || settings->instance) {
        say("%s: no daemon is asked: --socket and --instance say nothing here", command->name);
        return STATUS_USAGE;
    }
    if (settings->page) {
        arguments[count++] = "--calibrate-page";
        arguments[count++] = settings->page;
    }
    if (settings->store) {
        arguments[count++] = "--calibrate-store";
        arguments[count++] = settings->store;
    }
    beside(own);
    execv(own, (char *const *)arguments);
    execvp("sluiced", (char *const *)arguments);
    say("%s: sluiced, which does it, is not here: %s", command->name, strerror(errno));
    return STATUS_SERVER;
}
