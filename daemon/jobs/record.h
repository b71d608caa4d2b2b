/* Records of programs that are off: what ran when the device failed, a job timed out or the process
 * crashed must not be served again by the next process, which would end the same way.
 *
 * A record is a file in the daemon's folder for what it keeps (state-dir), "program-NAME.off", with
 * a line that says why. It is written before the process ends, and removed by an admin's word.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/jobs/job.h"
#include "protocol/base/error.h"

/* The folder: the option's, or the service manager's, or the user's own. make: it is made where it
 * is not there, and must be writable; ERR_BAD_CONFIG says what to set. Else "" where nobody says.
 */
int record_folder(const char *option, bool make, char *ret_path, size_t size, struct error *error);
/* Where the program's record is or would be. */
void record_name(const char *folder, const char *program, char *ret_path, size_t size);

/* Whether there is one, and what it says. */
bool record_read(const char *path, char ret_reason[JOB_REASON_MAX]);
/* On disk when it returns. Makes system calls alone, so that a handler of signals may call it; 0,
 * or errno. */
int record_write(const char *path, const char *reason);
int record_clear(const char *path, struct error *error);

/* From now on a signal that ends the process for a fault of its own writes records of those of the
 * programs that are on the device, and then ends it as it would have. Once; `programs` stays. */
void record_on_crash(struct job_program *programs, const unsigned *count);
