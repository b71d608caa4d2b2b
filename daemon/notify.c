#include "daemon/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STATE_MAX 512

static struct sockaddr_un address;
static socklen_t address_length;
static int notify_fd = -1;
static time_us watchdog_us;

static uint64_t number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return 0;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    return errno || *end ? 0 : value;
}

void notify_setup(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length = path ? strlen(path) : 0;
    uint64_t pid = number_of("WATCHDOG_PID");
    if (pid == 0 || pid == (uint64_t)getpid())
        watchdog_us = number_of("WATCHDOG_USEC");
    /* A path, or with "@" a name in the abstract namespace. */
    if (length > 1 && length <= sizeof(address.sun_path) && (path[0] == '/' || path[0] == '@')) {
        address.sun_family = AF_UNIX;
        memcpy(address.sun_path, path, length);
        if (path[0] == '@')
            address.sun_path[0] = '\0';
        address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
        notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

bool notify_enabled(void)
{
    return notify_fd >= 0;
}

time_us notify_watchdog_us(void)
{
    return notify_fd >= 0 ? watchdog_us : 0;
}

void notify_send(const char *format, ...)
{
    char state[STATE_MAX];
    va_list arguments;
    if (notify_fd < 0)
        return;
    va_start(arguments, format);
    int length = vsnprintf(state, sizeof(state), format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof(state))
        (void)!sendto(notify_fd, state, (size_t)length, MSG_NOSIGNAL,
                      (const struct sockaddr *)&address, address_length);
}
