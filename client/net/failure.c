#include "client/net/failure.h"

#include <assert.h>
#include <string.h>

#include "protocol/message.h"

#define SAME(public, own) static_assert((int)(public) == (int)(own), "numbers are passed on")
SAME(SLUICE_E_INTERNAL, ERR_INTERNAL);
SAME(SLUICE_E_NO_MEMORY, ERR_NO_MEMORY);
SAME(SLUICE_E_IO, ERR_IO);
SAME(SLUICE_E_BAD_FRAME, ERR_BAD_FRAME);
SAME(SLUICE_E_BAD_VALUE, ERR_BAD_VALUE);
SAME(SLUICE_E_BAD_TOKEN, ERR_BAD_TOKEN);
SAME(SLUICE_E_EMPTY, ERR_EMPTY);
SAME(SLUICE_E_TOO_LARGE, ERR_TOO_LARGE);
SAME(SLUICE_E_BUSY, ERR_BUSY);
SAME(SLUICE_E_DRAINING, ERR_DRAINING);
SAME(SLUICE_E_LOADING, ERR_LOADING);
SAME(SLUICE_E_DENIED, ERR_DENIED);
SAME(SLUICE_E_NOT_FOUND, ERR_NOT_FOUND);
SAME(SLUICE_E_UNSUPPORTED, ERR_UNSUPPORTED);
SAME(SLUICE_E_DEADLINE, ERR_DEADLINE);
SAME(SLUICE_E_CANCELLED, ERR_CANCELLED);
SAME(SLUICE_E_DEVICE, ERR_DEVICE);
SAME(SLUICE_E_PROGRAM, ERR_PROGRAM);
SAME(SLUICE_E_PROGRAM_OFF, ERR_PROGRAM_OFF);
SAME(SLUICE_E_CONNECT, ERR_CONNECT);
SAME(SLUICE_E_TIMEOUT, ERR_TIMEOUT);
SAME(SLUICE_E_CLOSED, ERR_CLOSED);
SAME(SLUICE_E_USAGE, ERR_USAGE);
SAME(SLUICE_RETRY_NEVER, RETRY_NEVER);
SAME(SLUICE_RETRY_LATER, RETRY_LATER);
SAME(SLUICE_RETRY_FIX, RETRY_FIX);
SAME(SLUICE_FINISH_STOP, FINISH_STOP);
SAME(SLUICE_FINISH_LENGTH, FINISH_LENGTH);
SAME(SLUICE_FINISH_CANCELLED, FINISH_CANCELLED);
SAME(SLUICE_FINISH_DEADLINE, FINISH_DEADLINE);
SAME(SLUICE_FINISH_ERROR, FINISH_ERROR);
SAME(SLUICE_GENERATE, JOB_GENERATE);
SAME(SLUICE_SCORE, JOB_SCORE);
SAME(SLUICE_EMBED, JOB_EMBED);
SAME(SLUICE_POOL_LAST, POOLING_LAST);
SAME(SLUICE_POOL_MEAN, POOLING_MEAN);
SAME(SLUICE_POOL_ALL, POOLING_ALL);
SAME(SLUICE_STATS, FRAME_STATS);
SAME(SLUICE_HEALTH, FRAME_HEALTH);
SAME(SLUICE_MODEL, FRAME_MODEL);
SAME(SLUICE_DRAIN, FRAME_DRAIN);
SAME(SLUICE_RESUME, FRAME_RESUME);
SAME(SLUICE_PROGRAMS, FRAME_PROGRAMS);
SAME(SLUICE_TIMELINE, FRAME_TIMELINE);
static_assert(sizeof(((sluice_error *)0)->text) == ERROR_TEXT_MAX, "texts are copied whole");

void failure_publish(const struct error *error, sluice_error *ret_public)
{
    *ret_public = (sluice_error){
        .code = error->code,
        .retry = (int)error_retry(error->code),
        .retry_after_ms = error->retry_after_ms,
        .limit = error->limit,
        .value = error->value,
    };
    memcpy(ret_public->text, error->text, sizeof(ret_public->text));
}

const char *sluice_error_name(int code)
{
    return error_name(code);
}

const char *sluice_finish_name(int finish)
{
    return finish >= 0 && finish <= (int)FINISH_ERROR ? finish_name((enum finish)finish)
                                                      : "unknown";
}

const char *sluice_version(void)
{
    return SLUICE_VERSION;
}
