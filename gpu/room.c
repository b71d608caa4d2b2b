#include "gpu/room.h"

#include "gpu/cut.h"
#include "gpu/device.h"
#include "gpu/kernels/attend.h"
#include "gpu/kernels/product.h"
#include "gpu/kernels/sample.h"

/* Each phase starts where the common part ends; the room is as large as the largest. */
static void phases_cut(struct room *room, struct cutter *cutter, const struct forward *forward,
                       const struct batch *batch)
{
    const struct model_config *config = forward->config;
    uint64_t tokens = batch->tokens_max, bytes = dtype_bytes(forward->dtype);
    struct cutter phase = *cutter;
    room->qkv = cut(&phase, tokens * room_qkv_width(config) * bytes);
    room->attended = cut(&phase, tokens * config->heads * config->head_dim * bytes);
    room->attend_bytes = attend_scratch_bytes(batch, config->heads, config->head_dim);
    room->attend_scratch = room->attend_bytes ? cut(&phase, room->attend_bytes) : NULL;
    uint64_t end = phase.at;

    phase = *cutter;
    room->gate_up = cut(&phase, tokens * 2 * config->intermediate * bytes);
    room->activated = cut(&phase, tokens * config->intermediate * bytes);
    end = phase.at > end ? phase.at : end;
    room->bytes = end;
    if (forward->hands_on)
        return;

    phase = *cutter;
    uint64_t fit = device_traits.logit_bytes / sizeof(float) / config->vocab;
    fit = fit ? fit : 1;
    room->logit_rows = fit < batch->scores_max ? (uint32_t)fit : batch->scores_max;
    uint64_t rows = room->logit_rows > batch->samples_max ? room->logit_rows : batch->samples_max;
    room->picked = cut(&phase, rows * config->hidden * bytes);
    room->logits = cut(&phase, rows * config->vocab * sizeof(float));
    room->sample_bytes = sample_scratch_bytes(batch->samples_max, config->vocab);
    room->sample_scratch = room->sample_bytes ? cut(&phase, room->sample_bytes) : NULL;
    room->bytes = phase.at > end ? phase.at : end;
}

void room_cut(struct room *room, char *base, const struct forward *forward,
              const struct batch *batch)
{
    const struct model_config *config = forward->config;
    struct cutter cutter = {.base = base};
    uint64_t hidden = (uint64_t)batch->tokens_max * config->hidden;
    *room = (struct room){
        .residual = cut(&cutter, hidden * sizeof(float)),
        .x = cut(&cutter, hidden * dtype_bytes(forward->dtype)),
        .angles =
            cut(&cutter, (uint64_t)batch->tokens_max * config->rope.pairs * 2 * sizeof(float)),
    };
    if (batch->tokens_max <= PRODUCT_SMALL_MAX)
        room->squares = cut(&cutter, (uint64_t)batch->tokens_max * PRODUCT_PARTS * sizeof(float));
    bool apart = forward_delta_dtype(forward) != forward->dtype;
    room->delta =
        apart ? cut(&cutter, hidden * dtype_bytes(forward_delta_dtype(forward))) : room->x;
    if (device_traits.workspace_bytes)
        room->workspace = cut(&cutter, device_traits.workspace_bytes);
    phases_cut(room, &cutter, forward, batch);
}
