/* Logging to stderr: one line per event, text or JSON, with the journal's priority prefix where
 * stderr is the journal and an RFC 3339 time elsewhere.
 *
 * A line says what failed, on which object, why, and what happens now. Log or return an error,
 * never both. No byte of a request's content is ever logged. Any thread; a line is one write, which
 * waits as long as stderr does, unless log_to() has sent the lines elsewhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_MESSAGE_MAX 1024
/* JSON escapes a byte of a clean message to two at most; all else of a line is short. */
#define LOG_LINE_MAX (2 * LOG_MESSAGE_MAX + 256)

enum log_level { LOG_ERROR = 3, LOG_WARNING = 4, LOG_NOTICE = 5, LOG_INFO = 6, LOG_DEBUG = 7 };
enum log_format { LOG_TEXT, LOG_JSON };

/* Where finished lines go; each ends with its only newline. All functions: any thread. */
struct log_sink {
    void (*put)(enum log_level level, const char *line, size_t length); /* does not wait */
    uint64_t (*dropped)(void); /* lines that never reach the log, so far */
    /* As put(), by a thread that is about to abort and may hold any lock; waits until the line is
     * written, for a bounded time. */
    void (*last)(const char *line, size_t length);
};

/* Before any other thread starts, and again on reload (the stores are single words). Before it, INFO
 * and text hold. What is held back of repeated lines at exit() is then reported. */
void log_setup(enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);
/* From now on; NULL: to stderr, by the thread that logs. The sink lives as long as the process. A
 * child that fork() makes logs to stderr. */
void log_to(const struct log_sink *sink);

/* Name the place with a short noun ("conn", "sched"), a constant string, as the format is. Equal lines
 * of one place beyond 5 in a second are counted and reported once as "... repeated N times". Equal
 * are lines of the same format string; at LOG_INFO and LOG_DEBUG they also say the same, so that one
 * line per finished request stays one line each. A message is cut at 1023 bytes. */
void log_line(enum log_level level, const char *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reports what is held back of repeated lines, for there will be no later. */
void log_rest(void);
/* Lines that were dropped on their way. */
uint64_t log_dropped(void);
/* Logs an error and aborts: what must not happen has. A stderr that nobody reads does not keep the
 * process. */
_Noreturn void log_die(const char *place, const char *message);

/* For sinks: a whole line in the format in force, its length. */
size_t log_format_line(char line[LOG_LINE_MAX], enum log_level level, const char *place,
                       const char *message);
/* Writes to stderr, waiting as long as it must; less than `length` when it fails. */
size_t log_write(const char *bytes, size_t length);
