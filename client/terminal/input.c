#include "client/terminal/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE (64u << 10)

int input_open(struct input *input, const char *path, struct error *error)
{
    bool standard = !path || !strcmp(path, "-");
    *input = (struct input){.name = standard ? "standard input" : path,
                            .fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC),
                            .max = INPUT_MAX};
    if (input->fd < 0)
        return error_set(error, ERR_USAGE, "%s: %s", path, strerrordesc_np(errno));
    return 0;
}

void input_close(struct input *input)
{
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    input->fd = -1;
    buffer_free(&input->buffer);
}

int input_more(struct input *input, struct error *error)
{
    if (buffer_used(&input->buffer) > input->max)
        return error_limit(error, ERR_USAGE, input->max, buffer_used(&input->buffer),
                           "%s: more than %zu MiB at once", input->name, input->max >> 20);
    if (buffer_reserve(&input->buffer, READ_SIZE))
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    ssize_t count = read(input->fd, input->buffer.bytes + input->buffer.end, READ_SIZE);
    if (count < 0 && errno == EINTR)
        return 0;
    if (count < 0)
        return error_set(error, ERR_USAGE, "%s: %s", input->name, strerrordesc_np(errno));
    input->ended = count == 0;
    input->buffer.end += (size_t)count;
    return 0;
}

const char *input_line(struct input *input, size_t *ret_length)
{
    buffer_consume(&input->buffer, input->taken, READ_SIZE);
    input->taken = 0;
    size_t used = buffer_used(&input->buffer);
    if (used == 0)
        return NULL;
    const char *text = (const char *)input->buffer.bytes + input->buffer.start;
    const char *end = used > input->searched
                          ? memchr(text + input->searched, '\n', used - input->searched)
                          : NULL;
    input->searched = used;
    if (!end && !input->ended)
        return NULL;
    input->searched = 0;
    *ret_length = end ? (size_t)(end - text) : used;
    input->taken = *ret_length + (end != NULL);
    return text;
}

void input_forget(struct input *input)
{
    buffer_consume(&input->buffer, buffer_used(&input->buffer), READ_SIZE);
    input->taken = input->searched = 0;
}

int input_all(struct input *input, struct error *error)
{
    int rc = 0;
    while (!rc && !input->ended)
        rc = input_more(input, error);
    return rc;
}
