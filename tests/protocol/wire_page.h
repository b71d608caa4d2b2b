/* The examples of protocol/wire.md: what stands in its blocks marked ```hex NAME. */
#pragma once

#include <stddef.h>

#define WIRE_EXAMPLES_MAX 32
#define WIRE_EXAMPLE_SIZE_MAX 512

struct wire_example {
    char name[32];
    size_t length;
    _Alignas(8) unsigned char bytes[WIRE_EXAMPLE_SIZE_MAX];
};

/* Reads the page, once. A page that cannot be read or has a malformed block fails the test. */
size_t wire_count(void);
const struct wire_example *wire_at(size_t index);
const struct wire_example *wire_named(const char *name); /* fails the test when there is none */
