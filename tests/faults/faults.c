/* The calls in between. They are the program's own, and exported: the linker sends there what the
 * program, its libraries and its module call. No header that declares one of them is included, since
 * some have other parameters there. */
#include "tests/faults/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define SEEN __attribute__((visibility("default")))
#define SHORT (-1)

static const char *const names[FAULTS_CALLS] = {
#define CALL(name, type, parameters, arguments, faults) #name,
#define BYTES(name, type, parameters, arguments, part, faults) #name,
#define OTHER(name, faults) #name,
#include "tests/faults/calls.def"
#undef CALL
#undef BYTES
#undef OTHER
};

static struct {
    int call; /* -1: none */
    unsigned long nth;
    int error; /* SHORT: one byte is done */
    bool for_ever;
    struct faults_seen *seen;
} plan = {.call = -1};

static void *real(const char *name)
{
    void *at = dlsym(RTLD_NEXT, name);
    if (!at)
        abort();
    return at;
}

static int error_named(const char *name)
{
    if (strcmp(name, "short") == 0)
        return SHORT;
    for (int error = 1; error < 200; error++) {
        const char *is = strerrorname_np(error);
        if (is && strcmp(is, name) == 0)
            return error;
    }
    abort();
}

static void read_fault(const char *text)
{
    char words[128], *rest = words;
    strncpy(words, text, sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    const char *name = strsep(&rest, ":"), *nth = strsep(&rest, ":");
    size_t length = strlen(rest);
    plan.for_ever = rest[length - 1] == '*';
    if (plan.for_ever)
        rest[length - 1] = '\0';
    plan.error = error_named(rest);
    plan.nth = strtoul(nth, NULL, 10);
    for (int call = 0; call < FAULTS_CALLS; call++)
        if (strcmp(names[call], name) == 0)
            plan.call = call;
}

__attribute__((constructor)) static void begin(void)
{
    static struct faults_seen nowhere;
    const char *path = getenv("SLUICE_TEST_SEEN"), *fault = getenv("SLUICE_TEST_FAULT");
    int (*open_file)(const char *path, int flags, ...) = (int (*)(const char *, int, ...))real("open");
    void *(*map)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))real("mmap");
    int (*close_file)(int) = (int (*)(int))real("close");
    int fd = path ? open_file(path, 2 /* O_RDWR */) : -1;
    void *at = fd >= 0 ? map(NULL, sizeof(*plan.seen), 3, 1 /* shared */, fd, 0) : (void *)-1;
    plan.seen = at == (void *)-1 ? &nowhere : at;
    if (fd >= 0)
        close_file(fd);
    if (fault)
        read_fault(fault);
}

/* Whether a kernel does such a thing to this descriptor. */
static bool plausible(enum faults_call call, int fd, size_t length)
{
    if (call != FAULTS_read && call != FAULTS_write)
        return plan.error != SHORT || length > 1;
    enum faults_kind kind = faults_kind(fd);
    bool stream = kind == FAULTS_STREAM;
    if (plan.error == SHORT)
        return length > 1 && stream;
    return stream || plan.error == EINTR || (plan.error == EAGAIN && kind == FAULTS_PIPE);
}

/* The error that this call ends with; 0 when it is none of the struck. */
static int strike(enum faults_call call, int fd, size_t length)
{
    if (!plan.seen)
        return 0; /* before begin() */
    unsigned long number = atomic_fetch_add(&plan.seen->calls[call], 1) + 1;
    if ((int)call != plan.call || number < plan.nth || (number > plan.nth && !plan.for_ever) ||
        !plausible(call, fd, length))
        return 0;
    atomic_fetch_add(&plan.seen->struck, 1);
    return plan.error;
}

#define NEXT(name, type, parameters)                                                               \
    static type(*next) parameters;                                                                 \
    if (!next)                                                                                     \
    next = (type(*) parameters)real(#name)

#define CALL(name, type, parameters, arguments, faults)                                            \
    SEEN type name parameters;                                                                     \
    SEEN type name parameters                                                                      \
    {                                                                                              \
        NEXT(name, type, parameters);                                                              \
        int error = strike(FAULTS_##name, -1, 0);                                                  \
        if (!error)                                                                                \
            return next arguments;                                                                 \
        errno = error;                                                                             \
        return (type)-1;                                                                           \
    }

/* An eventfd or a pipe that is full has been written to, by whomever. */
#define BYTES(name, type, parameters, arguments, part, faults)                                     \
    SEEN type name parameters;                                                                     \
    SEEN type name parameters                                                                      \
    {                                                                                              \
        NEXT(name, type, parameters);                                                              \
        int error = strike(FAULTS_##name, fd, length);                                             \
        if (!error)                                                                                \
            return next arguments;                                                                 \
        if (error == SHORT)                                                                        \
            return next part;                                                                      \
        if (error == EAGAIN && FAULTS_##name == FAULTS_write && faults_kind(fd) == FAULTS_PIPE)    \
            (void)next arguments;                                                                  \
        errno = error;                                                                             \
        return (type)-1;                                                                           \
    }
#define OTHER(name, faults)
#include "tests/faults/calls.def"

/* Linux closes the descriptor, whatever it says. */
SEEN int close(int fd);
SEEN int close(int fd)
{
    NEXT(close, int, (int fd));
    int error = strike(FAULTS_close, fd, 0), rc = next(fd);
    if (!error)
        return rc;
    errno = error;
    return -1;
}

SEEN void *fopen(const char *path, const char *mode);
SEEN void *fopen(const char *path, const char *mode)
{
    NEXT(fopen, void *, (const char *path, const char *mode));
    int error = strike(FAULTS_fopen, -1, 0);
    if (!error)
        return next(path, mode);
    errno = error;
    return NULL;
}

SEEN int fclose(void *file);
SEEN int fclose(void *file)
{
    NEXT(fclose, int, (void *file));
    int error = strike(FAULTS_fclose, -1, 0), rc = next(file);
    if (!error)
        return rc;
    errno = error;
    return -1;
}

SEEN int pthread_create(void *thread, const void *attributes, void *(*start)(void *), void *argument);
SEEN int pthread_create(void *thread, const void *attributes, void *(*start)(void *), void *argument)
{
    NEXT(pthread_create, int,
         (void *thread, const void *attributes, void *(*start)(void *), void *argument));
    int error = strike(FAULTS_pthread_create, -1, 0);
    return error ? error : next(thread, attributes, start, argument);
}
