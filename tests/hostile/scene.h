/* A daemon with synthetic:null among hostile clients, and the canary that asks it all the time:
 * what it was before, and that it is so again afterwards.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/daemon/rig/spawn.h"
#include "tests/hostile/canary.h"

#define SCENE_SETTLE_MS 20000
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCENE_RESIDENT_KNOWN false /* what is freed stays with the sanitizer */
#else
#define SCENE_RESIDENT_KNOWN true
#endif

struct scene {
    struct spawn spawn;
    struct canary canary;
    uint32_t descriptors;
    uint64_t resident, slack; /* bytes */
};

/* For scene_start(): the null model, whose daemon soon gives back what it does not need. */
extern const char *const scene_null_model[];
/* All that can be warmed up is: the first of everything takes memory that stays. arguments: up to
 * NULL; a model among them if it is another than synthetic:null. song NULL: the rule's. */
void scene_start(struct scene *scene, const char *const *arguments, const struct canary_song *song);
uint64_t scene_gauge(const struct scene *scene, const char *name);
/* The canary sings on. */
void scene_check(struct scene *scene);
/* The canary was never wrong, nothing is left of what was asked, no content is in the log, and the
 * daemon ends well. */
void scene_end(struct scene *scene);
void scene_free(struct scene *scene);
