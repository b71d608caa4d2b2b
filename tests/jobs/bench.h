/* Programs of the tests' own, and chunks for them. */
#pragma once

#include <check.h>

#include "gpu/emu/emu.h"
#include "gpu/jobs/gpu_jobs.h"

Suite *copy_crew_suite(void);
Suite *lanes_suite(void);
Suite *calls_suite(void);
Suite *module_suite(void);
Suite *shape_suite(void);
Suite *times_suite(void);

/* y = a x + b over two streams: a x on the first, into scratch and taken memory, + b on the second. */
extern const struct sluice_program bench_staged;
/* Gives what lies in its output and scratch before anything was written there. */
extern const struct sluice_program bench_reader;
/* Enqueues nothing, and returns 7. */
extern const struct sluice_program bench_failing;

struct program bench_program(const struct sluice_program *said);

/* A chunk whose items have these lengths; x and y are its own. */
#define BENCH_ITEMS 64
struct bench_chunk {
    struct gpu_chunk base;
    struct gpu_piece pieces[BENCH_ITEMS];
    float *x[BENCH_ITEMS], *y[BENCH_ITEMS];
};

struct bench_chunk *bench_chunk(const struct program *program, uint64_t *state, uint32_t items,
                                uint32_t longest);
/* Every element is as plain arithmetic has it. */
bool bench_right(const struct bench_chunk *chunk);
void bench_free(struct bench_chunk *chunk);
uint32_t bench_draw(uint64_t *state, uint32_t below);

/* The product's device with these, poison and strict; a file that wakes. */
void bench_setup(enum emu_engine engine, uint64_t seed);
struct gpu_jobs *bench_open(const struct gpu_jobs_options *options, int *ret_wake_fd);
struct gpu_chunk *bench_wait(struct gpu_jobs *jobs, int wake_fd);
