#include "daemon/jobs/record.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each folder of the path that is not there. */
static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int rc = mkdir(path, 0755);
        *slash = '/';
        if (rc != 0 && errno != EEXIST)
            return errno;
    }
    return mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
}

/* Where it would be, and who says so; false: nobody does. */
static bool choose_folder(const char *option, char *path, size_t size, const char **ret_by)
{
    const char *managed = getenv("STATE_DIRECTORY"), *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    *ret_by = "state-dir";
    if (option[0])
        return (size_t)snprintf(path, size, "%s", option) < size;
    if (managed && managed[0] == '/') {
        *ret_by = "$STATE_DIRECTORY";
        return (size_t)snprintf(path, size, "%.*s", (int)strcspn(managed, ":"), managed) < size;
    }
    if (geteuid() == 0)
        return (size_t)snprintf(path, size, "/var/lib/sluice/state") < size;
    if (state && state[0] == '/')
        return (size_t)snprintf(path, size, "%s/sluice", state) < size;
    if (home && home[0] == '/')
        return (size_t)snprintf(path, size, "%s/.local/state/sluice", home) < size;
    return false;
}

int record_folder(const char *option, bool make, char *ret_path, size_t size, struct error *error)
{
    const char *by;
    bool known = choose_folder(option, ret_path, size, &by);
    if (!make) {
        ret_path[known ? strlen(ret_path) : 0] = '\0';
        return 0;
    }
    if (!known)
        return error_set(error, ERR_BAD_CONFIG,
                         "programs need a folder for records of those that failed: set state-dir");
    if (ret_path[0] != '/')
        return error_set(error, ERR_BAD_CONFIG, "state-dir must be an absolute path");
    int why = make_folders(ret_path);
    if (!why && access(ret_path, W_OK | X_OK) != 0)
        why = errno;
    return why ? error_set(error, error_of_system(why, ERR_BAD_CONFIG),
                           "cannot keep records in %.200s (%s): %s", ret_path, by, strerror(why))
               : 0;
}

void record_name(const char *folder, const char *program, char *ret_path, size_t size)
{
    snprintf(ret_path, size, "%s/program-%s.off", folder, program);
}

bool record_read(const char *path, char ret_reason[JOB_REASON_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return false;
    ssize_t length = fd < 0 ? 0 : read(fd, ret_reason, JOB_REASON_MAX - 1);
    if (fd >= 0)
        close(fd);
    ret_reason[length > 0 ? length : 0] = '\0';
    ret_reason[strcspn(ret_reason, "\n")] = '\0';
    for (char *at = ret_reason; *at; at++)
        if (*at < ' ' || *at == 0x7f) /* bytes above are negative, too: a line of ASCII */
            *at = '?';
    if (!ret_reason[0])
        snprintf(ret_reason, JOB_REASON_MAX, "its record cannot be read");
    return true;
}

static int write_whole(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        text += written;
        length -= (size_t)written;
    }
    return fsync(fd) != 0 ? errno : 0;
}

/* The name is on disk only once its folder is. */
static int sync_folder(const char *path)
{
    char folder[JOB_PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length] != '/')
        length--;
    memcpy(folder, path, length);
    folder[length] = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int why = fsync(fd) != 0 ? errno : 0;
    close(fd);
    return why;
}

int record_write(const char *path, const char *reason)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    int why = write_whole(fd, reason, strlen(reason));
    close(fd);
    return why ? why : sync_folder(path);
}

int record_clear(const char *path, struct error *error)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set(error, ERR_IO, "cannot remove %.200s: %s", path, strerror(errno));
    int why = sync_folder(path);
    return why ? error_set(error, ERR_IO, "cannot write the folder of %.200s: %s", path,
                           strerror(why))
               : 0;
}

/* ---- a crash -----------------------------------------------------------------------------------
 */

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
#define FAULTS (sizeof(faults) / sizeof(faults[0]))

static struct {
    struct job_program *programs;
    const unsigned *count;
    struct sigaction before[FAULTS];
} crash;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    for (unsigned i = 0; i < *crash.count; i++)
        if (atomic_load_explicit(&crash.programs[i].under_way, memory_order_relaxed) > 0)
            (void)record_write(crash.programs[i].record,
                               "the daemon crashed while jobs of it were on the device\n");
    for (size_t i = 0; i < FAULTS; i++)
        if (faults[i] == number)
            sigaction(number, &crash.before[i], NULL);
    /* A fault comes again once this returns; what was sent does not. */
    if (info->si_code <= 0)
        raise(number);
}

void record_on_crash(struct job_program *programs, const unsigned *count)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (crash.programs)
        return;
    crash.programs = programs;
    crash.count = count;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < FAULTS; i++)
        sigaction(faults[i], &action, &crash.before[i]);
}
