/* Ending: the stages from the word to end until the process is gone. Each has its bound, whatever
 * is under way: clients that do not read, a device that does not answer, a thread of the pool that
 * never comes back.
 *
 * Pure: whoever drives it (daemon/service/event_loop.c, the simulation) tells what is, does what
 * ending_turn() says, and turns again after it, and at ending_due(). What it cannot bound, since it
 * is not turned any more, daemon/service/guard.h does. loop thread
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol/base/clock.h"

#define ENDING_FAIL_US 500000u    /* to tell clients that the device failed */
#define ENDING_GREET_US 500000u   /* for clients that are connecting, when the end is asked for */
#define ENDING_CUT_US 2000000u    /* for cancelled work to end */
#define ENDING_STOP_US 10000000u  /* for workers to end */
#define ENDING_TEXTS_US 2000000u  /* for texts off the loop, whose clients were told already */
#define ENDING_FILE_US 10000000u  /* for the trace file to be written */
#define ENDING_CLOSE_US 10000000u /* to give back what the process holds */

enum ending_stage {
    ENDING_NOT,    /* nobody has asked */
    ENDING_GRACE,  /* said to be ending, and work is still taken: drain-grace */
    ENDING_DRAIN,  /* no new work; what was accepted goes on, up to drain-timeout */
    ENDING_CUT,    /* the rest was cancelled; it ends soon */
    ENDING_STOP,   /* workers end */
    ENDING_FINISH, /* threads of the pool still have a task */
    ENDING_CLOSE,  /* all has ended */
    ENDING_FAILED  /* the device failed: clients are told, and the process ends */
};

struct ending {
    enum ending_stage stage;
    time_us drain_us;     /* of the stage that follows a grace */
    time_us due_us;       /* when the stage is over at the latest; 0 = it has no end */
    time_us greet_due_us; /* how long a drained daemon stays for those who have not said HELLO */
};

/* What is now. */
struct ending_facts {
    bool idle;     /* nothing is accepted and not answered, and all answers are written */
    bool greeting; /* somebody connected and has not said HELLO */
    bool stopped;  /* the workers have ended */
    bool texts;    /* are off the loop */
    bool file;     /* the trace file is being written */
};

enum ending_act {
    ENDING_REFUSE, /* the grace is over: no new work from now on */
    ENDING_WAIT,   /* nothing to do until something happens, or ending_due() */
    ENDING_CANCEL, /* the time for draining is over: cancel all that lives */
    ENDING_HALT,   /* stop the workers; whatever comes from now on starts nothing any more */
    ENDING_LINGER, /* nothing: the workers have ended, and threads of the pool have not */
    ENDING_RETURN, /* all has ended: leave the loop and give back what is held */
    ENDING_ABANDON /* time is over, or the device failed: end the process from here */
};

/* Nothing happens unless it is ENDING_NOT. */
void ending_ask(struct ending *ending, time_us drain_us, time_us now_us);
/* The same after a grace, at whose end ENDING_REFUSE is said. */
void ending_announce(struct ending *ending, time_us grace_us, time_us drain_us, time_us now_us);
/* From any stage. */
void ending_fail(struct ending *ending, time_us now_us);
enum ending_act ending_turn(struct ending *ending, const struct ending_facts *facts,
                            time_us now_us);
/* When it must be turned next even if nothing happens; 0 = never. After a turn that says to wait,
 * never before that turn's time. */
time_us ending_due(const struct ending *ending, time_us now_us);
/* All stages together take no longer than that, grace and draining not counted. */
#define ENDING_MOST_US (ENDING_CUT_US + ENDING_STOP_US + ENDING_FILE_US)
