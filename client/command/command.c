#include "client/command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command/bench.h"
#include "client/command/calibrate.h"
#include "client/command/chat.h"
#include "client/command/control.h"
#include "client/command/timeline.h"
#include "client/command/tokenize.h"
#include "client/command/top.h"
#include "client/job/job.h"
#include "client/option/bench_options.h"
#include "client/sluice.h"
#include "client/terminal/input.h"
#include "protocol/base/standard.h"

static enum status run_job(const struct command *command, const struct settings *settings, int argc,
                           char **argv)
{
    static const char *const names[] = {"generate", "score", "embed"};
    int kind = 0;
    (void)argc;
    (void)argv;
    while (strcmp(names[kind], command->name))
        kind++;
    return job_run(kind, command->groups, settings);
}

static const struct option_group generate_groups[] = {
    {settings_input},   {settings_cache}, {settings_sampling},   {settings_constraint},
    {settings_results}, {settings_json},  {settings_connection}, {0}};
static const struct option_group tokenize_groups[] = {
    {settings_tokenize}, {settings_json}, {settings_connection}, {0}};
static const struct option_group detokenize_groups[] = {
    {settings_detokenize}, {settings_json}, {settings_connection}, {0}};
static const struct option_group chat_groups[] = {
    {settings_chat}, {settings_cache}, {settings_sampling}, {settings_connection}, {0}};
static const struct option_group score_groups[] = {
    {settings_input}, {settings_cache}, {settings_json}, {settings_connection}, {0}};
static const struct option_group embed_groups[] = {{settings_input},      {settings_cache},
                                                   {settings_embed},      {settings_json},
                                                   {settings_connection}, {0}};
static const struct option_group stats_groups[] = {
    {settings_stats}, {settings_json}, {settings_connection}, {0}};
static const struct option_group job_groups[] = {
    {settings_job}, {settings_json}, {settings_connection}, {0}};
static const struct option_group programs_groups[] = {
    {settings_programs}, {settings_json}, {settings_connection}, {0}};
static const struct option_group calibrate_groups[] = {{settings_calibrate}, {0}};
static const struct option_group timeline_groups[] = {
    {settings_timeline}, {settings_json}, {settings_connection}, {0}};
static const struct option_group json_groups[] = {{settings_json}, {settings_connection}, {0}};
static const struct option_group bare_groups[] = {{settings_connection}, {0}};

static const struct option_group bench_groups[] = {
    {bench_load_options}, {bench_output_options}, {settings_connection}, {0}};

#define PROMPT "(TEXT | - | --tokens 1,2,3 | --file batch.jsonl) [options]"

const struct command commands[] = {
    {"generate", PROMPT, "continue prompts",
     "Prints the text as it comes; for a prompt of tokens, their numbers with commas between. Of "
     "a\n"
     "file, one line per result, in the order of its lines. With --json, one object per result:\n"
     "index, tokens, text, logprobs, finish_reason (stop, length, cancelled, deadline, error), "
     "usage,\n"
     "timings. A file may have any number of lines: what the daemon has no room for is sent again\n"
     "when it says so; a line that is no prompt is told, and the others run.",
     generate_groups, run_job},
    {"chat", "[options]", "talk with the model",
     "Every line is a message, and the answer is printed as it comes. All that was said so far "
     "goes\n"
     "along. Ctrl-C ends an answer, and the conversation goes on; Ctrl-D ends the conversation. "
     "Into\n"
     "a pipe, an answer per line of standard input. Needs a model with a chat template.",
     chat_groups, chat_command},
    {"tokenize", "[TEXT | - | --file PATH] [options]", "texts to token numbers",
     "Prints the numbers with commas between. With --json an object: count, tokens.",
     tokenize_groups, tokenize_command},
    {"detokenize", "[--tokens 1,2,3 | --file PATH] [options]", "token numbers to text",
     "Prints the text, and nothing else into a pipe. With --json an object: text.",
     detokenize_groups, detokenize_command},
    {"score", PROMPT, "log-probabilities of prompts",
     "Prints, for every token of a prompt from the second on: its position, its log-probability,\n"
     "the likeliest token there, and that one's. Of a file, the prompt's index stands first. With\n"
     "--json, one object per prompt: index, logprobs, top_tokens, top_logprobs.",
     score_groups, run_job},
    {"embed", PROMPT, "embeddings of prompts",
     "Prints a row of numbers per prompt, with --pooling all one per token. With --json, one "
     "object\n"
     "per prompt: index, embedding.",
     embed_groups, run_job},
    {"job", "PROGRAM [options]", "tensors for a program of the daemon's",
     "Reads inputs from files of NumPy's (.npy) or PNG images (uint8, height x width x 3), and "
     "writes\n"
     "outputs as NumPy's. A file of lines may have any number of items, which go in requests of up "
     "to\n"
     "256. With --json, one object per item: index, finish_reason, outputs (dtype, shape, file),\n"
     "queued_us, total_us.",
     job_groups, control_job},
    {"programs", "[options]", "which programs there are, and what they take",
     "One that failed the device, or was on it for too long, is off, with the reason, until an "
     "admin\n"
     "enables it.",
     programs_groups, control_programs},
    {"calibrate", "FILE [options]", "find the chunks and lanes of a program on this machine",
     "FILE is the program's module. No daemon is asked, and none should use the device meanwhile: "
     "runs\n"
     "sluiced --calibrate here, which takes a minute, and prints what it found as a configuration.\n"
     "Options of sluiced stand in the environment (SLUICE_DEVICE) or in a file (SLUICE_CONFIG).",
     calibrate_groups, calibrate_command},
    {"timeline", "[options]", "when jobs were copied in, computed and copied out (needs an admin)",
     "Shows the next chunks of jobs that run on the daemon, lane by lane, by the device's own "
     "clock: how\n"
     "long each engine was busy, how much ran at once, and what the model of three stages would "
     "reach.\n"
     "With --simulate no daemon is asked: draws which batch is copied in, computed and copied out "
     "in each\n"
     "unit of time, and says how long all take one after the other and at once: (batches + stages "
     "- 1)\n"
     "units where stages are alike.",
     timeline_groups, timeline_command},
    {"stats", "[options]", "what the daemon does and how fast",
     "Counters, gauges and latencies since the daemon's start.", stats_groups, control_stats},
    {"top", "[options]", "watch the daemon at work",
     "Full screen, once a second: rates, running and waiting sequences, latencies over 1, 10 and "
     "60 s\n"
     "and since the daemon's start, steps, memory, and your own requests (an admin: all), which c\n"
     "cancels. Into a pipe, a line per second, as `sluice stats --watch`.",
     bare_groups, top_command},
    {"health", "[options]", "whether the daemon is ready",
     "Exit status 0 when it is ready, 4 while it is loading or draining, 1 otherwise.", json_groups,
     control_health},
    {"model", "[NAME] [options]", "what is served, and by which limits",
     "Of a daemon with several models its first, where no other is named.", json_groups,
     control_model},
    {"sleep", "[NAME] [options]", "a model gives its devices' memory back (needs an admin)",
     "As soon as nothing of it waits or runs; the next request that names it wakes it. Without a "
     "name\n"
     "the first is meant. Prints the model, with its state.",
     json_groups, control_sleep},
    {"wake", "[NAME] [options]", "a model that sleeps is loaded (needs an admin)",
     "Before somebody asks for it. Without a name the first is meant.", json_groups, control_wake},
    {"reload", "[NAME [DIR]] [options]", "a new version of a model takes over (needs an admin)",
     "Loaded beside the old one, from the directory that it is served from, whose files have "
     "changed, or\n"
     "from DIR. Requests that come once it is there are its own; those before end on the old one. "
     "If it\n"
     "cannot be had the old one stays: says why, with exit status 1. Waits until the old one is "
     "gone.",
     json_groups, control_reload},
    {"cancel", "[options] REQUEST...", "cancel requests by their number",
     "The number is the daemon's, as `sluice stats --requests` lists it.", bare_groups,
     control_cancel},
    {"drain", "[options]", "accept no new work (needs an admin)",
     "What was accepted is finished; `sluice resume` accepts work again.", json_groups,
     control_drain},
    {"resume", "[options]", "accept work again (needs an admin)", "", json_groups, control_resume},
    {"bench", "[options]", "load a daemon, and measure it",
     "Sends requests when a schedule drawn ahead says so, whatever the answers do, and tells\n"
     "latencies and throughput in vLLM's words: TTFT, TPOT, ITL (per received chunk), E2EL. "
     "AIPerf\n"
     "calls this TPOT \"ITL\" and this ITL \"ICL\". Latencies count from the sending, as vLLM's "
     "do, and\n"
     "again from the scheduled arrival.",
     bench_groups, bench_command},
    {0}};

static void print_overview(void)
{
    printf("sluice [-i NAME] COMMAND [options]: the client of the Sluice inference daemon\n\n");
    for (const struct command *command = commands; command->name; command++)
        printf("  %-10s %s\n", command->name, command->summary);
    printf("\nsluice COMMAND --help says more. sluice --version prints the version. -i NAME (or\n"
           "--instance, or --socket PATH) says which daemon, before the command or after it.\n\n"
           "Exit status: 0 done, 1 the daemon's error, 2 wrong usage, 3 cannot connect,\n"
           "4 refused and worth a retry, 5 deadline passed, 130 interrupted.\n");
}

static void print_help(const struct command *command)
{
    printf("sluice %s %s\n\n%s%s%s\n\n", command->name, command->usage,
           *command->text ? command->text : command->summary, *command->text ? "" : ".", "");
    option_help(command->groups);
}

static const struct command *find_command(const char *name)
{
    for (const struct command *command = commands; command->name; command++)
        if (!strcmp(command->name, name))
            return command;
    return NULL;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

/* The command's options over those before its name, of which none may be given again. */
static int parse_rest(const struct command *command, struct settings *settings, int argc,
                      char **argv, int *index, struct error *error)
{
    const char *socket = settings->socket, *instance = settings->instance;
    settings->socket = settings->instance = NULL;
    int rc = option_parse(command->groups, settings, argc, argv, index, error);
    if (!rc && socket && settings->socket)
        rc = error_set(error, ERR_USAGE, "--socket was given twice");
    if (!rc && instance && settings->instance)
        rc = error_set(error, ERR_USAGE, "--instance was given twice");
    settings->socket = socket ? socket : settings->socket;
    settings->instance = instance ? instance : settings->instance;
    return rc;
}

static bool takes_prompt(const struct command *command)
{
    const struct option *first = command->groups[0].options;
    return first == settings_input || first == settings_tokenize;
}

/* Standard input as a prompt: what `echo` puts behind it is no part of it. */
static int read_prompt(struct settings *settings, struct error *error)
{
    struct input input;
    int rc = input_open(&input, "-", error);
    if (!rc)
        rc = input_all(&input, error);
    size_t length = buffer_used(&input.buffer);
    const char *text = (const char *)input.buffer.bytes + input.buffer.start;
    length -= !rc && length > 0 && text[length - 1] == '\n';
    if (!rc && length > 0 && memchr(text, 0, length))
        rc = error_set(error, ERR_USAGE, "standard input has a zero byte, which no prompt has");
    if (!rc && !(settings->read = strndup(length > 0 ? text : "", length)))
        rc = error_set(error, ERR_NO_MEMORY, "out of memory");
    settings->work.prompt = settings->read;
    input_close(&input);
    return rc;
}

/* The prompt may stand for itself, and - is standard input. */
static int take_prompt(struct settings *settings, int argc, char **argv, struct error *error)
{
    struct work *work = &settings->work;
    if (argc > 1)
        return error_set(error, ERR_USAGE,
                         "one prompt, and %d arguments that are no options: put it in quotes",
                         argc);
    if (argc == 1 && (work->prompt || work->tokens.count > 0 || settings->file))
        return error_set(error, ERR_USAGE, "the prompt %.64s, and another", argv[0]);
    if (argc == 1)
        work->prompt = argv[0];
    return work->prompt && !strcmp(work->prompt, "-") ? read_prompt(settings, error) : 0;
}

static enum status run_command(const struct command *command, struct settings *settings, int argc,
                               char **argv)
{
    struct error error;
    int index = 0;
    if (wants_help(argc, argv)) {
        print_help(command);
        return STATUS_OK;
    }
    option_permute(command->groups, argc, argv);
    int rc = parse_rest(command, settings, argc, argv, &index, &error);
    if (!rc && takes_prompt(command)) {
        rc = take_prompt(settings, argc - index, argv + index, &error);
        index = argc;
    }
    enum status status = STATUS_USAGE;
    if (rc)
        say("%s: %s (see sluice %s --help)", command->name, error.text, command->name);
    else
        status = command->run(command, settings, argc - index, argv + index);
    work_clear(&settings->work);
    free(settings->read);
    return status;
}

/* From the command's name on, what stood before it being in the settings. */
static enum status run_named(struct settings *settings, int argc, char **argv)
{
    bool help = !strcmp(argv[0], "help");
    if (help && argc == 1) {
        print_overview();
        return STATUS_OK;
    }
    const struct command *command = find_command(argv[help]);
    if (!command) {
        say("unknown command %s (see sluice --help)", argv[help]);
        return STATUS_USAGE;
    }
    if (help) {
        print_help(command);
        return STATUS_OK;
    }
    return run_command(command, settings, argc - 1, argv + 1);
}

static enum status run_line(int argc, char **argv)
{
    struct settings settings;
    struct error error;
    int index = 1;
    if (argc > 1 && !strcmp(argv[1], "--version")) {
        printf("sluice %s\n", sluice_version());
        return STATUS_OK;
    }
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        print_overview();
        return STATUS_OK;
    }
    settings_init(&settings);
    if (option_parse(bare_groups, &settings, argc, argv, &index, &error)) {
        say("%s (see sluice --help)", error.text);
        return STATUS_USAGE;
    }
    if (index == argc) {
        print_overview();
        return STATUS_USAGE;
    }
    return run_named(&settings, argc - index, argv + index);
}

/* What was printed has arrived, or the program has failed. */
int command_main(int argc, char **argv)
{
    enum status status = run_line(argc, argv);
    int rc = standard_flush(stdout);
    if (rc)
        say("standard output: %s", strerrordesc_np(-rc));
    return rc && status == STATUS_OK ? STATUS_SERVER : status;
}
