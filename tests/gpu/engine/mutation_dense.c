/* Mistakes in attention, rope, norms, biases and multipliers. */
#include <math.h>
#include <string.h>

#include "tests/gpu/engine/mutation.h"

static void plain_frequencies(double theta)
{
    struct model_rope *rope = &list()->ropes[0];
    rope->attention = 1;
    for (uint32_t i = 0; i < rope->pairs; i++)
        rope->inverse_frequency[i] = (float)pow(theta, -(double)i / rope->pairs);
}

static void rope_unscaled(void)
{
    plain_frequencies(10000);
}

static void rope_unscaled_llama3(void)
{
    plain_frequencies(500000);
}

static void rope_shifted(void)
{
    struct model_rope *rope = &list()->ropes[0];
    memmove(rope->inverse_frequency, rope->inverse_frequency + 1,
            (rope->pairs - 1) * sizeof(float));
}

static void window_wider(void)
{
    struct gpu_group *groups = mutated_engine.engine->facts.model.groups;
    for (uint32_t i = 0; i < mutated_engine.model.group_count; i++)
        groups[i].window += groups[i].window > 0;
}

static void blocks_swapped(void)
{
    mutated_engine.swap_blocks = true;
    mutated_engine.chunk = 40;
}

/* The columns of o and the rows of q go round by one head, so that each query head meets the KV
 * head of the one after it. */
static void heads_shifted(void)
{
    struct weight *q = weight(LAYER "0.self_attn.q_proj.weight");
    struct weight *o = weight(LAYER "0.self_attn.o_proj.weight");
    uint32_t width = o->k, head = list()->groups[0].head_dim;
    static char from[1 << 20], to[1 << 20];
    uint32_t bytes = dtype_bytes(format_info(q->format).dtype);
    size_t row = (size_t)q->k * bytes, line = (size_t)o->k * bytes;
    rig_fetch(from, q->data, width * row);
    for (uint32_t i = 0; i < width; i++)
        memcpy(to + (i + head) % width * row, from + i * row, row);
    rig_store((void *)q->data, to, width * row);
    rig_fetch(from, o->data, o->n * line);
    for (uint32_t i = 0; i < o->n; i++) {
        for (uint32_t j = 0; j < width; j++)
            memcpy(to + i * line + (j + head) % width * bytes, from + i * line + j * bytes, bytes);
    }
    rig_store((void *)o->data, to, o->n * line);
}

static void qkv_bias_dropped(void)
{
    weight(LAYER "0.self_attn.q_proj.bias")->data = NULL;
}

static void down_bias_dropped(void)
{
    weight(LAYER "1.mlp.down_proj.bias")->data = NULL;
}

static void o_bias_dropped(void)
{
    weight(LAYER "1.self_attn.o_proj.bias")->data = NULL;
}

static void gate_up_bias_dropped(void)
{
    weight(LAYER "0.mlp.gate_proj.bias")->data = NULL;
}

static void input_norm_ignored(void)
{
    weight(LAYER "1.input_layernorm.weight")->data = NULL;
}

static void post_norm_ignored(void)
{
    weight(LAYER "0.post_attention_layernorm.weight")->data = NULL;
}

static void q_norm_ignored(void)
{
    weight(LAYER "1.self_attn.q_norm.weight")->data = NULL;
}

static void k_norm_ignored(void)
{
    weight(LAYER "0.self_attn.k_norm.weight")->data = NULL;
}

static void final_norm_ignored(void)
{
    weight("model.norm.weight")->data = NULL;
}

/* ---- what the ops of a list say ---- */

static void scale_set(enum op_kind kind, float by)
{
    uint32_t seen = 0;
    for (struct op *op = op_next(NULL, kind); op; op = op_next(op + 1, kind), seen++)
        op->scale.by = by;
    ck_assert_uint_gt(seen, 0);
}

static void embedding_multiplier_dropped(void)
{
    scale_set(OP_EMBED, 1);
}

static void residual_multiplier_dropped(void)
{
    scale_set(OP_ADD, 1);
}

static void one_residual_multiplier_dropped(void)
{
    op_next(NULL, OP_ADD)->scale.by = 1;
}

static void logits_scaling_dropped(void)
{
    scale_set(OP_GATHER, 1);
}

static void logits_scaling_turned_over(void)
{
    scale_set(OP_GATHER, 1 / op_next(NULL, OP_GATHER)->scale.by);
}

static void attention_multiplier_dropped(void)
{
    for (struct op *op = op_next(NULL, OP_ATTENTION); op; op = op_next(op + 1, OP_ATTENTION))
        op->attention.scale = 1 / sqrtf((float)op->attention.head_dim);
}

/* From layer to layer: as it is not. */
static void rope_turned(int16_t layer)
{
    struct op *op = op_next(NULL, OP_ROPE);
    ck_assert_uint_eq(list()->rope_count, 2);
    while (op && op->layer != layer)
        op = op_next(op + 1, OP_ROPE);
    ck_assert_ptr_nonnull(op);
    op->rope.table = 1 - op->rope.table;
    op->in[2] = list()->angles[op->rope.table];
}

static void still_layer_rotated(void)
{
    rope_turned(1);
}

static void rotated_layer_still(void)
{
    rope_turned(0);
}

static void still_layer_one_off(void)
{
    rope_turned(1);
    rope_turned(2);
}

/* The op that takes a weight is not run. */
static void left_out(const char *tensor)
{
    struct program *program = &mutated_engine.engine->rank.program;
    weight_id id = op_list_weight(list(), tensor);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].weight != id)
            program->ops[kept++] = program->ops[i];
    }
    ck_assert_uint_eq(kept + 1, program->op_count);
    program->op_count = kept;
    ck_assert_int_eq(program_fuse(program, NULL), 0);
}

static void norm_behind_attention_left_out(void)
{
    left_out(LAYER "0.post_attention_layernorm.weight");
}

static void norm_behind_mlp_left_out(void)
{
    left_out(LAYER "1.post_feedforward_layernorm.weight");
}

static void glm4_norm_behind_attention_left_out(void)
{
    left_out(LAYER "1.post_self_attn_layernorm.weight");
}

static void glm4_norm_behind_mlp_left_out(void)
{
    left_out(LAYER "0.post_mlp_layernorm.weight");
}

static void wide_norm_left_out(void)
{
    left_out(LAYER "1.self_attn.q_norm.weight");
}

/* q by heads, and k not at all. */
static void wide_norm_by_heads(void)
{
    struct op *op = op_next(NULL, OP_WIDE_NORM);
    op->kind = OP_HEAD_NORM;
    op->norm.size = op_next(NULL, OP_ATTENTION)->attention.head_dim;
}

/* Products read the residual as another norm would leave it. */
static void residual_normed(void)
{
    struct op *op = op_next(NULL, OP_ROUND), *last = op_next(NULL, OP_NORM);
    while (op_next(last + 1, OP_NORM))
        last = op_next(last + 1, OP_NORM);
    op->kind = OP_NORM;
    op->weight = last->weight;
    op->norm = last->norm;
}

static void weights_plus_one(enum op_kind kind)
{
    for (struct op *op = op_next(NULL, kind); op; op = op_next(op + 1, kind))
        op->norm.kind = NORM_RMS_PLUS_ONE;
}

static void norms_plus_one(void)
{
    weights_plus_one(OP_NORM);
}

static void head_norms_plus_one(void)
{
    weights_plus_one(OP_HEAD_NORM);
}

static void wide_norms_plus_one(void)
{
    weights_plus_one(OP_WIDE_NORM);
}

/* Two parts of one tensor, as large as each other, in each other's place. */
static void parts_swapped(const char *tensor, uint32_t a, uint32_t b)
{
    struct list_weight *weight = &list()->weights[op_list_weight(list(), tensor)];
    ck_assert_uint_eq(weight->parts[a].rows, weight->parts[b].rows);
    ck_assert_uint_eq(weight->parts[a].tensor, weight->parts[b].tensor);
    uint32_t row = weight->parts[a].row;
    weight->parts[a].row = weight->parts[b].row;
    weight->parts[b].row = row;
}

static void fused_k_and_v_swapped(void)
{
    parts_swapped(LAYER "0.self_attn.qkv_proj.weight", 1, 2);
}

/* q's first rows are those of k: what stands behind takes turns the wrong way. */
static void fused_q_one_head_off(void)
{
    struct list_weight *weight =
        &list()->weights[op_list_weight(list(), LAYER "0.self_attn.qkv_proj.weight")];
    weight->parts[0].row += list()->groups[0].head_dim;
}

static void fused_gate_and_up_swapped(void)
{
    parts_swapped(LAYER "1.mlp.gate_up_proj.weight", 0, 1);
}

/* Rows of q and k as the file has them, and the kernels not. */
static void order_left_out(void)
{
    for (uint32_t i = 0; i < list()->weight_count; i++) {
        for (uint32_t j = 0; j < list()->weights[i].part_count; j++)
            list()->weights[i].parts[j].order = (struct head_order){0};
    }
}

/* Pairs behind the rotated ones are turned as well. */
static void rotated_whole(void)
{
    plain_frequencies(10000);
}

/* longrope's frequencies without their factors. */
static void long_factors_left_out(void)
{
    struct model_rope *rope = &list()->ropes[0];
    uint32_t rotated = 0;
    while (rotated < rope->pairs && rope->inverse_frequency[rotated] > 0)
        rotated++;
    for (uint32_t i = 0; i < rotated; i++)
        rope->inverse_frequency[i] = (float)pow(10000, -(double)i / rotated);
}

static void rope_attention_left_out(void)
{
    list()->ropes[0].attention = 1;
}

static void gelu_taken_for_silu(void)
{
    for (uint32_t i = 0; i < list()->op_count; i++) {
        if (list()->ops[i].kind == OP_ACTIVATION)
            list()->ops[i].activation.kind = ACTIVATION_SILU;
    }
}

static void layer_norm_taken_for_rms(void)
{
    for (uint32_t i = 0; i < list()->op_count; i++) {
        if (list()->ops[i].kind == OP_NORM)
            list()->ops[i].norm.kind = NORM_RMS;
    }
}

static void single_up_bias_dropped(void)
{
    weight(LAYER "1.mlp.c_fc.bias")->data = NULL;
}

/* The root of query_pre_attn_scalar left out. */
static void scale_of_scores_squared(void)
{
    for (struct op *op = op_next(NULL, OP_ATTENTION); op; op = op_next(op + 1, OP_ATTENTION))
        op->attention.scale *= op->attention.scale;
}

static void attention_cap_left_out(void)
{
    for (struct op *op = op_next(NULL, OP_ATTENTION); op; op = op_next(op + 1, OP_ATTENTION))
        op->attention.softcap = 0;
}

static void logits_cap_left_out(void)
{
    uint32_t seen = 0;
    for (struct op *op = op_next(NULL, OP_SOFTCAP); op; op = op_next(op + 1, OP_SOFTCAP), seen++)
        op->softcap.cap = 1e6f;
    ck_assert_uint_eq(seen, 2);
}

/* The local table where the layer sees all, and the other way about. */
static void tables_of_angles_exchanged(void)
{
    ck_assert_uint_eq(list()->rope_count, 2);
    struct model_rope rope = list()->ropes[0];
    list()->ropes[0] = list()->ropes[1];
    list()->ropes[1] = rope;
}

static void one_table_of_angles(void)
{
    list()->ropes[1] = list()->ropes[0];
}

static void offset_left_out(enum op_kind kind)
{
    uint32_t seen = 0;
    for (struct op *op = op_next(NULL, kind); op; op = op_next(op + 1, kind), seen++)
        op->norm.kind = NORM_RMS;
    ck_assert_uint_gt(seen, 0);
}

static void offset_of_norms_left_out(void)
{
    offset_left_out(OP_NORM);
}

static void offset_of_heads_left_out(void)
{
    offset_left_out(OP_HEAD_NORM);
}

static void norm_behind_ignored(void)
{
    weight("language_model.model.layers.1.post_feedforward_layernorm.weight")->data = NULL;
}

/* Silu, as most have it. */
static void activation_of_others(void)
{
    for (struct op *op = op_next(NULL, OP_ACTIVATION); op; op = op_next(op + 1, OP_ACTIVATION))
        op->activation.kind = ACTIVATION_SILU;
}

static const struct mutation all[] = {
    {"a block-table entry swapped", "llama-default-bf16", blocks_swapped, nothing},
    {"rope off by one", "llama-default-bf16", rope_shifted, nothing},
    {"linear scaling ignored", "llama-linear-f16", rope_unscaled, nothing},
    {"llama3 scaling ignored", "llama-llama3-f32", rope_unscaled_llama3, nothing},
    {"yarn ignored", "qwen3-yarn-bf16", rope_unscaled, nothing},
    {"window one off", "mistral-window-bf16", window_wider, nothing},
    {"window one off beside full layers", "qwen2-window-bf16", window_wider, nothing},
    {"GQA map shifted", "llama-default-bf16", nothing, heads_shifted},
    {"bias of q, k and v dropped", "qwen2-default-bf16", nothing, qkv_bias_dropped},
    {"bias of o dropped", "llama-bias-bf16", nothing, o_bias_dropped},
    {"bias of gate and up dropped", "llama-bias-bf16", nothing, gate_up_bias_dropped},
    {"bias of down dropped", "llama-bias-bf16", nothing, down_bias_dropped},
    {"norm before attention ignored", "mistral-full-f16", nothing, input_norm_ignored},
    {"norm before the MLP ignored", "llama-mqa-f16", nothing, post_norm_ignored},
    {"norm of q ignored", "qwen3-default-bf16", nothing, q_norm_ignored},
    {"norm of k ignored", "qwen3-default-f32", nothing, k_norm_ignored},
    {"last norm ignored", "llama-mha-bf16", nothing, final_norm_ignored},
    {"window of Phi-3 one off", "phi3-window-bf16", window_wider, nothing},
    {"fused k and v swapped", "phi3-full-f16", fused_k_and_v_swapped, nothing},
    {"fused q a head off", "phi3-window-bf16", fused_q_one_head_off, nothing},
    {"fused gate and up swapped", "phi3-window-bf16", fused_gate_and_up_swapped, nothing},
    {"order of q and k left out", "phi3-partial-f32", order_left_out, nothing},
    {"heads rotated whole", "phi3-partial-f32", rotated_whole, nothing},
    {"order left out beside longrope", "phi3-long-bf16", order_left_out, nothing},
    {"long factors left out", "phi3-long-bf16", long_factors_left_out, nothing},
    {"short factors left out", "phi3-short-f16", long_factors_left_out, nothing},
    {"attention factor of longrope left out", "phi3-short-f16", rope_attention_left_out, nothing},
    {"GELU taken for SiLU", "starcoder2-window-bf16", gelu_taken_for_silu, nothing},
    {"GELU taken for SiLU without biases", "starcoder2-plain-f16", gelu_taken_for_silu, nothing},
    {"LayerNorm taken for RMSNorm", "starcoder2-plain-f16", layer_norm_taken_for_rms, nothing},
    {"bias of the one product before GELU dropped", "starcoder2-window-bf16", nothing,
     single_up_bias_dropped},
    {"window of StarCoder2 one off", "starcoder2-window-bf16", window_wider, nothing},
    {"embedding multiplier left out", "granite-bias-bf16", embedding_multiplier_dropped, nothing},
    {"residual multiplier left out", "granite-tied-f16", residual_multiplier_dropped, nothing},
    {"one residual multiplier left out", "granite-bias-bf16", one_residual_multiplier_dropped,
     nothing},
    {"attention multiplier left out", "granite-tied-f16", attention_multiplier_dropped, nothing},
    {"logits not divided", "granite-bias-bf16", logits_scaling_dropped, nothing},
    {"logits multiplied", "granite-tied-f16", logits_scaling_turned_over, nothing},
    {"bias of o of Granite dropped", "granite-bias-bf16", nothing, o_bias_dropped},
    {"a layer without rope rotated", "smollm3-interval-f16", still_layer_rotated, nothing},
    {"a layer with rope not rotated", "smollm3-list-bf16", rotated_layer_still, nothing},
    {"another layer without rope", "smollm3-list-bf16", still_layer_one_off, nothing},
    {"norms' weights plus one", "llama-default-bf16", norms_plus_one, nothing},
    {"norms of heads' weights plus one", "qwen3-default-bf16", head_norms_plus_one, nothing},
    {"wide norms' weights plus one", "olmo2-default-bf16", wide_norms_plus_one, nothing},
    {"norm behind attention left out", "olmo2-default-bf16", nothing,
     norm_behind_attention_left_out},
    {"norm behind the MLP left out", "olmo2-bias-f16", nothing, norm_behind_mlp_left_out},
    {"norm of q and k left out", "olmo2-yarn-bf16", nothing, wide_norm_left_out},
    {"q normed by heads", "olmo2-default-bf16", wide_norm_by_heads, nothing},
    {"a residual normed that is not", "olmo2-bias-f16", residual_normed, nothing},
    {"norm behind attention of GLM-4 left out", "glm4-default-bf16", nothing,
     glm4_norm_behind_attention_left_out},
    {"norm behind the MLP of GLM-4 left out", "glm4-linear-f16", nothing,
     glm4_norm_behind_mlp_left_out},
    {"pairs of GLM apart", "glm-default-bf16", order_left_out, nothing},
    {"heads of GLM-4 rotated whole", "glm4-default-bf16", rotated_whole, nothing},
    {"cap of scores left out", "gemma2-default-bf16", attention_cap_left_out, nothing},
    {"cap of scores of wide heads left out", "gemma2-wide-f16", attention_cap_left_out, nothing},
    {"cap of logits left out", "gemma2-untied-f32", logits_cap_left_out, nothing},
    {"window of Gemma 2 one off", "gemma2-default-bf16", window_wider, nothing},
    {"window of Gemma 3 one off", "gemma3-text-bf16", window_wider, nothing},
    {"embedding's scale left out", "gemma2-wide-f16", embedding_multiplier_dropped, nothing},
    {"scale of scores squared", "gemma2-default-bf16", scale_of_scores_squared, nothing},
    {"norms' offset left out", "gemma2-untied-f32", offset_of_norms_left_out, nothing},
    {"norms' offset of the first Gemma left out", "gemma-mqa-f16", offset_of_norms_left_out,
     nothing},
    {"embedding's scale of the first Gemma left out", "gemma-default-bf16",
     embedding_multiplier_dropped, nothing},
    {"activation of the first Gemma another", "gemma-default-bf16", activation_of_others, nothing},
    {"offset of the heads' norms left out", "gemma3-default-bf16", offset_of_heads_left_out,
     nothing},
    {"norm behind the MLP ignored", "gemma3-text-bf16", nothing, norm_behind_ignored},
    {"tables of angles exchanged", "gemma3-default-bf16", tables_of_angles_exchanged, nothing},
    {"one table of angles for all layers", "gemma3-parts-f16", one_table_of_angles, nothing},
    {"another activation", "gemma3-parts-f16", activation_of_others, nothing},
    {"window of Mixtral one off", "mixtral-window-f16", window_wider, nothing},
    {"norm of q and k of OLMoE left out", "olmoe-norm-f16", nothing, wide_norm_left_out},
};

const struct mutations mutations_dense = {all, sizeof all / sizeof all[0]};
