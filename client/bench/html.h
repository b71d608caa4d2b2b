/* A run as one page of HTML that needs nothing else: the figures, the distributions of the
 * latencies, latencies and throughput over time, drawn as inline SVG. Every curve is a polyline
 * that carries its name in data-metric. */
#pragma once

#include "client/bench/result.h"

int html_write(const char *path, const struct result *result, struct error *error);
