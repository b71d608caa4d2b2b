#include "daemon/service/sd_notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STATE_MAX 640
#define OWED_MAX 4 /* the manager had stopped reading long before */

static struct sockaddr_un address;
static socklen_t address_length;
static int sd_notify_fd = -1;
static time_us watchdog_us;

struct state {
    char text[STATE_MAX];
    size_t length;
};
static struct state owed[OWED_MAX]; /* in order */
static unsigned owed_count;

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

int sd_notify_setup(struct error *error)
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
        sd_notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (sd_notify_fd < 0)
            return error_set(error, ERR_IO, "cannot make a socket for the service manager: %s",
                             strerror(errno));
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

bool sd_notify_enabled(void)
{
    return sd_notify_fd >= 0;
}

time_us sd_notify_watchdog_us(void)
{
    return sd_notify_fd >= 0 ? watchdog_us : 0;
}

static bool deliver(const struct state *state)
{
    ssize_t sent;
    do
        sent = sendto(sd_notify_fd, state->text, state->length, MSG_NOSIGNAL,
                      (const struct sockaddr *)&address, address_length);
    while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

static bool is_awaited(const char *text)
{
    static const char *const words[] = {"READY=1", "RELOADING=1", "STOPPING=1"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static void drop_first(void)
{
    memmove(&owed[0], &owed[1], --owed_count * sizeof(owed[0]));
}

/* In order: nothing of theirs overtakes another. */
static void deliver_owed(void)
{
    while (owed_count > 0 && deliver(&owed[0]))
        drop_first();
}

bool sd_notify_owes(void)
{
    return owed_count > 0;
}

void sd_notify_send(const char *format, ...)
{
    struct state state;
    va_list arguments;
    if (sd_notify_fd < 0)
        return;
    va_start(arguments, format);
    int length = vsnprintf(state.text, sizeof(state.text), format, arguments);
    va_end(arguments);
    if (length <= 0 || (size_t)length >= sizeof(state.text))
        return;
    state.length = (size_t)length;
    bool awaited = is_awaited(state.text);
    deliver_owed();
    if ((owed_count == 0 || !awaited) && deliver(&state))
        return;
    if (!awaited)
        return;
    if (owed_count == OWED_MAX)
        drop_first();
    owed[owed_count++] = state;
}
