sluice_test(replica PARTS 4
    SOURCES
        ../bench/latency/machine.c
        replica_main.c
        request/replica_select_test.c
        rig/fake_copy.c
        rig/fake_device.c
        rig/fake_mask.c
        rig/fake_plan.c
        rig/fake_rule.c
        rig/fake_run.c
        rig/fake_seq.c
        sched/cost_test.c
        sched/kv_test.c
        sched/limit_test.c
        sched/lookup_test.c
        sched/overload_test.c
        sched/sched_cache_test.c
        sched/sched_drafts_test.c
        sched/sched_preempt_test.c
        sched/sched_random_test.c
        sched/sched_rig.c
        sched/sched_share_test.c
        sched/sched_test.c
        sched/sched_tier_test.c
        sched/tier_test.c
        sched/wants_test.c
        service/stats_test.c
        worker/chunk_thread_test.c
        worker/mailbox_test.c
        worker/worker_test.c
    LIBS sluice_daemon)

sluice_test(steady
    SOURCES
        rig/fake_copy.c
        rig/fake_device.c
        rig/fake_mask.c
        rig/fake_plan.c
        rig/fake_rule.c
        rig/fake_run.c
        rig/fake_seq.c
        worker/steady_main.c
        worker/steady_test.c
    LIBS sluice_daemon sluice_gpu_cpu)
sluice_count_heap(test_steady)
sluice_test(one_prompt
    SOURCES
        rig/fake_copy.c
        rig/fake_device.c
        rig/fake_mask.c
        rig/fake_plan.c
        rig/fake_rule.c
        rig/fake_run.c
        rig/fake_seq.c
        rig/worker_rig.c
        worker/cache_bits_test.c
        worker/draft_bits_test.c
        worker/one_prompt_test.c
        worker/together_test.c
    LIBS sluice_daemon sluice_gpu_cpu)
sluice_test(constrained PARTS 2
    SOURCES
        rig/fake_copy.c
        rig/fake_device.c
        rig/fake_mask.c
        rig/fake_plan.c
        rig/fake_rule.c
        rig/fake_run.c
        rig/fake_seq.c
        worker/constrained_test.c
    LIBS sluice_daemon sluice_gpu_cpu)
sluice_test(group
    SOURCES worker/rank_group_main.c worker/rank_group_test.c
    LIBS sluice_daemon sluice_gpu_cpu)
set(starts 50)
if(SLUICE_SANITIZE OR SLUICE_FUZZ)
    set(starts 12)
endif()
target_compile_definitions(test_group PRIVATE GROUP_STARTS=${starts})
set_tests_properties(group PROPERTIES TIMEOUT 900) # ThreadSanitizer beside other work
