/* An inner loop of the CPU bodies beside a thread that nothing orders with it: told.c N, where N is
 * one of what the loops read and write. Run under ThreadSanitizer, which has to report each (0: and
 * nothing else): the loops are compiled without it, and tell it themselves
 * (gpu/kernels/cpu/simd_told.h). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/kernels/cpu/simd.h"

enum { ROWS = 3, COUNT = 32, STRIDE = 40 };

static float some[ROWS * STRIDE], other[ROWS * STRIDE], out[ROWS * STRIDE], lanes[SIMD_LANES];

/* The last element of each: a loop that told less would be seen, too. COUNT leaves no tail, which
 * goes through memcpy(), seen anyway. */
static float *const touched[] = {
    &some[(ROWS - 1) * STRIDE + COUNT - 1],  /* panel's w */
    &other[(ROWS - 1) * STRIDE + COUNT - 1], /* its x */
    &out[(ROWS - 1) * STRIDE + ROWS - 1],    /* its y */
    &some[ROWS * COUNT - 1],                 /* values' v */
    &other[(ROWS - 1) * STRIDE + ROWS - 1],  /* its p */
    &out[(ROWS - 1) * STRIDE + COUNT - 1],   /* its sum */
    &some[COUNT - 1],                        /* squares' x */
    &some[COUNT - 1],                        /* exps' x */
    &out[COUNT - 1],                         /* its out */
    &some[COUNT - 1],                        /* silu's x */
    &other[COUNT - 1],                       /* its up */
    &out[COUNT - 1],                         /* its out */
    &some[COUNT - 1],                        /* gelu's x */
    &other[COUNT - 1],                       /* its up */
    &out[COUNT - 1],                         /* its out */
};
enum { TOUCHED = sizeof touched / sizeof *touched };

static void run(const struct simd *simd, int what)
{
    const struct simd_panel panel = {some, other, out,   STRIDE,    STRIDE,   STRIDE,
                                     ROWS, ROWS,  COUNT, DTYPE_F32, DTYPE_F32};
    const struct simd_values values = {some, other, out, STRIDE, ROWS, ROWS, COUNT, DTYPE_F32};
    if (what <= 3)
        simd->panel(&panel);
    else if (what <= 6)
        simd->values(&values);
    else if (what == 7)
        simd->squares(lanes, some, COUNT);
    else if (what <= 9)
        simd->exps(lanes, out, some, 0, COUNT);
    else if (what <= 12)
        simd->silu(out, some, other, COUNT);
    else
        simd->gelu(out, some, other, COUNT);
}

static void *touch(void *element)
{
    *(float *)element = 1;
    return NULL;
}

int main(int count, char **arguments)
{
    int what = count > 1 ? atoi(arguments[1]) : 0;
    for (uint32_t i = 0; simd_variant(i); i++) {
        const struct simd *simd = simd_variant(i);
        pthread_t thread;
        if (what == 0) {
            for (int each = 1; each <= TOUCHED; each++)
                run(simd, each);
            continue;
        }
        if (pthread_create(&thread, NULL, touch, touched[what - 1]) != 0)
            return 2;
        run(simd, what);
        pthread_join(thread, NULL);
        printf("%s: %d\n", simd->name, what);
    }
    return 0;
}
