/* Numbers in messages: as somebody would write them. */
#pragma once

#include <stddef.h>

#define NUMBER_SHOWN_MAX 32

/* The fewest digits that read back as this very number; with an exponent only below 0.000001 and
 * from 1e16 on. Terminated. */
void number_show(char text[NUMBER_SHOWN_MAX], double number);
