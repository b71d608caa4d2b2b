#include "tests/gpu/rig/rig_emu.h"

#include <string.h>

#include "tests/gpu/rig/rig.h"

#define TOLERANCE 2e-4 /* float32 against float32 */

bool rig_emu(enum emu_engine engine, uint32_t devices, uint64_t seed)
{
    struct emu_options options = {.engine = engine,
                                  .devices = devices,
                                  .memory_bytes = (devices > 1 ? 128u : 256u) << 20,
                                  .team_threads = 1,
                                  .seed = seed,
                                  .poison = true,
                                  .strict = true};
    return emu_setup(&options) == cudaSuccess;
}

bool rig_setup(void)
{
    return rig_emu(EMU_THREADS, 1, 0);
}

bool rig_several(uint32_t devices)
{
    return devices <= RIG_DEVICES && rig_emu(EMU_THREADS, RIG_DEVICES, 0);
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

bool rig_right_rounded(struct rig_error error, const struct reference *reference)
{
    (void)reference;
    return error.mean <= 1e-3 && error.max <= 0.02;
}

bool rig_near(struct rig_error error)
{
    return error.max <= TOLERANCE;
}

bool rig_wrong(struct rig_error error, const struct reference *reference)
{
    (void)reference;
    return error.max >= 10 * TOLERANCE;
}
