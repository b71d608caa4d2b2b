#include "daemon/trace_file.h"

#include <errno.h>
#include <string.h>

#include "protocol/base/list.h"
#include "protocol/base/log.h"

/* Any thread: the traces are closed. */
static void write_out(const struct trace_file *file)
{
    for (uint32_t i = 0; i < file->count; i++)
        trace_print(file->traces[i], stdout);
    FILE *out = fopen(file->path, "we");
    bool bad = out == NULL;
    if (out) {
        trace_write(file->traces, file->count, out);
        bad = ferror(out) != 0;
        bad = fclose(out) != 0 || bad;
    }
    if (bad)
        log_line(LOG_ERROR, "profile", "%s cannot be written: %s", file->path, strerror(errno));
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
    if (!file->path || file->written || !all_closed(file))
        return;
    file->task = (struct task){.work = on_work, .done = on_done};
    file->written = true;
    file->busy = file->background->run(file->background, &file->task) == 0;
    if (!file->busy)
        write_out(file);
}

void trace_file_end(struct trace_file *file)
{
    if (!file->path || file->written || file->count == 0)
        return;
    file->written = true;
    write_out(file);
}
