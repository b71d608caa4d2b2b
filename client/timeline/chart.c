#include "client/timeline/chart.h"

#include <inttypes.h>
#include <string.h>

#define COLUMNS 72 /* of a lane's line */
#define CHUNK_JSON_MAX 512

static double ms_of(uint64_t ns)
{
    return (double)ns / 1e6;
}

static const char *verdict(const struct overlap *overlap)
{
    return overlap->at_once < OVERLAP_LEAST ? "serialized" : "overlapped";
}

static uint32_t lanes_of(const struct chunk_list *list)
{
    uint32_t lanes = 0;
    for (size_t i = 0; i < list->count; i++)
        lanes = list->chunks[i].lane >= lanes ? list->chunks[i].lane + 1 : lanes;
    return lanes;
}

/* ---- text --------------------------------------------------------------------------------------
 */

static void print_engines(const struct chunk_list *list, const struct overlap *overlap, FILE *file)
{
    fprintf(file, "%-8s %11s %7s %12s %14s %10s\n", "", "busy", "share", "a chunk", "bytes", "rate");
    for (int stage = 0; stage < STAGES; stage++) {
        const uint64_t busy_ns = overlap->busy_ns[stage];
        fprintf(file, "%-8s %8.3f ms %5.1f %% %9.1f us", stage_names[stage], ms_of(busy_ns),
                overlap->elapsed_ns ? 100.0 * (double)busy_ns / (double)overlap->elapsed_ns : 0,
                (double)busy_ns / 1e3 / (double)list->count);
        if (stage != STAGE_KERNELS && busy_ns > 0)
            fprintf(file, " %14" PRIu64 " %5.2f GB/s", overlap->bytes[stage],
                    (double)overlap->bytes[stage] / (double)busy_ns);
        fputc('\n', file);
    }
}

/* Chunks by the last digit of their number; what is shorter than a column has one. */
static void print_stage(const struct chunk_list *list, const struct overlap *overlap, uint32_t lane,
                        int stage, FILE *file)
{
    char line[COLUMNS + 1];
    const double column_ns =
        overlap->span_ns > 0 ? (double)overlap->span_ns / COLUMNS : 1;
    memset(line, ' ', COLUMNS);
    line[COLUMNS] = '\0';
    for (size_t i = 0; i < list->count; i++) {
        const struct stage_span *span = &list->chunks[i].stages[stage];
        if (list->chunks[i].lane != lane)
            continue;
        int first = (int)((double)span->begin_ns / column_ns);
        int last = (int)((double)span->end_ns / column_ns);
        first = first < COLUMNS ? first : COLUMNS - 1;
        last = last < COLUMNS ? last : COLUMNS;
        for (int at = first; at == first || at < last; at++)
            line[at] = (char)('0' + i % 10);
    }
    fprintf(file, "%2" PRIu32 " %-7s |%s|\n", lane, stage_names[stage], line);
}

void chart_print(const struct chunk_list *list, const struct overlap *overlap, FILE *file)
{
    const uint32_t lanes = lanes_of(list);
    fprintf(file, "%zu chunks in %.3f ms, for %.3f ms of which one was under way", list->count,
            ms_of(overlap->span_ns), ms_of(overlap->elapsed_ns));
    if (list->lost > 0)
        fprintf(file, "; %" PRIu64 " between them are not kept", list->lost);
    fputc('\n', file);
    print_engines(list, overlap, file);
    fprintf(file,
            "%s: stages take %.3f ms one after the other, and took %.3f ms, %.2f x; by the model "
            "%.3f ms, %.2f x\n",
            verdict(overlap), ms_of(overlap->sum_ns), ms_of(overlap->elapsed_ns), overlap->at_once,
            overlap->model_ns / 1e6, overlap->model_once);
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (int stage = 0; stage < STAGES; stage++)
            print_stage(list, overlap, lane, stage, file);
}

/* ---- SVG ---------------------------------------------------------------------------------------
 */

#define LEFT 90.0
#define WIDTH 1000.0
#define ROW 14.0
#define TOP 40.0
#define TICKS 10

static double place(const struct overlap *overlap, double ns)
{
    return LEFT + (overlap->span_ns > 0 ? ns / (double)overlap->span_ns : 0) * (WIDTH - LEFT - 10);
}

static double row_of(uint32_t lane, int stage)
{
    return TOP + (double)lane * (STAGES * ROW + 8) + stage * ROW;
}

static void draw_chunk(const struct timed_chunk *chunk, size_t number,
                       const struct overlap *overlap, FILE *file)
{
    static const char *const colours[STAGES] = {"#1f5fbf", "#2f8f4e", "#c2571a"};
    for (int stage = 0; stage < STAGES; stage++) {
        const struct stage_span *span = &chunk->stages[stage];
        double from = place(overlap, (double)span->begin_ns);
        double width = place(overlap, (double)span->end_ns) - from;
        fprintf(file,
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" fill=\"%s\" "
                "fill-opacity=\"%s\"><title>chunk %zu of %s, %" PRIu32
                " items: %s %.1f us from %.1f us</title></rect>\n",
                from, row_of(chunk->lane, stage), width > 0.2 ? width : 0.2, ROW - 2,
                colours[stage], number % 2 ? "0.6" : "1", number, chunk->program, chunk->items,
                stage_names[stage], (double)(span->end_ns - span->begin_ns) / 1e3,
                (double)span->begin_ns / 1e3);
    }
}

void chart_svg(const struct chunk_list *list, const struct overlap *overlap, FILE *file)
{
    const uint32_t lanes = lanes_of(list);
    const double bottom = row_of(lanes, 0);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"sans-serif\" font-size=\"10\">\n"
            "<text x=\"4\" y=\"14\">%zu chunks, %s: %.2f stages at once, %.2f by the model</text>\n",
            WIDTH, bottom + 20, list->count, verdict(overlap), overlap->at_once,
            overlap->model_once);
    for (int i = 0; i <= TICKS; i++) {
        double ns = (double)overlap->span_ns * i / TICKS, x = place(overlap, ns);
        fprintf(file,
                "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.3g ms</text>\n",
                x, x, TOP - 6, bottom, x, bottom + 12, ns / 1e6);
    }
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (int stage = 0; stage < STAGES; stage++)
            fprintf(file, "<text x=\"4\" y=\"%.1f\">lane %" PRIu32 " %s</text>\n",
                    row_of(lane, stage) + ROW - 4, lane, stage_names[stage]);
    for (size_t i = 0; i < list->count; i++)
        draw_chunk(&list->chunks[i], i, overlap, file);
    fputs("</svg>\n", file);
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static void trace_name(uint32_t lane, int stage, FILE *file)
{
    fprintf(file,
            "{\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32
            ",\"name\":\"thread_name\",\"args\":{\"name\":\"lane %" PRIu32 " %s\"}},\n",
            lane * STAGES + (uint32_t)stage, lane, stage_names[stage]);
}

void chart_trace(const struct chunk_list *list, FILE *file)
{
    const uint32_t lanes = lanes_of(list);
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", file);
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (int stage = 0; stage < STAGES; stage++)
            trace_name(lane, stage, file);
    for (size_t i = 0; i < list->count; i++)
        for (int stage = 0; stage < STAGES; stage++) {
            const struct timed_chunk *chunk = &list->chunks[i];
            const struct stage_span *span = &chunk->stages[stage];
            bool last = i + 1 == list->count && stage + 1 == STAGES;
            fprintf(file,
                    "{\"ph\":\"X\",\"pid\":1,\"tid\":%" PRIu32
                    ",\"name\":\"%s %zu\",\"cat\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,"
                    "\"args\":{\"items\":%" PRIu32 ",\"bytes\":%" PRIu64 "}}%s\n",
                    chunk->lane * STAGES + (uint32_t)stage, chunk->program, i, stage_names[stage],
                    (double)span->begin_ns / 1e3, (double)(span->end_ns - span->begin_ns) / 1e3,
                    chunk->items,
                    stage == STAGE_IN    ? chunk->bytes_in
                    : stage == STAGE_OUT ? chunk->bytes_out
                                         : 0,
                    last ? "" : ",");
        }
    fputs("]}\n", file);
}

static void put_chunk(const struct timed_chunk *chunk, FILE *file)
{
    char text[CHUNK_JSON_MAX];
    struct json_writer writer;
    json_writer_init(&writer, text, sizeof(text));
    json_open(&writer, NULL, '{');
    json_put_text(&writer, "program", chunk->program);
    json_put_uint(&writer, "lane", chunk->lane);
    json_put_uint(&writer, "items", chunk->items);
    json_put_uint(&writer, "bytes_in", chunk->bytes_in);
    json_put_uint(&writer, "bytes_out", chunk->bytes_out);
    for (int stage = 0; stage < STAGES; stage++) {
        json_open(&writer, stage_names[stage], '[');
        json_put_uint(&writer, NULL, chunk->stages[stage].begin_ns);
        json_put_uint(&writer, NULL, chunk->stages[stage].end_ns);
        json_close(&writer, ']');
    }
    json_close(&writer, '}');
    fwrite(text, 1, writer.used < sizeof(text) ? writer.used : sizeof(text), file);
}

static void put_overlap(const struct chunk_list *list, const struct overlap *overlap, FILE *file)
{
    char text[CHUNK_JSON_MAX];
    struct json_writer writer;
    json_writer_init(&writer, text, sizeof(text));
    json_put_text(&writer, "verdict", verdict(overlap));
    json_put_uint(&writer, "lost", list->lost);
    json_put_uint(&writer, "span_ns", overlap->span_ns);
    json_put_uint(&writer, "elapsed_ns", overlap->elapsed_ns);
    json_open(&writer, "busy_ns", '{');
    for (int stage = 0; stage < STAGES; stage++)
        json_put_uint(&writer, stage_names[stage], overlap->busy_ns[stage]);
    json_close(&writer, '}');
    json_put_uint(&writer, "sum_ns", overlap->sum_ns);
    json_put_double(&writer, "at_once", overlap->at_once);
    json_put_double(&writer, "model_ns", overlap->model_ns);
    json_put_double(&writer, "model_once", overlap->model_once);
    fwrite(text, 1, writer.used < sizeof(text) ? writer.used : sizeof(text), file);
}

void chart_json(const struct chunk_list *list, const struct overlap *overlap, FILE *file)
{
    fputc('{', file);
    put_overlap(list, overlap, file);
    fputs(",\"chunks\":[", file);
    for (size_t i = 0; i < list->count; i++) {
        fputs(i > 0 ? "," : "", file);
        put_chunk(&list->chunks[i], file);
    }
    fputs("]}\n", file);
}
