#include "gpu/emu/work.h"

#include <string.h>

#include "gpu/emu/call.h"
#include "gpu/emu/event.h"
#include "gpu/emu/tally.h"
#include "gpu/emu/team.h"

void work_fill(void *dst, int value, size_t bytes)
{
    memset(dst, value, bytes);
}

void work_run(struct CUstream_st *stream, const struct work *work)
{
    switch ((enum work_kind)work->kind) {
    case WORK_COPY:
        memcpy(work->copy.dst, work->copy.src, work->copy.bytes);
        break;
    case WORK_FILL:
        memset(work->fill.dst, work->fill.value, work->fill.bytes);
        break;
    case WORK_KERNEL:
        team_run(stream, work);
        break;
    case WORK_HOST:
        call_host_function(true);
        work->host.function(work->host.data);
        call_host_function(false);
        break;
    case WORK_STAMP:
        event_stamp(work->stamp.event, work->stamp.generation);
        break;
    case WORK_RAISE:
        tally_raise(work->tally.own);
        break;
    case WORK_WAIT: /* settled before it comes to running */
    case WORK_LEVEL:
        break;
    }
}
