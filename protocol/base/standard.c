#include "protocol/base/standard.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int standard_open(void)
{
    static const int directions[] = {
        [STDIN_FILENO] = O_WRONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_WRONLY};
    for (int number = 0; number <= STDERR_FILENO; number++) {
        if (fcntl(number, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* The lowest that is free is this one: those below are open by now. */
        if (open("/dev/null", directions[number]) != number)
            return errno ? -errno : -EBADF;
    }
    return 0;
}

int standard_flush(FILE *file)
{
    errno = 0;
    if (fflush(file) == 0 && !ferror(file))
        return 0;
    return errno ? -errno : -EIO;
}
