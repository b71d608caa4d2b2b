/* Expand beginning with the model: the bits of the ops that it stands for. CUDA. */
#include "gpu/kernels/attention/rope.h"
#include "gpu/kernels/norm/norm.h"
#include "gpu/kernels/step/embed.h"
#include "gpu/kernels/step/step_begin.h"
#include "tests/gpu/kernels/scene.h"
#include "tests/gpu/kernels/suites.h"

#define SLOTS 24u
#define VOCAB 50u

static struct scene scene;

struct plan {
    struct pack_head head;
    struct pack_row rows[SLOTS];
    int32_t ids[SLOTS];
};

/* Rows of single tokens, with an id of the plan or what their slot sampled; every third samples
 * nothing. */
static struct plan plan_of(uint32_t rows, const int32_t *tokens_in)
{
    struct plan plan = {
        .head = {.step = 7,
                 .rows = offsetof(struct plan, rows),
                 .ids = offsetof(struct plan, ids),
                 .counts = {.rows = rows, .tokens = rows},
                 .tokens_in = tokens_in},
    };
    for (uint32_t i = 0; i < rows; i++) {
        bool samples = i % 3 != 2;
        plan.rows[i] = (struct pack_row){
            .row = {.slot = SLOTS - 1 - i,
                    .position = rig_between(0, 100000),
                    .q_len = 1,
                    .token = i,
                    .want = samples ? GPU_SAMPLE : 0},
            .ids = i % 2 ? i : PACK_NONE,
            .sample = samples ? plan.head.counts.samples : PACK_NONE,
        };
        plan.head.counts.samples += samples;
        plan.ids[i] = (int32_t)rig_between(0, VOCAB - 1);
    }
    return plan;
}

/* What expand writes of a step's batch. */
struct expanded {
    struct batch_counts counts;
    struct batch_row rows[SLOTS];
    int32_t token_id[SLOTS];
    uint32_t token_row[SLOTS], token_position[SLOTS], sample_row[SLOTS], sample_token[SLOTS];
};

static void run(const struct step_begin_args *args, struct expanded *ret)
{
    const struct batch *batch = &args->batch;
    struct step_control control;
    const struct {
        const void *at;
        void *to;
        size_t bytes;
    } arrays[] = {
        {batch->counts, &ret->counts, sizeof ret->counts},
        {batch->rows, ret->rows, sizeof ret->rows},
        {batch->token_id, ret->token_id, sizeof ret->token_id},
        {batch->token_row, ret->token_row, sizeof ret->token_row},
        {batch->token_position, ret->token_position, sizeof ret->token_position},
        {batch->sample_row, ret->sample_row, sizeof ret->sample_row},
        {batch->sample_token, ret->sample_token, sizeof ret->sample_token},
    };
    const uint32_t count = sizeof arrays / sizeof *arrays;
    for (uint32_t i = 0; i < count; i++)
        OK(cudaMemsetAsync((void *)(uintptr_t)arrays[i].at, 0xa5, arrays[i].bytes, rig_stream));
    OK(op_step_begin(args, rig_stream));
    for (uint32_t i = 0; i < count; i++)
        rig_read(arrays[i].to, arrays[i].at, arrays[i].bytes);
    rig_read(&control, args->control, sizeof control);
    ck_assert_uint_eq(control.step, 7);
}

static const uint32_t sizes[] = {64, 200, 2048, 4096, 8192};

/* Rows beyond the count are poison in both. */
static void check_same(const void *one, const void *other, size_t bytes)
{
    char *left = malloc(bytes), *right = malloc(bytes);
    rig_read(left, one, bytes);
    rig_read(right, other, bytes);
    ck_assert_mem_eq(left, right, bytes);
    free(left);
    free(right);
}

/* A third of them have an offset of the norm's weight, and a third no norm. */
START_TEST(expand_begins_with_the_bits_of_embed_angle_and_norm)
{
    bool rounds = _i % 3 == 2;
    uint32_t hidden = sizes[_i % 5], rows = _i % 2 ? 1 : 17, max = rows + 3,
             pairs = _i % 3 ? 64 : 7;
    enum dtype dtype = _i % 4 < 2 ? DTYPE_BF16 : DTYPE_F16;
    rig_begin();
    scene = (struct scene){.slots = SLOTS, .vocab = VOCAB, .hidden = hidden};
    scene_begin(&scene);
    for (uint32_t i = 0; i < SLOTS; i++)
        scene.slot[i].last = (int32_t)rig_between(0, VOCAB - 1);
    scene_step(&scene);
    struct batch *batch = &scene.batch;
    batch->rows_max = batch->tokens_max = batch->samples_max = max;
    batch->q_len_max = 1;
    int32_t others[SLOTS];
    for (uint32_t i = 0; i < SLOTS; i++)
        others[i] = (int32_t)rig_between(0, VOCAB - 1);
    struct plan plan = plan_of(rows, _i >= 10 ? rig_new(others, sizeof others) : NULL);
    void *table = malloc((size_t)VOCAB * hidden * 2);
    for (uint32_t i = 0; i < VOCAB * hidden; i++)
        ((uint16_t *)table)[i] =
            (uint16_t)(0x3800 + rig_between(0, 0x7ff) + (rig_between(0, 1) << 15));
    float frequency[64];
    for (uint32_t i = 0; i < 64; i++)
        frequency[i] = i % 8 == 5 ? 0 : 1.0f / (float)(1 + i * i);
    struct tensor weight = tensor_random(DTYPE_BF16, 1, hidden, 1);
    size_t wide = (size_t)max * hidden;
    float *residual[2] = {rig_new(NULL, wide * 4), rig_new(NULL, wide * 4)};
    char *x[2] = {rig_new(NULL, wide * 2), rig_new(NULL, wide * 2)};
    size_t angle_bytes = (size_t)max * pairs * 8;
    float *angles[2] = {rig_new(NULL, angle_bytes), rig_new(NULL, angle_bytes)};
    struct step_begin_args args = {
        .wire = rig_new(&plan, sizeof plan),
        .batch = *batch,
        .control = rig_new(NULL, sizeof(struct step_control)),
        .first = {.table = {.data = rig_new(table, (size_t)VOCAB * hidden * 2),
                            .format = format_plain(dtype),
                            .n = VOCAB,
                            .k = hidden},
                  .residual = residual[0],
                  .norm = rounds ? NULL : weight.device,
                  .offset = _i % 3 ? 1 : 0,
                  .x = x[0],
                  .inverse_frequency = rig_new(frequency, sizeof frequency),
                  .angles = angles[0],
                  .pairs = pairs,
                  .attention = 1.25f,
                  .eps = 1e-5f,
                  .norm_dtype = DTYPE_BF16,
                  .x_dtype = dtype},
    };
    static struct expanded got, want;
    ck_assert(expand_begins(&args));
    run(&args, &got);
    struct step_begin_first first = args.first;
    args.first = (struct step_begin_first){.pairs = 0};
    run(&args, &want);
    ck_assert_mem_eq(&got, &want, sizeof got);
    struct embed_args embed = {.batch = *batch,
                               .table = first.table,
                               .out = residual[1],
                               .stride = hidden,
                               .out_dtype = DTYPE_F32};
    struct angle_args angle = {.batch = *batch,
                               .inverse_frequency = first.inverse_frequency,
                               .attention = first.attention,
                               .pairs = pairs,
                               .angles = angles[1]};
    struct norm_args norm = {.rows = {.count = &batch->counts->tokens, .max = max},
                             .residual = residual[1],
                             .weight = first.norm,
                             .out = x[1],
                             .size = hidden,
                             .residual_stride = hidden,
                             .out_stride = hidden,
                             .residual_dtype = DTYPE_F32,
                             .weight_dtype = DTYPE_BF16,
                             .out_dtype = dtype,
                             .eps = first.eps,
                             .form = rounds ? NORM_ROUNDED : NORM_SCALED,
                             .offset = first.offset};
    OK(op_embed(&embed, rig_stream));
    OK(op_angle(&angle, rig_stream));
    OK(op_norm(&norm, rig_stream));
    check_same(residual[0], residual[1], wide * 4);
    check_same(x[0], x[1], wide * 2);
    check_same(angles[0], angles[1], angle_bytes);
    free(table);
    scene_end(&scene);
}
END_TEST

START_TEST(expand_begins_only_with_single_tokens_of_whole_rows)
{
    const uint16_t table = 0;
    struct step_begin_args args = {.batch = {.q_len_max = 1},
                                   .first = {.table = {.data = &table, .k = 2048}}};
    ck_assert(expand_begins(&args));
    args.first.table.k = 2052;
    ck_assert(!expand_begins(&args));
    ck_assert_int_ne(op_step_begin(&args, rig_stream), cudaSuccess);
    args.first.table.k = 16384;
    ck_assert(!expand_begins(&args));
    args.first.table.k = 2048;
    args.batch.q_len_max = 2;
    ck_assert(!expand_begins(&args));
    args.batch.q_len_max = 1;
    args.first.table.data = NULL;
    ck_assert(!expand_begins(&args));
}
END_TEST

Suite *expand_suite(void)
{
    Suite *suite = suite_create("kernels: expand");
    TCase *tcase = tcase_create("expand");
    tcase_add_loop_test(tcase, expand_begins_with_the_bits_of_embed_angle_and_norm, 0, 20);
    tcase_add_test(tcase, expand_begins_only_with_single_tokens_of_whole_rows);
    suite_add_tcase(suite, tcase);
    return suite;
}
