/* A run told as vLLM tells it: the printed block and the JSON file, with its names and keys. */
#pragma once

#include <stdio.h>

#include "client/bench/result.h"

struct metric_name {
    const char *key, *title, *heading;
};
extern const struct metric_name report_metrics[METRICS];

void report_print(FILE *file, const struct result *result);
/* One object; with --save-detailed also every request's times. */
int report_json(const char *path, const struct result *result, struct error *error);
