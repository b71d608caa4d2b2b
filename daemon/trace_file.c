#include "daemon/trace_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/list.h"
#include "protocol/base/log.h"
#include "protocol/base/standard.h"

int trace_file_open(struct trace_file *file, const char *path, struct background *background,
                    struct error *error)
{
    char *own = strdup(path);
    FILE *out = own ? fopen(path, "we") : NULL;
    if (!out) {
        free(own);
        return own ? error_set(error, error_of_system(errno, ERR_BAD_CONFIG),
                               "profile-file: cannot write %s: %s", path, strerror(errno))
                   : error_set(error, ERR_NO_MEMORY, "no memory for a path");
    }
    *file = (struct trace_file){.path = own, .file = out, .background = background};
    return 0;
}

/* Any thread: the traces are closed, or their workers have stopped. */
static void write_out(struct trace_file *file)
{
    for (uint32_t i = 0; i < file->count; i++)
        trace_print(file->traces[i], stdout);
    int rc = standard_flush(stdout);
    if (rc)
        log_line(LOG_WARNING, "profile", "standard output: %s", strerror(-rc));
    trace_write(file->traces, file->count, file->file);
    bool bad = ferror(file->file) != 0;
    bad = fclose(file->file) != 0 || bad;
    file->file = NULL;
    if (bad)
        log_line(LOG_ERROR, "profile", "%s is not whole: %s", file->path, strerror(errno));
    else
        log_line(LOG_NOTICE, "profile", "%s is written", file->path);
}

static void on_work(struct task *task)
{
    write_out(container_of(task, struct trace_file, task));
}

static void on_done(struct task *task)
{
    container_of(task, struct trace_file, task)->busy = false;
}

static bool all_closed(const struct trace_file *file)
{
    for (uint32_t i = 0; i < file->count; i++)
        if (!trace_closed(file->traces[i]))
            return false;
    return file->count > 0;
}

void trace_file_turn(struct trace_file *file)
{
    if (file->busy || !file->file || !all_closed(file))
        return;
    file->task = (struct task){.work = on_work, .done = on_done};
    file->busy = file->background->run(file->background, &file->task) == 0;
    if (!file->busy)
        write_out(file);
}

void trace_file_end(struct trace_file *file)
{
    if (file->file && file->count > 0)
        write_out(file);
    else if (file->file)
        (void)fclose(file->file); /* nothing was written to it */
    free(file->path);
    *file = (struct trace_file){0};
}
