/* What the options' draft model comes to, beside the model that it guesses for.
 *
 * No device is touched. Any thread.
 */
#pragma once

#include "gpu/engine/engine_config.h"

/* Behind model_fill: reads the draft model, if one is named, and adds it to what `facts` says of
 * weights. ERR_BAD_CONFIG where it cannot guess for this model. */
int engine_draft_read(struct engine_config *facts, const struct gpu_options *options,
                      struct error *error);
/* Behind stages_add: its layers are further ones of the model's blocks. */
int engine_draft_blocks(struct engine_config *facts, struct error *error);
