#include "client/option/bench_options.h"

#include <math.h>

#include "client/bench/workload.h"
#include "client/option/settings.h"

#define AT(field) offsetof(struct settings, bench.field)
#define RATE_MAX 1e9
#define LENGTH_MAX 16777216

const struct option bench_load_options[] = {
    {"request-rate", "R", OPTION_REAL, AT(request_rate), 1e-6, INFINITY, false,
     "arrivals per second; inf: all at once (inf)"},
    {"burstiness", "B", OPTION_REAL, AT(burstiness), 1e-3, INFINITY, false,
     "shape of the gamma-distributed gaps: 1 is a Poisson process, less is burstier, inf is even "
     "(1)"},
    {"ramp-up", "RAMP", OPTION_TEXT, AT(ramp_up), 0, 0, false,
     "linear:START:END or exponential:START:END, per second, over the requests, instead of "
     "--request-rate"},
    {"max-concurrency", "N", OPTION_WHOLE, AT(max_concurrency), 1, 1000000, false,
     "at most N requests open at a time; what comes due meanwhile waits here, and the latencies "
     "from the scheduled arrival tell it. Shared out among --threads"},
    {"num-prompts", "N", OPTION_WHOLE, AT(num_prompts), 1, WORKLOAD_ITEMS_MAX, false,
     "requests (1000, or what arrives in --duration)"},
    {"duration", "S", OPTION_REAL, AT(duration_s), 1e-3, 1e6, false,
     "send for S seconds; what was sent is waited for"},
    {"workload", "NAME", OPTION_TEXT, AT(workload), 0, 0, false,
     "sets what is not given itself of the five below: random; conversations, of 10 turns behind a "
     "system prompt of 1000 tokens, 200 in and 150 out a turn, 5 s to think; agents, of 20 turns "
     "behind 8000 tokens, 60 in and 40 out, with nothing to think (random)"},
    {"turns", "N", OPTION_WHOLE, AT(turns), 1, 10000, false,
     "each request begins a session of N: each further one has all of the one before for its "
     "beginning, and what was answered (over --openai numbers of our own in its place); "
     "--num-prompts "
     "and --request-rate are of sessions then (1)"},
    {"think-time", "S", OPTION_REAL, AT(think_s), 0, 1e6, false,
     "seconds from an answer's end to the session's next request, on average; exponentially "
     "distributed (0)"},
    {"random-input-len", "N", OPTION_WHOLE, AT(input_len), 1, LENGTH_MAX, false,
     "tokens of a prompt, or of a turn of it (1024)"},
    {"random-output-len", "N", OPTION_WHOLE, AT(output_len), 1, LENGTH_MAX, false,
     "tokens asked for (128)"},
    {"random-range-ratio", "R", OPTION_REAL, AT(range_ratio), 0, 0.999999, false,
     "lengths are uniform between L*(1-R) and L*(1+R): vLLM's rule; SGLang's of the same name "
     "is another (0)"},
    {"random-prefix-len", "N", OPTION_WHOLE, AT(prefix_len), 0, LENGTH_MAX, false,
     "tokens that all prompts share, before the random ones (0)"},
    {"trace", "FILE", OPTION_TEXT, AT(trace), 0, 0, false,
     "arrivals and lengths from a file: a line per request with timestamp (ms), input_length and "
     "output_length"},
    {"ignore-eos", NULL, OPTION_SWITCH, AT(ignore_eos), 0, 0, false,
     "end tokens are never sampled, so that each output has the length asked for"},
    {"priority-mix", "P:W,...", OPTION_TEXT, AT(priority_mix), 0, 0, false,
     "priorities and their weights, as 0:80,5:20"},
    {"cancel-rate", "F", OPTION_REAL, AT(cancel_rate), 0, 1, false,
     "cancel this part of the requests, each after a random number of its tokens (0)"},
    {"probe-rate", "R", OPTION_REAL, AT(probe_rate), 0, RATE_MAX, false,
     "beside the load, R requests of one token per second, told separately (0)"},
    {"warmup", "N", OPTION_WHOLE, AT(warmup), 0, 1000000, false,
     "requests before, that count nowhere (0)"},
    {"no-cache", NULL, OPTION_OFF, AT(cache), 0, 0, false,
     "the server uses nothing that it computed before, and keeps nothing"},
    {"cache-salt", "TEXT", OPTION_TEXT, AT(cache_salt), 0, 0, false,
     "a secret: what is kept is shared with all who give it"},
    {"seed", "N", OPTION_WHOLE, AT(seed), 0, 9007199254740992.0, false,
     "same seed, same arrivals, lengths and prompts (0)"},
    {"connections", "N", OPTION_WHOLE, AT(connections), 1, 4096, false,
     "connections, in all threads (4); with --openai as many as requests are open"},
    {"threads", "N", OPTION_WHOLE, AT(threads), 1, 256, false, "threads (1)"},
    {"openai", "URL", OPTION_TEXT, AT(openai), 0, 0, false,
     "load an OpenAI-compatible server instead: http://HOST:PORT, or unix:PATH"},
    {"model", "NAME", OPTION_TEXT, AT(model), 0, 0, false,
     "which model, or which adapter (the first; with --openai the first that the server lists)"},
    {"api-key-file", "FILE", OPTION_TEXT, AT(api_key_file), 0, 0, false,
     "with --openai: the key that the server asks for, alone or behind a name; else "
     "$OPENAI_API_KEY, if it is set"},
    {"vocabulary", "N", OPTION_WHOLE, AT(vocabulary), 1, 2147483647, false,
     "prompts are token numbers below N (the daemon's vocabulary; with --openai 30000)"},
    {0}};

const struct option bench_output_options[] = {
    {"goodput", "M:MS,...", OPTION_TEXT, AT(goodput), 0, 0, false,
     "count requests within all of these: ttft, tpot, e2el, in milliseconds, as ttft:200,tpot:50"},
    {"json", "FILE", OPTION_TEXT, AT(json_file), 0, 0, false,
     "write the figures, with vLLM's keys"},
    {"save-detailed", NULL, OPTION_SWITCH, AT(save_detailed), 0, 0, false,
     "with --json: also every request's times"},
    {"report", "FILE", OPTION_TEXT, AT(report_file), 0, 0, false,
     "write a page of HTML with the curves"},
    {0}};
