/* The programs that this daemon serves: read from configuration at the start, and never again.
 *
 * loop thread, or before there is one. A program that is off takes no job until an admin enables
 * it.
 */
#pragma once

#include <stdint.h>

#include "daemon/base/option.h"
#include "daemon/jobs/job.h"
#include "protocol/base/error.h"
#include "protocol/base/json.h"

struct job_programs {
    unsigned count;
    struct job_program list[JOB_PROGRAMS_MAX];
};

/* Loads what the option `program` names, for the device "cpu" or "cuda", and reads their records;
 * `serve`: records can be written, too. ERR_BAD_CONFIG names the file. */
int programs_load(struct job_programs *programs, const struct options *options, const char *device,
                  bool serve, struct error *error);
/* The most streams and events that one of them has. */
void programs_streams(const struct job_programs *programs, uint32_t *ret_streams,
                      uint32_t *ret_events);

/* NULL: none of that name. */
struct job_program *programs_find(struct job_programs *programs, const char *name);
/* Removes its record: it takes jobs again. */
int programs_enable(struct job_program *program, struct error *error);

/* What it is, as clients are told: an object. */
void programs_describe(const struct job_program *program, struct json_writer *writer);
