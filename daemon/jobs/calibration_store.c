/* What was found, into the configuration that the daemon reads: what a calibration before it left
 * there, and whatever else sets the same options, goes; every other line stays as it is. The file
 * is another one from one moment to the next, so that no daemon reads half of it. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/jobs/calibration.h"

#define BEGIN "# sluiced --calibrate: what it found\n"
#define END "# sluiced --calibrate: the end\n"

static bool sets(const char *line, const char *name)
{
    const size_t length = strlen(name);
    line += strspn(line, " \t");
    return strncmp(line, name, length) == 0 && strchr(" \t=", line[length]) && line[length];
}

static void copy_others(FILE *from, FILE *to)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool ours = false, whole = true;
    while ((length = getline(&line, &room, from)) > 0) {
        if (sets(line, "job-chunk") || sets(line, "job-lanes"))
            continue;
        ours = (ours || strcmp(line, BEGIN) == 0) && line[0] == '#'; /* whoever took the end away */
        if (!ours) {
            fwrite(line, 1, (size_t)length, to);
            whole = line[length - 1] == '\n';
        }
        ours &= strcmp(line, END) != 0;
    }
    if (!whole)
        fputc('\n', to);
    free(line);
}

/* Whose it is and who may read it stay: there may be keys' names in it. */
static int fill(FILE *from, FILE *to, const struct calibration_told *told)
{
    struct stat status;
    if (from) {
        if (fstat(fileno(from), &status) != 0 || fchmod(fileno(to), status.st_mode & 07777) != 0 ||
            (status.st_uid != geteuid() && fchown(fileno(to), status.st_uid, status.st_gid) != 0))
            return errno;
        copy_others(from, to);
        if (ferror(from))
            return EIO;
    }
    fputs(BEGIN, to);
    calibration_print(told, to);
    fputs(END, to);
    return fflush(to) != 0 || fsync(fileno(to)) != 0 ? errno : 0;
}

int calibration_store(const struct calibration_told *told, const char *path, struct error *error)
{
    char beside[PATH_MAX];
    if ((size_t)snprintf(beside, sizeof(beside), "%s.new", path) >= sizeof(beside))
        return error_set(error, ERR_USAGE, "--calibrate-store: the path is too long");
    FILE *from = fopen(path, "re");
    if (!from && errno != ENOENT)
        return error_set(error, ERR_IO, "%.200s: %s", path, strerror(errno));
    FILE *to = fopen(beside, "we");
    int why = to ? fill(from, to, told) : errno;
    if (from)
        fclose(from);
    if (to && fclose(to) != 0 && !why)
        why = errno;
    if (!why && rename(beside, path) != 0)
        why = errno;
    if (to && why)
        (void)unlink(beside);
    return why ? error_set(error, ERR_IO, "%.200s: %s", path, strerror(why)) : 0;
}
