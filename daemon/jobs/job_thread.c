/* The thread of the worker of jobs. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "daemon/jobs/job_worker_inner.h"

static void wait_for_work(struct job_worker *worker)
{
    uint64_t wait_us = job_worker_wait_us(worker, clock_now_us()), drained;
    struct pollfd poll_fd = {.fd = worker->wake_fd, .events = POLLIN};
    struct timespec timeout = {.tv_sec = (time_t)(wait_us / 1000000u),
                               .tv_nsec = (long)(wait_us % 1000000u) * 1000};
    if (ppoll(&poll_fd, 1, wait_us == JOB_WORKER_FOREVER ? NULL : &timeout, NULL) > 0) {
        ssize_t got = read(worker->wake_fd, &drained, sizeof(drained));
        (void)got; /* it was readable, and nobody else reads it */
    }
}

static void *thread_main(void *argument)
{
    struct job_worker *worker = argument;
    (void)job_worker_open(worker);
    (void)pthread_setname_np(pthread_self(), "sluice-jobs");
    do
        wait_for_work(worker);
    while (job_worker_turn(worker, clock_now_us()));
    return NULL;
}

int job_worker_start(struct job_worker *worker, struct error *error)
{
    int rc = pthread_create(&worker->thread, NULL, thread_main, worker);
    if (rc != 0)
        return error_set(error, ERR_INTERNAL, "cannot start a thread for jobs: %s", strerror(rc));
    worker->has_thread = true;
    return 0;
}

void job_worker_join(struct job_worker *worker)
{
    if (worker->has_thread)
        pthread_join(worker->thread, NULL);
    worker->has_thread = false;
}
