/* Programs as the process starts with them: from the option to a worker on the device.
 *
 * Before the loop runs. */
#pragma once

#include <stdio.h>

#include "daemon/base/option.h"
#include "daemon/jobs/programs.h"
#include "protocol/base/error.h"

struct event_loop;
struct gpu_api;

/* The modules, for the device; none where the option names none. serve: not only to be looked at.
 */
int jobs_load(struct job_programs *programs, const struct options *options,
              const struct gpu_api *gpu, bool serve, struct error *error);
/* What --check says of them. */
void jobs_print(const struct job_programs *programs, FILE *file);
/* Sweeps chunks and lanes around what the options say, for the one program that there is, measures
 * the machine, and writes the options to set. command: where else to write it. Blocks
 * until all of it ran, for a minute at most but for what a program's own chunks take. */
int jobs_calibrate(struct job_programs *programs, const struct options *options,
                   const struct gpu_api *gpu, int device, const struct option_command *command,
                   struct error *error);
/* Their worker, on this device, which the loop takes over; nothing without programs. */
int jobs_open(struct job_programs *programs, const struct options *options,
              const struct gpu_api *gpu, int device, struct event_loop *loop, struct error *error);
