#include "daemon/base/mailbox.h"

#include <pthread.h>
#include <stdlib.h>

#include "daemon/request/request.h"
#include "daemon/worker/completion_queue.h"
#include "tests/daemon/replica_suites.h"

#define THREADS 4
#define PER_THREAD 20000

struct item {
    struct mailbox_link link;
    uint32_t thread, number;
};

static struct mailbox queue;
static struct item *items[THREADS];

START_TEST(a_drain_takes_everything_in_order)
{
    struct item a, b;
    mailbox_init(&queue);
    ck_assert_ptr_null(mailbox_drain(&queue));
    ck_assert(mailbox_push(&queue, &a.link));
    ck_assert(!mailbox_push(&queue, &b.link));
    ck_assert_ptr_eq(mailbox_drain(&queue), &a.link);
    ck_assert_ptr_eq(a.link.next, &b.link);
    ck_assert_ptr_null(b.link.next);
    ck_assert_ptr_null(mailbox_drain(&queue));
    ck_assert(mailbox_push(&queue, &a.link));
    mailbox_destroy(&queue);
}
END_TEST

static void *push_all(void *argument)
{
    struct item *mine = argument;
    for (uint32_t i = 0; i < PER_THREAD; i++)
        mailbox_push(&queue, &mine[i].link);
    return NULL;
}

START_TEST(many_threads_push_and_nothing_is_lost)
{
    pthread_t threads[THREADS];
    uint32_t next[THREADS] = {0}, total = 0;
    mailbox_init(&queue);
    for (uint32_t t = 0; t < THREADS; t++) {
        items[t] = calloc(PER_THREAD, sizeof(*items[t]));
        for (uint32_t i = 0; i < PER_THREAD; i++)
            items[t][i] = (struct item){.thread = t, .number = i};
        pthread_create(&threads[t], NULL, push_all, items[t]);
    }
    while (total < THREADS * PER_THREAD)
        for (struct mailbox_link *link = mailbox_drain(&queue); link != NULL; link = link->next) {
            const struct item *item = container_of(link, struct item, link);
            ck_assert_uint_eq(item->number, next[item->thread]++);
            total++;
        }
    for (uint32_t t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        free(items[t]);
    }
    mailbox_destroy(&queue);
}
END_TEST

/* ---- completion queue
 * -----------------------------------------------------------------------------------
 */

static struct completion_queue completions;
static atomic_uint wakes;
static struct seq seqs[8];

static void count_wake(void *context)
{
    (void)context;
    atomic_fetch_add(&wakes, 1);
}

START_TEST(visits_of_a_sequence_merge_until_the_loop_looks)
{
    unsigned control, flags;
    completion_init(&completions, count_wake, NULL);
    completion_flush(&completions);
    ck_assert_uint_eq(atomic_load(&wakes), 0);
    completion_visit(&completions, &seqs[0], 0);
    completion_visit(&completions, &seqs[1], COMPLETION_ENDED);
    completion_visit(&completions, &seqs[0], COMPLETION_ENDED);
    completion_control(&completions, COMPLETION_STATS);
    completion_flush(&completions);
    completion_flush(&completions);
    ck_assert_uint_eq(atomic_load(&wakes), 1);
    struct mailbox_link *chain = completion_drain(&completions, &control);
    ck_assert_uint_eq(control, COMPLETION_STATS);
    ck_assert_ptr_eq(completion_next(&chain, &flags), &seqs[0]);
    ck_assert_uint_eq(flags, COMPLETION_ENDED);
    completion_visit(&completions, &seqs[0],
                     COMPLETION_CANCEL_SEEN); /* while the chain is being walked */
    ck_assert_ptr_eq(completion_next(&chain, &flags), &seqs[1]);
    ck_assert_ptr_null(completion_next(&chain, &flags));
    chain = completion_drain(&completions, &control);
    ck_assert_uint_eq(control, 0);
    ck_assert_ptr_eq(completion_next(&chain, &flags), &seqs[0]);
    ck_assert_uint_eq(flags, COMPLETION_ENDED | COMPLETION_CANCEL_SEEN);
    ck_assert_ptr_null(completion_next(&chain, &flags));
    completion_destroy(&completions);
}
END_TEST

#define TOKENS 30000

static void *produce(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < TOKENS; i++)
        for (uint32_t s = 0; s < 8; s++) {
            atomic_fetch_add_explicit(&seqs[s].out_count, 1, memory_order_release);
            seqs[s].finish = i + 1 == TOKENS ? FINISH_LENGTH : FINISH_STOP;
            completion_visit(&completions, &seqs[s], i + 1 == TOKENS ? COMPLETION_ENDED : 0);
        }
    completion_flush(&completions);
    return NULL;
}

START_TEST(the_loop_sees_each_end_once_and_all_tokens_with_it)
{
    pthread_t thread;
    uint32_t ends = 0;
    unsigned control, flags;
    completion_init(&completions, count_wake, NULL);
    pthread_create(&thread, NULL, produce, NULL);
    while (ends < 8) {
        struct mailbox_link *chain = completion_drain(&completions, &control);
        struct seq *seq;
        while ((seq = completion_next(&chain, &flags)) != NULL) {
            uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
            if (!(flags & COMPLETION_ENDED))
                continue;
            ck_assert_uint_eq(count, TOKENS);
            ck_assert_int_eq(seq->finish, FINISH_LENGTH);
            ends++;
        }
    }
    pthread_join(thread, NULL);
    ck_assert_ptr_null(completion_drain(&completions, &control));
    completion_destroy(&completions);
}
END_TEST

Suite *mailbox_suite(void)
{
    Suite *suite = suite_create("queue");
    TCase *tcase = tcase_create("mailboxes");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_drain_takes_everything_in_order);
    tcase_add_test(tcase, many_threads_push_and_nothing_is_lost);
    tcase_add_test(tcase, visits_of_a_sequence_merge_until_the_loop_looks);
    tcase_add_test(tcase, the_loop_sees_each_end_once_and_all_tokens_with_it);
    suite_add_tcase(suite, tcase);
    return suite;
}
