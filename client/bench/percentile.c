#include "client/bench/percentile.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void percentile_sort(double *values, size_t count)
{
    if (count > 1)
        qsort(values, count, sizeof(*values), ascending);
}

double percentile_of(const double *sorted, size_t count, double percent)
{
    if (count == 0)
        return 0;
    double rank = percent / 100 * (double)(count - 1);
    size_t low = (size_t)floor(rank), high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (sorted[high] - sorted[low]) * (rank - (double)low);
}
