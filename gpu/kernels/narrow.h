/* The 16-bit dtype that the CUDA device computes in: weights, activations, keys and values. This
 * line and `narrow` in narrow.cuh decide it for all tuned kernels.
 *
 * F16 rounds eight times finer than BF16, and rounding is all that two paths of one model differ
 * by: over 65,536 tokens, BF16 let a decoded token be 0.28 less likely than the likeliest when
 * scored alone, F16 0.02. What it costs, and what can still overflow: gpu/README.md, Numbers.
 *
 * What F16 lacks is range. Values of BF16 checkpoints are exact in it down to 2^-17, and off by
 * 2^-25 at most below. Most activations that have no bound of their own stay in float32 (the
 * residual, what is added to it) or are rounded to the greatest finite value, not to infinity. */
#pragma once

#define DTYPE_NARROW DTYPE_F16
