#include "client/job/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_SIZE (64u << 10)
#define LINE_MAX (64u << 20)

static int open_file(struct source *source, struct error *error)
{
    struct stat status;
    const char *path = source->settings->file;
    source->name = strcmp(path, "-") ? path : "standard input";
    source->fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : 0;
    if (source->fd < 0)
        return error_set(error, ERR_USAGE, "%s: %s", path, strerrordesc_np(errno));
    if (fstat(source->fd, &status) == 0 && S_ISREG(status.st_mode)) {
        source->regular = true;
        source->size = (uint64_t)status.st_size;
    }
    if (S_ISDIR(status.st_mode)) {
        close(source->fd);
        return error_set(error, ERR_USAGE, "%s: is a directory", path);
    }
    return 0;
}

int source_open(struct source *source, const struct option_group *groups,
                const struct settings *settings, struct error *error)
{
    const struct work *work = &settings->work;
    int given = (work->prompt != NULL) + (work->tokens.count > 0) + (settings->file != NULL);
    *source = (struct source){.groups = groups, .settings = settings, .fd = -1};
    if (given != 1)
        return error_set(error, ERR_USAGE, "give one of --prompt, --tokens and --file");
    if (work->prompt && !*work->prompt)
        return error_set(error, ERR_USAGE, "the prompt is empty");
    return settings->file ? open_file(source, error) : 0;
}

void source_close(struct source *source)
{
    if (source->fd > 0)
        close(source->fd);
    source->fd = -1;
    buffer_free(&source->buffer);
}

static bool readable(const struct source *source)
{
    struct pollfd ready = {source->fd, POLLIN, 0};
    return source->regular || poll(&ready, 1, 0) > 0;
}

/* More bytes of the file: 0, or negative; sets `ended`. */
static int read_more(struct source *source, struct error *error)
{
    if (buffer_used(&source->buffer) > LINE_MAX)
        return error_limit(error, ERR_USAGE, LINE_MAX, buffer_used(&source->buffer),
                           "%s:%" PRIu64 ": a line of more than %u bytes", source->name,
                           source->line + 1, LINE_MAX);
    if (buffer_reserve(&source->buffer, READ_SIZE))
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    ssize_t count = read(source->fd, source->buffer.bytes + source->buffer.end, READ_SIZE);
    if (count < 0 && errno == EINTR)
        return 0;
    if (count < 0)
        return error_set(error, ERR_USAGE, "%s: %s", source->name, strerrordesc_np(errno));
    source->ended = count == 0;
    source->buffer.end += (size_t)count;
    return 0;
}

/* The next line that is there as a whole; NULL when none is. */
static const char *find_line(struct source *source, size_t *ret_length)
{
    const char *text = (const char *)source->buffer.bytes + source->buffer.start;
    size_t used = buffer_used(&source->buffer);
    const char *end = used > source->searched
                          ? memchr(text + source->searched, '\n', used - source->searched)
                          : NULL;
    source->searched = used;
    if (!end && !(source->ended && used > 0))
        return NULL;
    *ret_length = end ? (size_t)(end - text) : used;
    return text;
}

static bool is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r", text[i]) || !text[i])
            return false;
    return true;
}

static enum source_state take_line(struct source *source, const char *text, size_t length,
                                   struct work *ret_work, struct error *error)
{
    struct error found = {0};
    bool whole = length < buffer_used(&source->buffer); /* with its newline */
    int rc = is_blank(text, length) ? 1
                                    : work_read(source->groups, &source->settings->work, text,
                                                length, ret_work, &found);
    source->line++;
    source->searched = 0;
    buffer_consume(&source->buffer, length + whole, READ_SIZE);
    if (rc >= 0)
        return rc ? SOURCE_WAIT : SOURCE_WORK;
    error_set(error, ERR_USAGE, "%s:%" PRIu64 ": %s", source->name, source->line, found.text);
    return SOURCE_BAD;
}

static enum source_state take_only(struct source *source, struct work *ret_work, size_t *ret_bytes)
{
    if (source->ended)
        return SOURCE_END;
    *ret_work = source->settings->work;
    *ret_bytes = 0;
    source->ended = true;
    return SOURCE_WORK;
}

enum source_state source_next(struct source *source, struct work *ret_work, size_t *ret_bytes,
                              struct error *error)
{
    if (!source->name)
        return take_only(source, ret_work, ret_bytes);
    for (;;) {
        size_t length;
        const char *text = find_line(source, &length);
        if (text) {
            enum source_state state = take_line(source, text, length, ret_work, error);
            if (state == SOURCE_WAIT)
                continue; /* a blank line */
            *ret_bytes = length;
            return state;
        }
        if (source->ended)
            return SOURCE_END;
        if (!readable(source))
            return SOURCE_WAIT;
        if (read_more(source, error))
            return SOURCE_BAD;
    }
}
