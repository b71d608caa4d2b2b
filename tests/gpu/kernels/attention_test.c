/* Rope, KV write and attention against doubles: head sizes, dtypes, groups of query heads, windows.
 */
#include <math.h>

#include "gpu/kernels/attention/rope.h"
#include "gpu/kernels/step/copy_blocks.h"
#include "tests/gpu/kernels/attention.h"
#include "tests/gpu/kernels/suites.h"

struct attention_case {
    uint32_t heads, kv_heads, head_dim, block_tokens, window;
    enum dtype dtype;
    enum format kv_format;
    bool normed;
    float factor;
    double tolerance;
    float softcap;
    bool fixed; /* scales, by the checkpoint; some values are above what they reach */
    bool sinks;
};

static const struct attention_case cases[] = {
    {4, 2, 64, 32, 0, DTYPE_F32, FORMAT_F32, false, 1, 2e-5, 0, false, false},
    {8, 1, 128, 64, 0, DTYPE_F32, FORMAT_F32, true, 1, 2e-5, 0, false, false},
    {3, 3, 80, 16, 0, DTYPE_F32, FORMAT_F32, false, 1.2f, 2e-5, 0, false, false},
    {12, 1, 96, 32, 40, DTYPE_F32, FORMAT_F32, false, 1, 2e-5, 0, false, false},
    {2, 2, 256, 32, 300, DTYPE_F32, FORMAT_F32, false, 1, 2e-5, 0, false, false},
    {6, 2, 10, 16, 1, DTYPE_F32, FORMAT_F32, true, 1, 2e-5, 0, false, false},
    {4, 2, 64, 32, 0, DTYPE_BF16, FORMAT_BF16, true, 1, 3e-2, 0, false, false},
    {4, 2, 64, 32, 0, DTYPE_F16, FORMAT_F16, true, 1, 4e-3, 0, false, false},
    {4, 4, 16, 256, 64, DTYPE_F32, FORMAT_F16, false, 1, 4e-3, 0, false, false},
    {8, 1, 128, 64, 0, DTYPE_BF16, FORMAT_BF16, true, 1, 3e-2, 0, false, false},
    {6, 2, 128, 16, 40, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, false},
    {8, 1, 64, 256, 0, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 0, false, false},
    {14, 2, 64, 32, 300, DTYPE_F16, FORMAT_F16, true, 1, 4e-3, 0, false, false},
    /* more queries of a KV head than one block of the kernel that turns them takes */
    {18, 2, 128, 32, 0, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 0, false, false},
    {16, 1, 128, 64, 40, DTYPE_F16, FORMAT_F16, true, 1, 4e-3, 0, false, false},
    {23, 1, 64, 16, 300, DTYPE_BF16, FORMAT_BF16, true, 1, 3e-2, 0, false, false},
    {6, 2, 96, 32, 0, DTYPE_BF16, FORMAT_BF16, true, 1, 3e-2, 0, false, false},
    {4, 4, 96, 64, 40, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, false},
    {12, 1, 96, 16, 300, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 0, false, false},
    /* heads of 256, and scores that reach their cap, in each kernel that knows it */
    {4, 2, 256, 32, 0, DTYPE_BF16, FORMAT_BF16, true, 1, 3e-2, 0, false, false},
    {16, 2, 256, 64, 40, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, false},
    {4, 2, 10, 32, 300, DTYPE_F32, FORMAT_F32, false, 1, 2e-5, 1.5f, false, false},
    {4, 2, 256, 32, 40, DTYPE_F32, FORMAT_F32, true, 1, 2e-5, 0.5f, false, false},
    {4, 2, 256, 32, 0, DTYPE_F16, FORMAT_F16, true, 1, 4e-3, 0.75f, false, false},
    {8, 1, 256, 64, 300, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 1.5f, false, false},
    {6, 2, 128, 16, 40, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 1.5f, false, false},
    {12, 1, 128, 32, 0, DTYPE_BF16, FORMAT_BF16, true, 1, 3e-2, 0.75f, false, false},
    {4, 2, 64, 32, 300, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 1.5f, false, false},
    /* keys and values in eight bits: each kernel that reads or writes them */
    {4, 2, 64, 32, 0, DTYPE_F32, FORMAT_E4M3, false, 1, 4e-3, 0, false, false},
    {8, 1, 128, 64, 40, DTYPE_F32, FORMAT_E4M3, true, 1, 4e-3, 0, false, false},
    {6, 2, 10, 16, 300, DTYPE_F32, FORMAT_E4M3, false, 1.2f, 4e-3, 1.5f, false, false},
    {3, 3, 80, 256, 0, DTYPE_F32, FORMAT_E4M3, false, 1, 4e-3, 0, true, false},
    {4, 2, 64, 32, 0, DTYPE_BF16, FORMAT_E4M3, true, 1, 3e-2, 0, false, false},
    {14, 2, 64, 16, 40, DTYPE_F16, FORMAT_E4M3, false, 1, 2e-2, 0, true, false},
    {8, 1, 128, 32, 0, DTYPE_BF16, FORMAT_E4M3, false, 1, 3e-2, 0, false, false},
    {6, 2, 128, 64, 300, DTYPE_F16, FORMAT_E4M3, true, 1, 2e-2, 0, false, false},
    {18, 2, 128, 256, 0, DTYPE_BF16, FORMAT_E4M3, true, 1, 3e-2, 0, false, false},
    {16, 1, 128, 16, 40, DTYPE_F16, FORMAT_E4M3, false, 1, 2e-2, 1.5f, false, false},
    {8, 2, 128, 32, 300, DTYPE_BF16, FORMAT_E4M3, false, 1, 3e-2, 0.75f, true, false},
    {12, 1, 96, 32, 40, DTYPE_BF16, FORMAT_E4M3, true, 1, 3e-2, 0, false, false},
    {4, 4, 96, 16, 0, DTYPE_F16, FORMAT_E4M3, false, 1, 2e-2, 0, false, false},
    {4, 2, 256, 64, 300, DTYPE_F16, FORMAT_E4M3, true, 1, 2e-2, 0.75f, false, false},
    {16, 2, 256, 32, 0, DTYPE_BF16, FORMAT_E4M3, false, 1, 3e-2, 0, false, false},
    {6, 2, 10, 32, 0, DTYPE_F16, FORMAT_E4M3, false, 1, 2e-2, 0, false, false},
    /* sinks, in each kernel that ends a query */
    {4, 2, 64, 32, 0, DTYPE_F32, FORMAT_F32, false, 1, 2e-5, 0, false, true},
    {12, 1, 80, 16, 40, DTYPE_F32, FORMAT_F32, false, 1.2f, 2e-5, 1.5f, false, true},
    {16, 2, 64, 32, 0, DTYPE_BF16, FORMAT_BF16, false, 1.3f, 3e-2, 0, false, true},
    {16, 2, 64, 64, 128, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, true},
    {23, 1, 64, 16, 300, DTYPE_F16, FORMAT_F16, true, 1, 4e-3, 0, false, true},
    {8, 1, 128, 32, 300, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 0, false, true},
    {6, 2, 128, 16, 40, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 1.5f, false, true},
    {4, 4, 96, 64, 0, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, true},
    {3, 3, 80, 16, 0, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 0, false, true},
    {4, 2, 256, 32, 300, DTYPE_F16, FORMAT_F16, true, 1, 4e-3, 0, false, true},
    {16, 2, 64, 32, 128, DTYPE_BF16, FORMAT_E4M3, false, 1, 3e-2, 0, false, true},
    {6, 2, 128, 64, 300, DTYPE_F16, FORMAT_E4M3, true, 1, 2e-2, 0, false, true},
    {4, 4, 128, 32, 40, DTYPE_BF16, FORMAT_E4M3, true, 1, 3e-2, 0, true, false},
    {8, 1, 64, 16, 300, DTYPE_BF16, FORMAT_E4M3, true, 1, 3e-2, 0, false, true},
    {8, 2, 128, 16, 0, DTYPE_F16, FORMAT_E4M3, false, 1.2f, 2e-2, 0, true, false},
};
#define K_SCALE 0.004f
#define V_SCALE 0.003f
#define MANY_ROWS 18
#define CASES (int)(sizeof cases / sizeof cases[0])

/* The farthest of some values of each row; above `tolerance` the test fails. */
static double check_rows(const struct attention *a, const struct scene *scene, const float *out,
                         uint32_t window, double tolerance)
{
    double want[2 * ATTENTION_PAIRS_MAX], worst = 0;
    for (uint32_t r = 0; r < scene->counts.rows; r++) {
        const struct batch_row *row = &scene->rows[r];
        for (uint32_t t = 0; t < row->q_len; t += t + 20 < row->q_len ? 19 : 1) {
            uint32_t head = (t + r) % a->heads;
            const float *got = out + ((size_t)(row->token + t) * a->heads + head) * a->head_dim;
            attention_want(a, window, row->slot, row->position + t, head, want);
            for (uint32_t i = 0; i < a->head_dim; i++) {
                double off = fabs((double)got[i] - want[i]);
                ck_assert_msg(off <= tolerance, "slot %u position %u head %u: %.9g, not %.9g",
                              row->slot, row->position + t, head, (double)got[i], want[i]);
                worst = off > worst ? off : worst;
            }
        }
    }
    return worst;
}

/* Rows of all lengths; then some get more, and then single tokens. Of many rows most are short. */
static void steps_check(const struct attention_case *c, struct attention *a, struct scene *scene)
{
    static const uint32_t first[5] = {1, 255, 33, 257, 16}, then[5] = {1, 2, 200, 8, 0};
    float *out = malloc((size_t)SCENE_TOKENS_MAX * a->heads * a->head_dim * sizeof *out);
    uint32_t length[MANY_ROWS] = {0};
    for (uint32_t step = 0; step < 4; step++) {
        scene->counts = (struct batch_counts){0};
        for (uint32_t slot = 0; slot < scene->slots; slot++) {
            uint32_t some = slot < 5 ? step ? then[slot] : first[slot] : 1 + slot % 3;
            uint32_t q_len = step > 1 ? 1 : some;
            if (q_len)
                scene_row(scene, slot, length[slot], q_len, 0);
            length[slot] += q_len;
        }
        scene_step(scene);
        attention_run(a, scene, out);
        (void)check_rows(a, scene, out, c->window, c->tolerance);
    }
    free(out);
}

/* Each case by the ops that do several things, by each alone, and in steps of many rows. */
START_TEST(attention_is_that_of_plain_doubles)
{
    const struct attention_case *c = &cases[_i % CASES];
    rig_begin();
    struct scene scene = {.slots = _i / CASES == 2 ? MANY_ROWS : 5,
                          .length_max = 600,
                          .block_tokens = c->block_tokens,
                          .window = c->window,
                          .layers = 2,
                          .kv_heads = c->kv_heads,
                          .head_dim = c->head_dim,
                          .kv_format = c->kv_format};
    scene_begin(&scene);
    struct attention a = {.heads = c->heads,
                          .kv_heads = c->kv_heads,
                          .head_dim = c->head_dim,
                          .group = c->window ? 1 : 0,
                          .layer = (uint32_t)_i % 2,
                          .dtype = c->dtype,
                          .normed = c->normed,
                          .norm_offset = _i % 2 ? 1 : 0,
                          .factor = c->factor,
                          .in_parts = _i / CASES == 1,
                          .pairs = _i / CASES == 0 && _i % 3 == 0,
                          .softcap = c->softcap,
                          .sinks = c->sinks,
                          .kv_format = c->kv_format,
                          .k_scale = c->fixed ? K_SCALE : 0,
                          .v_scale = c->fixed ? V_SCALE : 0,
                          .little = c->kv_format == FORMAT_E4M3 && _i % 2};
    attention_begin(&a);
    steps_check(c, &a, &scene);
    scene_end(&scene);
}
END_TEST

/* ---- prompts by the dozen ---- */

#define PROMPTS 45
#define PROMPT_HEADS 16

static const struct {
    uint32_t head_dim, window;
    enum dtype dtype;
    enum format kv_format;
    double tolerance;
} prompt_cases[] = {
    {128, 0, DTYPE_BF16, FORMAT_BF16, 3e-2},  {128, 40, DTYPE_F16, FORMAT_F16, 4e-3},
    {64, 0, DTYPE_F16, FORMAT_F16, 4e-3},     {64, 40, DTYPE_BF16, FORMAT_BF16, 3e-2},
    {128, 0, DTYPE_F16, FORMAT_E4M3, 2e-2},   {64, 0, DTYPE_BF16, FORMAT_E4M3, 3e-2},
    {128, 40, DTYPE_BF16, FORMAT_E4M3, 3e-2}, {64, 40, DTYPE_F16, FORMAT_E4M3, 2e-2},
    {96, 0, DTYPE_BF16, FORMAT_BF16, 3e-2},
};

/* More rows and heads than a GPU has processors, so that those of its blocks that stay take many,
 * one of which is longer than the others; and each goes on. */
START_TEST(prompts_are_more_than_processors)
{
    rig_begin();
    struct scene scene = {.slots = PROMPTS,
                          .length_max = 400,
                          .block_tokens = 16,
                          .window = prompt_cases[_i].window,
                          .layers = 1,
                          .kv_heads = 2,
                          .head_dim = prompt_cases[_i].head_dim,
                          .kv_format = prompt_cases[_i].kv_format};
    scene_begin(&scene);
    struct attention a = {.heads = PROMPT_HEADS,
                          .kv_heads = 2,
                          .head_dim = prompt_cases[_i].head_dim,
                          .group = prompt_cases[_i].window ? 1 : 0,
                          .dtype = prompt_cases[_i].dtype,
                          .factor = 1,
                          .sinks = _i % 2,
                          .kv_format = prompt_cases[_i].kv_format};
    attention_begin(&a);
    float *out = malloc((size_t)SCENE_TOKENS_MAX * PROMPT_HEADS * a.head_dim * sizeof *out);
    uint32_t length[PROMPTS] = {0};
    for (uint32_t step = 0; step < 2; step++) {
        scene.counts = (struct batch_counts){0};
        for (uint32_t slot = 0; slot < PROMPTS; slot++) {
            uint32_t q_len = slot == 33 ? 220 - 90 * step : slot % 7 == 5 ? 1 : 9 + slot % 16;
            scene_row(&scene, slot, length[slot], q_len, 0);
            length[slot] += q_len;
        }
        scene_step(&scene);
        attention_run(&a, &scene, out);
        (void)check_rows(&a, &scene, out, scene.window, prompt_cases[_i].tolerance);
    }
    free(out);
    scene_end(&scene);
}
END_TEST

/* ---- few short chunks behind long contexts ---- */

#define LONG_ROWS 6
#define LONG_CHUNK 500

static const struct attention_case long_cases[] = {
    {8, 2, 128, 32, 0, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, false},
    {8, 2, 64, 32, 0, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 0, false, true},
    {4, 4, 128, 64, 1500, DTYPE_BF16, FORMAT_BF16, true, 1, 3e-2, 1.5f, false, false},
    {6, 2, 64, 16, 1300, DTYPE_F16, FORMAT_F16, true, 1, 4e-3, 0, false, true},
    {7, 1, 128, 128, 0, DTYPE_F16, FORMAT_E4M3, false, 1, 2e-2, 1.5f, false, true},
    {14, 2, 64, 32, 1100, DTYPE_BF16, FORMAT_E4M3, false, 1, 3e-2, 0, false, false},
    {8, 2, 128, 16, 1300, DTYPE_BF16, FORMAT_E4M3, true, 1, 3e-2, 0, false, true},
    {3, 3, 80, 32, 0, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, false},
    {8, 2, 128, 32, 0, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, false},
    {8, 2, 64, 32, 0, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 0, false, false},
    {8, 2, 128, 32, 0, DTYPE_BF16, FORMAT_E4M3, false, 1, 3e-2, 0, false, false},
    {8, 2, 64, 32, 0, DTYPE_F16, FORMAT_E4M3, false, 1, 2e-2, 0, false, false},
    {64, 32, 128, 32, 0, DTYPE_F16, FORMAT_F16, false, 1, 4e-3, 0, false, false},
    {64, 32, 64, 32, 0, DTYPE_BF16, FORMAT_BF16, false, 1, 3e-2, 0, false, false},
};
#define LONG_CASES (int)(sizeof long_cases / sizeof *long_cases)

/* Rows of the cases up to one: positions before each row's chunk, and the chunk. A chunk behind
 * none, and a single token, are among them. Then of each row that is behind none the last queries
 * are so few that some of those who attend have none: beside one behind many; and of more heads
 * than a GPU has processors. */
static const struct {
    int cases;
    uint32_t before[LONG_ROWS], chunk[LONG_ROWS];
} long_rows[] = {
    {8, {2100, 1055, 0, 1700, 1300, 40}, {65, 9, 140, 1, 200, 12}},
    {12, {4000, 0, 0, 0}, {65, 300, 500, 40}},
    {LONG_CASES, {0, 0}, {257, 200}},
};

/* The second step has one row alone. Every other time with room for few of what a query's keys
 * give. */
START_TEST(short_chunks_are_that_behind_long_contexts)
{
    const struct attention_case *c = &long_cases[_i % LONG_CASES];
    uint32_t kind = 0;
    while (_i % LONG_CASES >= long_rows[kind].cases)
        kind++;
    const uint32_t *before = long_rows[kind].before, *chunk = long_rows[kind].chunk;
    rig_begin();
    struct scene scene = {.slots = LONG_ROWS,
                          .length_max = before[0] + 550,
                          .block_tokens = c->block_tokens,
                          .window = c->window,
                          .layers = 1,
                          .kv_heads = c->kv_heads,
                          .head_dim = c->head_dim,
                          .kv_format = c->kv_format};
    scene_begin(&scene);
    struct attention a = {.heads = c->heads,
                          .kv_heads = c->kv_heads,
                          .head_dim = c->head_dim,
                          .group = c->window ? 1 : 0,
                          .dtype = c->dtype,
                          .normed = c->normed,
                          .factor = c->factor,
                          .softcap = c->softcap,
                          .sinks = c->sinks,
                          .kv_format = c->kv_format,
                          .little = _i >= LONG_CASES};
    attention_begin(&a);
    for (uint32_t slot = 0; slot < LONG_ROWS; slot++) {
        for (uint32_t at = 0; at < before[slot]; at += LONG_CHUNK) {
            uint32_t left = before[slot] - at;
            scene.counts = (struct batch_counts){0};
            scene_row(&scene, slot, at, left < LONG_CHUNK ? left : LONG_CHUNK, 0);
            scene_step(&scene);
            attention_write(&a, &scene);
        }
    }
    float *out = malloc((size_t)SCENE_TOKENS_MAX * a.heads * a.head_dim * sizeof *out);
    for (uint32_t step = 0; step < 2; step++) {
        scene.counts = (struct batch_counts){0};
        for (uint32_t slot = 0; slot < (step ? 1 : LONG_ROWS); slot++)
            if (chunk[slot])
                scene_row(&scene, slot, before[slot] + step * chunk[slot], step ? 30 : chunk[slot],
                          0);
        scene_step(&scene);
        attention_run(&a, &scene, out);
        (void)check_rows(&a, &scene, out, c->window, c->tolerance);
    }
    free(out);
    scene_end(&scene);
}
END_TEST

/* ---- what would be wrong with scales and sinks is seen ---- */

#define EIGHT_LENGTH 60
#define EIGHT_TOLERANCE 2e-2

struct eight {
    struct scene scene;
    struct attention a;
    float out[EIGHT_LENGTH * 4 * 64];
};

/* A row of many tokens; `a` has what is to be other than this. */
static void eight_begin(struct eight *t, const struct attention *a)
{
    int v = a->exponents[2];
    rig_begin();
    t->scene = (struct scene){.slots = 2,
                              .length_max = EIGHT_LENGTH + 1,
                              .block_tokens = 16,
                              .layers = 2,
                              .kv_heads = 2,
                              .head_dim = 64,
                              .kv_format = FORMAT_E4M3};
    scene_begin(&t->scene);
    t->a = *a;
    t->a.heads = 4;
    t->a.kv_heads = 2;
    t->a.head_dim = 64;
    t->a.layer = 1;
    t->a.factor = 1;
    t->a.kv_format = FORMAT_E4M3;
    attention_begin(&t->a);
    scene_row(&t->scene, 0, 0, EIGHT_LENGTH, 0);
    scene_step(&t->scene);
    attention_run(&t->a, &t->scene, t->out);
    (void)check_rows(&t->a, &t->scene, t->out, 0, ldexp(EIGHT_TOLERANCE, v));
}

/* The next token alone. */
static void eight_next(struct eight *t)
{
    t->scene.counts = (struct batch_counts){0};
    scene_row(&t->scene, 0, EIGHT_LENGTH, 1, 0);
    scene_step(&t->scene);
    attention_run(&t->a, &t->scene, t->out);
}

static const struct attention half_eight = {.dtype = DTYPE_F16};

START_TEST(mistakes_are_seen)
{
    static struct eight t;
    struct attention a = half_eight;
    a.sinks = _i > ATTENTION_BLOCK_BEFORE;
    eight_begin(&t, &a);
    t.a.mistake = (enum attention_mistake)_i;
    ck_assert(check_rows(&t.a, &t.scene, t.out, 0, INFINITY) > 4 * EIGHT_TOLERANCE);
    scene_end(&t.scene);
}
END_TEST

/* What is far from 1 is no less exact: what kernels add up in is not what comes in. */
START_TEST(sizes_of_heads_do_not_matter)
{
    static const int exponents[][3] = {{30, -30, 40}, {-30, 30, -60}, {0, 0, -100}, {60, -60, 90}};
    static struct eight t;
    struct attention a = {.dtype = DTYPE_BF16};
    memcpy(a.exponents, exponents[_i], sizeof a.exponents);
    eight_begin(&t, &a);
    eight_next(&t);
    (void)check_rows(&t.a, &t.scene, t.out, 0, ldexp(EIGHT_TOLERANCE, exponents[_i][2]));
    scene_end(&t.scene);
}
END_TEST

/* Of K or V, by either way of writing them; the other KV head has its numbers. */
START_TEST(what_is_infinite_is_no_number_for_those_who_read_it)
{
    static struct eight t;
    bool is_v = _i % 2, last = _i / 4;
    struct attention a = {.dtype = _i / 2 % 2 ? DTYPE_F16 : DTYPE_BF16, .in_parts = _i / 2 % 2};
    eight_begin(&t, &a);
    t.a.infinite = EIGHT_LENGTH;
    t.a.infinite_element = (4 + (is_v ? 2 : 0)) * 64 + (last ? 63 : 0);
    eight_next(&t);
    for (uint32_t i = 0; i < 4 * 64; i++)
        ck_assert_msg(isnan(t.out[i]) == (i < 2 * 64), "%u: %g", i, (double)t.out[i]);
    scene_end(&t.scene);
}
END_TEST

/* ---- prompts of odd sizes, and a chunk behind them, in eight bits ---- */

#define CHUNK_BEFORE 1200

static const struct {
    uint32_t head_dim, block_tokens, window;
    enum dtype dtype;
    double tolerance;
} chunk_cases[] = {
    {128, 16, 0, DTYPE_F16, 2e-2},
    {128, 32, 700, DTYPE_BF16, 3e-2},
    {64, 32, 0, DTYPE_BF16, 3e-2},
    {64, 16, 700, DTYPE_F16, 2e-2},
};

/* One key in a last tile, less than a piece of one, all but a few; then few queries behind many. */
START_TEST(chunks_in_eight_bits_end_anywhere)
{
    static const uint32_t prompts[3] = {129, 17, 250};
    rig_begin();
    struct scene scene = {.slots = 3,
                          .length_max = 1300,
                          .block_tokens = chunk_cases[_i].block_tokens,
                          .window = chunk_cases[_i].window,
                          .layers = 1,
                          .kv_heads = 2,
                          .head_dim = chunk_cases[_i].head_dim,
                          .kv_format = FORMAT_E4M3};
    scene_begin(&scene);
    struct attention a = {.heads = 4,
                          .kv_heads = 2,
                          .head_dim = chunk_cases[_i].head_dim,
                          .group = chunk_cases[_i].window ? 1 : 0,
                          .dtype = chunk_cases[_i].dtype,
                          .factor = 1,
                          .kv_format = FORMAT_E4M3};
    attention_begin(&a);
    float *out = malloc((size_t)SCENE_TOKENS_MAX * a.heads * a.head_dim * sizeof *out);
    for (uint32_t slot = 0; slot < 3; slot++)
        scene_row(&scene, slot, 0, prompts[slot], 0);
    scene_step(&scene);
    attention_run(&a, &scene, out);
    (void)check_rows(&a, &scene, out, scene.window, chunk_cases[_i].tolerance);
    for (uint32_t at = prompts[0]; at < CHUNK_BEFORE; at += 357) {
        scene.counts = (struct batch_counts){0};
        scene_row(&scene, 0, at, 357, 0);
        scene_step(&scene);
        attention_write(&a, &scene);
    }
    scene.counts = (struct batch_counts){0};
    scene_row(&scene, 0, CHUNK_BEFORE, 43, 0);
    scene_step(&scene);
    attention_run(&a, &scene, out);
    (void)check_rows(&a, &scene, out, scene.window, chunk_cases[_i].tolerance);
    free(out);
    scene_end(&scene);
}
END_TEST

static void *block_at(const struct batch_group *group, uint32_t block)
{
    void *slab;
    rig_read(&slab, (const void *const *)group->slabs + block / group->slab_blocks, sizeof slab);
    return (char *)slab + block % group->slab_blocks * group->block_bytes;
}

/* The slot's second block goes where no table points to. */
static uint32_t block_move(struct scene *scene)
{
    struct batch_group *group = &scene->batch.groups[0];
    uint32_t tables[16], count = scene->slots * group->blocks_max, to = 0;
    ck_assert_uint_le(count, 16);
    rig_read(tables, group->tables, count * sizeof *tables);
    for (uint32_t i = 0; i < count; i++)
        if (tables[i] == to)
            to++, i = UINT32_MAX;
    struct gpu_move move = {0, tables[1], to};
    scene->batch.moves = rig_new(&move, sizeof move);
    scene->counts.moves = scene->batch.moves_max = 1;
    scene_step(scene);
    struct copy_blocks_args args = {.batch = scene->batch};
    OK(op_copy_blocks(&args, rig_stream));
    tables[1] = to;
    group->tables = rig_new(tables, count * sizeof *tables);
    return to;
}

/* 1: scales stay behind. */
START_TEST(a_block_that_moves_takes_its_scales_with_it)
{
    static struct eight t;
    float scales[16];
    uint32_t piece = sizeof scales / sizeof *scales * 64;
    eight_begin(&t, &half_eight);
    struct batch_group *group = &t.scene.batch.groups[0];
    t.scene.counts = (struct batch_counts){0};
    scene_row(&t.scene, 0, EIGHT_LENGTH, 1, 0);
    uint32_t to = block_move(&t.scene);
    for (uint32_t i = 0; i < 16; i++)
        scales[i] = 0.1f;
    for (uint32_t part = 0; _i && part < 8; part++) /* K and V of two heads of two layers */
        OK(cudaMemcpyAsync((char *)block_at(group, to) + part * (piece + sizeof scales) + piece,
                           scales, sizeof scales, cudaMemcpyHostToDevice, rig_stream));
    attention_run(&t.a, &t.scene, t.out);
    double worst = check_rows(&t.a, &t.scene, t.out, 0, INFINITY);
    ck_assert_msg(_i ? worst > 4 * EIGHT_TOLERANCE : worst <= EIGHT_TOLERANCE, "%g", worst);
    scene_end(&t.scene);
}
END_TEST

/* Attention sees only differences of positions; this sees the positions themselves. */
START_TEST(angles_are_those_of_the_token_s_own_position)
{
    static const float frequency[4] = {1.0f, 0.03f, 0.0007f, 0}; /* the last is not turned */
    float angles[5 * 8];
    rig_begin();
    struct scene scene = {.slots = 2, .vocab = 2, .hidden = 1};
    scene_begin(&scene);
    scene_row(&scene, 1, 100000, 3, 0);
    scene_row(&scene, 0, 0, 2, 0);
    scene_step(&scene);
    struct angle_args args = {.batch = scene.batch,
                              .inverse_frequency = rig_new(frequency, sizeof frequency),
                              .attention = 1.5f,
                              .pairs = 4,
                              .angles = rig_new(NULL, sizeof angles)};
    OK(op_angle(&args, rig_stream));
    rig_read(angles, args.angles, sizeof angles);
    for (uint32_t t = 0; t < 5; t++)
        for (uint32_t i = 0; i < 4; i++) {
            double angle = (double)((float)(t < 3 ? 100000 + t : t - 3) * frequency[i]);
            double factor = i < 3 ? 1.5 : 1;
            ck_assert(fabs((double)angles[t * 8 + 2 * i] - factor * cos(angle)) < 1e-6);
            ck_assert(fabs((double)angles[t * 8 + 2 * i + 1] - factor * sin(angle)) < 1e-6);
        }
    scene_end(&scene);
}
END_TEST

Suite *attention_suite(void)
{
    Suite *suite = suite_create("kernels: attention");
    TCase *tcase = tcase_create("attend");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, attention_is_that_of_plain_doubles, 0, 3 * CASES);
    tcase_add_loop_test(tcase, prompts_are_more_than_processors, 0,
                        sizeof prompt_cases / sizeof *prompt_cases);
    tcase_add_test(tcase, angles_are_those_of_the_token_s_own_position);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("eight");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, mistakes_are_seen, 1, ATTENTION_MISTAKES);
    tcase_add_loop_test(tcase, sizes_of_heads_do_not_matter, 0, 4);
    tcase_add_loop_test(tcase, what_is_infinite_is_no_number_for_those_who_read_it, 0, 8);
    tcase_add_loop_test(tcase, a_block_that_moves_takes_its_scales_with_it, 0, 2);
    tcase_add_loop_test(tcase, chunks_in_eight_bits_end_anywhere, 0,
                        sizeof chunk_cases / sizeof *chunk_cases);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("behind");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, short_chunks_are_that_behind_long_contexts, 0, 2 * LONG_CASES);
    suite_add_tcase(suite, tcase);
    return suite;
}
