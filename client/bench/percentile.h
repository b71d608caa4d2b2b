/* Percentiles of raw values, as NumPy's: linear between the two nearest ranks. */
#pragma once

#include <stddef.h>

/* Ascending. */
void percentile_sort(double *values, size_t count);
/* percent of [0, 100]; 0 when there is no value. */
double percentile_of(const double *sorted, size_t count, double percent);
