#include "daemon/jobs/calibration.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/jobs/shape.h"

#define JOBS_MAX 4096u
#define SIZE_OTHER 64u /* of dimensions that are no rows */
#define WAIT_US_MAX 1000000u
#define PASSES 3
#define JOBS_FIRST 2u /* of a program of which nothing is known yet */

/* ---- jobs that are made up ---------------------------------------------------------------------
 */

struct made {
    struct seq seq;
    struct tensor_job job;
    struct error failure;
};

/* A point as it runs. */
struct bench {
    struct job_programs *programs;
    struct job_worker *worker;
    struct completion_queue completions;
    struct made *jobs;
    uint32_t count, ended, failed;
    struct error failure; /* of the first that failed */
    uint64_t item_in, item_out;
    void *inputs, *outputs; /* every item's */
};

static union sluice_value value_of(const struct program_parameter *parameter)
{
    return parameter->required ? parameter->min : parameter->standard;
}

static struct sluice_item item_of(const struct program *program)
{
    struct sluice_item item = {.sizes = {0}};
    for (uint32_t i = 0; i < program->size_count; i++) {
        uint64_t size = SIZE_OTHER < program->sizes[i].max ? SIZE_OTHER : program->sizes[i].max;
        item.sizes[i] = size > program->sizes[i].min ? size : program->sizes[i].min;
    }
    for (uint32_t i = 0; i < program->parameter_count; i++)
        item.values[i] = value_of(&program->parameters[i]);
    shape_values(program, item.values, item.sizes);
    return item;
}

static bool fits(const struct program *program, const struct sluice_item *item, uint64_t bytes,
                 struct shape_room *ret_room)
{
    struct error ignored;
    return !shape_check(program, item, &ignored) &&
           !shape_room(program, item, ret_room, &ignored) && ret_room->in <= bytes &&
           ret_room->out <= bytes;
}

/* The most rows with which an item fits a chunk; false: even the fewest do not. */
static bool size_item(const struct program *program, uint64_t bytes, struct sluice_item *item,
                      struct shape_room *ret_room)
{
    if (program->size_count == 0 || program->sizes[0].parameter >= 0)
        return fits(program, item, bytes, ret_room);
    uint64_t low = program->sizes[0].min, high = program->sizes[0].max;
    item->sizes[0] = low;
    if (!fits(program, item, bytes, ret_room))
        return false;
    while (low < high) { /* `low` fits, more than `high` does not */
        uint64_t middle = low + (high - low + 1) / 2;
        item->sizes[0] = middle;
        if (fits(program, item, bytes, ret_room))
            low = middle;
        else
            high = middle - 1;
    }
    item->sizes[0] = low;
    return fits(program, item, bytes, ret_room);
}

static void place(const struct program_tensor *tensors, uint32_t count, const uint64_t *sizes,
                  unsigned char *at, void **ret_places)
{
    uint64_t bytes = 0;
    struct error ignored;
    for (uint32_t i = 0; i < count; i++) {
        ret_places[i] = at;
        (void)shape_bytes(&tensors[i], sizes, &bytes, &ignored); /* it was measured */
        at += shape_align(bytes);
    }
}

static void make_job(const struct bench *bench, const struct sluice_item *item, struct made *made)
{
    struct job_program *own = &bench->programs->list[0];
    const struct program *program = &own->program;
    void *inputs[SLUICE_TENSORS_MAX];
    *made = (struct made){.job.program = own};
    memcpy(made->job.sizes, item->sizes, sizeof(item->sizes));
    memcpy(made->job.values, item->values, sizeof(item->values));
    place(program->inputs, program->input_count, item->sizes, bench->inputs, inputs);
    place(program->outputs, program->output_count, item->sizes, bench->outputs, made->job.outputs);
    for (uint32_t i = 0; i < program->input_count; i++)
        made->job.inputs[i] = inputs[i];
    made->seq.job = &made->job;
    made->seq.failure = &made->failure;
}

/* ---- a point -----------------------------------------------------------------------------------
 */

static void wake(void *context)
{
    (void)context; /* it is this thread that turns */
}

static void take_ends(struct bench *bench)
{
    unsigned control, flags;
    struct mailbox_link *chain = completion_drain(&bench->completions, &control);
    struct seq *seq;
    while ((seq = completion_next(&chain, &flags))) {
        if (!(flags & COMPLETION_ENDED))
            continue;
        bench->ended++;
        if (seq->finish != FINISH_STOP && bench->failed++ == 0)
            bench->failure = *seq->failure;
    }
}

static void wait_for_device(const struct bench *bench)
{
    uint64_t wait_us = job_worker_wait_us(bench->worker, clock_now_us()), drained;
    struct pollfd poll_fd = {.fd = job_worker_fd(bench->worker), .events = POLLIN};
    wait_us = wait_us < WAIT_US_MAX ? wait_us : WAIT_US_MAX;
    if (poll(&poll_fd, 1, (int)(wait_us / 1000) + 1) > 0) {
        ssize_t got = read(poll_fd.fd, &drained, sizeof(drained));
        (void)got; /* it was readable, and nobody else reads it */
    }
}

/* All jobs through the lanes; how long that took. */
static int pass(struct bench *bench, const struct sluice_item *item, uint64_t *ret_us,
                struct error *error)
{
    struct replica *replica = job_worker_replica(bench->worker);
    const time_us begin_us = clock_now_us();
    bench->ended = 0;
    for (uint32_t i = 0; i < bench->count; i++) {
        make_job(bench, item, &bench->jobs[i]);
        replica->api->send(replica, &bench->jobs[i].seq);
    }
    while (bench->ended < bench->count) {
        (void)job_worker_turn(bench->worker, clock_now_us());
        take_ends(bench);
        if (bench->ended < bench->count)
            wait_for_device(bench);
    }
    *ret_us = clock_now_us() - begin_us;
    if (bench->failed == 0)
        return 0;
    *error = bench->failure;
    return -error->code;
}

static double mean_us(uint64_t sum_ns, uint32_t count)
{
    return count > 0 ? (double)sum_ns / 1e3 / count : 0;
}

/* Of the chunks that were timed. */
static int read_stages(struct timeline *timeline, struct calibration_point *point,
                       struct error *error)
{
    uint64_t first, sums_ns[3] = {0};
    struct timeline_chunk *chunks = calloc(TIMELINE_CHUNKS_MAX, sizeof(*chunks));
    if (!chunks)
        return error_set(error, ERR_NO_MEMORY, "no memory for a timeline");
    uint32_t count = timeline_read(timeline, 0, TIMELINE_CHUNKS_MAX, chunks, &first);
    for (uint32_t i = 0; i < count; i++) {
        const struct gpu_chunk_times *times = &chunks[i].times;
        sums_ns[0] += times->in.end_ns - times->in.begin_ns;
        sums_ns[1] += times->kernels.end_ns - times->kernels.begin_ns;
        sums_ns[2] += times->out.end_ns - times->out.begin_ns;
    }
    free(chunks);
    for (int i = 0; i < 3; i++)
        point->stage_us[i] = mean_us(sums_ns[i], count);
    return 0;
}

static int by_value(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Once to see the stages, and for caches and pools to fill; then without events, by the clock: what
 * the middle one of some passes takes. */
static int measure(struct bench *bench, const struct sluice_item *item, int passes,
                   struct calibration_point *point, struct error *error)
{
    struct timeline *timeline = job_worker_timeline(bench->worker);
    uint64_t took_us[PASSES];
    timeline_ask(timeline, clock_now_us());
    int rc = pass(bench, item, &took_us[0], error);
    timeline_end(timeline);
    if (!rc)
        rc = read_stages(timeline, point, error);
    for (int i = 0; !rc && i < passes; i++)
        rc = pass(bench, item, &took_us[i], error);
    if (rc)
        return rc;
    qsort(took_us, (size_t)passes, sizeof(took_us[0]), by_value);
    point->took_us = took_us[passes / 2];
    point->jobs = bench->count;
    point->bytes = bench->count * (bench->item_in + bench->item_out);
    point->rate = (double)point->bytes * 1e6 / (double)(point->took_us ? point->took_us : 1);
    return 0;
}

static int open_bench(struct bench *bench, const struct gpu_jobs_api *api,
                      const struct job_worker_options *options, struct error *error)
{
    bench->jobs = calloc(bench->count, sizeof(*bench->jobs));
    bench->inputs = calloc(1, bench->item_in);
    bench->outputs = calloc(1, bench->item_out);
    if (!bench->jobs || !bench->inputs || !bench->outputs)
        return error_set(error, ERR_NO_MEMORY, "no memory for items of %" PRIu64 " bytes",
                         bench->item_in);
    int rc = job_worker_make(api, bench->programs, options, &bench->completions, &bench->worker,
                             error);
    if (!rc && (rc = job_worker_open(bench->worker)))
        *error = *job_worker_failure(bench->worker);
    return rc;
}

static void close_bench(struct bench *bench)
{
    job_worker_free(bench->worker);
    completion_destroy(&bench->completions);
    free(bench->jobs);
    free(bench->inputs);
    free(bench->outputs);
}

/* ---- how much of it there is time for ----------------------------------------------------------
 */

/* What a sweep has learnt so far, and when it is to end. */
struct pace {
    time_us end_us;
    uint64_t pass_us;
    uint32_t points_left;
    double row_us; /* of the last point: of a row, or of an item of a program without rows; 0: none */
};

static uint64_t rows_of(const struct program *program, const struct sluice_item *item)
{
    return program->size_count > 0 ? item->sizes[0] : 1;
}

/* Jobs and passes for which there is time, by what the last point took; false: there is none, or so
 * little that all lanes could not be busy once. Of the first point nobody knows, and it is run. */
static bool plan(const struct pace *pace, uint64_t rows, uint32_t least, uint32_t *count,
                 int *ret_passes)
{
    const time_us now_us = clock_now_us();
    const double left_us = pace->end_us > now_us ? (double)(pace->end_us - now_us) : 0;
    const double job_us = pace->row_us * (double)rows, share_us = left_us / pace->points_left;
    *ret_passes = PASSES;
    if (pace->row_us == 0) {
        *count = JOBS_FIRST;
        *ret_passes = 1;
        return true;
    }
    if (2 * least * job_us > left_us) /* one that is timed, and one that counts */
        return false;
    const double longer = (double)pace->pass_us / job_us;
    if (longer > *count)
        *count = longer < JOBS_MAX ? (uint32_t)longer : JOBS_MAX;
    const double fit = share_us / ((1 + PASSES) * job_us);
    if (fit < least)
        *ret_passes = 1;
    if (fit < *count)
        *count = fit < least ? least : (uint32_t)fit;
    return true;
}

static uint32_t jobs_of(const struct shape_room *room, uint64_t data)
{
    const uint64_t bytes = room->in > room->out ? room->in : room->out;
    const uint64_t count = bytes > 0 ? (data + bytes - 1) / bytes : JOBS_MAX;
    return count < JOBS_MAX ? (uint32_t)count : JOBS_MAX;
}

static int run_bench(const struct gpu_jobs_api *api, const struct job_worker_options *options,
                     struct bench *bench, const struct sluice_item *item, int passes,
                     struct calibration_point *point, struct error *error)
{
    completion_init(&bench->completions, wake, NULL);
    int rc = open_bench(bench, api, options, error);
    if (!rc)
        rc = measure(bench, item, passes, point, error);
    close_bench(bench);
    return rc;
}

static int run_point(const struct gpu_jobs_api *api, struct job_programs *programs,
                     const struct job_worker_options *options,
                     const struct calibration_range *range, struct pace *pace,
                     struct calibration_point *point, struct error *error)
{
    const struct program *program = &programs->list[0].program;
    struct job_worker_options made = *options;
    struct sluice_item item = item_of(program);
    struct shape_room room;
    struct bench bench = {.programs = programs};
    const uint32_t slots = point->lanes * options->lanes.ring;
    const uint64_t held = slots * point->chunk_bytes;
    int rc = 0, passes;
    if (2 * held > range->staging_max || !size_item(program, point->chunk_bytes, &item, &room))
        return 0;
    const uint64_t rows = rows_of(program, &item);
    bench.count = jobs_of(&room, 2 * held > range->data_min ? 2 * held : range->data_min);
    point->late = !plan(pace, rows, bench.count < slots ? bench.count : slots, &bench.count,
                        &passes);
    if (point->late)
        return 0;
    made.lanes.lanes = point->lanes;
    made.lanes.chunk_bytes = point->chunk_bytes;
    bench.item_in = room.in;
    bench.item_out = room.out;
    if (pace->row_us == 0) { /* to know what comes, then the point itself */
        rc = run_bench(api, &made, &bench, &item, passes, point, error);
        pace->row_us = (double)(point->took_us + 1) / (double)(bench.count * rows);
        return rc ? rc : run_point(api, programs, options, range, pace, point, error);
    }
    rc = run_bench(api, &made, &bench, &item, passes, point, error);
    pace->row_us = (double)(point->took_us + 1) / (double)(bench.count * rows);
    return rc;
}

/* ---- the sweep ---------------------------------------------------------------------------------
 */

bool calibration_choose(struct calibration *calibration)
{
    const struct calibration_point *best = NULL, *chosen = NULL;
    for (uint32_t i = 0; i < calibration->chunk_count; i++)
        for (uint32_t j = 0; j < calibration->lane_count; j++) {
            const struct calibration_point *point = &calibration->points[i][j];
            if (point->rate > (best ? best->rate : 0))
                best = point;
        }
    for (uint32_t i = 0; best && i < calibration->chunk_count; i++)
        for (uint32_t j = 0; j < calibration->lane_count; j++) {
            const struct calibration_point *point = &calibration->points[i][j];
            bool near = point->rate > 0 && point->rate >= CALIBRATION_NEAR * best->rate;
            if (near && (!chosen || point->lanes * point->chunk_bytes <
                                        chosen->lanes * chosen->chunk_bytes))
                chosen = point;
        }
    calibration->best = best;
    calibration->chosen = chosen;
    return best != NULL;
}

/* Of chunks that double: how many there are up to the most. */
static uint32_t doublings(uint64_t least, uint64_t most, uint32_t limit)
{
    uint32_t count = 0;
    for (; least <= most && count < limit; least *= 2)
        count++;
    return count;
}

int calibration_run(const struct gpu_jobs_api *api, struct job_programs *programs,
                    const struct job_worker_options *options, const struct calibration_range *range,
                    struct calibration *ret_calibration, struct error *error)
{
    struct calibration *calibration = ret_calibration;
    int rc = 0;
    *calibration = (struct calibration){
        .chunk_count = doublings(range->chunk_min, range->chunk_max, CALIBRATION_CHUNKS_MAX),
        .lane_count = doublings(1, range->lanes_max, CALIBRATION_LANES_MAX)};
    struct pace pace = {.end_us = clock_now_us() + range->limit_us,
                        .pass_us = range->pass_us,
                        .points_left = calibration->chunk_count * calibration->lane_count};
    for (uint32_t i = 0; i < calibration->chunk_count; i++)
        for (uint32_t j = 0; !rc && j < calibration->lane_count; j++) {
            struct calibration_point *point = &calibration->points[i][j];
            *point = (struct calibration_point){.chunk_bytes = range->chunk_min << i,
                                                .lanes = 1u << j};
            rc = run_point(api, programs, options, range, &pace, point, error);
            pace.points_left--;
        }
    if (!rc && !calibration_choose(calibration))
        rc = error_set(error, ERR_BAD_CONFIG,
                       "not even the smallest item of %s fits a chunk of %" PRIu64 " bytes",
                       programs->list[0].program.name, range->chunk_max);
    return rc;
}
