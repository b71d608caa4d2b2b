#include "daemon/queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "daemon/outbox.h"
#include "daemon/request.h"
#include "tests/daemon/replica_suites.h"

#define THREADS 4
#define PER_THREAD 20000

struct item {
    struct queue_link link;
    uint32_t thread, number;
};

static struct queue queue;
static struct item *items[THREADS];

START_TEST(a_drain_takes_everything_in_order)
{
    struct item a, b;
    queue_init(&queue);
    ck_assert_ptr_null(queue_drain(&queue));
    ck_assert(queue_push(&queue, &a.link));
    ck_assert(!queue_push(&queue, &b.link));
    ck_assert_ptr_eq(queue_drain(&queue), &a.link);
    ck_assert_ptr_eq(a.link.next, &b.link);
    ck_assert_ptr_null(b.link.next);
    ck_assert_ptr_null(queue_drain(&queue));
    ck_assert(queue_push(&queue, &a.link));
    queue_destroy(&queue);
}
END_TEST

static void *push_all(void *argument)
{
    struct item *mine = argument;
    for (uint32_t i = 0; i < PER_THREAD; i++)
        queue_push(&queue, &mine[i].link);
    return NULL;
}

START_TEST(many_threads_push_and_nothing_is_lost)
{
    pthread_t threads[THREADS];
    uint32_t next[THREADS] = {0}, total = 0;
    queue_init(&queue);
    for (uint32_t t = 0; t < THREADS; t++) {
        items[t] = calloc(PER_THREAD, sizeof(*items[t]));
        for (uint32_t i = 0; i < PER_THREAD; i++)
            items[t][i] = (struct item){.thread = t, .number = i};
        pthread_create(&threads[t], NULL, push_all, items[t]);
    }
    while (total < THREADS * PER_THREAD)
        for (struct queue_link *link = queue_drain(&queue); link != NULL; link = link->next) {
            const struct item *item = container_of(link, struct item, link);
            ck_assert_uint_eq(item->number, next[item->thread]++);
            total++;
        }
    for (uint32_t t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        free(items[t]);
    }
    queue_destroy(&queue);
}
END_TEST

/* ---- outbox -----------------------------------------------------------------------------------
 */

static struct outbox outbox;
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
    outbox_init(&outbox, count_wake, NULL);
    outbox_flush(&outbox);
    ck_assert_uint_eq(atomic_load(&wakes), 0);
    outbox_visit(&outbox, &seqs[0], 0);
    outbox_visit(&outbox, &seqs[1], OUTBOX_ENDED);
    outbox_visit(&outbox, &seqs[0], OUTBOX_ENDED);
    outbox_control(&outbox, OUTBOX_STATS);
    outbox_flush(&outbox);
    outbox_flush(&outbox);
    ck_assert_uint_eq(atomic_load(&wakes), 1);
    struct queue_link *chain = outbox_drain(&outbox, &control);
    ck_assert_uint_eq(control, OUTBOX_STATS);
    ck_assert_ptr_eq(outbox_next(&chain, &flags), &seqs[0]);
    ck_assert_uint_eq(flags, OUTBOX_ENDED);
    outbox_visit(&outbox, &seqs[0], OUTBOX_CANCEL_SEEN); /* while the chain is being walked */
    ck_assert_ptr_eq(outbox_next(&chain, &flags), &seqs[1]);
    ck_assert_ptr_null(outbox_next(&chain, &flags));
    chain = outbox_drain(&outbox, &control);
    ck_assert_uint_eq(control, 0);
    ck_assert_ptr_eq(outbox_next(&chain, &flags), &seqs[0]);
    ck_assert_uint_eq(flags, OUTBOX_ENDED | OUTBOX_CANCEL_SEEN);
    ck_assert_ptr_null(outbox_next(&chain, &flags));
    outbox_destroy(&outbox);
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
            outbox_visit(&outbox, &seqs[s], i + 1 == TOKENS ? OUTBOX_ENDED : 0);
        }
    outbox_flush(&outbox);
    return NULL;
}

START_TEST(the_loop_sees_each_end_once_and_all_tokens_with_it)
{
    pthread_t thread;
    uint32_t ends = 0;
    unsigned control, flags;
    outbox_init(&outbox, count_wake, NULL);
    pthread_create(&thread, NULL, produce, NULL);
    while (ends < 8) {
        struct queue_link *chain = outbox_drain(&outbox, &control);
        struct seq *seq;
        while ((seq = outbox_next(&chain, &flags)) != NULL) {
            uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
            if (!(flags & OUTBOX_ENDED))
                continue;
            ck_assert_uint_eq(count, TOKENS);
            ck_assert_int_eq(seq->finish, FINISH_LENGTH);
            ends++;
        }
    }
    pthread_join(thread, NULL);
    ck_assert_ptr_null(outbox_drain(&outbox, &control));
    outbox_destroy(&outbox);
}
END_TEST

Suite *queue_suite(void)
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
