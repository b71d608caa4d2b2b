/* Logging to stderr: one line per event, text or JSON, with the journal's priority prefix where
 * stderr is the journal and an RFC 3339 time elsewhere.
 *
 * A line says what failed, on which object, why, and what happens now. Log or return an error,
 * never both. No byte of a request's content is ever logged. Any thread; a line is one write.
 */
#pragma once

#include <stdbool.h>

enum log_level { LOG_ERROR = 3, LOG_WARNING = 4, LOG_NOTICE = 5, LOG_INFO = 6, LOG_DEBUG = 7 };
enum log_format { LOG_TEXT, LOG_JSON };

/* Before any other thread starts, and again on reload (the stores are single words). Before it, INFO
 * and text hold. What is held back of repeated lines at exit() is then reported. */
void log_setup(enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);

/* Name the place with a short noun ("conn", "sched"), a constant string, as the format is. Equal lines
 * of one place beyond 5 in a second are counted and reported once as "... repeated N times". Equal
 * are lines of the same format string; at LOG_INFO and LOG_DEBUG they also say the same, so that one
 * line per finished request stays one line each. A message is cut at 1023 bytes. */
void log_line(enum log_level level, const char *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
