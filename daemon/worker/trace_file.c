#include "daemon/worker/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/base/log.h"
#include "protocol/base/standard.h"

/* A pipe that nobody reads is an error, and does not hold up the start. */
static FILE *create(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
    FILE *out = flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 ? NULL : fdopen(fd, "w");
    if (!out && fd >= 0)
        close(fd);
    return out;
}

int trace_file_open(struct trace_file *file, const char *path, struct completion_queue *completions,
                    struct error *error)
{
    char *own = strdup(path);
    FILE *out = own ? create(path) : NULL;
    if (!out) {
        free(own);
        return own ? error_set(error, error_of_system(errno, ERR_BAD_CONFIG),
                               "profile-file: cannot write %s: %s", path, strerror(errno))
                   : error_set(error, ERR_NO_MEMORY, "no memory for a path");
    }
    *file = (struct trace_file){.path = own, .file = out, .completions = completions};
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

static void *thread_main(void *context)
{
    struct trace_file *file = context;
    write_out(file);
    atomic_store_explicit(&file->written, true, memory_order_release);
    completion_control(file->completions, COMPLETION_TRACE);
    completion_flush(file->completions);
    return NULL;
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
    if (file->busy && atomic_load_explicit(&file->written, memory_order_acquire)) {
        pthread_join(file->thread, NULL);
        file->busy = false;
    }
    if (file->busy || !file->file || !all_closed(file))
        return;
    int rc = pthread_create(&file->thread, NULL, thread_main, file);
    file->busy = rc == 0;
    if (rc != 0)
        log_line(LOG_WARNING, "profile", "%s is written at the end only: no thread for it, %s",
                 file->path, strerror(rc));
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
