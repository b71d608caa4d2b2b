/* A simulated client: connects, asks, cancels, reads fast or not at all, sends nonsense, leaves;
 * ends its side alone; all of it drawn. What comes back is checked byte by byte. When it is
 * lightened, it behaves, and asks one last thing that must be answered in full.
 */
#pragma once

#include "daemon/request/server.h"
#include "tests/hostile/bad.h"
#include "tests/sim/line.h"
#include "tests/sim/order.h"

#define GUESTS 8
#define GUEST_ORDERS 16
#define GUEST_ASKS 6
#define GUEST_FRAME_MAX (128u << 10)

struct guest_ask {
    uint64_t id;
    uint8_t type;
    int code;    /* an ERROR that is right: this one, */
    int or_code; /* or this one */
    bool answer; /* an answer is right */
    bool text;   /* its text goes to a thread, if there is a place and memory for it */
};

/* Wild: as drawn. Quiet: reads, and finishes what it has begun to send. Calm: asks one last thing,
 * too. */
enum guest_manner { GUEST_WILD, GUEST_QUIET, GUEST_CALM };

struct guests; /* all of them: one cancels what another asked for */

struct guest {
    struct scene *scene;
    const struct questions *questions; /* of each model */
    uint32_t models;
    struct guests *all;
    struct server *server;
    const struct order_mood *mood; /* of each model */
    uint32_t number, uid;
    bool admin;
    bool floods; /* asks without pause, at the highest priority */

    struct line line;
    bool connected, greeted;
    bool excused;   /* the daemon may close the connection */
    int close_code; /* that its last message may give, beside timeouts */
    unsigned char *in;
    size_t in_length, in_size;
    unsigned char *rest; /* of a frame that was sent in part */
    size_t rest_length;

    uint64_t next_id;
    struct order orders[GUEST_ORDERS];
    struct guest_ask asks[GUEST_ASKS];
    uint32_t acts;     /* that are left */
    uint32_t pause_us; /* between two acts, at most */
    time_us act_us;    /* when the next one is; 0 = never */
    time_us read_us;   /* does not read before */
    enum guest_manner manner;
    bool done;                                   /* the last order was answered */
    uint64_t accepted, completed, refused, lost; /* orders */
};

struct guests {
    uint32_t count;
    struct guest guest[GUESTS];
};

void guest_init(struct guest *guest, struct guests *all, uint32_t number, struct scene *scene,
                const struct questions *questions, const struct order_mood *mood, uint32_t models,
                uint32_t acts);
void guest_free(struct guest *guest);
/* Another daemon, the first or one after it. */
void guest_meet(struct guest *guest, struct server *server);
void client_settle(struct guest *guest, enum guest_manner manner);
/* Goes, for good. */
void guest_leave(struct guest *guest);

bool guest_act_due(const struct guest *guest);
void guest_act(struct guest *guest);
bool guest_read_due(const struct guest *guest);
void guest_read(struct guest *guest);
time_us guest_next(const struct guest *guest); /* 0 = never */
bool guest_waits(const struct guest *guest);   /* for an answer */
