/* From tensors to a request of jobs in the waiting queue, or to an error that says why not: what
 * request_builder.h is for prompts, and on top of it.
 *
 * job_builder_open(), then for each item job_builder_item(), then job_builder_admit(), which
 * compares what it all takes with what is held before a byte is copied or mapped, then
 * job_builder_place(), and then request_builder_name() and request_builder_enter() of `base`.
 * job_builder_drop() at any point before that. loop thread
 */
#pragma once

#include <stdint.h>

#include "daemon/jobs/job.h"
#include "daemon/jobs/mapping.h"
#include "daemon/request/request_builder.h"
#include "protocol/message_job.h"

/* What the tensors of a request's jobs lie in. Freed when all have ended. */
struct request_tensors {
    uint64_t bytes; /* what it counts in struct load */
    void *copy;     /* owned */
    struct job_mapping *inputs, *outputs; /* of these, which are borrowed */
    struct job_mappings *mappings;
    uint64_t user; /* whose they are */
};
void request_tensors_free(struct request_tensors *tensors); /* what it holds; NULL is allowed */

/* Where the outputs of a job lie: one behind the other from there on. */
void job_place_outputs(struct tensor_job *job, void *from);

struct job_builder {
    struct request_builder base;
    struct job_program *program;
    struct tensor_job *jobs;            /* kept by the request */
    uint64_t (*at)[SLUICE_TENSORS_MAX]; /* of each job: where its inputs begin; likewise */
    uint64_t in_bytes, out_bytes;       /* of all items */
};

/* Where the tensors come from and go to. */
struct job_source {
    const unsigned char *payload; /* copied; or NULL, and: */
    /* Of malloc(), and the builder's once job_builder_place() was called; or NULL, and: */
    void *owned;
    int inputs_fd;          /* memory that the client shares */
    uint64_t inputs_bytes;  /* of either */
    int outputs_fd;         /* -1: outputs are told */
    uint64_t outputs_bytes; /* that it says to share; 0: none */
};

int job_builder_open(struct job_builder *builder, struct server *server, struct response_sink *sink,
                     const char *program, uint32_t items, const struct request_params *params,
                     time_us arrived_us, struct error *error);
/* Checks names, dtypes, shapes and parameters; errors name what is wrong. */
int job_builder_item(struct job_builder *builder, const struct message_item *item,
                     struct error *error);
int job_builder_admit(struct job_builder *builder, const struct response_sink *sink,
                      const struct job_source *source, struct error *error);
int job_builder_place(struct job_builder *builder, const struct job_source *source,
                      struct error *error);
void job_builder_drop(struct job_builder *builder);
