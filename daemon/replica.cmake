# The side of a replica: from the mailbox to the device and back. Needs no libuv.
target_sources(sluice_daemon PRIVATE
    cost.c group.c kv.c outbox.c place.c queue.c sched.c sched_flight.c sched_kv.c sched_plan.c sched_results.c
    stats.c trace.c worker.c worker_turn.c)
