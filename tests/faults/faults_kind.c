#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/faults/faults.h"

/* By calls that are not in between. */
enum faults_kind faults_kind(int fd)
{
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &status) != 0)
        return FAULTS_PIPE;
    if (S_ISREG(status.stx_mode) || S_ISSOCK(status.stx_mode))
        return FAULTS_STREAM;
    return syscall(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK ? FAULTS_PIPE : FAULTS_WAITING_PIPE;
}
