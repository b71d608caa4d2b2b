#include "tests/sim/scene.h"

#include <inttypes.h>
#include <stdarg.h>

#define FNV_PRIME UINT64_C(0x100000001b3)

void scene_fail(struct scene *scene, const char *format, ...)
{
    va_list list;
    if (scene->failed)
        return;
    scene->failed = true;
    va_start(list, format);
    vsnprintf(scene->failure, sizeof(scene->failure), format, list);
    va_end(list);
    if (scene->story)
        fprintf(scene->story, "%" PRIu64 " us FAILED: %s\n", scene->now_us, scene->failure);
}

static void mix(struct scene *scene, uint64_t word)
{
    scene->trace = (scene->trace ^ word) * FNV_PRIME;
    scene->trace ^= scene->trace >> 29;
}

void scene_note(struct scene *scene, const char *what, uint64_t a, uint64_t b)
{
    scene->events++;
    mix(scene, scene->now_us);
    for (const char *at = what; *at; at++)
        mix(scene, (unsigned char)*at);
    mix(scene, a);
    mix(scene, b);
    if (scene->story)
        fprintf(scene->story, "%" PRIu64 " us %s %" PRIu64 " %" PRIu64 "\n", scene->now_us, what, a,
                b);
}

void scene_note_bytes(struct scene *scene, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++)
        mix(scene, at[i]);
}
