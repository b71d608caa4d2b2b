#include "client/bench/random.h"

#include <assert.h>
#include <math.h>

#include "protocol/base/mix.h"

static uint64_t next_seed(uint64_t *state)
{
    return mix64(*state += 0x9e3779b97f4a7c15u);
}

void random_init(struct random *random, uint64_t seed, uint64_t stream)
{
    uint64_t state = seed;
    state = next_seed(&state) ^ stream;
    for (int i = 0; i < 4; i++)
        random->state[i] = next_seed(&state);
}

static uint64_t rotate(uint64_t value, int by)
{
    return (value << by) | (value >> (64 - by));
}

uint64_t random_next(struct random *random)
{
    uint64_t *state = random->state;
    uint64_t result = rotate(state[1] * 5, 7) * 9, shifted = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotate(state[3], 45);
    return result;
}

double random_unit(struct random *random)
{
    return (double)((random_next(random) >> 11) + 1) * 0x1p-53;
}

uint64_t random_below(struct random *random, uint64_t count)
{
    assert(count > 0);
    /* What lies above the last whole multiple of `count` would make small numbers likelier. */
    uint64_t over = UINT64_MAX - UINT64_MAX % count, value;
    do {
        value = random_next(random);
    } while (value >= over);
    return value % count;
}

static double normal(struct random *random)
{
    double radius = sqrt(-2 * log(random_unit(random)));
    return radius * cos(2 * M_PI * random_unit(random));
}

/* Marsaglia and Tsang's method, for shapes from 1 on; smaller ones by one more uniform draw. */
double random_gamma(struct random *random, double shape)
{
    if (shape == 1)
        return -log(random_unit(random));
    if (shape < 1) {
        double power = pow(random_unit(random), 1 / shape);
        return random_gamma(random, shape + 1) * power;
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(random), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(random_unit(random)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}
