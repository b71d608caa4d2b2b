/* The history is kept here and sent with every question, so a daemon that was restarted meanwhile
 * is connected to again and the conversation goes on. */
#include "client/command/chat.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/command/chat_history.h"
#include "client/terminal/connect.h"
#include "client/terminal/input.h"
#include "client/terminal/interrupt.h"
#include "client/terminal/output.h"

struct chat {
    const struct settings *settings;
    sluice_client *client; /* NULL: not connected */
    struct input input;
    struct output output;
    struct chat_history history;
    bool terminal; /* somebody types */
    enum status status;
    bool over; /* no further question */

    /* the answer on its way */
    struct buffer answer;
    bool ended;
    sluice_end end;
};

/* The first failure is the program's; whoever types has seen it and goes on. */
static void fail(struct chat *chat, enum status status)
{
    if (!chat->terminal && chat->status == STATUS_OK)
        chat->status = status;
}

static void leave(struct chat *chat, enum status status)
{
    chat->status = status;
    chat->over = true;
}

/* ---- an answer ---------------------------------------------------------------------------------
 */

static void take_tokens(void *context, uint32_t sequence, const sluice_piece *piece)
{
    struct chat *chat = context;
    (void)sequence;
    if (!piece->text || piece->text_length == 0)
        return;
    output_put(&chat->output, piece->text, piece->text_length);
    if (buffer_reserve(&chat->answer, piece->text_length))
        return;
    memcpy(chat->answer.bytes + chat->answer.end, piece->text, piece->text_length);
    chat->answer.end += piece->text_length;
}

static void take_end(void *context, uint32_t sequence, const sluice_end *end)
{
    struct chat *chat = context;
    (void)sequence;
    chat->end = *end;
    chat->ended = true;
}

/* A second Ctrl-C does not wait for the end of what the first one cancelled. */
static void interrupt(struct chat *chat, uint64_t id, bool *cancelled)
{
    int number = interrupt_take();
    if (number == 0)
        return;
    if (number == SIGTERM || *cancelled)
        leave(chat, STATUS_INTERRUPTED);
    if (!*cancelled)
        sluice_cancel(chat->client, id);
    *cancelled = true;
}

static void await(struct chat *chat, uint64_t id)
{
    bool cancelled = false;
    while (!chat->ended && !chat->over) {
        struct pollfd fds[2] = {
            {sluice_client_fd(chat->client), sluice_client_events(chat->client), 0},
            {interrupt_fd(), POLLIN, 0},
        };
        poll(fds, 2, -1);
        if (fds[0].revents)
            sluice_client_process(chat->client);
        output_flush(&chat->output);
        if (chat->output.broken)
            leave(chat, interrupt_came() ? STATUS_INTERRUPTED : STATUS_SERVER);
        interrupt(chat, id, &cancelled);
    }
}

static int submit(struct chat *chat, uint64_t *ret_id)
{
    sluice_params params;
    sluice_batch batch;
    sluice_prompt prompt = {0};
    prompt.chat = chat_history_text(&chat->history, &prompt.chat_length);
    work_params(&chat->settings->work, &params);
    sluice_batch_init(&batch);
    batch.prompts = &prompt;
    batch.prompt_count = 1;
    batch.params = &params;
    batch.want_text = 1;
    batch.no_cache = !chat->settings->work.cache;
    batch.cache_salt = chat->settings->work.cache_salt;
    batch.model = chat->settings->work.named;
    batch.callbacks = (sluice_callbacks){.tokens = take_tokens, .end = take_end};
    batch.context = chat;
    chat->answer.start = chat->answer.end = 0;
    chat->ended = false;
    return sluice_submit(chat->client, &batch, ret_id);
}

/* What failed, or was cancelled before it said a word, leaves no trace in the conversation; what
 * was cut short does, as far as it went. */
static void conclude(struct chat *chat, size_t mark, const sluice_error *error)
{
    size_t said = buffer_used(&chat->answer);
    bool answered = !error && (said > 0 || chat->end.finish != SLUICE_FINISH_CANCELLED);
    /* Into a pipe, an empty answer has its line, too. */
    if (said > 0 || (answered && !chat->terminal))
        output_put(&chat->output, "\n", 1);
    output_flush(&chat->output);
    if (error) {
        say("%s: %s", sluice_error_name(error->code), error->text);
        fail(chat, status_of_error(error));
    }
    if (!answered || chat_history_add(&chat->history, "assistant",
                                      said > 0 ? (const char *)chat->answer.bytes : "", said))
        chat_history_rewind(&chat->history, mark);
    if (chat->output.broken && !chat->over)
        leave(chat, interrupt_came() ? STATUS_INTERRUPTED : STATUS_SERVER);
}

/* A connection that was lost while nothing was asked is made again. */
static enum status connect_again(struct chat *chat)
{
    if (chat->client && sluice_client_process(chat->client) == 0)
        return STATUS_OK;
    sluice_close(chat->client);
    chat->client = NULL;
    return connect_daemon(chat->settings, &chat->client);
}

static void ask(struct chat *chat, const char *text, size_t length)
{
    size_t mark = chat_history_mark(&chat->history);
    uint64_t id;
    enum status status = connect_again(chat);
    if (status) {
        fail(chat, status);
        chat->over = !chat->terminal;
        return;
    }
    if (chat_history_add(&chat->history, "user", text, length)) {
        say("out of memory");
        leave(chat, STATUS_SERVER);
        return;
    }
    if (submit(chat, &id)) {
        conclude(chat, mark, sluice_client_error(chat->client));
        return;
    }
    await(chat, id);
    if (!chat->ended)
        return;
    bool failed = chat->end.finish == SLUICE_FINISH_ERROR;
    conclude(chat, mark, failed ? &chat->end.error : NULL);
    if (chat->end.finish == SLUICE_FINISH_LENGTH && chat->terminal)
        say("the answer was cut: --max-tokens, or the context is full");
}

/* ---- lines -------------------------------------------------------------------------------------
 */

static void prompt(const struct chat *chat)
{
    if (chat->terminal)
        fputs("> ", stderr);
}

/* The next line; NULL when there is none any more. */
static const char *next_line(struct chat *chat, size_t *ret_length)
{
    struct error error;
    prompt(chat);
    for (;;) {
        const char *line = input_line(&chat->input, ret_length);
        if (line || chat->input.ended)
            return line;
        struct pollfd fds[2] = {{chat->input.fd, POLLIN, 0}, {interrupt_fd(), POLLIN, 0}};
        poll(fds, 2, -1);
        int number = interrupt_take();
        if (number == SIGTERM || (number && !chat->terminal)) {
            leave(chat, STATUS_INTERRUPTED);
            return NULL;
        }
        if (number) {
            fputs("\n(Ctrl-D ends the conversation)\n", stderr);
            prompt(chat);
        }
        if (fds[0].revents && input_more(&chat->input, &error)) {
            say("%s", error.text);
            leave(chat, STATUS_USAGE);
            return NULL;
        }
    }
}

static bool is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

static void converse(struct chat *chat)
{
    const char *system = chat->settings->system;
    if (system && chat_history_add(&chat->history, "system", system, strlen(system))) {
        say("out of memory");
        leave(chat, STATUS_SERVER);
    }
    while (!chat->over) {
        size_t length;
        const char *line = next_line(chat, &length);
        if (!line)
            break;
        if (!is_blank(line, length))
            ask(chat, line, length);
    }
    if (chat->terminal && !chat->over)
        fputs("\n", stderr);
}

enum status chat_command(const struct command *command, const struct settings *settings, int argc,
                         char **argv)
{
    struct chat chat = {.settings = settings, .terminal = isatty(STDIN_FILENO)};
    struct error error;
    if (argc > 0) {
        say("%s takes no argument but options: %s", command->name, argv[0]);
        return STATUS_USAGE;
    }
    enum status status = connect_daemon(settings, &chat.client);
    if (status)
        return status;
    if (input_open(&chat.input, NULL, &error)) {
        say("%s", error.text);
        leave(&chat, STATUS_USAGE);
    }
    interrupt_watch_each();
    converse(&chat);
    sluice_close(chat.client);
    input_close(&chat.input);
    chat_history_free(&chat.history);
    buffer_free(&chat.answer);
    buffer_free(&chat.output.buffer);
    return chat.status;
}
