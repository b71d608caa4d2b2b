/* What is handed on rounded, and who takes it, as launches.c has the others. */
#include "gpu/kernels/hand/hand.h"
#include "gpu/kernels/matmul/matmul.h"
#include "tests/gpu/engine/launches.h"

static bool takes(const struct weight_input *how, uint32_t rows, uint32_t size, enum dtype dtype)
{
    bool rounds = how->rounding == ROUNDING_TOKEN || how->rounding == ROUNDING_STATIC ||
                  (how->rounding == ROUNDING_GROUP && how->group == 128);
    return rounds && rows > MATMUL_GATED_MAX && size % 16 == 0 && dtype != DTYPE_F32;
}

static void note(const struct weight_input *how)
{
    launches_note("handed on rounded %d %u %a", (int)how->rounding, how->group,
                  (double)how->scale);
}

bool hand_norm_fuses(const struct norm_args *a, const struct weight_input *how)
{
    return a->form == NORM_SCALED && !a->delta_normed && a->out != a->delta &&
           a->out != a->residual && takes(how, a->rows.max, a->size, a->out_dtype);
}

cudaError_t op_hand_norm(const struct norm_args *a, const struct weight_input *how,
                         cudaStream_t stream)
{
    note(how);
    return op_norm(a, stream);
}

bool hand_activation_fuses(const struct activation_args *a, const struct weight_input *how)
{
    return a->out != a->in && takes(how, a->rows.max, a->size, a->dtype);
}

cudaError_t op_hand_activation(const struct activation_args *a, const struct weight_input *how,
                               cudaStream_t stream)
{
    note(how);
    return op_activation(a, stream);
}

bool launches_scaled_can(const struct matmul_args *a)
{
    const struct weight *w = &a->w;
    bool one = a->hands.rounding == ROUNDING_TOKEN || a->hands.rounding == ROUNDING_STATIC;
    bool outer = !w->scales.k && w->scales.n <= 1 &&
                 (w->input.rounding == ROUNDING_TOKEN || w->input.rounding == ROUNDING_STATIC);
    bool what = a->norm_out.weight ? a->adds && !a->gated && !a->activates
                                   : !a->adds && (a->gated || a->activates);
    bool few = a->rows.max <= MATMUL_GATED_MAX, hands = a->hands.rounding != ROUNDING_NONE;
    bool many = a->x_rounded && !hands && !a->gated && !a->activates;
    bool blocks = !few && w->scales.k == 128 && w->scales.n == 128 && w->input.group == 128 &&
                  w->input.rounding == ROUNDING_GROUP && !a->bias;
    return w->format == FORMAT_E4M3 && (outer || blocks) && w->k % 16 == 0 && w->n % 16 == 0 &&
           (few || many) && !a->norm_in.squares && (!a->adds || a->y_dtype == DTYPE_F32) &&
           (hands ? one && what : !a->norm_out.weight);
}
