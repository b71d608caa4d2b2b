#include "tests/client/program.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32

void program_start(struct program *program, int in, const char *const *arguments)
{
    program_start_on(program, in, -1, 0, arguments);
}

void program_start_on(struct program *program, int in, int to, unsigned closed,
                      const char *const *arguments)
{
    const char *argv[ARGUMENTS_MAX + 2] = {"sluice"};
    int out[2], err[2];
    memset(program, 0, sizeof(*program));
    for (int i = 0; arguments[i]; i++) {
        ck_assert_int_lt(i, ARGUMENTS_MAX);
        argv[i + 1] = arguments[i];
    }
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(err, O_CLOEXEC), 0);
    program->pid = fork();
    ck_assert_int_ge(program->pid, 0);
    if (program->pid == 0) {
        dup2(in >= 0 ? in : open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
        dup2(to >= 0 ? to : out[1], 1);
        dup2(err[1], 2);
        for (int fd = 0; fd <= STDERR_FILENO; fd++)
            if (closed >> fd & 1)
                close(fd);
        execv(SLUICE_PROGRAM, (char *const *)argv);
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    program->out = out[0];
    program->err = err[0];
}

/* False at the end of the stream. */
static int read_into(int *fd, char *text, size_t *length)
{
    ck_assert_uint_lt(*length, PROGRAM_TEXT - 1);
    ssize_t count = read(*fd, text + *length, PROGRAM_TEXT - 1 - *length);
    if (count <= 0) {
        close(*fd);
        *fd = -1;
        return 0;
    }
    *length += (size_t)count;
    return 1;
}

static int read_some(struct program *program)
{
    struct pollfd fds[2] = {{program->out, POLLIN, 0}, {program->err, POLLIN, 0}};
    if (program->out < 0 && program->err < 0)
        return 0;
    ck_assert_int_gt(poll(fds, 2, 60000), 0);
    if (fds[0].revents)
        read_into(&program->out, program->out_text, &program->out_length);
    if (fds[1].revents)
        read_into(&program->err, program->err_text, &program->err_length);
    return 1;
}

void program_await(struct program *program, const char *text)
{
    while (!strstr(program->out_text, text) && read_some(program))
        ;
}

void program_await_error(struct program *program, const char *text)
{
    while (!strstr(program->err_text, text) && read_some(program))
        ;
}

void program_finish(struct program *program)
{
    int status;
    while (read_some(program))
        ;
    ck_assert_int_eq(waitpid(program->pid, &status, 0), program->pid);
    program->status = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

void program_run(struct program *program, const char *first, ...)
{
    const char *arguments[ARGUMENTS_MAX + 1] = {first};
    va_list list;
    va_start(list, first);
    for (int i = 0; arguments[i]; i++) {
        ck_assert_int_lt(i + 1, ARGUMENTS_MAX);
        arguments[i + 1] = va_arg(list, const char *);
    }
    va_end(list);
    program_start(program, -1, arguments);
    program_finish(program);
}
