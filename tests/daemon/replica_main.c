#include "tests/daemon/replica_suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(mailbox_suite());
    srunner_add_suite(runner, kv_suite());
    srunner_add_suite(runner, cost_suite());
    srunner_add_suite(runner, place_suite());
    srunner_add_suite(runner, stats_suite());
    srunner_add_suite(runner, sched_suite());
    srunner_add_suite(runner, sched_preempt_suite());
    srunner_add_suite(runner, overload_suite());
    srunner_add_suite(runner, limit_suite());
    srunner_add_suite(runner, sched_cache_suite());
    srunner_add_suite(runner, tier_suite());
    srunner_add_suite(runner, sched_tier_suite());
    srunner_add_suite(runner, wants_suite());
    srunner_add_suite(runner, sched_share_suite());
    srunner_add_suite(runner, sched_random_suite());
    srunner_add_suite(runner, lookup_suite());
    srunner_add_suite(runner, sched_drafts_suite());
    srunner_add_suite(runner, chunk_thread_suite());
    srunner_add_suite(runner, worker_suite());
    return runner_run(runner);
}
