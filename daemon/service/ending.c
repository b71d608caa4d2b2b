#include "daemon/service/ending.h"

static void enter(struct ending *ending, enum ending_stage stage, time_us due_us)
{
    ending->stage = stage;
    ending->due_us = due_us;
}

void ending_ask(struct ending *ending, time_us drain_us, time_us now_us)
{
    if (ending->stage != ENDING_NOT)
        return;
    ending->greet_due_us = now_us + ENDING_GREET_US;
    enter(ending, ENDING_DRAIN, now_us + drain_us);
}

void ending_announce(struct ending *ending, time_us grace_us, time_us drain_us, time_us now_us)
{
    if (ending->stage != ENDING_NOT)
        return;
    ending->drain_us = drain_us;
    enter(ending, ENDING_GRACE, now_us + grace_us);
}

void ending_fail(struct ending *ending, time_us now_us)
{
    if (ending->stage != ENDING_FAILED)
        enter(ending, ENDING_FAILED, now_us + ENDING_FAIL_US);
}

static enum ending_act stop(struct ending *ending, time_us now_us)
{
    enter(ending, ENDING_STOP, now_us + ENDING_STOP_US);
    return ENDING_HALT;
}

static enum ending_act finish(struct ending *ending, const struct ending_facts *facts,
                              time_us now_us)
{
    if (!facts->texts && !facts->file) {
        enter(ending, ENDING_CLOSE, 0);
        return ENDING_RETURN;
    }
    enter(ending, ENDING_FINISH, now_us + (facts->file ? ENDING_FILE_US : ENDING_TEXTS_US));
    return ENDING_LINGER;
}

enum ending_act ending_turn(struct ending *ending, const struct ending_facts *facts, time_us now_us)
{
    bool over = ending->due_us && ending->due_us <= now_us;
    switch (ending->stage) {
    case ENDING_NOT:
    case ENDING_CLOSE:
        return ENDING_WAIT;
    case ENDING_GRACE:
        if (!over)
            return ENDING_WAIT;
        ending->stage = ENDING_NOT;
        ending_ask(ending, ending->drain_us, now_us);
        return ENDING_REFUSE;
    case ENDING_DRAIN:
        /* Who had just connected is heard, and told, instead of cut off. */
        if (facts->idle && !(facts->greeting && now_us < ending->greet_due_us))
            return stop(ending, now_us);
        if (!over)
            return ENDING_WAIT;
        enter(ending, ENDING_CUT, now_us + ENDING_CUT_US);
        return ENDING_CANCEL;
    case ENDING_CUT:
        return facts->idle || over ? stop(ending, now_us) : ENDING_WAIT;
    case ENDING_STOP:
        if (facts->stopped)
            return finish(ending, facts, now_us);
        return over ? ENDING_ABANDON : ENDING_WAIT;
    case ENDING_FINISH:
        if (!facts->texts && !facts->file)
            return finish(ending, facts, now_us);
        return over ? ENDING_ABANDON : ENDING_WAIT;
    case ENDING_FAILED:
        return facts->idle || over ? ENDING_ABANDON : ENDING_WAIT;
    }
    return ENDING_WAIT;
}

time_us ending_due(const struct ending *ending, time_us now_us)
{
    bool greets = ending->stage == ENDING_DRAIN && now_us < ending->greet_due_us;
    return greets && ending->greet_due_us < ending->due_us ? ending->greet_due_us : ending->due_us;
}
