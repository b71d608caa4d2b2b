#include <inttypes.h>

#include "daemon/jobs/calibration.h"

#define KNEE 0.9 /* of a linear gain */

void calibration_bytes(uint64_t bytes, char text[32])
{
    bool mebi = bytes % (1u << 20) == 0;
    snprintf(text, 32, "%" PRIu64 "%s", bytes >> (mebi ? 20 : 10), mebi ? "MiB" : "KiB");
}

/* ---- the machine -------------------------------------------------------------------------------
 */

uint32_t calibration_knee(const struct gpu_machine *machine)
{
    uint32_t knee = 1;
    for (uint32_t i = 0; i < machine->stream_count; i++)
        if (machine->streams_gain[i] >= KNEE * machine->streams[i])
            knee = machine->streams[i];
    return knee;
}

static void print_copies(const struct gpu_machine *machine, FILE *file)
{
    fprintf(file,
            "# copy engines: %" PRIu32 "; pinned in %.1f GB/s, out %.1f, both at once %.1f; "
            "pageable in %.1f, out %.1f: pinned %.1f and %.1f times\n",
            machine->copy_engines, machine->rates[1][0] / 1e9, machine->rates[1][1] / 1e9,
            machine->both_rate / 1e9, machine->rates[0][0] / 1e9, machine->rates[0][1] / 1e9,
            machine->rates[1][0] / machine->rates[0][0],
            machine->rates[1][1] / machine->rates[0][1]);
}

static void print_allocators(const struct gpu_machine *machine, FILE *file)
{
    static const char *const names[] = {[GPU_MACHINE_DIRECT] = "cudaMalloc",
                                        [GPU_MACHINE_RELEASE] = "a pool with threshold 0",
                                        [GPU_MACHINE_KEEP] = "a pool that keeps"};
    char bytes[32];
    calibration_bytes(machine->allocation_bytes, bytes);
    fprintf(file, "# taking %s and giving it back:", bytes);
    for (int i = 0; i < GPU_MACHINE_ALLOCATORS; i++)
        fprintf(file, "%s %s %.1f us (another thread's kernels %.2f times, %.0f us at most)",
                i ? ";" : "", names[i], machine->allocators[i].us, machine->allocators[i].others,
                machine->allocators[i].longest_us);
    fprintf(file,
            "\n# a pool that keeps costs %.0f %% less than cudaMalloc; held %" PRIu64
            " bytes, trimmed %" PRIu64 "\n",
            100 * (1 - machine->allocators[GPU_MACHINE_KEEP].us /
                           machine->allocators[GPU_MACHINE_DIRECT].us),
            machine->kept_bytes, machine->trimmed_bytes);
}

static void print_issue(const struct gpu_machine *machine, FILE *file)
{
    const double *us = machine->issue_us, one = us[GPU_MACHINE_SEQUENTIAL];
    char bytes[32];
    calibration_bytes(machine->batch_bytes, bytes);
    fprintf(file,
            "# %" PRIu32 " batches of %s (in %.1f us, kernel %.1f, out %.1f): one stream %.0f us; "
            "the host waits for each stage %.0f us (%.2f times); events, interleaved %.0f us "
            "(%.2f times), grouped %.0f us (%.2f times)\n",
            machine->batches, bytes, machine->stage_us[0], machine->stage_us[1],
            machine->stage_us[2], one, us[GPU_MACHINE_BLOCKING], one / us[GPU_MACHINE_BLOCKING],
            us[GPU_MACHINE_INTERLEAVED], one / us[GPU_MACHINE_INTERLEAVED], us[GPU_MACHINE_GROUPED],
            one / us[GPU_MACHINE_GROUPED]);
}

static void print_streams(const struct gpu_machine *machine, FILE *file)
{
    fprintf(file, "# a kernel in each of so many streams, times one's rate:");
    for (uint32_t i = 0; i < machine->stream_count; i++)
        fprintf(file, " %" PRIu32 ": %.1f", machine->streams[i], machine->streams_gain[i]);
    fprintf(file, "; nearly linear up to %" PRIu32 "\n", calibration_knee(machine));
    fprintf(file,
            "# %d kernels in one default stream %.2f times, in the default streams of as many "
            "threads %.2f\n",
            GPU_MACHINE_THREADS, machine->default_gain, machine->threads_gain);
}

static void print_machine(const struct gpu_machine *machine, FILE *file)
{
    if (machine->emulated)
        fputs("# The CPU device emulates copies and kernels by threads: of this machine the lines "
              "down to job-chunk mean nothing but that they work; the curves above are those of "
              "jobs that it serves.\n",
              file);
    print_copies(machine, file);
    print_allocators(machine, file);
    print_issue(machine, file);
    print_streams(machine, file);
}

/* ---- the program -------------------------------------------------------------------------------
 */

static void print_point(const struct calibration_point *point, const char *what, FILE *file)
{
    char bytes[32];
    calibration_bytes(point->chunk_bytes, bytes);
    fprintf(file,
            "# %s: %" PRIu32 " %s of %s, %.3f GB/s; of a chunk: in %.1f us, kernels %.1f us, out "
            "%.1f us\n",
            what, point->lanes, point->lanes > 1 ? "lanes" : "lane", bytes, point->rate / 1e9,
            point->stage_us[0], point->stage_us[1], point->stage_us[2]);
}

static void print_curves(const struct calibration *calibration, FILE *file)
{
    char bytes[32];
    bool late = false;
    for (uint32_t i = 0; i < calibration->chunk_count; i++) {
        calibration_bytes(calibration->points[i][0].chunk_bytes, bytes);
        fprintf(file, "#%8s", bytes);
        for (uint32_t j = 0; j < calibration->lane_count; j++) {
            const struct calibration_point *point = &calibration->points[i][j];
            late |= point->late;
            if (point->bytes > 0)
                fprintf(file, " %8.3f", point->rate / 1e9);
            else
                fprintf(file, " %8s", point->late ? "late" : "-");
        }
        fputc('\n', file);
    }
    if (late)
        fputs("# late: there was no time left for it; larger chunks of this program take long\n",
              file);
}

void calibration_print(const struct calibration_told *told, FILE *file)
{
    const struct calibration *calibration = told->calibration;
    char bytes[32];
    fprintf(file, "# %s on %s: GB/s of inputs and outputs together, by chunk and lanes\n#%8s",
            told->program, told->device, "");
    for (uint32_t j = 0; j < calibration->lane_count; j++)
        fprintf(file, " %8" PRIu32, calibration->points[0][j].lanes);
    fputc('\n', file);
    print_curves(calibration, file);
    print_point(calibration->best, "best", file);
    print_point(calibration->chosen, "chosen, the least memory within 3 % of it", file);
    if (told->machine)
        print_machine(told->machine, file);
    calibration_bytes(calibration->chosen->chunk_bytes, bytes);
    fprintf(file, "job-chunk = %s\njob-lanes = %" PRIu32 "\n", bytes, calibration->chosen->lanes);
}
