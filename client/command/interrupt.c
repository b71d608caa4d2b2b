#include "client/command/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t came;
static int ends[2] = {-1, -1};

static void note(int number)
{
    int kept = errno;
    (void)number;
    came = 1;
    if (write(ends[1], "", 1) < 0)
        came = 1; /* the pipe is full or gone: the flag is what counts */
    errno = kept;
}

void interrupt_watch(void)
{
    /* Without SA_RESTART: a write that waits for its reader comes back. */
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESETHAND};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupt_came(void)
{
    return came != 0;
}

int interrupt_fd(void)
{
    return ends[0];
}
