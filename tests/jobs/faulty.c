/* A module without a body for the CPU device, and with nothing wrong else. */
#include "gpu/sluice_program.h"

SLUICE_EXPORT const struct sluice_program sluice_program_cuda = {.abi = SLUICE_PROGRAM_ABI};
