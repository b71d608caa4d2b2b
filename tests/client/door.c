#include "tests/client/door.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void must(bool holds, const char *what)
{
    if (!holds) {
        perror(what);
        abort();
    }
}

void door_open(struct door *door, void *(*run)(void *context), void *context)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(door->folder, "/tmp/sluice-stub-XXXXXX");
    must(mkdtemp(door->folder) != NULL, "mkdtemp");
    snprintf(door->path, sizeof(door->path), "%s/socket", door->folder);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", door->path);
    door->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(door->listener >= 0, "socket");
    must(!bind(door->listener, (struct sockaddr *)&address, sizeof(address)), "bind");
    must(!listen(door->listener, 64), "listen");
    must(!pipe(door->stop), "pipe");
    must(!pthread_create(&door->thread, NULL, run, context), "pthread_create");
}

void door_close(struct door *door)
{
    must(write(door->stop[1], "", 1) == 1, "write");
    pthread_join(door->thread, NULL);
    close(door->listener);
    close(door->stop[0]);
    close(door->stop[1]);
    unlink(door->path);
    rmdir(door->folder);
}
