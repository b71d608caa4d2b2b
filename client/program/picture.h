/* sluice job --picture: an output as an image, over the image that came in. */
#pragma once

#include "client/program/task.h"

#define PICTURE_RANK 2 /* dimensions of what is drawn */

/* The first output that can be drawn; NULL: there is none. */
const struct task_output *picture_output(const struct task *task);
/* Into task->picture, once the outputs are there. */
int picture_write(const struct task *task, struct error *error);
