/* What all results of a run must be: from the options to what a batch says. */
#pragma once

#include "client/option/settings.h"
#include "protocol/base/error.h"

struct constraint {
    int kind;   /* SLUICE_CONSTRAINT_... */
    char *text; /* owned; NULL: there is none */
};

/* Reads the schema's file. ERR_USAGE where more than one is asked for. */
int constraint_make(const struct settings *settings, struct constraint *ret_constraint,
                    struct error *error);
void constraint_drop(struct constraint *constraint);
