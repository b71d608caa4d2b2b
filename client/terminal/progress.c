#include "client/terminal/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define QUIET_US 500000u /* short batches need no line */

void progress_init(struct progress *progress, time_us now_us)
{
    *progress = (struct progress){
        .active = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO),
        .started_us = now_us,
        .next_us = now_us + QUIET_US,
    };
}

void progress_show(struct progress *progress, const struct progress_state *state, time_us now_us)
{
    char part[16] = "";
    if (!progress->active || now_us < progress->next_us)
        return;
    double seconds = (double)(now_us - progress->started_us) / 1e6;
    if (state->fraction >= 0)
        snprintf(part, sizeof(part), "%3.0f %%  ", 100 * state->fraction);
    fprintf(stderr,
            "\r%s%" PRIu64 " done, %u running, %u waiting, %.1f per s, %.0f tokens per s\x1b[K",
            part, state->done, state->running, state->waiting, (double)state->done / seconds,
            (double)state->tokens / seconds);
    progress->shown = true;
    progress->next_us = now_us + PROGRESS_INTERVAL_US;
}

void progress_clear(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\x1b[K", stderr);
    progress->shown = false;
}
