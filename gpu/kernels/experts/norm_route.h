/* A norm, the routes of what it gives, and their segments, one behind another: the same as op_norm,
 * op_route and op_segments. On CUDA the routes of up to two rows are made in the kernel that norms
 * them, and the segments of one row with them: a step of few rows is as long as its kernels are
 * many. */
#pragma once

#include "gpu/kernels/experts/route.h"
#include "gpu/kernels/experts/segments.h"
#include "gpu/kernels/norm/norm.h"

/* `norm`: gives route->x; NULL: it is there. */
OP_C cudaError_t op_norm_route(const struct norm_args *norm, const struct route_args *route,
                               const struct segments_args *segments, cudaStream_t stream);
