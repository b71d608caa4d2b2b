sluice_test(replica PARTS 4
    SOURCES replica_main.c cost_test.c fake_device.c fake_plan.c fake_rule.c fake_run.c fake_seq.c kv_test.c place_test.c queue_test.c
        sched_random_test.c sched_rig.c sched_test.c stats_test.c worker_test.c
    LIBS sluice_daemon)

sluice_test(steady
    SOURCES steady_main.c steady_test.c fake_device.c fake_plan.c fake_rule.c fake_run.c fake_seq.c
    LIBS sluice_daemon sluice_gpu_cpu)
sluice_count_heap(test_steady)
sluice_test(group
    SOURCES group_main.c group_test.c
    LIBS sluice_daemon sluice_gpu_cpu)
set(starts 50)
if(SLUICE_SANITIZE OR SLUICE_FUZZ)
    set(starts 12)
endif()
target_compile_definitions(test_group PRIVATE GROUP_STARTS=${starts})
set_tests_properties(group PROPERTIES TIMEOUT 900) # ThreadSanitizer beside other work
