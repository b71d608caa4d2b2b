/* Items of a job as files: from a command line or the lines of a batch file, to arrays and back to
 * files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "client/option/settings.h"
#include "client/sluice.h"
#include "protocol/base/error.h"
#include "protocol/base/json.h"

struct task_output {
    const char *name, *path; /* path NULL: nobody wants it; borrowed */
    sluice_array array;
    unsigned char *data; /* owned; made when the item is submitted */
    uint64_t got;
};

struct task {
    sluice_array inputs[SLUICE_ARRAYS_MAX];
    void *data[SLUICE_ARRAYS_MAX]; /* owned */
    size_t input_count;
    sluice_argument arguments[SLUICE_ARGUMENTS_MAX];
    size_t argument_count;
    struct task_output outputs[SLUICE_ARRAYS_MAX];
    size_t output_count;
    const char *picture; /* where one of an output goes; NULL: nowhere; borrowed */
    size_t line; /* of the batch file, from 1 on; 0: it is the command line's */
    bool ended;
    sluice_end end;
    json *document; /* owned; of a line */
};

/* How many items a command line names: as many as files for one input. */
int task_count(const struct settings *settings, size_t *ret_count, struct error *error);
/* The item of that number. names: room for those that are cut out of arguments, freed by the caller
 * after the tasks. */
int task_of_settings(const struct settings *settings, size_t index, struct task *ret_task,
                     char **names, size_t *name_count, struct error *error);
/* {"inputs":{"x":"FILE"},"outputs":{"y":"FILE"},"parameters":{"a":2}} */
int task_of_line(const char *line, size_t length, struct task *ret_task, struct error *error);
/* Reads its inputs; says where its outputs go. program: as the daemon describes it. */
int task_open(struct task *task, const json *program, struct error *error);
/* What came of an output; false: it is not what was announced. */
bool task_take(struct task *task, uint32_t output, uint64_t at, const void *data, size_t bytes);
/* Writes the files, once it has ended well. */
int task_write(const struct task *task, struct error *error);
void task_free(struct task *task);
