#include "gpu/lanes/body.h"

const struct sluice_cpu *const body_cpu = NULL;

void *body_address(void *device_pointer)
{
    return device_pointer;
}
