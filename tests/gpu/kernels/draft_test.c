/* What a head that guesses has of its model, and of itself: features, states, logits. */
#include <math.h>

#include "gpu/kernels/cpu/number.h"
#include "gpu/kernels/draft/features.h"
#include "gpu/kernels/draft/spread.h"
#include "gpu/kernels/draft/state.h"
#include "tests/gpu/kernels/scene.h"
#include "tests/gpu/kernels/suites.h"

#define SLOTS 3u
#define LENGTH 200u
#define STEPS 24u
#define PLACES (FEATURES_KEPT + 1)

/* Of every slot, in which step each position was computed last (from 1 on), and what of it is kept
 * by the definition: the last tokens of each row, until others take their places. */
struct known {
    uint32_t at, first; /* the next position */
    uint32_t kept_position[FEATURES_KEPT], kept_step[FEATURES_KEPT];
};

struct fixture {
    struct scene scene;
    struct features features;
    struct known known[SLOTS], before[SLOTS]; /* before: the step */
    uint32_t row_position[SLOTS], row_len[SLOTS];
};

/* Exact in every dtype: a number of few bits. */
static float value_of(uint32_t slot, uint32_t position, uint32_t step, uint32_t i)
{
    return (float)((slot * 131 + position * 17 + step * 29 + i * 7) % 251) - 125;
}

static void fixture_begin(struct fixture *f, uint32_t width, enum dtype dtype)
{
    rig_begin();
    f->scene = (struct scene){.slots = SLOTS, .vocab = 2, .hidden = 1};
    scene_begin(&f->scene);
    uint32_t none[SLOTS * PLACES];
    memset(none, 0xff, sizeof none);
    f->features = (struct features){
        .step = rig_new(NULL, (size_t)SCENE_TOKENS_MAX * width * dtype_bytes(dtype)),
        .kept = rig_new(NULL, (size_t)SLOTS * PLACES * width * dtype_bytes(dtype)),
        .positions = rig_new(none, sizeof none),
        .rows = rig_new(NULL, SLOTS * sizeof(struct features_row)),
        .width = width,
        .dtype = dtype};
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        f->known[slot] = (struct known){.first = slot * 5, .at = slot * 5};
        memset(f->known[slot].kept_position, 0xff, sizeof f->known[slot].kept_position);
        f->scene.slot[slot].first = f->known[slot].first;
    }
}

/* Features of the step's tokens as its captures leave them. */
static void step_fill(struct fixture *f, uint32_t step)
{
    const struct features *features = &f->features;
    size_t size = dtype_bytes(features->dtype), row = features->width * size;
    char *from = malloc(SCENE_TOKENS_MAX * row);
    uint32_t token = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        for (uint32_t j = 0; j < f->row_len[slot]; j++, token++)
            for (uint32_t i = 0; i < features->width; i++) {
                float value = value_of(slot, f->row_position[slot] + j, step, i);
                number_round(from + token * row + i * size, &value, features->dtype, 1);
            }
    OK(cudaMemcpyAsync(features->step, from, token * row, cudaMemcpyHostToDevice, rig_stream));
    rig_wait();
    free(from);
}

/* Some slots go on, by one token, by guesses of which some fall, or by a chunk. */
static void step_run(struct fixture *f, uint32_t step)
{
    static const uint32_t lens[] = {1, 1, 4, 16, 17, 32, 33};
    f->scene.counts = (struct batch_counts){0};
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct known *known = &f->known[slot];
        f->before[slot] = *known;
        f->row_position[slot] = known->at;
        f->row_len[slot] = step > 1 && rig_between(0, 3) == 0 ? 0 : lens[rig_between(0, 6)];
        uint32_t len = f->row_len[slot];
        if (len)
            scene_row(&f->scene, slot, known->at, len, 0);
        for (uint32_t j = len > FEATURES_KEPT ? len - FEATURES_KEPT : 0; j < len; j++) {
            known->kept_position[(known->at + j) % FEATURES_KEPT] = known->at + j;
            known->kept_step[(known->at + j) % FEATURES_KEPT] = step;
        }
        known->at += len == 4 ? rig_between(1, 4) : len;
    }
    scene_step(&f->scene);
    step_fill(f, step);
    const struct keep_args keep = {f->scene.batch, f->features};
    OK(op_keep(&keep, rig_stream));
}

/* The step in which what is kept of the position was computed; 0: nothing is. */
static uint32_t kept_of(const struct known *known, uint32_t position)
{
    uint32_t place = position % FEATURES_KEPT;
    bool is = position >= known->first && known->kept_position[place] == position;
    return is ? known->kept_step[place] : 0;
}

static void given_check(struct fixture *f, bool of_step, uint32_t step, const uint32_t *positions,
                        const uint32_t *lens)
{
    const struct features *features = &f->features;
    f->scene.counts = (struct batch_counts){0};
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        if (lens[slot])
            scene_row(&f->scene, slot, positions[slot], lens[slot], 0);
    scene_step(&f->scene);
    size_t bytes =
        (size_t)f->scene.batch.tokens_max * features->width * dtype_bytes(features->dtype);
    const struct features_args args = {f->scene.batch, *features, of_step, rig_new(NULL, bytes)};
    OK(op_features(&args, rig_stream));
    char *given = malloc(bytes);
    rig_read(given, args.out, bytes);
    uint32_t token = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        for (uint32_t j = 0; j < lens[slot]; j++, token++) {
            uint32_t position = positions[slot] + j, from = step;
            if (!of_step)
                from = kept_of(&f->known[slot], position);
            else if (position < f->row_position[slot])
                from = kept_of(&f->before[slot], position);
            for (uint32_t i = 0; i < features->width; i++) {
                float got, want = from ? value_of(slot, position, from, i) : 0;
                number_widen(&got, number_at(given, features->dtype, token * features->width + i),
                             features->dtype, 1);
                ck_assert_float_eq(got, want);
            }
        }
    for (size_t i = (size_t)token * features->width * dtype_bytes(features->dtype); i < bytes; i++)
        ck_assert_uint_eq((unsigned char)given[i], 0xa5);
    free(given);
}

START_TEST(features_are_those_of_the_position_as_it_was_computed_last)
{
    static const uint32_t widths[] = {96, 24, 1000, 8};
    struct fixture f;
    rig_seed((uint64_t)_i + 3);
    fixture_begin(&f, widths[_i % 4], (enum dtype)(_i % 3));
    for (uint32_t step = 1; step < STEPS && f.known[0].at + 40 < LENGTH; step++) {
        uint32_t positions[SLOTS], lens[SLOTS];
        step_run(&f, step);
        for (uint32_t slot = 0; slot < SLOTS; slot++) { /* as a head reads: a position back */
            bool first = f.row_position[slot] == 0;
            positions[slot] = first ? 0 : f.row_position[slot] - 1;
            lens[slot] = f.row_len[slot] - (f.row_len[slot] && first);
        }
        given_check(&f, true, step, positions, lens);
        for (uint32_t slot = 0; slot < SLOTS; slot++) { /* as it guesses: some behind the last */
            uint32_t known = f.known[slot].at, back = rig_between(1, 20);
            positions[slot] = known > back ? known - back : 0;
            lens[slot] = known - positions[slot];
        }
        given_check(&f, false, step, positions, lens);
    }
    scene_end(&f.scene);
}
END_TEST

START_TEST(a_state_is_what_it_is_given_or_what_the_slot_has_carried)
{
    static const uint32_t sizes[] = {64, 700, 8};
    uint32_t size = sizes[_i % 3];
    enum dtype dtype = (enum dtype)(_i % 3);
    rig_begin();
    rig_seed((uint64_t)_i + 50);
    struct scene scene = {.slots = SLOTS, .vocab = 2, .hidden = 1};
    scene_begin(&scene);
    scene_row(&scene, 2, 4, 3, GPU_SAMPLE);
    scene_row(&scene, 0, 9, 5, 0);
    scene_row(&scene, 1, 0, 1, GPU_SAMPLE);
    scene_step(&scene);
    tensor_align(1);
    struct tensor in = tensor_random(dtype, SCENE_TOKENS_MAX, size, 1);
    float *residual = rig_new(NULL, (size_t)SCENE_TOKENS_MAX * size * sizeof(float));
    float *carried = rig_new(NULL, SLOTS * size * sizeof(float));
    struct state_args args = {.batch = scene.batch,
                              .carried = carried,
                              .in = in.device,
                              .residual = residual,
                              .size = size,
                              .in_stride = in.stride,
                              .in_dtype = dtype};
    OK(op_state(&args, rig_stream));
    OK(op_carry(&args, rig_stream));
    float *got = malloc(10 * size * sizeof(float)), *kept = malloc(SLOTS * size * sizeof(float));
    rig_read(got, residual, 10 * size * sizeof(float));
    rig_read(kept, carried, SLOTS * size * sizeof(float));
    for (uint32_t i = 0; i < size; i++) {
        for (uint32_t t = 0; t < 9; t++)
            ck_assert_float_eq(got[t * size + i], tensor_at(&in, t, i));
        ck_assert_float_eq(kept[2 * size + i], tensor_at(&in, 2, i)); /* the row's last token */
        ck_assert_float_eq(kept[1 * size + i], tensor_at(&in, 8, i));
    }
    for (uint32_t i = 0; i < size * sizeof(float); i++) /* what does not sample carries nothing */
        ck_assert_uint_eq(((unsigned char *)kept)[i], 0xa5);
    for (uint32_t i = 0; i < size * sizeof(float); i++) /* nor is more than the step written */
        ck_assert_uint_eq(((unsigned char *)(got + 9 * size))[i], 0xa5);

    /* Rows in another order go on from there. */
    scene.counts = (struct batch_counts){0};
    scene_row(&scene, 1, 1, 1, GPU_SAMPLE);
    scene_row(&scene, 2, 7, 1, GPU_SAMPLE);
    scene_step(&scene);
    args.batch = scene.batch;
    args.in = NULL;
    OK(op_state(&args, rig_stream));
    rig_read(got, residual, 2 * size * sizeof(float));
    ck_assert_mem_eq(got, kept + size, size * sizeof(float));
    ck_assert_mem_eq(got + size, kept + 2 * size, size * sizeof(float));
    free(got);
    free(kept);
    scene_end(&scene);
}
END_TEST

START_TEST(logits_stand_where_the_model_has_the_token)
{
    uint32_t size = _i % 2 ? 3000 : 257, known = _i % 3 ? 90 : 200, rows = 4;
    bool named = _i > 1;
    rig_begin();
    rig_seed((uint64_t)_i + 7);
    struct tensor in = tensor_random(DTYPE_F32, 1, (rows + 1) * known, 1);
    int32_t *places = malloc(size * sizeof *places);
    for (uint32_t i = 0, next = 0; i < size; i++) {
        bool has = named ? next < known && (i % 2 == 1 || size - i <= known - next) : i < known;
        places[i] = has ? (int32_t)next++ : SPREAD_NONE;
    }
    float *got = malloc((rows + 1) * size * sizeof(float));
    struct spread_args args = {.rows = rig_span(rows, 0, rows + 1),
                               .in = in.device,
                               .places = named ? rig_new(places, size * sizeof *places) : NULL,
                               .out = rig_new(NULL, (rows + 1) * size * sizeof(float)),
                               .known = known,
                               .size = size};
    OK(op_spread(&args, rig_stream));
    rig_read(got, args.out, (rows + 1) * size * sizeof(float));
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < size; i++) {
            float want = places[i] < 0 ? -INFINITY : in.host[r * known + (uint32_t)places[i]];
            ck_assert(memcmp(&got[r * size + i], &want, sizeof want) == 0);
        }
    for (uint32_t i = 0; i < size * sizeof(float); i++)
        ck_assert_uint_eq(((unsigned char *)(got + rows * size))[i], 0xa5);
    free(got);
    free(places);
    rig_end();
}
END_TEST

Suite *draft_suite(void)
{
    Suite *suite = suite_create("guesses");
    TCase *tests = tcase_create("guesses");
    tcase_add_loop_test(tests, features_are_those_of_the_position_as_it_was_computed_last, 0, 12);
    tcase_add_loop_test(tests, a_state_is_what_it_is_given_or_what_the_slot_has_carried, 0, 9);
    tcase_add_loop_test(tests, logits_stand_where_the_model_has_the_token, 0, 6);
    suite_add_tcase(suite, tests);
    return suite;
}
