#include "client/command/tokenize.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/terminal/connect.h"
#include "client/terminal/input.h"
#include "client/terminal/output.h"

/* Tokenizing is quick; a daemon that has much to tokenize lets others wait. */
#define TIMEOUT_MS 60000

static enum status say_failure(const sluice_client *client)
{
    const sluice_error *error = sluice_client_error(client);
    say("%s: %s", sluice_error_name(error->code), error->text);
    return status_of_error(error);
}

static enum status finish(struct output *output)
{
    output_flush(output);
    buffer_free(&output->buffer);
    return output->broken ? STATUS_SERVER : STATUS_OK;
}

/* Reads the file, or standard input, where the command line itself does not say it all. */
static enum status read_rest(const struct command *command, const struct settings *settings,
                             bool given, int argc, char **argv, struct input *input)
{
    struct error error;
    *input = (struct input){.fd = -1};
    if (argc > 0) {
        say("%s takes no argument but options: %s", command->name, argv[0]);
        return STATUS_USAGE;
    }
    if (given && settings->file) {
        say("%s: give one of --file and what it would hold", command->name);
        return STATUS_USAGE;
    }
    if (given)
        return STATUS_OK;
    if (input_open(input, settings->file, &error) || input_all(input, &error)) {
        say("%s: %s", command->name, error.text);
        input_close(input);
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

/* ---- to tokens ---------------------------------------------------------------------------------
 */

static enum status print_tokens(const struct settings *settings, const int32_t *tokens,
                                size_t count)
{
    struct output output = {0};
    if (settings->json)
        output_print(&output, "{\"count\":%zu,\"tokens\":[", count);
    for (size_t i = 0; i < count; i++)
        output_print(&output, "%s%" PRId32, i ? "," : "", tokens[i]);
    output_print(&output, settings->json ? "]}\n" : "\n");
    return finish(&output);
}

enum status tokenize_command(const struct command *command, const struct settings *settings,
                             int argc, char **argv)
{
    const char *given = settings->work.prompt;
    struct input input;
    sluice_client *client;
    enum status status = read_rest(command, settings, given != NULL, argc, argv, &input);
    if (!status)
        status = connect_daemon(settings, &client);
    if (status) {
        input_close(&input);
        return status;
    }
    const char *text = given ? given : (const char *)input.buffer.bytes;
    size_t length = given ? strlen(given) : buffer_used(&input.buffer), count;
    sluice_prompt prompt = {.text = settings->conversation ? NULL : text,
                            .text_length = length,
                            .chat = text,
                            .chat_length = length};
    const int32_t *tokens;
    if (length == 0) {
        say("%s: the text is empty", command->name);
        status = STATUS_USAGE;
    } else if (sluice_tokenize(client, &prompt, settings->special, TIMEOUT_MS, &tokens, &count)) {
        status = say_failure(client);
    } else {
        status = print_tokens(settings, tokens, count);
    }
    sluice_close(client);
    input_close(&input);
    return status;
}

/* ---- to text -----------------------------------------------------------------------------------
 */

static int not_a_token(const char *word, size_t length, struct error *error)
{
    return error_set(error, ERR_USAGE, "no token's number: %.*s", length < 16 ? (int)length : 16,
                     word);
}

/* Numbers with commas or white space between, in brackets or not. `text` is terminated. */
static int parse_tokens(const char *text, size_t length, struct option_tokens *tokens,
                        struct error *error)
{
    static const char between[] = ", \t\r\n[]";
    if (strlen(text) != length)
        return error_set(error, ERR_USAGE, "a zero byte is no token's number");
    tokens->tokens = malloc((length / 2 + 1) * sizeof(*tokens->tokens));
    if (!tokens->tokens)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    for (text += strspn(text, between); *text; text += strspn(text, between)) {
        char *end;
        errno = 0;
        long number = strtol(text, &end, 10);
        if (end == text || errno || number < 0 || number > INT32_MAX ||
            (*end && !strchr(between, *end)))
            return not_a_token(text, strcspn(text, between), error);
        tokens->tokens[tokens->count++] = (int32_t)number;
        text = end;
    }
    return 0;
}

static size_t write_object(char *buffer, size_t size, const char *text, size_t length)
{
    struct json_writer writer;
    json_writer_init(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    json_put_string(&writer, "text", text, length);
    json_close(&writer, '}');
    return writer.used;
}

static enum status print_object(const char *text, size_t length)
{
    struct output output = {0};
    size_t size = write_object(NULL, 0, text, length);
    char *room = malloc(size);
    if (!room) {
        say("out of memory");
        return STATUS_SERVER;
    }
    output_put(&output, room, write_object(room, size, text, length));
    output_put(&output, "\n", 1);
    free(room);
    return finish(&output);
}

static enum status print_text(const char *text, size_t length)
{
    struct output output = {0};
    output_put(&output, text, length);
    if (isatty(STDOUT_FILENO) && (length == 0 || text[length - 1] != '\n'))
        output_put(&output, "\n", 1);
    return finish(&output);
}

static enum status ask(const struct settings *settings, const struct option_tokens *tokens)
{
    sluice_client *client;
    const char *text;
    size_t length;
    enum status status = connect_daemon(settings, &client);
    if (status)
        return status;
    if (sluice_detokenize(client, tokens->tokens, tokens->count, settings->special, TIMEOUT_MS,
                          &text, &length))
        status = say_failure(client);
    else
        status = settings->json ? print_object(text, length) : print_text(text, length);
    sluice_close(client);
    return status;
}

enum status detokenize_command(const struct command *command, const struct settings *settings,
                               int argc, char **argv)
{
    struct option_tokens own = {0};
    struct input input;
    struct error error;
    bool given = settings->work.tokens.count > 0;
    enum status status = read_rest(command, settings, given, argc, argv, &input);
    if (status)
        return status;
    if (!given && buffer_reserve(&input.buffer, 1) == 0) {
        input.buffer.bytes[input.buffer.end] = '\0';
        if (parse_tokens((const char *)input.buffer.bytes, input.buffer.end, &own, &error)) {
            say("%s: %s", command->name, error.text);
            status = STATUS_USAGE;
        }
    }
    input_close(&input);
    if (!status)
        status = ask(settings, given ? &settings->work.tokens : &own);
    free(own.tokens);
    return status;
}
