#include "client/terminal/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t came, terminated;
static int ends[2] = {-1, -1};

static void note(int number)
{
    int kept = errno;
    came = 1;
    if (number == SIGTERM)
        terminated = 1;
    if (write(ends[1], "", 1) < 0)
        came = 1; /* the pipe is full or gone: the flag is what counts */
    errno = kept;
}

static void watch(int flags)
{
    /* Without SA_RESTART: a write that waits for its reader comes back. */
    struct sigaction action = {.sa_handler = note, .sa_flags = flags};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void interrupt_watch(void)
{
    watch(SA_RESETHAND);
}

void interrupt_watch_each(void)
{
    watch(0);
}

int interrupt_take(void)
{
    char byte[16];
    while (read(ends[0], byte, sizeof(byte)) > 0)
        continue;
    int number = came ? SIGINT : 0;
    came = 0;
    return terminated ? SIGTERM : number;
}

bool interrupt_came(void)
{
    return came || terminated;
}

int interrupt_fd(void)
{
    return ends[0];
}
