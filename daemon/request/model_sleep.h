/* Sleep and wake: which models are on their devices. Policy alone, in states; who carries it out is
 * behind a table (daemon/service/sleeper.h, or a test).
 *
 *     AWAKE -> FALLING -> ASLEEP -> WAKING -> AWAKE
 *     AWAKE -> RESTING -> FALLING: one that is busy gives way to another, as below
 *
 * A model that nobody used for sleep-after, or that an admin asks to, goes to sleep once nothing of
 * it waits or runs: its replicas end and give their devices' memory back whole. Requests are taken
 * as ever; the first that waits wakes it, from its files, and is sent when it is there: until then
 * it waits in the queue, and deadlines hold.
 *
 * Models behind the first that may sleep begin so; when the daemon is ready they wake one after the
 * other, where there is memory without anybody's leaving.
 *
 * Where its device has no memory for it, the model of that device that was used the longest ago and
 * is idle goes to sleep; where all are busy, the one that was rests: it gets nothing more, what
 * runs ends, and it sleeps. Each stays awake for model-stay before that. So of two that do not fit
 * beside each other both are served in turns, and none waits for ever: who waits has asked, whoever
 * is awake leaves after its stay, and wakes again only when the other has. Where others than models
 * hold the memory it is asked for again, less and less often, and after MODEL_WAKE_MOST_US what
 * waits is refused with the reason.
 *
 * One that is awake and starves, since not one of its sequences gets KV (others gave back what they
 * had cached), has another make way likewise, which does not wake before it has some.
 *
 * Where several starve beside each other the one that woke last makes way, of those that woke
 * together the one named last: what it has comes back from its replicas, and waits with what it has
 * so far. From then on these two take turns, as two that do not fit beside each other: it is not
 * tried to wake before the other is asleep or has nothing to do, and the other drains for it after
 * its stay. So of those that starve the one that is awake the longest always gets on, and what is
 * too long for the device alone fails as ever.
 *
 * Who wakes or falls asleep may take long, but not without progress: after MODEL_STALL_US of that
 * the daemon is stuck, as by a step that does not end.
 *
 * loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"
#include "protocol/base/error.h"

#define MODEL_WAKE_RETRY_US 200000u /* after a refusal; then twice as long each time */
#define MODEL_WAKE_RETRY_MOST_US 5000000u
#define MODEL_WAKE_MOST_US 30000000u
#define MODEL_STALL_US 120000000u
#define MODEL_STARVE_US 1000000u      /* after which an idle model makes way, */
#define MODEL_STARVE_BUSY_US 5000000u /* and a busy one */

struct served_model;
struct server;

enum model_state { MODEL_AWAKE, MODEL_RESTING, MODEL_FALLING, MODEL_ASLEEP, MODEL_WAKING };

/* Embedded in struct served_model; zeroed memory is one that is awake and stays so. */
struct model_sleep {
    enum model_state state;
    bool asked;           /* an admin wants it to sleep */
    bool early;           /* wakes without a request, once others do not: it began asleep, or an
                             admin's word came while it fell */
    time_us after_us;     /* sleep-after; 0: only when asked, or for another */
    time_us used_us;      /* when something of it last waited or ran */
    time_us since_us;     /* it is awake, */
    time_us turn_us;      /* and one that starved beside it sleeps; 0: none did */
    time_us refused_us;   /* since when its waking was refused; 0: it was not */
    time_us retry_us;     /* not tried again before */
    uint32_t tries;       /* that were refused */
    uint32_t gave;        /* the number and 1 of the model that it made way for; 0: none */
    uint32_t beside;      /* likewise, and it takes turns with that */
    bool hands_back;      /* it rests, and what starves there need not end */
    struct error refusal; /* the last one's reason */
    bool failing;         /* its last waking was refused */
    time_us starved_us;   /* since when it starves; 0: it does not */
    uint64_t moved;       /* while it wakes or falls: how far it has come, by some measure; */
    time_us moved_us;     /* since when it is there; */
    bool stalled;         /* that is for too long */
    uint64_t sleeps_total, wakes_total;
};

/* Who carries it out. Both return at once; the ends are told by the functions below. */
struct sleep_api {
    void (*sleep)(void *context, uint32_t model);
    void (*wake)(void *context, uint32_t model);
};

/* "awake", "falling asleep" (also while it rests), "asleep" or "waking". */
const char *model_sleep_word(const struct served_model *model);
/* One of them makes no progress on its way up or down. */
bool model_sleep_stalled(const struct server *server);
/* Once a turn, before sequences are sent. */
void model_sleep_turn(struct server *server, time_us now_us);
/* When it is due by itself; 0: never. */
time_us model_sleep_due(const struct server *server);
/* An admin's word. ERR_UNSUPPORTED: it cannot sleep, ERR_BAD_STATE: not now, and why. */
int model_sleep_ask(struct server *server, struct served_model *model, struct error *error);
void model_wake_ask(struct server *server, struct served_model *model, time_us now_us);

/* What the table's calls came to. A refusal for want of memory or descriptors is tried again, any
 * other ends what waits. */
void model_slept(struct server *server, uint32_t model, time_us now_us);
void model_woke(struct server *server, uint32_t model, time_us now_us);
void model_wake_refused(struct server *server, uint32_t model, const struct error *error,
                        time_us now_us);
