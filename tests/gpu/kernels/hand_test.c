/* Norms and activations that round for the product behind them: what is handed on, and what that
 * product makes of it, has the bits that ops apart give. */
#include <math.h>

#include "gpu/kernels/hand/hand.h"
#include "gpu/kernels/matmul/matmul.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

#define OUTPUTS 272
#define EPS 1e-5f
#define BOUND 0.006f /* of scales by token: most rows reach it */

static const struct hand_case {
    uint32_t max, count, size;
    enum weight_rounding rounding;
    enum dtype x;
    enum { NORM, ADD_NORM, GATED, PLAIN } what;
    enum activation activation;
    uint32_t scale_n; /* of the weight's rows; with groups 128, and as many columns */
    enum dtype residual, delta;
    bool bounded, bias;
} cases[] = {
    {300, 290, 4096, ROUNDING_TOKEN, DTYPE_BF16, NORM, 0, 1, DTYPE_F32, 0, false, false},
    {641, 600, 1040, ROUNDING_TOKEN, DTYPE_F16, ADD_NORM, 0, 1, DTYPE_F32, DTYPE_F32, true, false},
    {1100, 1099, 272, ROUNDING_STATIC, DTYPE_BF16, NORM, 0, 0, DTYPE_BF16, 0, false, false},
    {258, 258, 9232, ROUNDING_TOKEN, DTYPE_BF16, ADD_NORM, 0, 0, DTYPE_F32, DTYPE_BF16, false,
     true},
    {259, 257, 20000, ROUNDING_STATIC, DTYPE_F16, ADD_NORM, 0, 1, DTYPE_F32, DTYPE_F16, false,
     false},
    {257, 1, 32768, ROUNDING_TOKEN, DTYPE_BF16, NORM, 0, 1, DTYPE_F32, 0, false, false},
    {303, 303, 4096, ROUNDING_GROUP, DTYPE_BF16, NORM, 0, 128, DTYPE_F32, 0, false, false},
    {258, 250, 1424, ROUNDING_GROUP, DTYPE_F16, ADD_NORM, 0, 128, DTYPE_F32, DTYPE_F32, false,
     false},
    {300, 0, 64, ROUNDING_TOKEN, DTYPE_BF16, NORM, 0, 1, DTYPE_F32, 0, false, false},
    {300, 299, 14336, ROUNDING_TOKEN, DTYPE_BF16, GATED, ACTIVATE_SILU, 1, 0, 0, false, false},
    {257, 200, 28672, ROUNDING_STATIC, DTYPE_BF16, GATED, ACTIVATE_SILU, 0, 0, 0, false, true},
    {513, 513, 4112, ROUNDING_TOKEN, DTYPE_F16, PLAIN, ACTIVATE_GELU_TANH, 1, 0, 0, true, false},
    {301, 301, 2048, ROUNDING_GROUP, DTYPE_BF16, GATED, ACTIVATE_SILU, 128, 0, 0, false, false},
    {260, 255, 9232, ROUNDING_GROUP, DTYPE_F16, GATED, ACTIVATE_GELU_TANH, 128, 0, 0, false, false},
    {400, 390, 16, ROUNDING_TOKEN, DTYPE_BF16, GATED, ACTIVATE_GELU_TANH, 1, 0, 0, false, true},
    {300, 300, 32768, ROUNDING_TOKEN, DTYPE_BF16, PLAIN, ACTIVATE_SILU, 0, 0, 0, false, false},
};

struct hand {
    struct tensor residual, delta, weight, in, x; /* x: what the product reads */
    struct norm_args norm;
    struct activation_args activation;
    struct matmul_args reader;
};

/* The same values each time. */
static void made(const struct hand_case *c, struct hand *h)
{
    struct row_range rows = rig_span(c->count, 0, c->max);
    rig_seed(c->size);
    h->residual = tensor_random(c->residual, c->max, c->size, 2);
    h->delta = tensor_random(c->delta, c->max, c->size, 1);
    h->weight = tensor_random(c->x, 1, c->size, 1);
    h->in = tensor_random(c->x, c->max, (c->what == GATED ? 2 : 1) * c->size, 3);
    h->x = tensor_poison(c->x, c->max, c->size);
    h->norm = (struct norm_args){.rows = rows,
                                 .residual = h->residual.device,
                                 .delta = c->what == ADD_NORM ? h->delta.device : NULL,
                                 .weight = h->weight.device,
                                 .out = h->x.device,
                                 .size = c->size,
                                 .residual_stride = h->residual.stride,
                                 .delta_stride = h->delta.stride,
                                 .out_stride = h->x.stride,
                                 .residual_dtype = c->residual,
                                 .delta_dtype = c->delta,
                                 .weight_dtype = c->x,
                                 .out_dtype = c->x,
                                 .eps = EPS,
                                 .delta_scale = c->count % 2 ? 0.375f : 0,
                                 .offset = c->count % 2 ? 1 : 0};
    h->activation = (struct activation_args){.rows = rows,
                                             .in = h->in.device,
                                             .out = h->x.device,
                                             .size = c->size,
                                             .in_stride = h->in.stride,
                                             .out_stride = h->x.stride,
                                             .dtype = c->x,
                                             .kind = c->activation,
                                             .gated = c->what == GATED};
}

/* The product behind, of any bytes that are numbers. */
static void reader_made(const struct hand_case *c, struct hand *h)
{
    bool blocks = c->rounding == ROUNDING_GROUP;
    size_t size = (size_t)OUTPUTS * c->size;
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(rig_random() & 0xb7);
    uint32_t scales = blocks ? 3 * ((c->size + 127) / 128) : c->scale_n ? OUTPUTS : 1;
    h->reader = (struct matmul_args){
        .rows = h->norm.rows,
        .w = {.data = rig_new(bytes, size),
              .format = FORMAT_E4M3,
              .n = OUTPUTS,
              .k = c->size,
              .scales = {tensor_random(DTYPE_F32, 1, scales, 0.01f).device, DTYPE_F32, c->scale_n,
                         blocks ? 128 : 0},
              .input = {c->rounding, blocks ? 128 : 0,
                        c->rounding == ROUNDING_STATIC ? 0.02f
                        : c->bounded                   ? BOUND
                                                       : 0,
                        NULL}},
        .bias = c->bias ? tensor_random(DTYPE_F32, 1, OUTPUTS, 1).device : NULL,
        .x_dtype = c->x,
        .y_dtype = DTYPE_F32,
        .bias_dtype = DTYPE_F32,
    };
    h->reader.scratch_bytes = matmul_scratch_bytes(&h->reader.w, c->max);
    if (h->reader.scratch_bytes)
        h->reader.scratch = rig_new(NULL, h->reader.scratch_bytes);
    free(bytes);
}

static struct tensor read_by(struct matmul_args args, const struct tensor *x, bool rounded)
{
    struct tensor y = tensor_poison(DTYPE_F32, x->rows, OUTPUTS);
    args.x = x->device;
    args.x_stride = x->stride;
    args.x_rounded = rounded;
    args.y = y.device;
    args.y_stride = y.stride;
    ck_assert(matmul_fuses(&args));
    OK(op_matmul(&args, rig_stream));
    tensor_read(&y);
    return y;
}

static float e4m3_value(uint8_t byte)
{
    int exponent = byte >> 3 & 15, fraction = byte & 7;
    float value = exponent ? ldexpf((float)(8 + fraction), exponent - 10)
                           : ldexpf((float)fraction, -9);
    return byte & 0x80 ? -value : value;
}

/* Whether no other number of e4m3 is nearer; of two that are as near it is the even one. Zeros have
 * either sign. */
static bool is_nearest(uint8_t byte, float value)
{
    float x = fminf(fabsf(value), 448);
    uint8_t at = byte & 0x7f;
    float off = fabsf(e4m3_value(at) - x);
    float below = at > 0 ? fabsf(e4m3_value(at - 1) - x) : INFINITY;
    float above = at < 0x7e ? fabsf(e4m3_value(at + 1) - x) : INFINITY;
    float least = fminf(below, above);
    return at < 0x7f && (at == 0 || (signbit(value) != 0) == (byte >> 7)) &&
           (off < least || (off == least && at % 2 == 0));
}

/* A row of what is handed on, by where matmul.h says that it lies. */
static void check_row(const struct hand_case *c, const struct hand *h, const uint8_t *handed,
                      const struct tensor *x, uint32_t row)
{
    const struct weight_input *how = &h->reader.w.input;
    uint32_t size = how->rounding == ROUNDING_GROUP ? how->group : c->size;
    uint32_t groups = (c->size + size - 1) / size, whole = c->max / 4 * 4;
    size_t first = groups == 1 || row < whole ? 0 : whole, tall = row < whole ? whole : 4;
    for (uint32_t group = 0; group < groups; group++) {
        float greatest = 0, scale, want = how->scale;
        size_t at = groups == 1 ? row : first * groups + group * tall + (row - first);
        memcpy(&scale, handed + MATMUL_ROUNDED_SCALES_AT(c->max, c->size) + at * sizeof scale,
               sizeof scale);
        for (uint32_t k = group * size; k < c->size && k < (group + 1) * size; k++)
            greatest = fmaxf(greatest, fabsf(tensor_at(x, row, k)));
        if (how->rounding != ROUNDING_STATIC)
            want = want > 0 ? fminf(greatest / 448.0f, want) : greatest / 448.0f;
        ck_assert_msg(scale == want, "row %u, group %u: scale %.9g, not %.9g", row, group,
                      (double)scale, (double)want);
        for (uint32_t k = group * size; k < c->size && k < (group + 1) * size; k++) {
            uint8_t byte = handed[(size_t)row * c->size + k];
            ck_assert_msg(is_nearest(byte, tensor_at(x, row, k) / scale), "row %u: %u is %g", row,
                          k, (double)e4m3_value(byte));
        }
    }
}

START_TEST(what_is_handed_on_by_norms_and_activations_is_what_ops_apart_give)
{
    const struct hand_case *c = &cases[_i];
    const bool norms = c->what == NORM || c->what == ADD_NORM;
    struct hand apart, once;
    rig_begin();
    tensor_align(8);
    made(c, &apart);
    made(c, &once);
    reader_made(c, &once);
    const struct weight_input *how = &once.reader.w.input;
    if (norms) {
        OK(op_norm(&apart.norm, rig_stream));
        ck_assert(hand_norm_fuses(&once.norm, how));
        OK(op_hand_norm(&once.norm, how, rig_stream));
    } else {
        OK(op_activation(&apart.activation, rig_stream));
        ck_assert(hand_activation_fuses(&once.activation, how));
        OK(op_hand_activation(&once.activation, how, rig_stream));
    }
    size_t bytes = (size_t)c->max * once.x.stride * 2;
    uint8_t *handed = malloc(bytes);
    rig_read(handed, once.x.device, bytes);
    struct tensor want = read_by(once.reader, &apart.x, false);
    struct tensor got = read_by(once.reader, &once.x, true);
    tensor_read(&apart.x);
    tensor_read(&apart.residual);
    tensor_read(&once.residual);
    for (uint32_t row = 0; row < c->max; row++) {
        for (uint32_t i = 0; norms && i < c->size; i++)
            ck_assert(tensor_at(&apart.residual, row, i) == tensor_at(&once.residual, row, i));
        if (row >= c->count)
            continue;
        for (uint32_t n = 0; n < OUTPUTS; n++)
            ck_assert_msg(tensor_at(&got, row, n) == tensor_at(&want, row, n),
                          "row %u: output %u is %.9g, not %.9g", row, n,
                          (double)tensor_at(&got, row, n), (double)tensor_at(&want, row, n));
        if (row % 37 == 0 || row + 3 >= c->count)
            check_row(c, &once, handed, &apart.x, row);
    }
    free(handed);
    rig_end();
}
END_TEST

START_TEST(what_norms_and_activations_do_not_hand_on_is_refused)
{
    struct hand h;
    rig_begin();
    tensor_align(8);
    made(&cases[0], &h);
    const struct weight_input token = {.rounding = ROUNDING_TOKEN};
    ck_assert(hand_norm_fuses(&h.norm, &token) == rig_kernels_wait);
    ck_assert(hand_activation_fuses(&h.activation, &token) == rig_kernels_wait);
    struct norm_args norm[] = {h.norm, h.norm, h.norm, h.norm, h.norm, h.norm, h.norm};
    norm[0].rows.max = MATMUL_GATED_MAX;
    norm[1].form = NORM_CENTERED;
    norm[2].delta = norm[2].out;
    norm[3].out = NULL;
    norm[4].out_dtype = DTYPE_F32;
    norm[5].size -= 8;
    norm[6].out_stride = h.norm.size - 16;
    for (size_t i = 0; i < sizeof norm / sizeof *norm; i++)
        ck_assert_int_eq(op_hand_norm(&norm[i], &token, rig_stream), cudaErrorNotSupported);
    struct activation_args activation[] = {h.activation, h.activation, h.activation};
    activation[0].rows.max = MATMUL_GATED_MAX;
    activation[1].dtype = DTYPE_F32;
    activation[2].size -= 8;
    for (size_t i = 0; i < sizeof activation / sizeof *activation; i++)
        ck_assert_int_eq(op_hand_activation(&activation[i], &token, rig_stream),
                         cudaErrorNotSupported);
    const struct weight_input no[] = {{.rounding = ROUNDING_NONE},
                                      {.rounding = ROUNDING_GROUP, .group = 96},
                                      {.rounding = ROUNDING_GROUP, .group = 512}};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        ck_assert(!hand_norm_fuses(&h.norm, &no[i]));
        ck_assert(!hand_activation_fuses(&h.activation, &no[i]));
    }
    rig_end();
}
END_TEST

Suite *hand_suite(void)
{
    Suite *suite = suite_create("kernels: handed on");
    TCase *tcase = tcase_create("handed on");
    tcase_set_timeout(tcase, 60);
    if (rig_kernels_wait) /* the CPU device hands nothing on */
        tcase_add_loop_test(tcase,
                            what_is_handed_on_by_norms_and_activations_is_what_ops_apart_give, 0,
                            sizeof cases / sizeof *cases);
    tcase_add_test(tcase, what_norms_and_activations_do_not_hand_on_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
