/* The ranks of one engine, driven as one: the worker's own thread is rank 0's, every other rank has
 * a thread of its own, to which the plan of a step goes as it is.
 *
 * A step is agreed on before any rank enqueues it: memory is reserved on all of them, or on none,
 * since a rank that enqueues alone would wait for the others forever. What the followers were given
 * they do beside the leader, who waits for them only before the next thing that concerns them all.
 * The plan stays as it is until then.
 *
 * Worker's thread (the leader's). Without threads, every call is made by the caller, one rank after
 * the other: the simulation. Takes no memory after rank_group_make.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"

#define RANK_GROUP_LEADER 0u

struct rank_group;

/* The engine stays the caller's. */
int rank_group_make(const struct gpu_api *api, struct gpu_engine *engine, uint32_t ranks,
               struct rank_group **ret_group, struct error *error);
/* Stopped, or never started. NULL is allowed. */
void rank_group_free(struct rank_group *group);

/* Blocks: starts all ranks at the same time. On failure all are stopped again. */
int rank_group_start(struct rank_group *group, int wake_fd, bool threads, struct error *error);
/* Blocks: ends all ranks and the threads. As gpu_api.stop, of the first that fails. */
int rank_group_stop(struct rank_group *group, struct error *error);

/* As gpu_api.submit, for all ranks: ERR_DEVICE_MEMORY when one of them lacks memory, and then none
 * has enqueued anything; ERR_DEVICE when one has failed, also at a step before. */
int rank_group_submit(struct rank_group *group, const struct gpu_plan *plan, struct error *error);
/* As gpu_api.sample, for all ranks; returns when all have taken it. */
int rank_group_sample(struct rank_group *group, const struct gpu_sampling *sampling,
                      struct error *error);
uint64_t rank_group_sampled(const struct rank_group *group);
/* As gpu_api.copy, for all ranks, likewise; and the last that have ended on every rank. */
int rank_group_copy(struct rank_group *group, const struct gpu_copies *copies, struct error *error);
uint64_t rank_group_copied(const struct rank_group *group, enum gpu_way way);
/* The last step that has ended on every rank. */
uint64_t rank_group_completed(const struct rank_group *group);
/* What each rank's lanes did for a completed step that is profiled; how many ranks there are, 0 when
 * one has failed. Waits until no follower is at work. */
uint32_t rank_group_profile(struct rank_group *group, uint64_t step, struct gpu_profile *ret_profiles);
/* The worst of all ranks'. */
enum gpu_progress rank_group_query(struct rank_group *group, struct error *error);

/* As in gpu_api, once no follower is at work. */
int rank_group_kv_grow(struct rank_group *group, uint32_t kv_group, uint32_t *ret_slab, struct error *error);
int rank_group_kv_shrink(struct rank_group *group, uint32_t kv_group, uint32_t slab, struct error *error);
int rank_group_trim(struct rank_group *group, struct error *error);
