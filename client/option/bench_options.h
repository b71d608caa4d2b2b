/* The options of `sluice bench`. Names are vLLM's where it has them. */
#pragma once

#include "client/option/option.h"

extern const struct option bench_load_options[];   /* what is sent */
extern const struct option bench_output_options[]; /* what is told of it */
