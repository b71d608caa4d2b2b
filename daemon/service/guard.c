#include "daemon/service/guard.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/service/log_writer.h"
#include "protocol/base/log.h"

static struct {
    pthread_mutex_t lock;        /* of the two that follow */
    void (*tell)(void *context); /* NULL: nobody listens */
    void *context;
    int fd; /* an eventfd: something below has changed */
    atomic_uint asked;
    atomic_int signal, code;
    _Atomic(const char *) what;
    _Atomic time_us until_us; /* 0 = no end */
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .what = "the start"};

static void changed(void)
{
    /* Fails else only when the counter is full, and then the thread is being woken anyway. */
    while (write(guard.fd, &(uint64_t){1}, sizeof(uint64_t)) < 0 && errno == EINTR)
        continue;
}

static void on_signal(int number)
{
    int kept = errno;
    if (atomic_fetch_add(&guard.asked, 1) == 0)
        atomic_store(&guard.signal, number);
    changed();
    errno = kept;
}

static void leave(const char *why, int code)
{
    log_line(LOG_ERROR, "guard", "%s: what does not end is %s; the process leaves without it", why,
             atomic_load(&guard.what));
    log_writer_flush(); /* bounded, whatever the log takes */
    _exit(code);
}

static void wait_until(time_us until_us, time_us now_us)
{
    struct pollfd ready = {.fd = guard.fd, .events = POLLIN};
    uint64_t drained;
    int ms = until_us ? (int)((until_us - now_us) / 1000 + 1) : -1;
    if (poll(&ready, 1, ms) > 0)
        (void)!read(guard.fd, &drained, sizeof(drained));
}

static void tell(void)
{
    pthread_mutex_lock(&guard.lock);
    if (guard.tell)
        guard.tell(guard.context);
    pthread_mutex_unlock(&guard.lock);
}

/* They come to the guard's thread alone, whatever the others wait for. */
static void mask(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(how, &set, NULL);
}

static void *watch(void *unused)
{
    unsigned told = 0;
    time_us heard_us = 0, again_us = 0; /* when the first and the second signal were seen */
    (void)unused;
    mask(SIG_UNBLOCK);
    for (;;) {
        time_us now_us = clock_now_us(), until_us = atomic_load(&guard.until_us);
        unsigned asked = guard_asked();
        if (asked > told)
            tell();
        told = asked;
        heard_us = asked > 0 && !heard_us ? now_us : heard_us;
        again_us = asked > 1 && !again_us ? now_us : again_us;
        if (again_us && again_us + GUARD_AGAIN_US <= now_us)
            leave("asked to end a second time", EXIT_FAILURE);
        if (heard_us && !until_us)
            until_us = heard_us + GUARD_HEAR_US;
        if (until_us && until_us <= now_us)
            leave("the time to end is over", atomic_load(&guard.code));
        if (again_us && again_us + GUARD_AGAIN_US < until_us)
            until_us = again_us + GUARD_AGAIN_US;
        wait_until(until_us, now_us);
    }
    return NULL;
}

int guard_start(void (*told)(void *context), void *context, struct error *error)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t thread;
    guard.tell = told;
    guard.context = context;
    guard.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (guard.fd < 0)
        return error_set(error, ERR_IO, "eventfd: %s", strerror(errno));
    int rc = pthread_create(&thread, NULL, watch, NULL);
    if (rc)
        return error_set(error, ERR_IO, "cannot start a thread: %s", strerror(rc));
    pthread_detach(thread);
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
    mask(SIG_BLOCK); /* and in threads that are made later */
    return 0;
}

void guard_deafen(void)
{
    pthread_mutex_lock(&guard.lock);
    guard.tell = NULL;
    pthread_mutex_unlock(&guard.lock);
}

unsigned guard_asked(void)
{
    return atomic_load(&guard.asked);
}

int guard_signal(void)
{
    return atomic_load(&guard.signal);
}

void guard_allow(const char *what, time_us for_us, int code)
{
    atomic_store(&guard.what, what);
    atomic_store(&guard.code, code);
    atomic_store(&guard.until_us, for_us ? clock_now_us() + for_us : 0);
    changed();
}
