/* A program as the daemon describes it (PROGRAMS): what its outputs are for given inputs. */
#pragma once

#include <stdint.h>

#include "client/sluice.h"
#include "protocol/base/error.h"
#include "protocol/base/json.h"

/* The program of that name in the daemon's answer; ERR_NOT_FOUND names those that there are. */
int described_find(const json *answer, const char *name, const json **ret_program,
                   struct error *error);
/* How many outputs it has; their names. */
uint32_t described_outputs(const json *program);
const char *described_output(const json *program, uint32_t output);
/* dtype and shape of an output of such an item; the daemon checks it, this only computes. */
struct described_item {
    const sluice_array *inputs;
    size_t input_count;
    const sluice_argument *arguments;
    size_t argument_count;
};
int described_shape(const json *program, const struct described_item *item, uint32_t output,
                    sluice_array *ret_array, struct error *error);
