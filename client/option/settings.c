#include "client/option/settings.h"

#include <stdlib.h>
#include <string.h>

#define WHOLE_MAX 9007199254740992.0

#define AT(field) offsetof(struct settings, field)

const struct option settings_connection[] = {
    {"socket", "PATH", OPTION_TEXT, AT(socket), 0, 0, false,
     "the daemon's socket; else $SLUICE_SOCKET, $XDG_RUNTIME_DIR/sluice.sock, "
     "/run/sluice/sluice.sock"},
    {"instance", "NAME", OPTION_TEXT, AT(instance), 0, 0, false,
     "the same as --socket /run/sluice/NAME.sock; also -i NAME"},
    {0}};

const struct option settings_json[] = {
    {"json", NULL, OPTION_SWITCH, AT(json), 0, 0, false, "write JSON, one object per line"}, {0}};

const struct option settings_stats[] = {
    {"requests", NULL, OPTION_SWITCH, AT(requests), 0, 0, false,
     "also list your requests that are not finished (an admin: all)"},
    {"watch", NULL, OPTION_SWITCH, AT(watch), 0, 0, false,
     "a line per second with rates, and latencies of that second"},
    {"prometheus", NULL, OPTION_SWITCH, AT(prometheus), 0, 0, false,
     "the text that Prometheus reads"},
    {0}};

const struct option settings_input[] = {
    {"prompt", "TEXT", OPTION_TEXT, AT(work.prompt), 0, 0, true,
     "the prompt as text, as without --prompt; - is standard input, less one newline at its end"},
    {"tokens", "1,2,3", OPTION_TOKENS, AT(work.tokens), 0, 0, true, "the prompt as token numbers"},
    {"file", "PATH", OPTION_TEXT, AT(file), 0, 0, false,
     "many prompts: one JSON object per line with prompt, tokens or messages, any of the options "
     "marked *, and id or custom_id, which its results get back; or requests as OpenAI's batches "
     "have them (custom_id, method, url, body), answered in that form; - is standard input"},
    {"priority", "P", OPTION_WHOLE, AT(work.priority), -8, 7, true,
     "* -8 to 7, higher goes first (0)"},
    {"deadline-ms", "N", OPTION_WHOLE, AT(work.deadline_ms), 0, 1099511627776.0, true,
     "* give up after N milliseconds (0: never)"},
    {0}};

const struct option settings_cache[] = {
    {"no-cache", NULL, OPTION_OFF, AT(work.cache), 0, 0, true,
     "* nothing that the daemon computed before is used, and nothing is kept (in a file: "
     "\"cache\": false)"},
    {"cache-salt", "TEXT", OPTION_TEXT, AT(work.cache_salt), 0, 0, true,
     "* a secret of 1 to 256 bytes: what is kept is shared with all who give it, else with the "
     "same "
     "user alone"},
    {"model", "NAME", OPTION_TEXT, AT(work.named), 0, 0, true,
     "* which model, of a daemon that serves several (its first), or which adapter"},
    {0}};

const struct option settings_sampling[] = {
    {"max-tokens", "N", OPTION_WHOLE, AT(work.params.max_tokens), 0, INT32_MAX, true,
     "* generate at most N tokens (0: as many as the context holds)"},
    {"min-tokens", "N", OPTION_WHOLE, AT(work.params.min_tokens), 0, INT32_MAX, true,
     "* do not stop before N tokens"},
    {"temperature", "T", OPTION_REAL, AT(work.params.temperature), 0, 100, true, "* 0 is greedy"},
    {"top-k", "K", OPTION_WHOLE, AT(work.params.top_k), 0, INT32_MAX, true,
     "* choose among the K likeliest (0: all)"},
    {"top-p", "P", OPTION_REAL, AT(work.params.top_p), 0, 1, true,
     "* choose among the likeliest that make up P (1: all)"},
    {"min-p", "M", OPTION_REAL, AT(work.params.min_p), 0, 1, true,
     "* choose among those at least M times as likely as the likeliest (0: all)"},
    {"repetition-penalty", "X", OPTION_REAL, AT(work.params.repetition_penalty), 0, 100, true,
     "* 1 is off"},
    {"presence-penalty", "X", OPTION_REAL, AT(work.params.presence_penalty), -100, 100, true,
     "* 0 is off"},
    {"frequency-penalty", "X", OPTION_REAL, AT(work.params.frequency_penalty), -100, 100, true,
     "* 0 is off"},
    {"seed", "S", OPTION_WHOLE, AT(work.params.seed), 0, WHOLE_MAX, true,
     "* same seed, same choices (else drawn)"},
    {"stop", "STR", OPTION_LIST, AT(work.stop), 0, 0, true,
     "* stop before this text; may be given up to 16 times (a list in a file)"},
    {"ignore-eos", NULL, OPTION_SWITCH, AT(work.params.ignore_eos), 0, 0, true,
     "* the model's end tokens are never sampled: --max-tokens of them come"},
    {0}};

const struct option settings_results[] = {
    {"logprobs", "N", OPTION_INT, AT(work.params.logprobs), 0, 20, true,
     "* log-probabilities, with --json: of each token, and of the N likeliest"},
    {"n", "N", OPTION_INT, AT(work.params.n), 1, 128, true, "* N results per prompt (1)"},
    {"no-stream", NULL, OPTION_OFF, AT(stream), 0, 0, false,
     "print a result when it is whole, not as it comes"},
    {0}};

const struct option settings_constraint[] = {
    {"json-schema", "FILE", OPTION_TEXT, AT(json_schema), 0, 0, false,
     "results are JSON by the schema in the file; - is standard input"},
    {"json-object", NULL, OPTION_SWITCH, AT(json_object), 0, 0, false, "results are JSON objects"},
    {"regex", "PATTERN", OPTION_TEXT, AT(regex), 0, 0, false,
     "results are wholly what the regular expression says"},
    {"choice", "TEXT", OPTION_LIST, AT(choice), 0, 0, false,
     "results are this text, or another that is given so; up to 16"},
    {"grammar", "FILE", OPTION_TEXT, AT(grammar), 0, 0, false,
     "results are what the GBNF grammar in the file says; - is standard input"},
    {0}};

const struct option settings_embed[] = {
    {"pooling", "P", OPTION_TEXT, AT(work.pooling), 0, 0, false, "last, mean or all (last)"},
    {"no-normalize", NULL, OPTION_OFF, AT(work.normalize), 0, 0, false,
     "leave the rows as long as they are"},
    {0}};

#define SPECIAL(help)                                                                              \
    {                                                                                              \
        "no-special", NULL, OPTION_OFF, AT(special), 0, 0, false, help                             \
    }
#define TEXT_FILE(help)                                                                            \
    {                                                                                              \
        "file", "PATH", OPTION_TEXT, AT(file), 0, 0, false, help                                   \
    }

const struct option settings_tokenize[] = {
    {"prompt", "TEXT", OPTION_TEXT, AT(work.prompt), 0, 0, false, "the text"},
    TEXT_FILE("a file whose bytes are the text; - is standard input (-)"),
    {"chat", NULL, OPTION_SWITCH, AT(conversation), 0, 0, false,
     "it is a conversation, {\"messages\":[...]}, for the model's chat template"},
    SPECIAL("leave out the tokens that the model puts around a text"),
    {0}};

const struct option settings_detokenize[] = {
    {"tokens", "1,2,3", OPTION_TOKENS, AT(work.tokens), 0, 0, false, "the token numbers"},
    TEXT_FILE("a file with numbers, commas or white space between; - is standard input (-)"),
    SPECIAL("leave out special tokens"),
    {0}};

const struct option settings_chat[] = {{"system", "TEXT", OPTION_TEXT, AT(system), 0, 0, false,
                                        "what the model is told before the conversation begins"},
                                       {0}};

const struct option settings_job[] = {
    {"input", "NAME=FILE", OPTION_LIST, AT(inputs), 0, 0, false,
     "an input, a file of NumPy's (.npy) or a PNG image; - is standard input. Of several files for "
     "one input each makes an item"},
    {"output", "NAME=FILE", OPTION_LIST, AT(outputs), 0, 0, false,
     "where an output goes, as a file of NumPy's; - is standard output"},
    {"picture", "FILE", OPTION_TEXT, AT(picture), 0, 0, false,
     "also draw the first output of two dimensions, over the image that came in, as PNG; of one "
     "item"},
    {"parameter", "NAME=VALUE", OPTION_LIST, AT(parameters), 0, 0, false,
     "of the program, for all items: a number, true or false"},
    TEXT_FILE(
        "many items: one JSON object per line, {\"inputs\": {NAME: FILE}, \"outputs\": {NAME: "
        "FILE}, \"parameters\": {NAME: VALUE}}; - is standard input"),
    {"priority", "P", OPTION_WHOLE, AT(work.priority), -8, 7, false,
     "-8 to 7, higher goes first (0)"},
    {"deadline-ms", "N", OPTION_WHOLE, AT(work.deadline_ms), 0, 1099511627776.0, false,
     "give up after N milliseconds (0: never)"},
    {0}};

const struct option settings_programs[] = {
    {"enable", "NAME", OPTION_TEXT, AT(enable), 0, 0, false,
     "as an admin: a program that is off since it failed takes jobs again"},
    {0}};

const struct option settings_calibrate[] = {
    {"page", "FILE.html", OPTION_TEXT, AT(page), 0, 0, false,
     "also write curves as a page there, and all figures as FILE.json"},
    {"store", "FILE.conf", OPTION_TEXT, AT(store), 0, 0, false,
     "set job-chunk and job-lanes to it in that configuration, which keeps its other lines"},
    {0}};

const struct option settings_timeline[] = {
    {"simulate", "BATCHES", OPTION_INT, AT(simulate), 1, 1000000, false,
     "so many batches by the model: copies in, kernels and copies out of different ones at once"},
    {"times", "T,T,T", OPTION_TEXT, AT(times), 0, 0, false,
     "of --simulate: what a batch's copy in, kernels and copy out take, in any unit (1,1,1)"},
    {"chunks", "N", OPTION_INT, AT(chunks), 1, 100000, false, "show so many chunks of jobs (64)"},
    {"seconds", "S", OPTION_INT, AT(seconds), 1, 3600, false,
     "wait no longer for them, and show those that there are (10)"},
    {"svg", "FILE", OPTION_TEXT, AT(svg), 0, 0, false, "also draw them, lane by lane"},
    {"trace", "FILE", OPTION_TEXT, AT(trace), 0, 0, false,
     "also write them in Chrome's trace format (chrome://tracing, ui.perfetto.dev)"},
    {0}};

void settings_init(struct settings *settings)
{
    *settings = (struct settings){
        .work = {.normalize = 1, .pooling = "last", .cache = 1},
        .stream = 1,
        .chunks = 64,
        .seconds = 10,
        .special = 1,
    };
    sluice_params_init(&settings->work.params);
    bench_options_init(&settings->bench);
}

void work_clear(struct work *work)
{
    free(work->tokens.tokens);
    work->tokens = (struct option_tokens){0};
    free(work->chat);
    work->chat = NULL;
    json_free(work->document);
    work->document = NULL;
}

void work_params(const struct work *work, sluice_params *ret_params)
{
    *ret_params = work->params;
    ret_params->stop = work->stop.texts;
    ret_params->stop_count = work->stop.count;
}

int work_pooling(const struct work *work, int *ret_pooling, struct error *error)
{
    static const char *const names[] = {"last", "mean", "all"};
    for (int i = 0; i < 3; i++) {
        if (!strcmp(work->pooling, names[i])) {
            *ret_pooling = i;
            return 0;
        }
    }
    return error_set(error, ERR_USAGE, "pooling is last, mean or all");
}
