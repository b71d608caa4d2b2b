#include "tests/gpu/kernels/attention.h"

#include <math.h>

#include "gpu/kernels/attention/rope_attention.h"
#include "gpu/kernels/cpu/number.h"

#define EPS 1e-6f

/* Element i of a token's fused q, k and v, as it is stored in the compute dtype. */
static float input(const struct attention *a, uint32_t slot, uint32_t position, uint32_t i)
{
    slot = slot + 1 == a->same_slot ? 77 : slot;
    uint64_t mixed = ((uint64_t)slot << 52 | (uint64_t)position << 20 | i) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
    float value = (float)(int32_t)(mixed >> 32) * 0x1p-30f, exact;
    uint32_t head = i / a->head_dim;
    if (a->kv_format == FORMAT_E4M3 && head >= a->heads)
        value = ldexpf(value, -(int)((slot + 3 * position + 5 * head + position / 16) % 4));
    uint64_t stored;
    value = ldexpf(value, a->exponents[head < a->heads                 ? 0
                                       : head < a->heads + a->kv_heads ? 1
                                                                       : 2]);
    if (a->infinite && position == a->infinite && i == a->infinite_element)
        value = INFINITY;
    number_round(&stored, &value, a->dtype, 1);
    number_widen(&exact, &stored, a->dtype, 1);
    return exact;
}

/* With the offset it is what is wanted. */
static void *weight_new(const struct attention *a, const float *weight)
{
    float stored[2 * ATTENTION_PAIRS_MAX];
    for (uint32_t i = 0; i < a->head_dim; i++)
        stored[i] = weight[i] - a->norm_offset;
    return rig_new(stored, a->head_dim * sizeof(float));
}

void attention_begin(struct attention *a)
{
    uint32_t pairs = a->head_dim / 2;
    a->stride = (a->heads + 2 * a->kv_heads) * a->head_dim + 8;
    /* The tuned kernels of long rows write pairs, the fastest 16 bytes at a time: they leave rows
     * at other places to others, rows at odd ones to the slow one. */
    a->out_stride = a->heads * a->head_dim + (a->in_parts ? 3 : a->pairs ? 2 : 8);
    for (uint32_t i = 0; i < pairs; i++)
        a->frequency[i] = powf(10000.0f, -(float)i / (float)pairs);
    for (uint32_t i = 0; i < a->head_dim; i++) {
        a->q_weight[i] = 1 + 0.1f * rig_normal();
        a->k_weight[i] = 1 + 0.1f * rig_normal();
    }
    for (uint32_t h = 0; h < a->heads; h++)
        a->sink[h] = 3 + 2 * rig_normal();
    a->device_sinks = a->sinks ? rig_new(a->sink, a->heads * sizeof *a->sink) : NULL;
    a->device_frequency = rig_new(a->frequency, pairs * sizeof(float));
    a->device_q_weight = weight_new(a, a->q_weight);
    a->device_k_weight = weight_new(a, a->k_weight);
    a->qkv = rig_new(NULL, (size_t)SCENE_TOKENS_MAX * a->stride * dtype_bytes(a->dtype));
    a->out = rig_new(NULL, (size_t)SCENE_TOKENS_MAX * a->out_stride * dtype_bytes(a->dtype));
    a->angles = rig_new(NULL, (size_t)SCENE_TOKENS_MAX * a->head_dim * sizeof(float));
}

static void upload_qkv(const struct attention *a, const struct scene *scene)
{
    uint32_t width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    size_t each = dtype_bytes(a->dtype), bytes = scene->counts.tokens * a->stride * each;
    float *wide = malloc(width * sizeof *wide);
    char *stored = calloc(1, bytes);
    for (uint32_t r = 0; r < scene->counts.rows; r++) {
        const struct batch_row *row = &scene->rows[r];
        for (uint32_t t = 0; t < row->q_len; t++) {
            for (uint32_t i = 0; i < width; i++)
                wide[i] = input(a, row->slot, row->position + t, i);
            number_round(stored + (size_t)(row->token + t) * a->stride * each, wide, a->dtype,
                         width);
        }
    }
    OK(cudaMemcpyAsync(a->qkv, stored, bytes, cudaMemcpyHostToDevice, rig_stream));
    rig_wait();
    free(wide);
    free(stored);
}

static void *element(const struct attention *a, uint32_t first)
{
    return (char *)a->qkv + first * dtype_bytes(a->dtype);
}

static void parts_launch(const struct attention *a, const struct scene *scene,
                         const struct kv_layer *kv)
{
    uint32_t q_width = a->heads * a->head_dim, kv_width = a->kv_heads * a->head_dim;
    struct row_range rows = {.count = &scene->batch.counts->tokens, .max = scene->batch.tokens_max};
    for (uint32_t i = 0; i < 2 && a->normed; i++) {
        struct head_norm_args norm = {.rows = rows,
                                      .x = element(a, i ? q_width : 0),
                                      .stride = a->stride,
                                      .heads = i ? a->kv_heads : a->heads,
                                      .head_dim = a->head_dim,
                                      .dtype = a->dtype,
                                      .weight = i ? a->device_k_weight : a->device_q_weight,
                                      .weight_dtype = DTYPE_F32,
                                      .eps = EPS,
                                      .offset = a->norm_offset};
        OK(op_head_norm(&norm, rig_stream));
    }
    struct rotate_args rotate = {.rows = rows,
                                 .q = a->qkv,
                                 .k = element(a, q_width),
                                 .q_stride = a->stride,
                                 .k_stride = a->stride,
                                 .heads = a->heads,
                                 .kv_heads = a->kv_heads,
                                 .head_dim = a->head_dim,
                                 .dtype = a->dtype,
                                 .angles = a->angles};
    OK(op_rotate(&rotate, rig_stream));
    struct kv_write_args write = {.batch = scene->batch,
                                  .kv = *kv,
                                  .k = element(a, q_width),
                                  .v = element(a, q_width + kv_width),
                                  .k_stride = a->stride,
                                  .v_stride = a->stride,
                                  .kv_heads = a->kv_heads,
                                  .head_dim = a->head_dim,
                                  .dtype = a->dtype,
                                  .k_scale = a->k_scale,
                                  .v_scale = a->v_scale};
    OK(op_kv_write(&write, rig_stream));
}

static struct angle_args angle_of(const struct attention *a, const struct scene *scene)
{
    return (struct angle_args){.batch = scene->batch,
                               .inverse_frequency = a->device_frequency,
                               .attention = a->factor,
                               .pairs = a->head_dim / 2,
                               .angles = a->angles};
}

static struct rope_args rope_of(const struct attention *a, const struct scene *scene,
                                struct kv_layer kv)
{
    return (struct rope_args){
        .batch = scene->batch,
        .kv = kv,
        .qkv = a->qkv,
        .stride = a->stride,
        .dtype = a->dtype,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .head_dim = a->head_dim,
        .k_scale = a->k_scale,
        .v_scale = a->v_scale,
        .angles = a->angles,
        .q_norm = a->normed ? a->device_q_weight : NULL,
        .k_norm = a->normed ? a->device_k_weight : NULL,
        .norm_dtype = DTYPE_F32,
        .eps = EPS,
        .norm_offset = a->norm_offset,
    };
}

void attention_write(const struct attention *a, const struct scene *scene)
{
    struct angle_args angle = angle_of(a, scene);
    struct rope_args rope = rope_of(a, scene, scene_layer(scene, a->group, a->layer));
    upload_qkv(a, scene);
    OK(op_angle(&angle, rig_stream));
    OK(op_rope(&rope, rig_stream));
    rig_wait();
}

/* Rope and attention as two ops, or as one; or as all their parts. */
static void launch(const struct attention *a, const struct scene *scene, void *scratch,
                   size_t scratch_bytes, bool apart)
{
    struct kv_layer kv = scene_layer(scene, a->group, a->layer);
    struct angle_args angle = angle_of(a, scene);
    struct rope_args rope = rope_of(a, scene, kv);
    struct attention_args attend = {
        .batch = scene->batch,
        .kv = kv,
        .q = a->qkv,
        .out = a->out,
        .q_stride = a->stride,
        .out_stride = a->out_stride,
        .dtype = a->dtype,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .head_dim = a->head_dim,
        .scale = 1.0f / sqrtf((float)a->head_dim),
        .softcap = a->softcap,
        .sinks = a->device_sinks,
        .scratch = scratch,
        .scratch_bytes = scratch_bytes,
        .invariant = a->invariant,
    };
    OK(op_angle(&angle, rig_stream));
    if (a->in_parts) {
        parts_launch(a, scene, &kv);
        OK(op_attention(&attend, rig_stream));
        return;
    }
    if (!apart) {
        OK(op_rope_attention(&rope, &attend, rig_stream));
        return;
    }
    OK(op_rope(&rope, rig_stream));
    OK(op_attention(&attend, rig_stream));
}

/* Whether both ways add up in one order: one that is a kernel takes eight queries of a KV head at a
 * time, and of e4m3 it has a warp for each span of positions. */
static bool same_order(const struct attention *a, const struct scene *scene)
{
    bool one_kernel = scene->batch.q_len_max == 1 && a->dtype != DTYPE_F32 && a->softcap == 0 &&
                      (a->head_dim == 64 || a->head_dim == 128);
    return a->heads / a->kv_heads <= 8 && !(one_kernel && a->kv_format == FORMAT_E4M3);
}

void attention_run(const struct attention *a, const struct scene *scene, float *ret_out)
{
    uint32_t width = a->heads * a->head_dim;
    size_t each = dtype_bytes(a->dtype);
    size_t bytes = (size_t)scene->counts.tokens * a->out_stride * each;
    char *stored = malloc(bytes + 1), *before = malloc(bytes + 1);
    size_t scratch_bytes = attention_scratch_bytes(&scene->batch, a->heads, a->head_dim);
    scratch_bytes /= a->little ? 8 : 1;
    void *scratch = scratch_bytes ? rig_new(NULL, scratch_bytes) : NULL;
    char *cache[2] = {NULL, NULL};
    size_t cache_bytes = 0;
    bool apart = rig_random() % 2; /* later steps read what the second way left in the cache */
    for (uint32_t way = 0; way < 2; way++) {
        OK(cudaMemsetAsync(a->out, 0xa5, bytes, rig_stream));
        upload_qkv(a, scene);
        launch(a, scene, scratch, scratch_bytes, apart ^ way);
        uint32_t next_item;
        rig_read(&next_item, scene->batch.next_item, sizeof next_item);
        ck_assert_uint_eq(next_item, 0);
        rig_read(way ? stored : before, a->out, bytes);
        if (a->kv_format == FORMAT_E4M3)
            cache[way] = scene_cache(scene, a->group, &cache_bytes);
    }
    if (same_order(a, scene))
        ck_assert(!memcmp(stored, before, bytes));
    ck_assert(!cache_bytes || !memcmp(cache[0], cache[1], cache_bytes));
    free(cache[0]);
    free(cache[1]);
    /* Where they differ, of the one kernel: the others attend in steps of many rows, too. */
    const char *from = apart ? stored : before;
    for (uint32_t t = 0; t < scene->counts.tokens; t++)
        number_widen(ret_out + (size_t)t * width, from + (size_t)t * a->out_stride * each,
                     a->dtype, width);
    free(before);
    free(stored);
}

/* Head `head` of the fused row, normed and turned where q and k are. */
static void want_head(const struct attention *a, uint32_t slot, uint32_t position, uint32_t head,
                      double *out)
{
    uint32_t dim = a->head_dim, pairs = dim / 2;
    double squares = 0, scale = 1;
    for (uint32_t i = 0; i < dim; i++) {
        out[i] = (double)input(a, slot, position, head * dim + i);
        squares += out[i] * out[i];
    }
    if (head >= a->heads + a->kv_heads)
        return;
    if (a->normed)
        scale = 1 / sqrt(squares / dim + (double)EPS);
    for (uint32_t i = 0; a->normed && i < dim; i++)
        out[i] *= scale * (double)(head < a->heads ? a->q_weight : a->k_weight)[i];
    for (uint32_t i = 0; i < pairs; i++) {
        double angle = (double)((float)position * a->frequency[i]);
        double c = cos(angle) * (double)a->factor, s = sin(angle) * (double)a->factor;
        double first = out[i], second = out[i + pairs];
        out[i] = first * c - second * s;
        out[i + pairs] = second * c + first * s;
    }
}

/* The scale of one head of K or V, and what becomes of it in eight bits. */
static float scale_of(const struct attention *a, uint32_t head, const double *x)
{
    double greatest = 0;
    float said = head < a->heads + a->kv_heads ? a->k_scale : a->v_scale;
    for (uint32_t i = 0; i < a->head_dim; i++)
        greatest = fabs(x[i]) > greatest ? fabs(x[i]) : greatest;
    return said != 0 ? said : greatest > 0 ? (float)greatest / 448.0f : 1;
}

static float mistaken_scale_of(const struct attention *a, uint32_t slot, uint32_t position,
                               uint32_t head)
{
    bool is_k = head < a->heads + a->kv_heads;
    uint32_t first = a->heads + (is_k ? 0 : a->kv_heads);
    switch (a->mistake) {
    case ATTENTION_HEAD_BESIDE:
        head = first + (head - first + 1) % a->kv_heads;
        break;
    case ATTENTION_TOKEN_BESIDE:
        position ^= 1;
        break;
    case ATTENTION_K_FOR_V:
        head = is_k ? head : head - a->kv_heads;
        break;
    case ATTENTION_BLOCK_BEFORE:
        position ^= 16;
        break;
    default:
        break;
    }
    double x[2 * ATTENTION_PAIRS_MAX];
    want_head(a, slot, position, head, x);
    return scale_of(a, head, x);
}

/* As it is in the cache. */
static void want_kept(const struct attention *a, uint32_t slot, uint32_t position, uint32_t head,
                      double *out)
{
    want_head(a, slot, position, head, out);
    if (a->kv_format != FORMAT_E4M3)
        return;
    float scale = scale_of(a, head, out);
    float other = a->mistake ? mistaken_scale_of(a, slot, position, head) : scale;
    for (uint32_t i = 0; i < a->head_dim; i++)
        out[i] = (double)e4m3_widen(e4m3_round((float)out[i] / scale)) * (double)other;
}

void attention_want(const struct attention *a, uint32_t window, uint32_t slot, uint32_t position,
                    uint32_t head, double *ret_out)
{
    double q[2 * ATTENTION_PAIRS_MAX], k[2 * ATTENTION_PAIRS_MAX], v[2 * ATTENTION_PAIRS_MAX];
    uint32_t dim = a->head_dim, kv_head = head / (a->heads / a->kv_heads);
    uint32_t sink = a->mistake == ATTENTION_SINK_BESIDE ? (head + 1) % a->heads : head;
    bool has_sink = a->sinks && a->mistake != ATTENTION_NO_SINK;
    double sum = has_sink ? exp((double)a->sink[sink]) : 0;
    uint32_t start = window && position + 1 > window ? position + 1 - window : 0;
    want_head(a, slot, position, head, q);
    memset(ret_out, 0, dim * sizeof *ret_out);
    for (uint32_t p = start; p <= position; p++) {
        double score = 0;
        want_kept(a, slot, p, a->heads + kv_head, k);
        want_kept(a, slot, p, a->heads + a->kv_heads + kv_head, v);
        for (uint32_t i = 0; i < dim; i++)
            score += q[i] * k[i];
        score /= sqrt(dim);
        if (a->softcap != 0)
            score = (double)a->softcap * tanh(score / (double)a->softcap);
        double weight = exp(score);
        sum += weight;
        for (uint32_t i = 0; i < dim; i++)
            ret_out[i] += weight * v[i];
    }
    for (uint32_t i = 0; i < dim; i++)
        ret_out[i] /= sum;
}
