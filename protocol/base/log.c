#include "protocol/base/log.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "protocol/base/json.h"
#include "protocol/base/repeat.h"
#include "protocol/base/utf8.h"

#define PLACE_MAX 64
#define LAST_WORDS_MS 500 /* for a stderr that is full */

static atomic_int level_now = LOG_INFO;
static atomic_int format_now = LOG_TEXT;
static atomic_bool to_journal;
static _Atomic(const struct log_sink *) sink_now;

/* Two tables, so that the many lines of the one do not push the floods out of the other. */
static struct repeat by_format, by_text;
static pthread_mutex_t repeat_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t setup_once = PTHREAD_ONCE_INIT;

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARNING] = "warning", [LOG_NOTICE] = "notice",
    [LOG_INFO] = "info",   [LOG_DEBUG] = "debug",
};

/* systemd names the socket that it gave us as stderr; a redirected stderr is another file. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat status;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &status) == 0 && status.st_dev == (dev_t)device &&
           status.st_ino == (ino_t)inode;
}

/* RFC 3339 in UTC with milliseconds. */
static void format_time(char *text, size_t size)
{
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t used = strftime(text, size, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + used, size - used, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

static size_t format_json(char *line, size_t size, const char *stamp, enum log_level level,
                          const char *place, const char *message)
{
    struct json_writer writer;
    json_writer_init(&writer, line, size);
    json_open(&writer, NULL, '{');
    json_put_text(&writer, "time", stamp);
    json_put_text(&writer, "level", level_names[level]);
    json_put_text(&writer, "place", place);
    json_put_text(&writer, "message", message);
    json_close(&writer, '}');
    return writer.used;
}

/* One line is one event: no byte of a message may start another or hide in a terminal. */
static void clean(char *message)
{
    unsigned char *text = (unsigned char *)message;
    size_t left = strlen(message);
    while (left > 0) {
        size_t step = utf8_length(text, left);
        if (step == 0 || *text < 0x20 || *text == 0x7f) {
            *text = '?';
            step = 1;
        }
        text += step;
        left -= step;
    }
}

size_t log_format_line(char line[LOG_LINE_MAX], enum log_level level, const char *place,
                       const char *message)
{
    char stamp[48];
    bool journal = atomic_load_explicit(&to_journal, memory_order_relaxed);
    size_t used = journal ? (size_t)snprintf(line, LOG_LINE_MAX, "<%d>", (int)level) : 0;
    size_t room = LOG_LINE_MAX - 1 - used;
    format_time(stamp, sizeof(stamp));
    if (atomic_load_explicit(&format_now, memory_order_relaxed) == LOG_JSON)
        used += format_json(line + used, room, stamp, level, place, message);
    else if (journal)
        used += (size_t)snprintf(line + used, room, "%s: %s", place, message);
    else
        used += (size_t)snprintf(line + used, room, "%s %s %s: %s", stamp, level_names[level],
                                 place, message);
    assert(used < LOG_LINE_MAX);
    line[used++] = '\n';
    return used;
}

size_t log_write(const char *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t written = write(STDERR_FILENO, bytes + done, length - done);
        if (written > 0) {
            done += (size_t)written;
        } else if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            /* Another process that has the same file made it so. */
            struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
            if (poll(&room, 1, -1) < 0 && errno != EINTR)
                break;
        } else if (written == 0 || errno != EINTR) {
            break;
        }
    }
    return done;
}

static void write_line(enum log_level level, const char *place, const char *message)
{
    char line[LOG_LINE_MAX];
    size_t length = log_format_line(line, level, place, message);
    const struct log_sink *sink = atomic_load_explicit(&sink_now, memory_order_acquire);
    if (sink)
        sink->put(level, line, length);
    else
        (void)log_write(line, length); /* there is nobody to tell when stderr itself fails */
}

void log_die(const char *place, const char *message)
{
    const struct log_sink *sink = atomic_load_explicit(&sink_now, memory_order_acquire);
    char text[LOG_MESSAGE_MAX], line[LOG_LINE_MAX];
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    snprintf(text, sizeof(text), "%s", message);
    clean(text);
    size_t length = log_format_line(line, LOG_ERROR, place, text);
    if (sink)
        sink->last(line, length);
    else if (poll(&room, 1, LAST_WORDS_MS) == 1)
        (void)!write(STDERR_FILENO, line, length);
    abort();
}

static void write_held(const struct repeat_held *held)
{
    char message[LOG_MESSAGE_MAX];
    snprintf(message, sizeof(message), "%s ... repeated %llu times", held->text,
             (unsigned long long)held->count);
    clean(message); /* the cut may have gone through a character */
    write_line((enum log_level)held->level, held->place, message);
}

/* Reports what was held back of lines that no longer come; `all` when there will be no later. */
static void write_due(struct repeat *repeat, bool all)
{
    struct repeat_held held;
    for (;;) {
        pthread_mutex_lock(&repeat_lock);
        bool due = repeat_due(repeat, clock_now_us(), all, &held);
        pthread_mutex_unlock(&repeat_lock);
        if (!due)
            return;
        write_held(&held);
    }
}

void log_rest(void)
{
    write_due(&by_format, true);
    write_due(&by_text, true);
}

uint64_t log_dropped(void)
{
    const struct log_sink *sink = atomic_load_explicit(&sink_now, memory_order_acquire);
    return sink ? sink->dropped() : 0;
}

static void before_fork(void)
{
    pthread_mutex_lock(&repeat_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&repeat_lock);
}

/* Whatever thread the sink has is the parent's. */
static void in_child(void)
{
    pthread_mutex_unlock(&repeat_lock);
    log_to(NULL);
}

static void register_once(void)
{
    atexit(log_rest);
    pthread_atfork(before_fork, after_fork, in_child);
}

void log_to(const struct log_sink *sink)
{
    atomic_store_explicit(&sink_now, sink, memory_order_release);
}

void log_setup(enum log_level level, enum log_format format)
{
    pthread_once(&setup_once, register_once);
    atomic_store_explicit(&to_journal, stderr_is_journal(), memory_order_relaxed);
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
    atomic_store_explicit(&format_now, (int)format, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&level_now, memory_order_relaxed);
}

void log_line(enum log_level level, const char *place, const char *format, ...)
{
    char message[LOG_MESSAGE_MAX];
    va_list arguments;
    if (!log_enabled(level))
        return;
    assert(strlen(place) <= PLACE_MAX);
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (length < 0)
        snprintf(message, sizeof(message), "%s", format);
    clean(message);

    struct repeat *repeat = level <= LOG_NOTICE ? &by_format : &by_text;
    struct repeat_event event = {.place = place,
                                 .format = format,
                                 .text = message,
                                 .by_text = repeat == &by_text,
                                 .level = (int)level};
    struct repeat_held held;
    pthread_mutex_lock(&repeat_lock);
    bool pass = repeat_pass(repeat, &event, clock_now_us(), &held);
    bool other = by_format.kinds_held > 0 || by_text.kinds_held > 0;
    pthread_mutex_unlock(&repeat_lock);
    if (held.count > 0)
        write_held(&held);
    if (other) {
        write_due(&by_format, false);
        write_due(&by_text, false);
    }
    if (pass)
        write_line(level, place, message);
}
