#include "daemon/service/reach.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "daemon/service/event_loop.h"
#include "daemon/service/listeners.h"
#include "protocol/base/list.h"
#include "protocol/base/log.h"

#define ROUNDS_MAX 4 /* of one event: somebody may remove what was just made */
/* Of the file: a link less is an attribute. Of its folder, which others use, only its own going;
 * once the socket is lost, whatever comes and goes there. */
#define FILE_EVENTS (IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF)
#define FOLDER_EVENTS (IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR)
#define CHANGES (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)

_Static_assert(LISTEN_MAX <= SERVER_SOCKETS_MAX, "the server has a word for each");

static char *word_of(struct event_loop_listener *listener)
{
    return listener->loop->server.lost[listener - listener->loop->listeners];
}

/* ---- watching ----------------------------------------------------------------------------------
 */

/* Cuts the last name off: the folder of a path, "/" and "." included. */
static void parent_of(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path] = '\0';
}

static void forget(struct reach *reach)
{
    for (int i = 0; i < 2; i++)
        if (reach->wds[i] >= 0)
            inotify_rm_watch(reach->fd, reach->wds[i]);
    reach->wds[0] = reach->wds[1] = -1;
}

/* The folder, or the nearest above it that is there. */
static void watch_folder(struct reach *reach, const char *socket, uint32_t events)
{
    char path[LISTEN_PATH_MAX];
    memcpy(path, socket, strlen(socket) + 1);
    do {
        parent_of(path);
        reach->wds[1] = inotify_add_watch(reach->fd, path, events);
        events |= CHANGES;
    } while (reach->wds[1] < 0 && errno == ENOENT && strcmp(path, "/") != 0 &&
             strcmp(path, ".") != 0);
}

/* Before it is looked at, so that nothing happens in between. */
static void watch(struct event_loop_listener *listener, bool lost)
{
    struct reach *reach = &listener->reach;
    forget(reach);
    reach->wds[0] = inotify_add_watch(reach->fd, listener->socket.path, FILE_EVENTS);
    watch_folder(reach, listener->socket.path, FOLDER_EVENTS | (lost ? CHANGES : 0));
    if (reach->wds[1] < 0)
        log_line(LOG_WARNING, "listen", "the folder of %s cannot be watched: %s",
                 listener->socket.name, strerror(errno));
}

/* ---- looking -----------------------------------------------------------------------------------
 */

static bool again(struct event_loop_listener *listener, struct error *error)
{
    if (listener->socket.passed) {
        error_set(error, ERR_BAD_CONFIG, "systemd passed it: restart its socket unit");
        return false;
    }
    listeners_accept(listener); /* who is in the old one's queue */
    uv_poll_stop(&listener->poll);
    int rc = listen_again(&listener->socket, error);
    listeners_watch(listener);
    return rc == 0;
}

static void tell_lost(struct event_loop_listener *listener, const struct error *error)
{
    char *word = word_of(listener);
    struct error now; /* its text is clean, whatever the path holds */
    error_set(&now, error->code, "%s: %.120s", listener->socket.path, error->text);
    bool news = strcmp(word, now.text) != 0;
    snprintf(word, SERVER_LOST_MAX, "%.255s", now.text);
    if (news)
        log_line(LOG_ERROR, "listen", "clients cannot reach %s any more: %s", listener->socket.path,
                 error->text);
}

static void tell_back(struct event_loop_listener *listener)
{
    *word_of(listener) = '\0';
    log_line(LOG_NOTICE, "listen", "%s was gone, and is listened on again", listener->socket.path);
}

static void look(struct event_loop_listener *listener)
{
    struct error error;
    bool lost = *word_of(listener), made = false;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        watch(listener, lost);
        if (listen_in_place(&listener->socket)) {
            if (lost || made)
                tell_back(listener);
            return;
        }
        made = again(listener, &error);
        if (!made && lost) /* it was watched before it was tried */
            break;
        lost = !made;
    }
    if (made)
        error_set(&error, ERR_IO, "somebody removes it as soon as it is there");
    watch(listener, true);
    tell_lost(listener, &error);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct reach *reach = container_of(poll, struct reach, poll);
    struct event_loop_listener *listener = container_of(reach, struct event_loop_listener, reach);
    _Alignas(struct inotify_event) char bytes[4096];
    (void)status;
    (void)events;
    while (read(reach->fd, bytes, sizeof(bytes)) > 0)
        continue; /* what happened is seen where it happened */
    if (listener->open && listener->loop->ending.stage == ENDING_NOT)
        look(listener);
    event_loop_touch(listener->loop);
}

/* ---- life --------------------------------------------------------------------------------------
 */

void reach_open(struct event_loop_listener *listener)
{
    struct reach *reach = &listener->reach;
    *reach = (struct reach){.fd = -1, .wds = {-1, -1}};
    if (!*listener->socket.path)
        return;
    reach->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (reach->fd < 0 || uv_poll_init(&listener->loop->uv, &reach->poll, reach->fd) != 0) {
        log_line(LOG_WARNING, "listen", "%s is not watched: %s", listener->socket.name,
                 strerror(errno));
        if (reach->fd >= 0)
            close(reach->fd);
        return;
    }
    reach->open = true;
    uv_poll_start(&reach->poll, UV_READABLE, on_event);
    look(listener);
}

void reach_close(struct event_loop_listener *listener)
{
    struct reach *reach = &listener->reach;
    if (!reach->open)
        return;
    reach->open = false;
    uv_close((uv_handle_t *)&reach->poll, NULL);
    close(reach->fd);
}
