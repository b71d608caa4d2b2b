/* Curves over powers of two: the x axis goes by their logarithms. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "daemon/jobs/calibration.h"

#define WIDTH 760.0
#define HEIGHT 260.0
#define LEFT 60.0
#define RIGHT 20.0
#define TOP 14.0
#define BOTTOM 34.0
#define PATH_ROOM 4096

static const char *const colours[] = {"#1f5fbf", "#c2571a", "#2f8f4e", "#8a3fa0", "#444444"};

/* ---- a plot ------------------------------------------------------------------------------------
 */

struct plot {
    FILE *file;
    uint32_t steps; /* of x: 0 to steps - 1, a doubling each */
    double y_max;
};

static double x_of(const struct plot *plot, uint32_t step)
{
    return LEFT + (plot->steps > 1 ? (double)step / (plot->steps - 1) : 0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct plot *plot, double y)
{
    return HEIGHT - BOTTOM - (plot->y_max > 0 ? y / plot->y_max : 0) * (HEIGHT - BOTTOM - TOP);
}

static void begin_plot(const struct plot *plot, const char *title, const char *what)
{
    fprintf(plot->file,
            "<h2>%s</h2>\n<svg viewBox=\"0 0 %.0f %.0f\" xmlns=\"http://www.w3.org/2000/svg\">\n",
            title, WIDTH, HEIGHT);
    for (int i = 0; i <= 4; i++)
        fprintf(plot->file,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n",
                LEFT, WIDTH - RIGHT, y_of(plot, plot->y_max * i / 4),
                y_of(plot, plot->y_max * i / 4), LEFT - 5, y_of(plot, plot->y_max * i / 4) + 4,
                plot->y_max * i / 4);
    fprintf(plot->file, "<text x=\"%.1f\" y=\"11\">%s</text>\n", LEFT + 4, what);
}

static void put_tick(const struct plot *plot, uint32_t step, const char *text)
{
    fprintf(plot->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
            x_of(plot, step), HEIGHT - BOTTOM + 18, text);
}

static void put_mark(const struct plot *plot, uint32_t step, double y, const char *class,
                     const char *what)
{
    fprintf(plot->file,
            "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"><title>%s</title></circle>\n",
            class, x_of(plot, step), y_of(plot, y), what);
}

static void begin_curve(const struct plot *plot, uint32_t colour)
{
    fprintf(plot->file, "<polyline stroke=\"%s\" points=\"",
            colours[colour % (sizeof(colours) / sizeof(colours[0]))]);
}

static void put_point(const struct plot *plot, uint32_t step, double y)
{
    fprintf(plot->file, "%.1f,%.1f ", x_of(plot, step), y_of(plot, y));
}

static void end_curve(const struct plot *plot)
{
    fputs("\"/>\n", plot->file);
}

static void put_legend(FILE *file, uint32_t colour, const char *text)
{
    fprintf(file, "<span style=\"color:%s\">&#9644; %s</span> ",
            colours[colour % (sizeof(colours) / sizeof(colours[0]))], text);
}

/* ---- curves ------------------------------------------------------------------------------------
 */

static void put_chunk_ticks(const struct plot *plot, const struct calibration *calibration)
{
    char text[32];
    for (uint32_t i = 0; i < calibration->chunk_count; i++) {
        calibration_bytes(calibration->points[i][0].chunk_bytes, text);
        put_tick(plot, i, text);
    }
}

/* Marks the two points of the sweep, at what `y` gives of them. */
static void put_choice(const struct plot *plot, const struct calibration *calibration)
{
    for (uint32_t i = 0; i < calibration->chunk_count; i++)
        for (uint32_t j = 0; j < calibration->lane_count; j++) {
            const struct calibration_point *point = &calibration->points[i][j];
            if (point == calibration->best)
                put_mark(plot, i, point->rate / 1e9, "best", "best");
            if (point == calibration->chosen)
                put_mark(plot, i, point->rate / 1e9, "chosen", "chosen");
        }
}

static void draw_rates(const struct calibration *calibration, FILE *file)
{
    const struct plot plot = {file, calibration->chunk_count, calibration->best->rate / 1e9};
    char text[32];
    begin_plot(&plot, "Rate by size of chunks, a curve for each number of lanes", "GB/s");
    put_chunk_ticks(&plot, calibration);
    for (uint32_t j = 0; j < calibration->lane_count; j++) {
        begin_curve(&plot, j);
        for (uint32_t i = 0; i < calibration->chunk_count; i++)
            if (calibration->points[i][j].bytes > 0)
                put_point(&plot, i, calibration->points[i][j].rate / 1e9);
        end_curve(&plot);
    }
    put_choice(&plot, calibration);
    fputs("</svg>\n<p>", file);
    for (uint32_t j = 0; j < calibration->lane_count; j++) {
        snprintf(text, sizeof(text), "%" PRIu32 " lanes", calibration->points[0][j].lanes);
        put_legend(file, j, text);
    }
    fputs("&#9675; best; &#9679; chosen: the least memory within 3 % of it</p>\n", file);
}

/* Of one lane, where a chunk has its engines for itself. */
static void draw_stages(const struct calibration *calibration, FILE *file)
{
    static const char *const names[] = {"copied in", "kernels", "copied out"};
    struct plot plot = {file, calibration->chunk_count, 0};
    for (uint32_t i = 0; i < calibration->chunk_count; i++)
        for (int stage = 0; stage < 3; stage++)
            plot.y_max = fmax(plot.y_max, calibration->points[i][0].stage_us[stage]);
    begin_plot(&plot, "What a chunk takes of each stage, with one lane", "us");
    put_chunk_ticks(&plot, calibration);
    for (uint32_t stage = 0; stage < 3; stage++) {
        begin_curve(&plot, stage);
        for (uint32_t i = 0; i < calibration->chunk_count; i++)
            if (calibration->points[i][0].bytes > 0)
                put_point(&plot, i, calibration->points[i][0].stage_us[stage]);
        end_curve(&plot);
    }
    fputs("</svg>\n<p>", file);
    for (uint32_t stage = 0; stage < 3; stage++)
        put_legend(file, stage, names[stage]);
    fputs("Where copies take about as long as the kernels, there is most to gain.</p>\n", file);
}

static void draw_streams(const struct gpu_machine *machine, FILE *file)
{
    struct plot plot = {file, machine->stream_count, 0};
    const uint32_t knee = calibration_knee(machine);
    char text[32];
    for (uint32_t i = 0; i < machine->stream_count; i++)
        plot.y_max = fmax(plot.y_max, machine->streams_gain[i]);
    begin_plot(&plot, "A kernel in each of so many streams", "times the rate of one");
    begin_curve(&plot, 0);
    for (uint32_t i = 0; i < machine->stream_count; i++)
        put_point(&plot, i, machine->streams_gain[i]);
    end_curve(&plot);
    for (uint32_t i = 0; i < machine->stream_count; i++) {
        snprintf(text, sizeof(text), "%" PRIu32, machine->streams[i]);
        put_tick(&plot, i, text);
        if (machine->streams[i] == knee)
            put_mark(&plot, i, machine->streams_gain[i], "chosen", "the knee");
    }
    fprintf(file, "</svg>\n<p>&#9679; nearly linear up to %" PRIu32 "</p>\n", knee);
}

/* ---- the page ----------------------------------------------------------------------------------
 */

void calibration_page(const struct calibration_told *told, FILE *file)
{
    fprintf(file,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s on %s"
            "</title>\n<style>body{font:14px sans-serif;max-width:800px;margin:2em auto}"
            "svg{width:100%%}polyline{fill:none;stroke-width:2}.grid{stroke:#ddd}"
            "text{font-size:10px;fill:#555}.best{fill:none;stroke:#b0203a;stroke-width:2}"
            ".chosen{fill:#b0203a}pre{white-space:pre-wrap}</style></head><body>\n"
            "<h1>%s on %s</h1>\n",
            told->program, told->device, told->program, told->device);
    draw_rates(told->calibration, file);
    draw_stages(told->calibration, file);
    if (told->machine)
        draw_streams(told->machine, file);
    fputs("<h2>All of it</h2>\n<pre>\n", file);
    calibration_print(told, file);
    fputs("</pre></body></html>\n", file);
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static void json_point(const struct calibration_point *point, FILE *file)
{
    fprintf(file,
            "{\"chunk_bytes\":%" PRIu64 ",\"lanes\":%" PRIu32 ",\"bytes\":%" PRIu64
            ",\"took_us\":%" PRIu64 ",\"jobs\":%" PRIu32 ",\"late\":%s,\"bytes_per_second\":%.0f,"
            "\"in_us\":%.3f,\"kernels_us\":%.3f,\"out_us\":%.3f}",
            point->chunk_bytes, point->lanes, point->bytes, point->took_us, point->jobs,
            point->late ? "true" : "false", point->rate, point->stage_us[0], point->stage_us[1],
            point->stage_us[2]);
}

static void json_allocators(const struct gpu_machine *machine, FILE *file)
{
    static const char *const names[] = {"direct", "pool_release", "pool_keep"};
    fprintf(file, "\"allocation_bytes\":%" PRIu64 ",\"allocators\":{", machine->allocation_bytes);
    for (int i = 0; i < GPU_MACHINE_ALLOCATORS; i++)
        fprintf(file, "%s\"%s\":{\"us\":%.3f,\"others_times\":%.4f,\"others_longest_us\":%.3f}",
                i ? "," : "", names[i], machine->allocators[i].us, machine->allocators[i].others,
                machine->allocators[i].longest_us);
    fprintf(file, "},\"kept_bytes\":%" PRIu64 ",\"trimmed_bytes\":%" PRIu64 ",",
            machine->kept_bytes, machine->trimmed_bytes);
}

static void json_machine(const struct gpu_machine *machine, FILE *file)
{
    fprintf(file,
            ",\"machine\":{\"emulated\":%s,\"copy_engines\":%" PRIu32
            ",\"pageable_in\":%.0f,\"pageable_out\":%.0f,\"pinned_in\":%.0f,\"pinned_out\":%.0f,"
            "\"pinned_both\":%.0f,",
            machine->emulated ? "true" : "false", machine->copy_engines, machine->rates[0][0],
            machine->rates[0][1], machine->rates[1][0], machine->rates[1][1], machine->both_rate);
    json_allocators(machine, file);
    fprintf(file,
            "\"batches\":%" PRIu32 ",\"batch_bytes\":%" PRIu64
            ",\"in_us\":%.3f,\"kernel_us\":%.3f,\"out_us\":%.3f,\"sequential_us\":%.3f,"
            "\"blocking_us\":%.3f,\"interleaved_us\":%.3f,\"grouped_us\":%.3f,\"streams\":[",
            machine->batches, machine->batch_bytes, machine->stage_us[0], machine->stage_us[1],
            machine->stage_us[2], machine->issue_us[GPU_MACHINE_SEQUENTIAL],
            machine->issue_us[GPU_MACHINE_BLOCKING], machine->issue_us[GPU_MACHINE_INTERLEAVED],
            machine->issue_us[GPU_MACHINE_GROUPED]);
    for (uint32_t i = 0; i < machine->stream_count; i++)
        fprintf(file, "%s{\"streams\":%" PRIu32 ",\"gain\":%.4f}", i ? "," : "",
                machine->streams[i], machine->streams_gain[i]);
    fprintf(file, "],\"knee\":%" PRIu32 ",\"default_stream_gain\":%.4f,\"threads_gain\":%.4f}",
            calibration_knee(machine), machine->default_gain, machine->threads_gain);
}

void calibration_json(const struct calibration_told *told, FILE *file)
{
    const struct calibration *calibration = told->calibration;
    bool first = true;
    fprintf(file, "{\"program\":\"%s\",\"device\":\"%s\",\"points\":[", told->program,
            told->device);
    for (uint32_t i = 0; i < calibration->chunk_count; i++)
        for (uint32_t j = 0; j < calibration->lane_count; j++, first = false) {
            fputs(first ? "" : ",", file);
            json_point(&calibration->points[i][j], file);
        }
    fputs("],\"best\":", file);
    json_point(calibration->best, file);
    fputs(",\"chosen\":", file);
    json_point(calibration->chosen, file);
    if (told->machine)
        json_machine(told->machine, file);
    fputs("}\n", file);
}

/* ---- files -------------------------------------------------------------------------------------
 */

static int write_file(const struct calibration_told *told, const char *path,
                      void (*write)(const struct calibration_told *told, FILE *file),
                      struct error *error)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return error_set(error, ERR_IO, "%.200s: %s", path, strerror(errno));
    write(told, file);
    int failed = ferror(file);
    failed |= fclose(file);
    return failed ? error_set(error, ERR_IO, "%.200s: %s", path, strerror(errno)) : 0;
}

int calibration_write(const struct calibration_told *told, const char *path, struct error *error)
{
    char beside[PATH_ROOM];
    size_t length = strlen(path);
    if (length >= 5 && strcmp(path + length - 5, ".html") == 0)
        length -= 5;
    if (length + sizeof(".json") > sizeof(beside))
        return error_set(error, ERR_USAGE, "--calibrate-page: the path is too long");
    snprintf(beside, sizeof(beside), "%.*s.json", (int)length, path);
    int rc = write_file(told, path, calibration_page, error);
    return rc ? rc : write_file(told, beside, calibration_json, error);
}
