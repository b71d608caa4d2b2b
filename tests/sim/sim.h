/* A run of the whole daemon, drawn from a seed: clients that ask, err and leave, a device that
 * fails, in one thread and under a virtual clock. First a phase with faults, then one without in
 * which everything must end well, and all figures return to zero. After a device failure the second
 * phase is another daemon's, as a service manager would start it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sim_setup {
    const char *model;    /* synthetic:null, or any that the CPU device serves */
    const char *adapters; /* NAME=DIR,... of a model that is not synthetic:null; "": none */
    const char *beside; /* models behind the first, at most two, that sleep as it does; "": none */
    uint32_t replicas;  /* 1 or 2 */
    uint32_t tp, pp;    /* devices of each: tp * pp, at most 4 */
    bool ep;            /* of a mixture these tp have whole experts */
    uint32_t
        skipped_wait; /* n: the n-th event wait of the device is skipped, once loaded; 0: none */
    bool story;       /* events in words to stderr */
};

struct sim_report {
    bool failed;
    char failure[512];
    uint64_t trace, events; /* equal for equal seeds */
    struct sim_figures {
        uint64_t asked, accepted, completed, refused, lost; /* requests */
        uint64_t steps, grown, refused_slabs, failures;
        uint64_t shared; /* blocks of prompts, had from others */
        uint64_t preemptions, gave_way, wasted_rows, moves, ahead; /* of the last daemon */
        uint64_t drafted, stood;                                   /* tokens */
        uint64_t cached, cache_waits, cache_evictions;
        uint64_t blocks_out, blocks_in, chunks_refused; /* host memory */
        uint64_t stopped, full, cancelled, deadlines, slow_readers;
        uint64_t texts_late, texts_cancelled, texts_dropped, texts_stopped;
        uint64_t ends, ends_drained, ends_late, ends_left; /* asked for, and how they came */
        uint64_t parked, owed;                             /* turns */
        uint64_t lines_waited, lines_dropped;              /* of the log */
        uint64_t slept, woke, made_way, wakes_refused, kept, keeps_failed; /* of models */
    } figures;
};

void sim_run(uint64_t seed, const struct sim_setup *setup, struct sim_report *ret_report);
