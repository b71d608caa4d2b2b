#pragma once

#include <check.h>

Suite *chunk_thread_suite(void);
Suite *cost_suite(void);
Suite *kv_suite(void);
Suite *place_suite(void);
Suite *limit_suite(void);
Suite *lookup_suite(void);
Suite *mailbox_suite(void);
Suite *overload_suite(void);
Suite *sched_suite(void);
Suite *sched_preempt_suite(void);
Suite *sched_random_suite(void);
Suite *sched_share_suite(void);
Suite *sched_cache_suite(void);
Suite *sched_drafts_suite(void);
Suite *sched_tier_suite(void);
Suite *tier_suite(void);
Suite *wants_suite(void);
Suite *stats_suite(void);
Suite *worker_suite(void);
