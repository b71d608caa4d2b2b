#include "tests/sim/threads.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/api/session.h"
#include "daemon/net/conn.h"
#include "daemon/request/users.h"

static struct errand *errand_of(struct task *task)
{
    return container_of(task, struct errand, task);
}

/* Small ones are short, but now and then a template is slow with one. */
static time_us draw_cost(const struct threads *threads, const struct errand *errand)
{
    struct scene *scene = threads->scene;
    if (errand->item.class == BACKLOG_IS_LARGE)
        return threads->slow * scene_between(scene, 3000, 40000);
    return threads->slow *
           (scene_one_in(scene, 8) ? scene_between(scene, 1000, 20000) : scene_below(scene, 300));
}

/* Whether a large item waits that could have been started in this one's place. */
static bool large_could(const struct threads *threads, const struct backlog_item *instead)
{
    const struct server *server = threads->server;
    uint32_t share = backlog_share(&server->backlog);
    if (server->backlog.running_large >= share)
        return false;
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_each(link, &server->users.buckets[i])
        {
            const struct user *user = container_of(link, struct user, bucket_link);
            uint32_t running = user->backlog.running - (instead->user == &user->backlog);
            if (backlog_first(&user->backlog.lanes[BACKLOG_IS_LARGE]) && running < share)
                return true;
        }
    return false;
}

/* One thread is left to small tasks, and to other users, where there are several. */
static void check_shares(struct threads *threads, const struct errand *errand)
{
    uint32_t share = backlog_share(&threads->server->backlog);
    bool small = errand->item.class == BACKLOG_IS_SMALL;
    uint32_t large = !small, own = 1;
    for (uint32_t i = 0; i < THREADS_MOST; i++) {
        if (!threads->slots[i].task)
            continue;
        const struct backlog_item *item = &errand_of(threads->slots[i].task)->item;
        large += item->class == BACKLOG_IS_LARGE;
        own += item->user == errand->item.user;
    }
    if (large > share || own > share)
        scene_fail(threads->scene, "of %u threads, %u have large tasks, %u one user's",
                   threads->background.threads, large, own);
    threads->smalls = small && large_could(threads, &errand->item) ? threads->smalls + 1 : 0;
    if (threads->smalls > BACKLOG_SMALL_RUN)
        scene_fail(threads->scene, "%u small tasks went before a large one", threads->smalls);
}

static int run(struct background *background, struct task *task)
{
    struct threads *threads = container_of(background, struct threads, background);
    struct scene *scene = threads->scene;
    const struct errand *errand = errand_of(task);
    check_shares(threads, errand);
    if (scene_one_in(scene, 300))
        return -ERR_NO_MEMORY;
    for (uint32_t i = 0; i < background->threads; i++) {
        struct threads_slot *slot = &threads->slots[i];
        if (slot->task)
            continue;
        *slot = (struct threads_slot){.task = task,
                                      .end_us = scene->now_us + draw_cost(threads, errand)};
        if (errand->item.deadline.slot != DEADLINE_NONE)
            slot->deadline_us = errand->item.deadline.at_us;
        threads->started++;
        scene_note(scene, "task", i, errand->item.class);
        return 0;
    }
    scene_fail(scene, "%u threads were given one task more", background->threads);
    return -ERR_NO_MEMORY;
}

void threads_open(struct threads *threads, struct scene *scene, const struct server *server)
{
    memset(threads, 0, sizeof(*threads));
    threads->background =
        (struct background){.run = run, .threads = scene_between(scene, 1, THREADS_MOST)};
    threads->scene = scene;
    threads->slow = scene_one_in(scene, 3) ? scene_between(scene, 2, 10) : 1;
    threads->server = server;
}

static bool over(const struct threads *threads, const struct threads_slot *slot)
{
    return slot->task && slot->end_us <= threads->scene->now_us;
}

bool threads_due(const struct threads *threads)
{
    for (uint32_t i = 0; i < THREADS_MOST; i++)
        if (over(threads, &threads->slots[i]))
            return true;
    return false;
}

bool threads_end(struct threads *threads, bool all)
{
    struct scene *scene = threads->scene;
    uint32_t first = scene_below(scene, THREADS_MOST);
    for (uint32_t i = 0; i < THREADS_MOST; i++) {
        struct threads_slot *slot = &threads->slots[(first + i) % THREADS_MOST];
        struct task *task = slot->task;
        if (!task || (!all && !over(threads, slot)))
            continue;
        const struct errand *errand = errand_of(task);
        if (slot->deadline_us && slot->deadline_us <= threads->turn_us && !errand->dropped)
            scene_fail(scene, "a text is late by %" PRIu64 " us, and nobody was told",
                       threads->turn_us - slot->deadline_us);
        scene_note(scene, "done", (uint64_t)(slot - threads->slots), errand->dropped);
        slot->task = NULL;
        task->work(task);
        task->done(task, scene->now_us);
        return true;
    }
    return false;
}

time_us threads_next(const struct threads *threads)
{
    time_us next_us = 0;
    for (uint32_t i = 0; i < THREADS_MOST; i++)
        if (threads->slots[i].task && (!next_us || threads->slots[i].end_us < next_us))
            next_us = threads->slots[i].end_us;
    return next_us;
}

/* ---- what must hold ----------------------------------------------------------------------------
 */

/* Who was told to stop does, within its bound. */
static void heed(struct threads *threads)
{
    time_us at_most_us = threads->scene->now_us + THREADS_STOP_US;
    for (uint32_t i = 0; i < THREADS_MOST; i++) {
        struct threads_slot *slot = &threads->slots[i];
        if (!slot->task || slot->halted || !halt_code(&slot->task->halt))
            continue;
        slot->halted = true;
        if (slot->end_us > at_most_us)
            slot->end_us = threads->scene->now_us + scene_below(threads->scene, THREADS_STOP_US);
    }
}

static uint64_t length(const struct list *list)
{
    uint64_t count = 0;
    list_each(link, list) count++;
    return count;
}

/* For every text that is wanted somebody waits, and the others are on their way out. */
static void check_wanted(const struct threads *threads)
{
    const struct server *server = threads->server;
    uint64_t asked = 0, wanted = 0;
    list_each(link, &server->conns.conns)
    {
        const struct session *session = container_of(link, struct session, conn.conn_link);
        asked += length(&session->submits) + length(&session->texts);
    }
    list_each(link, &server->errands)
    {
        const struct errand *errand = container_of(link, struct errand, link);
        wanted += !errand->dropped;
        if (errand->dropped &&
            (errand->item.state != BACKLOG_RUNS || !halt_code(&errand->task.halt)))
            scene_fail(threads->scene, "a text that nobody wants %s",
                       errand->item.state == BACKLOG_RUNS ? "is not stopped" : "waits");
    }
    if (asked != wanted ||
        server->encodings != server->backlog.waiting_count + server->backlog.running_count)
        scene_fail(threads->scene,
                   "%" PRIu64 " texts are asked for, %" PRIu64 " are under way (%" PRIu64
                   " wait, %u run)",
                   asked, wanted, server->backlog.waiting_count, server->backlog.running_count);
}

static void check_lane(struct threads *threads, const struct user *user, uint32_t class)
{
    const struct backlog *backlog = &threads->server->backlog;
    const struct backlog_item **head = &threads->heads[user->id][class];
    uint64_t *since = &threads->since[user->id][class];
    const struct backlog_item *first = backlog_first(&user->backlog.lanes[class]);
    bool may = first && user->backlog.running < backlog_share(backlog) &&
               (class == BACKLOG_IS_SMALL || backlog->running_large < backlog_share(backlog));
    if (may && backlog->running_count < backlog->threads)
        scene_fail(threads->scene, "a thread rests while user %" PRIu64 " waits", user->id);
    if (!may || first != *head)
        *since = threads->started;
    *head = first;
    /* A round of the others' small ones and a large one, or as much for each large one before. */
    uint64_t most =
        class == BACKLOG_IS_SMALL ? THREADS_USERS : THREADS_USERS * (BACKLOG_SMALL_RUN + 1);
    if (threads->started - *since > most)
        scene_fail(threads->scene, "user %" PRIu64 " waits, and %" PRIu64 " others were started",
                   user->id, threads->started - *since);
}

void threads_check(struct threads *threads, bool turned)
{
    const struct server *server = threads->server;
    time_us due_us = backlog_due(&server->backlog);
    heed(threads);
    if (turned && due_us && due_us <= server->turn_us)
        scene_fail(threads->scene, "the server's turn left a deadline that has passed");
    if (turned)
        threads->turn_us = server->turn_us;
    if (due_us && server_due(server) > due_us)
        scene_fail(threads->scene, "no turn is due at a text's deadline");
    check_wanted(threads);
    for (uint32_t i = 0; i < USER_BUCKETS; i++)
        list_each(link, &server->users.buckets[i])
        {
            const struct user *user = container_of(link, struct user, bucket_link);
            for (uint32_t class = 0; class < BACKLOG_CLASSES; class ++)
                check_lane(threads, user, class);
        }
}
