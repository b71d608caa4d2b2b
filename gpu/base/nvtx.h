/* Named ranges on this thread, for Nsight's timelines. Two bodies: nvtx_marks.c where the build asks
 * for SLUICE_NVTX, nvtx_none.c elsewhere. Any thread; ranges nest. */
#pragma once

void nvtx_begin(const char *name); /* a constant string */
void nvtx_end(void);
