#include "client/top/screen.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)
#define USERS_MAX 4
#define SPARKS_MAX 60

/* ---- lines -------------------------------------------------------------------------------------
 */

/* Characters, of which one may take several bytes: cut behind the last that has its column. */
static size_t cut(const char *text, int columns)
{
    size_t at = 0;
    for (; text[at]; at++)
        if (((unsigned char)text[at] & 0xc0) != 0x80 && columns-- == 0)
            break;
    return at;
}

__attribute__((format(printf, 2, 3))) static void put(struct screen *screen, const char *format,
                                                      ...)
{
    va_list arguments;
    if (screen->used >= screen->rows || screen->used >= SCREEN_ROWS_MAX)
        return;
    char *line = screen->lines[screen->used++];
    va_start(arguments, format);
    vsnprintf(line, SCREEN_BYTES, format, arguments);
    va_end(arguments);
    line[cut(line, screen->columns)] = 0;
}

/* The last values as bars, the newest at the right. */
static void make_spark(const double *values, int count, bool ascii, char *text)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, values[i]);
    for (int i = 0; i < count; i++) {
        int level = most > 0 ? (int)ceil(values[i] / most * 8) : 0;
        if (ascii || level == 0)
            *text++ = " .:-=+*#@"[level];
        else
            text += sprintf(text, "\xe2\x96%c", 0x80 + level); /* U+2580 and so many eighths */
    }
    *text = 0;
}

enum spark {
    SPARK_REQUESTS,
    SPARK_TOKENS,
    SPARK_WAITING,
    SPARK_RUNNING,
    SPARK_TTFT,
    SPARK_ITL,
    SPARK_STEP,
    SPARK_E2E,
    SPARK_BATCH,
    SPARK_KV
};

static double hist_p50_ms(const struct sample *from, const struct sample *to,
                          enum sample_hist which)
{
    struct hist hist;
    sample_between(from, to, which, &hist);
    return (double)hist_percentile(&hist, 0.5) / 1000;
}

/* Rows of a step: generated tokens say it best of what is counted. */
static double batch_size(const struct sample *from, const struct sample *to)
{
    double steps = sample_rate(from, to, COUNTER_STEPS);
    return steps > 0 ? sample_rate(from, to, COUNTER_GENERATED) / steps : 0;
}

static double spark_value(const struct sample *from, const struct sample *to, enum spark spark)
{
    switch (spark) {
    case SPARK_REQUESTS:
        return sample_rate(from, to, COUNTER_REQUESTS);
    case SPARK_TOKENS:
        return sample_rate(from, to, COUNTER_GENERATED);
    case SPARK_WAITING:
        return (double)(to->gauges[GAUGE_WAITING] + to->gauges[GAUGE_STARTING]);
    case SPARK_RUNNING:
        return (double)to->gauges[GAUGE_RUNNING];
    case SPARK_TTFT:
        return hist_p50_ms(from, to, HIST_TTFT);
    case SPARK_ITL:
        return hist_p50_ms(from, to, HIST_ITL);
    case SPARK_E2E:
        return hist_p50_ms(from, to, HIST_E2E);
    case SPARK_STEP:
        return hist_p50_ms(from, to, HIST_STEP);
    case SPARK_BATCH:
        return batch_size(from, to);
    case SPARK_KV:
        return (double)to->gauges[GAUGE_KV_USED];
    }
    return 0;
}

static const char *spark(const struct screen *screen, const struct history *history,
                         enum spark which, int width)
{
    static char text[SPARKS_MAX * 3 + 1];
    double values[SPARKS_MAX] = {0};
    width += screen->columns - 80; /* a wider terminal shows more of the past */
    width = width < 0 ? 0 : width > SPARKS_MAX ? SPARKS_MAX : width;
    for (int i = 0; i < width; i++) {
        const struct sample *to = history_at(history, (uint32_t)(width - 1 - i));
        const struct sample *from = history_at(history, (uint32_t)(width - i));
        values[i] = to && from ? spark_value(from, to, which) : 0;
    }
    make_spark(values, width, screen->ascii, text);
    return text;
}

/* ---- parts -------------------------------------------------------------------------------------
 */

static void draw_load(struct screen *screen, const struct history *history)
{
    const struct sample *to = history_at(history, 0), *from = history_since(history, 1);
    from = from ? from : to;
    put(screen, "requests/s %9.1f %s", sample_rate(from, to, COUNTER_REQUESTS),
        spark(screen, history, SPARK_REQUESTS, 58));
    put(screen, "tokens/s   %9.1f %s", sample_rate(from, to, COUNTER_GENERATED),
        spark(screen, history, SPARK_TOKENS, 58));
    put(screen, "running    %9" PRIu64 " %s", to->gauges[GAUGE_RUNNING],
        spark(screen, history, SPARK_RUNNING, 58));
    put(screen, "waiting    %9" PRIu64 " %s",
        to->gauges[GAUGE_WAITING] + to->gauges[GAUGE_STARTING],
        spark(screen, history, SPARK_WAITING, 58));
    put(screen, "batch      %9.1f %s", batch_size(from, to),
        spark(screen, history, SPARK_BATCH, 58));
    put(screen,
        "since start: %" PRIu64 " requests, %" PRIu64 " done, %" PRIu64 " cancelled, %" PRIu64
        " late, %" PRIu64 " errors, %" PRIu64 " busy",
        to->counters[COUNTER_REQUESTS], to->counters[COUNTER_STOP] + to->counters[COUNTER_LENGTH],
        to->counters[COUNTER_CANCELLED], to->counters[COUNTER_DEADLINE],
        to->counters[COUNTER_ERROR], to->counters[COUNTER_BUSY]);
}

static void add_cell(char *line, size_t size, const struct hist *hist, double fraction)
{
    size_t used = strlen(line);
    if (hist->count == 0)
        snprintf(line + used, size - used, "       -");
    else
        snprintf(line + used, size - used, " %7.4g",
                 (double)hist_percentile(hist, fraction) / 1000);
}

static void draw_latency(struct screen *screen, const struct history *history, const char *name,
                         enum sample_hist which, enum spark spark_of)
{
    static const uint32_t windows[] = {1, 10, 60, 0};
    const struct sample *to = history_at(history, 0);
    char line[SCREEN_BYTES];
    snprintf(line, sizeof(line), "%-4s", name);
    for (int i = 0; i < 4; i++) {
        const struct sample *from = history_since(history, windows[i]);
        struct hist hist = {0};
        if (from)
            sample_between(from, to, which, &hist);
        add_cell(line, sizeof(line), &hist, 0.5);
        add_cell(line, sizeof(line), &hist, 0.99);
    }
    put(screen, "%s  %s", line, spark(screen, history, spark_of, 10));
}

static double mean_ms(const struct history *history, enum sample_hist which)
{
    const struct sample *from = history_since(history, 10);
    struct hist hist = {0};
    if (from)
        sample_between(from, history_at(history, 0), which, &hist);
    return sample_mean_us(&hist) / 1000;
}

static void draw_step(struct screen *screen, const struct history *history)
{
    put(screen, "step, mean of 10 s: %.3g ms: h2d %.3g, compute %.3g, d2h %.3g, gap %.3g  %s",
        mean_ms(history, HIST_STEP), mean_ms(history, HIST_STEP_IN),
        mean_ms(history, HIST_STEP_COMPUTE), mean_ms(history, HIST_STEP_OUT),
        mean_ms(history, HIST_STEP_GAP), spark(screen, history, SPARK_STEP, 10));
}

/* Of the last ten seconds. */
static double recent_rate(const struct history *history, enum sample_counter counter)
{
    const struct sample *to = history_at(history, 0), *from = history_since(history, 10);
    return sample_rate(from ? from : to, to, counter);
}

/* Of the prompts' tokens of the last ten seconds, the part that was found. */
static double cached_percent(const struct history *history)
{
    double found = recent_rate(history, COUNTER_CACHED_TOKENS);
    double all = found + recent_rate(history, COUNTER_PROMPT_TOKENS);
    return all > 0 ? 100 * found / all : 0;
}

/* Of the guesses of next tokens of the last ten seconds, those that stood; nothing where none are
 * made. */
static void draw_guesses(struct screen *screen, const struct history *history)
{
    const struct sample *to = history_at(history, 0);
    double drafted = recent_rate(history, COUNTER_DRAFTED);
    double stood = recent_rate(history, COUNTER_ACCEPTED);
    if (to->counters[COUNTER_DRAFTED] > 0)
        put(screen,
            "guesses    %9" PRIu64 " tokens, %" PRIu64
            " stood; %.0f %% of 10 s, %.0f stood a second",
            to->counters[COUNTER_DRAFTED], to->counters[COUNTER_ACCEPTED],
            drafted > 0 ? 100 * stood / drafted : 0, stood);
}

static void draw_memory(struct screen *screen, const struct history *history, const char *formats)
{
    const struct sample *to = history_at(history, 0);
    put(screen, "KV blocks  %9" PRIu64 " used, %" PRIu64 " free, %" PRIu64 " allowed  %s",
        to->gauges[GAUGE_KV_USED], to->gauges[GAUGE_KV_FREE], to->gauges[GAUGE_KV_MAX],
        spark(screen, history, SPARK_KV, 20));
    put(screen,
        "cache      %9" PRIu64 " blocks, %.0f %% of 10 s of prompts found; %" PRIu64
        " hits, %" PRIu64 " misses, %" PRIu64 " given up",
        to->gauges[GAUGE_KV_CACHED], cached_percent(history), to->counters[COUNTER_CACHE_HITS],
        to->counters[COUNTER_CACHE_MISSES], to->counters[COUNTER_CACHE_EVICTIONS]);
    draw_guesses(screen, history);
    if (to->memory[MEMORY_HOST] > 0)
        put(screen, "host cache %9" PRIu64 " blocks, %" PRIu64 " MiB; %.0f blocks/s out, %.0f back",
            to->gauges[GAUGE_HOST], to->memory[MEMORY_HOST] / MIB,
            recent_rate(history, COUNTER_HOST_OUT), recent_rate(history, COUNTER_HOST_IN));
    put(screen,
        "MiB        weights %" PRIu64 ", KV %" PRIu64 " used of %" PRIu64 " held, scratch %" PRIu64
        ", device %" PRIu64 " of %" PRIu64,
        to->memory[MEMORY_WEIGHTS] / MIB, to->memory[MEMORY_KV_USED] / MIB,
        to->memory[MEMORY_KV_HELD] / MIB, to->memory[MEMORY_SCRATCH] / MIB,
        (to->memory[MEMORY_TOTAL] - to->memory[MEMORY_FREE]) / MIB, to->memory[MEMORY_TOTAL] / MIB);
    if (formats && *formats)
        put(screen, "formats    %s", formats);
}

struct user_share {
    const char *name;
    uint64_t running, waiting;
};

static int by_running(const void *left, const void *right)
{
    const struct user_share *a = left, *b = right;
    if (a->running != b->running)
        return a->running < b->running ? 1 : -1;
    return (a->waiting < b->waiting) - (a->waiting > b->waiting);
}

/* Who has how much of what runs, among the requests that one may see. */
static void draw_users(struct screen *screen, const struct screen_state *state)
{
    static struct user_share users[64];
    uint32_t count = 0;
    uint64_t running = 0;
    char line[SCREEN_BYTES] = "users     ";
    for (uint32_t i = 0; i < state->request_count; i++) {
        const struct screen_request *request = &state->requests[i];
        uint32_t u = 0;
        while (u < count && strcmp(users[u].name, request->user) != 0)
            u++;
        if (u == 64)
            continue;
        if (u == count)
            users[count++] = (struct user_share){.name = request->user};
        users[u].running += request->running;
        users[u].waiting += request->waiting;
        running += request->running;
    }
    qsort(users, count, sizeof(users[0]), by_running);
    for (uint32_t u = 0; u < count && u < USERS_MAX; u++) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof(line) - used,
                 " %s %.0f%% (%" PRIu64 " running, %" PRIu64 " waiting)", users[u].name,
                 running ? 100.0 * (double)users[u].running / (double)running : 0.0,
                 users[u].running, users[u].waiting);
    }
    put(screen, "%s", count ? line : "users      none of your requests is open");
}

static void draw_requests(struct screen *screen, const struct screen_state *state)
{
    int room = screen->rows - screen->used - 1;
    uint32_t first =
        room > 0 && state->chosen >= (uint32_t)room ? state->chosen - (uint32_t)room + 1 : 0;
    int name = screen->columns - 70; /* what the others leave */
    name = name < 10 ? 10 : name > 32 ? 32 : name;
    screen->heading = screen->used;
    put(screen, "  %-12s %-*s %-8s %4s %9s %7s %7s %7s %6s", "REQUEST", name, "USER", "JOB", "PRIO",
        "SEQUENCES", "WAITING", "RUNNING", "TOKENS", "AGE s");
    for (uint32_t i = first; i < state->request_count; i++) {
        const struct screen_request *request = &state->requests[i];
        put(screen,
            "%c %-12" PRIu64 " %-*.*s %-8s %4d %9" PRIu64 " %7" PRIu64 " %7" PRIu64 " %7" PRIu64
            " %6.1f%s%s",
            i == state->chosen ? '>' : ' ', request->request, name, name, request->user, request->job,
            request->priority, request->sequences, request->waiting, request->running,
            request->tokens, (double)request->age_us / 1e6, request->adapter[0] ? " " : "",
            request->adapter);
    }
}

void screen_draw(struct screen *screen, const struct screen_state *state)
{
    const struct history *history = state->history;
    const struct sample *to = history_at(history, 0);
    screen->used = 0;
    screen->heading = -1;
    if (!to) {
        put(screen, "sluice top: %s", state->message ? state->message : "waiting for the daemon");
        return;
    }
    put(screen, "sluice top: %s on %s, %s, up %.0f s, %" PRIu64 " connections", state->model,
        state->device, state->status, (double)to->uptime_us / 1e6, to->gauges[GAUGE_CONNECTIONS]);
    put(screen, "%s",
        state->message ? state->message : "q quits, up and down choose a request, c cancels it");
    draw_load(screen, history);
    put(screen, "ms     1 s: p50   p99  10 s: p50  p99  60 s: p50  p99   all: p50   p99");
    draw_latency(screen, history, "TTFT", HIST_TTFT, SPARK_TTFT);
    draw_latency(screen, history, "ITL", HIST_ITL, SPARK_ITL);
    draw_latency(screen, history, "E2E", HIST_E2E, SPARK_E2E);
    draw_step(screen, history);
    draw_memory(screen, history, state->formats);
    if (state->models && *state->models)
        put(screen, "models     %s", state->models);
    draw_users(screen, state);
    draw_requests(screen, state);
}

/* ---- the rest ----------------------------------------------------------------------------------
 */

static uint64_t field(const json *object, const char *name)
{
    double number = json_number(json_get(object, name));
    return number > 0 && number < 9e15 ? (uint64_t)number : 0;
}

void screen_read_formats(const json *stats, char *text, size_t size)
{
    const json *formats = json_get(stats, "formats"), *kv = json_get(formats, "kv");
    size_t used = 0;
    *text = '\0';
    for (const json *weights = json_child(json_get(formats, "weights"));
         weights && used < size; weights = json_next(weights))
        used += (size_t)snprintf(text + used, size - used, "%s%.16s %.0f MiB",
                                 used ? ", " : "weights ", json_key(weights),
                                 json_number(weights) / (double)MIB);
    if (json_is_string(kv) && used < size)
        snprintf(text + used, size - used, "%sKV %.16s, %" PRIu64 " bytes a token",
                 used ? "; " : "", json_string(kv), field(formats, "kv_token_bytes"));
}

void screen_read_models(const json *stats, char *text, size_t size)
{
    const json *models = json_get(stats, "models");
    size_t used = 0;
    *text = '\0';
    if (json_count(models) < 2)
        return;
    for (const json *model = json_child(models); model && used < size; model = json_next(model))
        used += (size_t)snprintf(text + used, size - used,
                                 "%s%.24s (%" PRIu64 " running, %" PRIu64 " waiting)",
                                 used ? ", " : "", json_string(json_get(model, "name")),
                                 field(model, "running"), field(model, "waiting"));
}

static int by_age(const void *left, const void *right)
{
    const struct screen_request *a = left, *b = right;
    return (a->request > b->request) - (a->request < b->request);
}

uint32_t screen_read_requests(const json *stats, struct screen_request *requests, uint32_t max)
{
    uint32_t count = 0;
    const json *from = json_child(json_get(stats, "requests"));
    for (; from && count < max; from = json_next(from)) {
        struct screen_request *request = &requests[count++];
        *request = (struct screen_request){
            .request = field(from, "request"),
            .priority = (int)json_number(json_get(from, "priority")),
            .sequences = field(from, "sequences"),
            .waiting = field(from, "waiting"),
            .running = field(from, "running"),
            .tokens = field(from, "tokens"),
            .age_us = field(from, "age_us"),
        };
        snprintf(request->job, sizeof(request->job), "%.15s", json_string(json_get(from, "job")));
        snprintf(request->user, sizeof(request->user), "%s", json_string(json_get(from, "user")));
        if (json_get(from, "adapter"))
            snprintf(request->adapter, sizeof(request->adapter), "%.23s",
                     json_string(json_get(from, "adapter")));
    }
    qsort(requests, count, sizeof(*requests), by_age);
    return count;
}

static double window_ms(const struct sample *from, const struct sample *to, enum sample_hist which,
                        double fraction)
{
    struct hist hist;
    sample_between(from, to, which, &hist);
    return (double)hist_percentile(&hist, fraction) / 1000;
}

void screen_plain(char *line, size_t size, const struct history *history, bool heading)
{
    const struct sample *to = history_at(history, 0), *from = history_since(history, 1);
    if (heading) {
        snprintf(line, size, "%8s %9s %8s %8s %9s %9s %9s %9s", "req/s", "tok/s", "running",
                 "waiting", "ttft p50", "ttft p99", "itl p50", "kv used");
        return;
    }
    from = from ? from : &history->nothing;
    snprintf(line, size, "%8.1f %9.1f %8" PRIu64 " %8" PRIu64 " %9.3f %9.3f %9.3f %9" PRIu64,
             from == &history->nothing ? 0 : sample_rate(from, to, COUNTER_REQUESTS),
             from == &history->nothing ? 0 : sample_rate(from, to, COUNTER_GENERATED),
             to->gauges[GAUGE_RUNNING], to->gauges[GAUGE_WAITING] + to->gauges[GAUGE_STARTING],
             window_ms(from, to, HIST_TTFT, 0.5), window_ms(from, to, HIST_TTFT, 0.99),
             window_ms(from, to, HIST_ITL, 0.5), to->gauges[GAUGE_KV_USED]);
}
