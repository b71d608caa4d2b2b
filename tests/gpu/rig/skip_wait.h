/* What a test leaves out of what an engine does: waits of a stream for an event, and one sum over
 * ranks of every step. Linked with --wrap (CMakeLists.txt), so it works on both devices.
 *
 * omit_* between a start and the first step; ranks' threads then read it. One engine at a time.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

void skip_nothing(void);
/* Every wait of this stream for this event returns at once; a few such pairs. */
void skip_wait(cudaStream_t stream, cudaEvent_t event);
/* On all ranks of an engine of one stage, the nth sum of each step that goes by the communicator; 1
 * is the first. */
void skip_sum(uint32_t nth);
