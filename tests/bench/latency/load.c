#include "tests/bench/latency/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/bench/workload.h"
#include "tests/bench/latency/machine.h"

#define BESIDE_ROWS 64
#define BESIDE_FROM_US 0.75e6

static struct load with_room(size_t count)
{
    struct load load = {.arrivals = calloc(count, sizeof(*load.arrivals))};
    if (!load.arrivals) {
        fprintf(stderr, "no memory for %zu arrivals\n", count);
        exit(2);
    }
    return load;
}

static uint32_t between(uint64_t *random, uint32_t least, uint32_t most)
{
    return least + (uint32_t)(machine_random(random) * (most - least + 1));
}

struct load load_poisson(double rate, double seconds, uint64_t seed)
{
    size_t room = (size_t)(rate * seconds * 2) + 100;
    struct load load = with_room(room);
    double at_us = 0;
    while (load.count < room) {
        at_us -= log(1 - machine_random(&seed)) * 1e6 / rate;
        if (at_us > seconds * 1e6)
            break;
        load.arrivals[load.count++] = (struct arrival){.at_us = at_us,
                                                       .prompt = between(&seed, 512, 1536),
                                                       .output = between(&seed, 64, 192),
                                                       .counts = true,
                                                       .gaps = true};
    }
    return load;
}

struct load load_drawn(double rate, double seconds, uint64_t seed)
{
    struct bench_options options;
    struct workload workload;
    struct error error;
    bench_options_init(&options);
    options.request_rate = rate;
    options.duration_s = seconds;
    options.seed = (int64_t)seed;
    options.input_len = 1024;
    options.output_len = 128;
    options.range_ratio = 0.5;
    if (workload_make(&options, &workload, &error) < 0) {
        fprintf(stderr, "%s\n", error.text);
        exit(2);
    }
    struct load load = with_room(workload.count);
    for (; load.count < workload.count; load.count++) {
        const struct item *item = &workload.items[load.count];
        load.arrivals[load.count] = (struct arrival){.at_us = (double)item->due_us,
                                                     .prompt = item->prompt_tokens,
                                                     .output = item->output_tokens,
                                                     .counts = true,
                                                     .gaps = true};
    }
    workload_free(&workload);
    return load;
}

struct load load_beside(double seconds)
{
    struct load load = with_room(BESIDE_ROWS + (size_t)seconds + 1);
    for (int i = 0; i < BESIDE_ROWS; i++)
        load.arrivals[load.count++] = (struct arrival){
            .prompt = 128, .output = (uint32_t)(seconds * 250) + 250, .gaps = true};
    for (int i = 0; i < seconds; i++)
        load.arrivals[load.count++] = (struct arrival){
            .at_us = BESIDE_FROM_US + 1e6 * i, .prompt = 4096, .output = 1, .counts = true};
    return load;
}

struct load load_saturated(uint32_t requests)
{
    struct load load = with_room(requests);
    while (load.count < requests)
        load.arrivals[load.count++] =
            (struct arrival){.prompt = 1024, .output = 128, .counts = true, .gaps = true};
    return load;
}

#define TURNS 10
#define TURNS_PREFIX 1000 /* that all sessions begin with */
#define TURN_PROMPT 200
#define TURN_OUTPUT 150

struct load load_conversations(uint32_t sessions)
{
    struct load load = with_room((size_t)sessions * TURNS);
    load.turns = TURNS;
    for (uint32_t i = 0; i < sessions * TURNS; i++) {
        uint32_t turn = i % TURNS, before = turn * (TURN_PROMPT + TURN_OUTPUT);
        load.arrivals[load.count++] =
            (struct arrival){.at_us = turn == 0 ? 0 : INFINITY,
                             .prompt = TURNS_PREFIX + before + TURN_PROMPT,
                             .output = TURN_OUTPUT,
                             .counts = true,
                             .gaps = true};
    }
    return load;
}

void load_text(uint32_t session, uint32_t count, int32_t *tokens)
{
    for (uint32_t i = 0; i < count; i++) {
        bool own = i >= TURNS_PREFIX;
        bool answer = own && (i - TURNS_PREFIX) % (TURN_PROMPT + TURN_OUTPUT) >= TURN_PROMPT;
        tokens[i] = answer ? 0 : (int32_t)(own ? (session + 1) << 16 : 0) + (int32_t)i + 1;
    }
}

void load_free(struct load *load)
{
    free(load->arrivals);
}
