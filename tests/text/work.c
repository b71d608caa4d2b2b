#include "tests/text/work.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/error.h"

#define BYTES_PER_WORK 16
#define NUMBER_WORK 32 /* a number written or read by the C library */

static struct {
    const struct work_bounds *bounds; /* NULL: not counting */
    const uint64_t *steps;
    struct halt *halt;
    uint64_t done, allowed, halt_at, held;
    bool halted;
} now;

void work_begin(const struct work_bounds *bounds, struct halt *halt, uint64_t halt_at)
{
    now.bounds = bounds;
    now.steps = NULL;
    now.halt = halt;
    now.done = now.held = 0;
    now.allowed = bounds->spare;
    now.halt_at = halt_at;
    now.halted = false;
}

void work_steps(const uint64_t *steps)
{
    now.steps = steps;
}

uint64_t work_end(void)
{
    now.bounds = NULL;
    return now.done;
}

static void over(const char *what, uint64_t found, uint64_t allowed)
{
    const struct work_bounds *bounds = now.bounds;
    now.bounds = NULL;
    bounds->over(what, found, allowed);
}

static void count(uint64_t work)
{
    if (!now.bounds)
        return;
    now.done += work;
    if (now.done > now.allowed) {
        now.allowed = now.bounds->spare + (now.steps ? *now.steps * now.bounds->per_step : 0);
        if (now.done > now.allowed)
            over("work that is not counted", now.done, now.allowed);
    }
    if (now.done < now.halt_at)
        return;
    if (!now.halted)
        halt_set(now.halt, ERR_CANCELLED);
    now.halted = true;
    if (now.bounds && now.done - now.halt_at > now.bounds->halt_max + work)
        over("work after the halt", now.done - now.halt_at, now.bounds->halt_max);
}

/* Called at each branch of the code that is measured. */
void __sanitizer_cov_trace_pc(void)
{
    count(1);
}

/* ---- the C library -----------------------------------------------------------------------------
 */

#define WRAPPED(result, name, ...)                                                                 \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

static void bytes(size_t length)
{
    count(1 + length / BYTES_PER_WORK);
}

WRAPPED(void *, memcpy, void *to, const void *from, size_t length)
{
    bytes(length);
    return __real_memcpy(to, from, length);
}

WRAPPED(void *, memmove, void *to, const void *from, size_t length)
{
    bytes(length);
    return __real_memmove(to, from, length);
}

WRAPPED(void *, memset, void *to, int value, size_t length)
{
    bytes(length);
    return __real_memset(to, value, length);
}

WRAPPED(int, memcmp, const void *a, const void *b, size_t length)
{
    bytes(length);
    return __real_memcmp(a, b, length);
}

WRAPPED(void *, memchr, const void *in, int value, size_t length)
{
    const char *found = __real_memchr(in, value, length);
    bytes(found ? (size_t)(found - (const char *)in) : length);
    return (void *)found;
}

WRAPPED(void *, memmem, const void *in, size_t length, const void *what, size_t what_length)
{
    const char *found = __real_memmem(in, length, what, what_length);
    bytes(what_length + (found ? (size_t)(found - (const char *)in) : length));
    return (void *)found;
}

WRAPPED(size_t, strlen, const char *text)
{
    size_t length = __real_strlen(text);
    bytes(length);
    return length;
}

WRAPPED(double, strtod, const char *text, char **end)
{
    count(NUMBER_WORK);
    return __real_strtod(text, end);
}

WRAPPED(double, fmod, double a, double b)
{
    count(NUMBER_WORK);
    return __real_fmod(a, b);
}

WRAPPED(size_t, strftime, char *text, size_t size, const char *format, const void *parts)
{
    size_t length = __real_strftime(text, size, format, parts);
    count(NUMBER_WORK * (1 + length));
    return length;
}

/* ---- the heap ----------------------------------------------------------------------------------
 */

static void *hold(void *memory)
{
    if (now.bounds && memory) {
        now.held += malloc_usable_size(memory);
        if (now.held > now.bounds->held_max)
            over("bytes of the heap", now.held, now.bounds->held_max);
    }
    return memory;
}

static void let_go(void *memory)
{
    if (now.bounds && memory)
        now.held -= malloc_usable_size(memory);
}

WRAPPED(void *, malloc, size_t size)
{
    return hold(__real_malloc(size));
}

WRAPPED(void *, calloc, size_t number, size_t size)
{
    bytes(number * size);
    return hold(__real_calloc(number, size));
}

WRAPPED(void *, realloc, void *memory, size_t size)
{
    let_go(memory);
    return hold(__real_realloc(memory, size));
}

WRAPPED(void, free, void *memory)
{
    let_go(memory);
    __real_free(memory);
}
