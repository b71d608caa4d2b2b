#include "gpu/kernels/experts/norm_route.h"

cudaError_t op_norm_route(const struct norm_args *norm, const struct route_args *route,
                          const struct segments_args *segments, cudaStream_t stream)
{
    cudaError_t result = norm ? op_norm(norm, stream) : cudaSuccess;
    if (result == cudaSuccess)
        result = op_route(route, stream);
    return result == cudaSuccess ? op_segments(segments, stream) : result;
}
