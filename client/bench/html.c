#include "client/bench/html.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/percentile.h"
#include "client/bench/report.h"
#include "client/bench/series.h"

#define CURVE_POINTS 400 /* of a distribution */

/* The plot's own coordinates. */
#define WIDTH 900.0
#define HEIGHT 240.0
#define LEFT 60.0
#define BOTTOM 30.0
#define TICKS 5 /* an axis has half as many to twice as many */

static const char *const colours[] = {"#1f5fbf", "#c2571a", "#2f8f4e",
                                      "#8a3fa0", "#444444", "#b0203a"};

struct plot {
    FILE *file;
    double x_max, y_max;
    double span; /* of x, that a point stands for; 0: a point is one */
    const char *metric;
    int colour;
    int drawn; /* points of the line that is open; 0: none is */
    double x, y;
};

/* ---- drawing -----------------------------------------------------------------------------------
 */

static double place_x(const struct plot *plot, double x)
{
    return LEFT + (plot->x_max > 0 ? x / plot->x_max : 0) * (WIDTH - LEFT - 10);
}

static double place_y(const struct plot *plot, double y)
{
    return HEIGHT - BOTTOM - (plot->y_max > 0 ? y / plot->y_max : 0) * (HEIGHT - BOTTOM - 10);
}

/* 1, 2 or 5 times a power of ten: so that people can read what lies between. */
static double tick_step(double max)
{
    double power = pow(10, floor(log10(max / TICKS)));
    double ratio = max / TICKS / power;
    return power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

static void put_ticks(const struct plot *plot, bool upright, double max)
{
    double step = max > 0 ? tick_step(max) : 1;
    int count = (int)(max / step * (1 + 1e-9));
    for (int i = 0; i <= count; i++) {
        double x = upright ? LEFT : place_x(plot, i * step);
        double y = upright ? place_y(plot, i * step) : HEIGHT - BOTTOM;
        fprintf(plot->file,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x,
                upright ? WIDTH - 10 : x, y, upright ? y : 10.0);
        fprintf(plot->file,
                "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.10g</text>\n",
                upright ? "y" : "x", upright ? x - 5 : x, upright ? y + 4 : y + 16,
                upright ? "end" : "middle", i * step);
    }
}

static void begin_plot(const struct plot *plot, const char *title, const char *x_name,
                       const char *y_name)
{
    FILE *file = plot->file;
    fprintf(file,
            "<h2>%s</h2>\n<svg viewBox=\"0 0 %.0f %.0f\" data-x-max=\"%.9g\" data-y-max=\"%.9g\" "
            "data-span=\"%.9g\">\n",
            title, WIDTH, HEIGHT, plot->x_max, plot->y_max, plot->span);
    put_ticks(plot, false, plot->x_max);
    put_ticks(plot, true, plot->y_max);
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", WIDTH - 10,
            HEIGHT - 2, x_name);
    fprintf(file, "<text x=\"%.1f\" y=\"12\">%s</text>\n", LEFT + 4, y_name);
}

static void begin_curve(struct plot *plot, const char *name, int colour)
{
    plot->metric = name;
    plot->colour = colour;
    plot->drawn = 0;
}

static void end_curve(struct plot *plot)
{
    if (plot->drawn == 1) /* alone it would not be seen: a dot */
        fprintf(plot->file, "%.2f,%.2f ", plot->x, plot->y);
    if (plot->drawn > 0)
        fputs("\"/>\n", plot->file);
    plot->drawn = 0;
}

/* NAN: there is nothing to tell here, and the line has a gap. */
static void put_point(struct plot *plot, double x, double y)
{
    if (isnan(y)) {
        end_curve(plot);
        return;
    }
    if (plot->drawn++ == 0)
        fprintf(plot->file, "<polyline data-metric=\"%s\" stroke=\"%s\" points=\"", plot->metric,
                colours[plot->colour]);
    plot->x = place_x(plot, x);
    plot->y = place_y(plot, y);
    fprintf(plot->file, "%.2f,%.2f ", plot->x, plot->y);
}

static void end_plot(const struct plot *plot)
{
    fputs("</svg>\n", plot->file);
}

static void put_legend(FILE *file, const char *const *names, int count)
{
    fputs("<p>", file);
    for (int i = 0; i < count; i++)
        fprintf(file, "<span style=\"color:%s\">&#9644; %s</span> ", colours[i], names[i]);
    fputs("</p>\n", file);
}

/* ---- distributions -----------------------------------------------------------------------------
 */

/* The part of the values up to each: of many values, evenly chosen ones and the last. */
static void draw_distribution(FILE *file, const struct metric *metric,
                              const struct metric_name *name)
{
    struct plot plot = {.file = file,
                        .x_max = percentile_of(metric->sorted, metric->count, 99.9),
                        .y_max = 100};
    size_t points = metric->count < CURVE_POINTS ? metric->count : CURVE_POINTS;
    char title[128];
    if (metric->count == 0)
        return;
    snprintf(title, sizeof(title), "%s, distribution up to its P99.9", name->heading);
    begin_plot(&plot, title, "ms", "% at or below");
    begin_curve(&plot, name->key, 0);
    for (size_t i = 0; i < points; i++) {
        size_t at = points > 1 ? i * (metric->count - 1) / (points - 1) : 0;
        put_point(&plot, fmin(metric->sorted[at], plot.x_max),
                  100 * (double)(at + 1) / (double)metric->count);
    }
    end_curve(&plot);
    end_plot(&plot);
}

/* ---- over time ---------------------------------------------------------------------------------
 */

static double greatest(const struct series *series, const enum series_column *columns, int count)
{
    double most = 0;
    for (int c = 0; c < count; c++)
        for (uint32_t i = 0; i < series->count; i++)
            most = fmax(most, series->values[columns[c]][i]); /* of a gap: NAN, which it passes */
    return most;
}

static void draw_columns(FILE *file, const struct series *series, const char *title,
                         const char *unit, const enum series_column *columns,
                         const char *const *names, int count)
{
    struct plot plot = {.file = file,
                        .x_max = series->count * series->width_s,
                        .y_max = greatest(series, columns, count),
                        .span = series->width_s};
    begin_plot(&plot, title, "s", unit);
    for (int c = 0; c < count; c++) {
        begin_curve(&plot, series_names[columns[c]], c);
        for (uint32_t i = 0; i < series->count; i++)
            put_point(&plot, (i + 0.5) * series->width_s, series->values[columns[c]][i]);
        end_curve(&plot);
    }
    end_plot(&plot);
    put_legend(file, names, count);
}

static void draw_series(FILE *file, const struct series *series)
{
    static const enum series_column ttft[] = {SERIES_TTFT_P50, SERIES_TTFT_P99};
    static const enum series_column e2el[] = {SERIES_E2EL_P50, SERIES_E2EL_P99};
    static const enum series_column rates[] = {SERIES_ARRIVALS, SERIES_SENT, SERIES_COMPLETED,
                                               SERIES_FAILED};
    static const enum series_column tokens[] = {SERIES_TOKENS};
    static const char *const halves[] = {"P50", "P99"};
    static const char *const rate_names[] = {"scheduled", "sent", "completed", "failed"};
    static const char *const token_names[] = {"output tokens"};
    draw_columns(file, series, "Requests per second", "requests/s", rates, rate_names, 4);
    draw_columns(file, series, "Output tokens per second", "tokens/s", tokens, token_names, 1);
    draw_columns(file, series, "Time to first token from the scheduled arrival, by time of arrival",
                 "ms", ttft, halves, 2);
    draw_columns(file, series, "End-to-end latency from the scheduled arrival, by time of arrival",
                 "ms", e2el, halves, 2);
}

/* ---- the page ----------------------------------------------------------------------------------
 */

static void put_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc(*text, file);
    }
}

static void put_block(FILE *file, const struct result *result)
{
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory)
        return;
    report_print(memory, result);
    fclose(memory);
    fputs("<pre>", file);
    put_escaped(file, text);
    fputs("</pre>\n", file);
    free(text);
}

static void put_page(FILE *file, const struct result *result, const struct series *series)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>sluice bench"
          "</title>\n<style>body{font:14px sans-serif;max-width:940px;margin:2em auto;color:#222}"
          "svg{width:100%;border:1px solid #ddd}polyline{fill:none;stroke-width:1.5;stroke-linecap:round}"
          ".grid{stroke:#eee}text{font-size:11px;fill:#555}pre{background:#f6f6f6;padding:1em}"
          "h2{font-size:16px}</style></head><body>\n<h1>sluice bench: ",
          file);
    put_escaped(file, result->info.model);
    fputs("</h1>\n", file);
    put_block(file, result);
    draw_series(file, series);
    for (int i = 0; i < METRICS; i++)
        draw_distribution(file, &result->summary.metrics[i], &report_metrics[i]);
    fputs("</body></html>\n", file);
}

int html_write(const char *path, const struct result *result, struct error *error)
{
    struct series series;
    int rc = series_make(result->load, result->records, &series, error);
    if (rc)
        return rc;
    FILE *file = fopen(path, "we");
    if (!file) {
        rc = error_set(error, ERR_IO, "%s: %s", path, strerrordesc_np(errno));
    } else {
        put_page(file, result, &series);
        bool failed = ferror(file) != 0;
        if (fclose(file) || failed)
            rc =
                error_set(error, ERR_IO, "%s: cannot be written: %s", path, strerrordesc_np(errno));
    }
    series_free(&series);
    return rc;
}
