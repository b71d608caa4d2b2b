/* Launchers that do several of a mixture's ops at once: what they do, one behind another. */
#include "gpu/kernels/experts/experts_sum.h"
#include "gpu/kernels/experts/norm_route.h"
#include "tests/gpu/engine/launches.h"

#define FEW 24 /* pairs, as in experts.cu */

cudaError_t op_norm_route(const struct norm_args *norm, const struct route_args *route,
                          const struct segments_args *segments, cudaStream_t stream)
{
    launches_note("at once");
    if (norm)
        op_norm(norm, stream);
    op_route(route, stream);
    return op_segments(segments, stream);
}

cudaError_t op_combine_norm(const struct combine_args *combine, const struct norm_args *norm,
                            cudaStream_t stream)
{
    launches_note("at once");
    op_combine(combine, stream);
    return op_norm(norm, stream);
}

bool experts_sum_can(const struct experts_sum_args *args)
{
    const struct experts_args *experts = &args->experts;
    return format_info(experts->w.format).dtype == experts->dtype && experts->dtype != DTYPE_F32 &&
           experts->w.k % 8 == 0 && experts->rows.max * experts->top <= FEW &&
           (!args->norm_out.weight || experts->dtype == DTYPE_BF16);
}

cudaError_t op_experts_sum(const struct experts_sum_args *args, cudaStream_t stream)
{
    const struct matmul_norm_out *norm = &args->norm_out;
    launches_note("at once, added %d, handed %d with %a: %u %d", args->adds, norm->weight != NULL,
                  (double)norm->offset, norm->out_stride, (int)norm->weight_dtype);
    op_experts(&args->experts, stream);
    return op_combine(&args->combine, stream);
}
