# The side of a replica: from the mailbox to the device and back. Needs no libuv.
target_sources(sluice_daemon PRIVATE
    sched/cost.c worker/rank_group.c sched/kv.c worker/completion_queue.c request/replica_select.c base/mailbox.c sched/sched.c sched/sched_flight.c sched/sched_limit.c sched/cache.c sched/sched_cache.c sched/sched_memory.c sched/sched_share.c sched/sched_check.c sched/sched_plan.c sched/sched_results.c sched/sched_sampling.c
    base/stats.c base/siphash.c base/prefix_key.c base/prefix_hint.c worker/trace.c worker/constraint_held.c worker/mask_crew.c worker/seq_mask.c worker/worker.c worker/worker_turn.c)
