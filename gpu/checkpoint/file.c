#include "gpu/checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char lfs_start[] = "version https://git-lfs.github.com/spec/";

static int open_directory(const char *directory, int *ret_fd, struct error *error)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        *ret_fd = fd;
        return 0;
    }
    int code = errno;
    if (code == ENOENT)
        return error_set(error, ERR_BAD_MODEL, "%s: no such directory", directory);
    if (code == ENOTDIR)
        return error_set(error, ERR_BAD_MODEL, "%s: not a directory", directory);
    return error_set(error, error_of_system(code, ERR_BAD_MODEL),
                     "%s: the directory cannot be read: %s", directory, strerror(code));
}

bool file_exists(const char *directory, const char *name)
{
    char path[PATH_MAX];
    struct stat status;
    /* Without a descriptor: that none is left must not look like a file that is not there. */
    int length = snprintf(path, sizeof(path), "%s/%s", directory, name);
    return length < (int)sizeof(path) && lstat(path, &status) == 0;
}

static int explain_absence(int at, const char *directory, const char *name, int code,
                           struct error *error)
{
    struct stat status;
    if (code == ENOENT && fstatat(at, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(status.st_mode))
        return error_set(error, ERR_BAD_MODEL, "%s/%s: a symbolic link to a file that is not there",
                         directory, name);
    if (code == ENOENT)
        return error_set(error, ERR_BAD_MODEL, "%s/%s: no such file", directory, name);
    return error_set(error, error_of_system(code, ERR_BAD_MODEL), "%s/%s: cannot be opened: %s",
                     directory, name, strerror(code));
}

static int check_file(int fd, const char *directory, const char *name, uint64_t *ret_bytes,
                      struct error *error)
{
    struct stat status;
    if (fstat(fd, &status))
        return error_set(error, ERR_BAD_MODEL, "%s/%s: %s", directory, name, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return error_set(error, ERR_BAD_MODEL, "%s/%s: not a regular file", directory, name);
    char start[sizeof(lfs_start) - 1];
    if ((size_t)status.st_size >= sizeof(start) &&
        pread(fd, start, sizeof(start), 0) == (ssize_t)sizeof(start) &&
        memcmp(start, lfs_start, sizeof(start)) == 0)
        return error_set(error, ERR_BAD_MODEL,
                         "%s/%s: a git-lfs pointer, not the file; 'git lfs pull' fetches the file",
                         directory, name);
    *ret_bytes = (uint64_t)status.st_size;
    return 0;
}

int file_open(const char *directory, const char *name, int *ret_fd, uint64_t *ret_bytes,
              struct error *error)
{
    int at = -1;
    int rc = open_directory(directory, &at, error);
    if (rc)
        return rc;
    /* Not blocking, so that a FIFO of that name does not hold us. */
    int fd = openat(at, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        rc = explain_absence(at, directory, name, errno, error);
        close(at);
        return rc;
    }
    close(at);
    rc = check_file(fd, directory, name, ret_bytes, error);
    if (rc) {
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int file_read(int fd, const char *name, uint64_t offset, void *buffer, size_t bytes,
              struct error *error)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(fd, (char *)buffer + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(error, ERR_BAD_MODEL, "%s: reading at byte %llu: %s", name,
                             (unsigned long long)(offset + done), strerror(errno));
        if (got == 0)
            return error_set(error, ERR_BAD_MODEL, "%s: ends at byte %llu, %llu were expected",
                             name, (unsigned long long)(offset + done),
                             (unsigned long long)(offset + bytes));
        done += (size_t)got;
    }
    return 0;
}

int file_text(const char *directory, const char *name, size_t bytes_max, char **ret_text,
              size_t *ret_length, struct error *error)
{
    int fd = -1;
    uint64_t bytes = 0;
    int rc = file_open(directory, name, &fd, &bytes, error);
    if (rc)
        return rc;
    char *text = NULL;
    if (bytes > bytes_max)
        rc = error_limit(error, ERR_BAD_MODEL, bytes_max, bytes,
                         "%s/%s: %llu bytes, at most %zu are read", directory, name,
                         (unsigned long long)bytes, bytes_max);
    else if (!(text = malloc((size_t)bytes + 1)))
        rc = error_set(error, ERR_NO_MEMORY, "no memory for %s/%s", directory, name);
    else
        rc = file_read(fd, name, 0, text, (size_t)bytes, error);
    close(fd);
    if (rc) {
        free(text);
        return rc;
    }
    text[bytes] = '\0';
    *ret_text = text;
    *ret_length = (size_t)bytes;
    return 0;
}
