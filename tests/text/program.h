/* Programs of the template language, drawn from a seed to be expensive: any operation, applied to
 * values that are deep, shared, long or many. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PROGRAM_MAX 16384

/* The variables of a request that programs name. */
extern const char program_given[];

/* Ends with a 0. */
void program_draw(uint64_t seed, char program[PROGRAM_MAX]);
