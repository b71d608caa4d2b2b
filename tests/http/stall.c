/* A filesystem that hangs: no file of a directory that has one called "stalled" can be opened before
 * that is gone. The program's own call, and exported: its libraries and its module come here. */
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define AT_CWD (-100) /* no header that declares openat() is included: it has other parameters there */

__attribute__((visibility("default"))) int openat(int at, const char *path, int flags, mode_t mode);

static bool is_stalled(int at)
{
    return at != AT_CWD && syscall(SYS_faccessat, at, "stalled", F_OK) == 0;
}

int openat(int at, const char *path, int flags, mode_t mode)
{
    while (is_stalled(at))
        usleep(10000);
    return (int)syscall(SYS_openat, at, path, flags, mode);
}
