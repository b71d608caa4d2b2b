/* A norm, or an activation, whose result the product behind it reads rounded to e4m3: what op_norm
 * or op_activation gives, rounded to their dtype and then as the product would (matmul.h), to the
 * bit. `out` becomes what is handed on, of as many rows at most; rows that do not exist may become
 * anything. For steps of more rows than a product hands on by itself. */
#pragma once

#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/norm/norm.h"

/* Whether it can be handed on so; else it is refused. Never on the CPU device, which has nothing to
 * gain. */
OP_C bool hand_norm_fuses(const struct norm_args *args, const struct weight_input *how);
OP_C cudaError_t op_hand_norm(const struct norm_args *args, const struct weight_input *how,
                              cudaStream_t stream);

OP_C bool hand_activation_fuses(const struct activation_args *args, const struct weight_input *how);
OP_C cudaError_t op_hand_activation(const struct activation_args *args,
                                    const struct weight_input *how, cudaStream_t stream);
