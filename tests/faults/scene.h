/* One daemon under one fault, from its start to its end, and what its clients saw. Whatever takes
 * longer than SCENE_PATIENCE_MS hangs.
 */
#pragma once

#include "tests/faults/faults.h"

#define SCENE_PATIENCE_MS 20000

struct scene_fault {
    const char *call; /* as in calls.def; NULL: none */
    char name[32];
    unsigned long nth;
};

struct scene_report {
    enum { SCENE_GOOD, SCENE_WRONG, SCENE_NOT_STRUCK } outcome;
    char wrong[600];
    unsigned long calls[FAULTS_CALLS]; /* how many there were */
    unsigned descriptors;              /* after all clients had gone */
};

/* Runs it in a directory of its own. `descriptors`: how many an undisturbed daemon has, 0 when that is
 * not known yet. */
void scene_run(const char *model, const struct scene_fault *fault, unsigned descriptors,
               struct scene_report *ret_report);
