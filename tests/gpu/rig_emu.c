#include "tests/gpu/rig.h"

#include <string.h>

#include "gpu/emu/emu.h"

#define TOLERANCE 2e-4 /* float32 against float32 */

bool rig_setup(void)
{
    struct emu_options options = {.engine = EMU_THREADS,
                                  .memory_bytes = 256u << 20,
                                  .team_threads = 1,
                                  .poison = true,
                                  .strict = true};
    return emu_setup(&options) == cudaSuccess;
}

bool rig_step(void)
{
    return emu_step();
}

void rig_fetch(void *host, const void *device, size_t bytes)
{
    memcpy(host, dev(device), bytes);
}

void rig_store(void *device, const void *host, size_t bytes)
{
    memcpy(dev(device), host, bytes);
}

bool rig_right(struct rig_error error, const struct reference *reference)
{
    (void)reference;
    return error.max <= TOLERANCE;
}

bool rig_wrong(struct rig_error error, const struct reference *reference)
{
    (void)reference;
    return error.max >= 10 * TOLERANCE;
}
