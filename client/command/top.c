#include "client/command/top.h"

#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/terminal/connect.h"
#include "client/terminal/interrupt.h"
#include "client/top/screen.h"
#include "protocol/base/standard.h"

#define PERIOD_US 1000000u
#define REQUESTS_MAX 1000u
#define HEADING_EVERY 20 /* lines */

static const struct json_bounds bounds = {.bytes_max = 16u << 20, .depth_max = 16};

struct top {
    sluice_client *client;
    const sluice_info *info;
    struct history history;
    struct screen_request requests[REQUESTS_MAX];
    uint32_t request_count, chosen;
    char message[160];
    char formats[160], models[512];
    struct screen screen;
};

/* ---- asking ------------------------------------------------------------------------------------
 */

static int take_stats(struct top *top, const char *text, struct error *error)
{
    json *stats;
    int rc = json_parse(text, strlen(text), bounds, &stats, error);
    if (rc)
        return rc;
    rc = sample_read(stats, clock_now_us(), history_next(&top->history), error);
    if (!rc) {
        history_push(&top->history);
        screen_read_formats(stats, top->formats, sizeof(top->formats));
        screen_read_models(stats, top->models, sizeof(top->models));
        top->request_count = screen_read_requests(stats, top->requests, REQUESTS_MAX);
        if (top->chosen >= top->request_count)
            top->chosen = top->request_count ? top->request_count - 1 : 0;
    }
    json_free(stats);
    return rc;
}

static enum status ask(struct top *top)
{
    const char *text;
    struct error error;
    if (sluice_control(top->client, SLUICE_STATS, "{\"requests\":true,\"buckets\":true}",
                       ANSWER_TIMEOUT_MS, &text)) {
        const sluice_error *why = sluice_client_error(top->client);
        snprintf(top->message, sizeof(top->message), "%.150s", why->text);
        return status_of_error(why);
    }
    if (take_stats(top, text, &error) == 0)
        return STATUS_OK;
    snprintf(top->message, sizeof(top->message), "%.150s", error.text);
    return STATUS_SERVER;
}

static void cancel_chosen(struct top *top)
{
    if (top->request_count == 0)
        return;
    uint64_t number = top->requests[top->chosen].request;
    if (sluice_cancel_request(top->client, number, ANSWER_TIMEOUT_MS) == 0)
        snprintf(top->message, sizeof(top->message), "request %llu is cancelled",
                 (unsigned long long)number);
    else
        snprintf(top->message, sizeof(top->message), "%.150s",
                 sluice_client_error(top->client)->text);
}

/* ---- plain lines -------------------------------------------------------------------------------
 */

/* Until the next second, or the user has enough. */
static bool wait_for(time_us until_us)
{
    struct pollfd ready = {interrupt_fd(), POLLIN, 0};
    while (!interrupt_came()) {
        time_us now_us = clock_now_us();
        if (now_us >= until_us)
            return true;
        poll(&ready, 1, (int)((until_us - now_us + 999) / 1000));
    }
    return false;
}

static enum status print_lines(struct top *top)
{
    char line[160];
    enum status status;
    time_us next_us = clock_now_us();
    for (uint32_t count = 0; !(status = ask(top)); count++) {
        if (count % HEADING_EVERY == 0) {
            screen_plain(line, sizeof(line), &top->history, true);
            puts(line);
        }
        screen_plain(line, sizeof(line), &top->history, false);
        puts(line);
        int rc = standard_flush(stdout);
        if (rc) {
            say("standard output: %s", strerrordesc_np(-rc));
            clearerr(stdout); /* it is told */
            return STATUS_SERVER;
        }
        next_us += PERIOD_US;
        if (!wait_for(next_us))
            return STATUS_OK;
    }
    say("%s", top->message);
    return status;
}

/* ---- full screen -------------------------------------------------------------------------------
 */

static void show(struct top *top)
{
    const struct screen_state state = {
        .model = top->info->model,
        .device = top->info->device,
        .status = top->info->context_max ? "ready" : "loading",
        .history = &top->history,
        .requests = top->requests,
        .request_count = top->request_count,
        .chosen = top->chosen,
        .formats = top->formats,
        .models = top->models,
        .message = *top->message ? top->message : NULL,
    };
    struct screen *screen = &top->screen;
    screen->columns = COLS;
    screen->rows = LINES;
    screen_draw(screen, &state);
    erase();
    for (int row = 0; row < screen->used; row++) {
        attrset(row == screen->heading ? A_REVERSE : A_NORMAL);
        mvaddstr(row, 0, screen->lines[row]);
    }
    refresh();
}

/* Whether to go on. */
static bool take_key(struct top *top, int key)
{
    switch (key) {
    case 'q':
        return false;
    case KEY_UP:
    case 'k':
        top->chosen -= top->chosen > 0;
        break;
    case KEY_DOWN:
    case 'j':
        top->chosen += top->chosen + 1 < top->request_count;
        break;
    case 'c':
        cancel_chosen(top);
        break;
    }
    return true;
}

static enum status run_screen(struct top *top)
{
    enum status status = STATUS_OK;
    time_us next_us = 0;
    bool going = true;
    while (going && !status && !interrupt_came()) {
        time_us now_us = clock_now_us();
        if (now_us >= next_us) {
            status = ask(top);
            next_us = now_us + PERIOD_US;
        }
        show(top);
        timeout((int)((next_us > now_us ? next_us - now_us : 0) / 1000) + 1);
        int key = getch();
        if (key != ERR && key != KEY_RESIZE)
            *top->message = 0;
        going = take_key(top, key);
    }
    return status;
}

static enum status show_screen(struct top *top)
{
    setlocale(LC_CTYPE, "");
    top->screen.ascii = strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
    if (!initscr())
        return STATUS_SERVER;
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    enum status status = run_screen(top);
    endwin();
    if (status)
        say("%s", top->message);
    return status;
}

/* ---- commands ----------------------------------------------------------------------------------
 */

static enum status run(const struct settings *settings, enum status (*loop)(struct top *))
{
    struct top *top = calloc(1, sizeof(*top));
    if (!top || history_init(&top->history)) {
        free(top);
        say("out of memory");
        return STATUS_SERVER;
    }
    enum status status = connect_daemon(settings, &top->client);
    if (!status) {
        top->info = sluice_client_info(top->client);
        interrupt_watch();
        status = loop(top);
        sluice_close(top->client);
    }
    history_free(&top->history);
    free(top);
    return status;
}

enum status top_watch(const struct settings *settings)
{
    return run(settings, print_lines);
}

enum status top_command(const struct command *command, const struct settings *settings, int argc,
                        char **argv)
{
    if (argc > 0) {
        say("%s takes no argument but options: %s", command->name, argv[0]);
        return STATUS_USAGE;
    }
    return run(settings, isatty(STDOUT_FILENO) ? show_screen : print_lines);
}
