/* A filesystem that hangs: no file of a directory that has one called "stalled" can be opened
 * before that is gone. And one that counts: what is opened in a directory that has one called
 * "opened" stands there by name, a line each. The program's own call, and exported: its libraries
 * and its module come here. */
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define AT_CWD (-100) /* no header that declares openat() is included: it has other parameters there */
#define WRITE_APPEND 02001
#define NAME_MAX 255

__attribute__((visibility("default"))) int openat(int at, const char *path, int flags, mode_t mode);

static bool is_stalled(int at)
{
    return at != AT_CWD && syscall(SYS_faccessat, at, "stalled", F_OK) == 0;
}

static void count(int at, const char *path)
{
    char line[NAME_MAX + 2];
    size_t length = strlen(path);
    int fd = at == AT_CWD ? -1 : (int)syscall(SYS_openat, at, "opened", WRITE_APPEND, 0);
    if (fd < 0 || length > NAME_MAX)
        return;
    memcpy(line, path, length);
    line[length] = '\n';
    (void)!write(fd, line, length + 1);
    close(fd);
}

int openat(int at, const char *path, int flags, mode_t mode)
{
    while (is_stalled(at))
        usleep(10000);
    count(at, path);
    return (int)syscall(SYS_openat, at, path, flags, mode);
}
