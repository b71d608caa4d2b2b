#include "protocol/base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS_MAX 17 /* always read back */
#define PLAIN_MIN 1e-6
#define PLAIN_MAX 1e16

void number_show(char text[NUMBER_SHOWN_MAX], double number)
{
    int digits = 1;
    do
        snprintf(text, NUMBER_SHOWN_MAX, "%.*e", digits - 1, number);
    while (strtod(text, NULL) != number && digits++ < DIGITS_MAX);
    double size = fabs(number);
    if (!(size >= PLAIN_MIN && size < PLAIN_MAX)) {
        snprintf(text, NUMBER_SHOWN_MAX, "%.*g", digits, number);
        return;
    }
    const char *exponent = text;
    while (*exponent != 'e')
        exponent++;
    int after = digits - 1 - (int)strtol(exponent + 1, NULL, 10);
    snprintf(text, NUMBER_SHOWN_MAX, "%.*f", after > 0 ? after : 0, number);
}
