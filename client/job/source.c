#include "client/job/source.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "client/option/line.h"

static int open_file(struct source *source, struct error *error)
{
    struct stat status;
    int rc = input_open(&source->input, source->settings->file, error);
    if (rc)
        return rc;
    source->input.max = 2 * (size_t)LINE_BYTES_MAX;
    bool known = fstat(source->input.fd, &status) == 0;
    if (known && S_ISREG(status.st_mode)) {
        source->regular = true;
        source->size = (uint64_t)status.st_size;
    }
    if (known && S_ISDIR(status.st_mode)) {
        source_close(source);
        return error_set(error, ERR_USAGE, "%s: is a directory", source->input.name);
    }
    return 0;
}

int source_open(struct source *source, int job, const struct option_group *groups,
                const struct settings *settings, struct error *error)
{
    const struct work *work = &settings->work;
    int given = (work->prompt != NULL) + (work->tokens.count > 0) + (settings->file != NULL);
    *source = (struct source){.job = job, .groups = groups, .settings = settings, .input.fd = -1};
    if (given != 1)
        return error_set(error, ERR_USAGE, "give one of a prompt, --tokens and --file");
    if (work->prompt && !*work->prompt)
        return error_set(error, ERR_USAGE, "the prompt is empty");
    return settings->file ? open_file(source, error) : 0;
}

void source_close(struct source *source)
{
    input_close(&source->input);
}

static bool readable(const struct source *source)
{
    struct pollfd ready = {source->input.fd, POLLIN, 0};
    return source->regular || poll(&ready, 1, 0) > 0;
}

/* Whether the command does what requests of that form ask for. */
static bool source_takes(const struct source *source, enum line_form form)
{
    if (form == LINE_OWN)
        return true;
    return source->job == (form == LINE_EMBEDDING ? SLUICE_EMBED : SLUICE_GENERATE);
}

static bool is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r", text[i]) || !text[i])
            return false;
    return true;
}

static enum source_state bad_line(struct source *source, const char *why, struct error *error)
{
    error_set(error, ERR_USAGE, "%s:%" PRIu64 ": %s", source->input.name, source->line, why);
    return SOURCE_BAD;
}

static enum source_state take_line(struct source *source, const char *text, size_t length,
                                   struct work *ret_work, struct error *error)
{
    struct error found = {0};
    source->line++;
    if (source->too_long) {
        source->too_long = false;
        *ret_work = source->settings->work;
        return bad_line(source, "a line of more than 64 MiB", error);
    }
    if (is_blank(text, length))
        return SOURCE_WAIT;
    int rc = line_read(source->groups, &source->settings->work, text, length, ret_work, &found);
    if (!rc && !source_takes(source, ret_work->form))
        rc = error_set(&found, ERR_USAGE, "url: requests to it are not of this command");
    return rc ? bad_line(source, found.text, error) : SOURCE_WORK;
}

/* More bytes of the file. A line that is too long goes as it comes. */
static int read_more(struct source *source, struct error *error)
{
    _Static_assert(LINE_BYTES_MAX == 64u << 20, "as said above");
    if (buffer_used(&source->input.buffer) > LINE_BYTES_MAX) {
        source->too_long = true;
        input_forget(&source->input);
    }
    return input_more(&source->input, error);
}

static enum source_state take_only(struct source *source, struct work *ret_work, size_t *ret_bytes)
{
    if (source->input.ended)
        return SOURCE_END;
    *ret_work = source->settings->work;
    *ret_bytes = 0;
    source->input.ended = true;
    return SOURCE_WORK;
}

enum source_state source_next(struct source *source, struct work *ret_work, size_t *ret_bytes,
                              struct error *error)
{
    if (!source->input.name)
        return take_only(source, ret_work, ret_bytes);
    for (;;) {
        size_t length;
        const char *text = input_line(&source->input, &length);
        if (text) {
            enum source_state state = take_line(source, text, length, ret_work, error);
            if (state == SOURCE_WAIT)
                continue; /* a blank line */
            *ret_bytes = length;
            return state;
        }
        if (source->input.ended)
            return SOURCE_END;
        if (!readable(source))
            return SOURCE_WAIT;
        if (read_more(source, error))
            return SOURCE_FAILED;
    }
}
