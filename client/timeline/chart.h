/* Timed chunks as people and programs see them: text, SVG, Chrome's trace format, JSON. Of lists
 * that are sorted and not empty. */
#pragma once

#include <stdio.h>

#include "client/timeline/overlap.h"

/* What the engines did, the verdict, and a line for each stage of each lane. */
void chart_print(const struct chunk_list *list, const struct overlap *overlap, FILE *file);
void chart_svg(const struct chunk_list *list, const struct overlap *overlap, FILE *file);
/* A process, and a thread for each stage of each lane. */
void chart_trace(const struct chunk_list *list, FILE *file);
void chart_json(const struct chunk_list *list, const struct overlap *overlap, FILE *file);
