/* Mistakes that an engine could make: each changes the model's list or its weights. mutation_test.c
 * makes them, one at a time. */
#pragma once

#include <check.h>

#include "tests/gpu/rig/rig.h"

#define LAYER "model.layers."

struct mutation {
    const char *what, *model;
    void (*before)(void), (*after)(void); /* gpu_start */
};

struct mutations {
    const struct mutation *list;
    int count;
};

extern const struct mutations mutations_dense;
extern const struct mutations mutations_experts;

/* The engine that is wrong. */
extern struct engine_client mutated_engine;

static inline struct op_list *list(void)
{
    return &mutated_engine.engine->facts.source.list;
}

static inline struct weight *weight(const char *tensor)
{
    return rig_weight(&mutated_engine.engine->rank, tensor);
}

/* The first of a kind at or behind one; NULL: there is none. */
static inline struct op *op_next(struct op *from, enum op_kind kind)
{
    struct op *end = list()->ops + list()->op_count;
    struct op *at = from ? from : list()->ops;
    while (at < end && at->kind != kind)
        at++;
    return at < end ? at : NULL;
}

static inline void nothing(void)
{
}
