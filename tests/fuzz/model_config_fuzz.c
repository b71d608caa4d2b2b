/* Whatever config.json and generation_config.json (behind the first zero byte) are accepted: every
 * number is in the range that the engine counts on. */
#include <math.h>
#include <string.h>

#include "gpu/models/config.h"
#include "gpu/models/model.h"
#include "tests/fuzz/fuzz.h"

static void check_sizes(const struct model_config *config)
{
    FUZZ_CHECK(config->layers >= 1 && config->layers <= MODEL_LAYERS_MAX);
    FUZZ_CHECK(config->hidden >= 1 && config->hidden <= MODEL_HIDDEN_MAX);
    FUZZ_CHECK(config->intermediate >= 1 && config->intermediate <= MODEL_INTERMEDIATE_MAX);
    FUZZ_CHECK(config->vocab >= 1 && config->vocab <= MODEL_VOCAB_MAX);
    FUZZ_CHECK(config->context_max >= 1 && config->context_max <= MODEL_CONTEXT_MAX);
    FUZZ_CHECK(config->kv_heads >= 1 && config->heads % config->kv_heads == 0);
    FUZZ_CHECK(config->head_dim >= 2 && config->head_dim <= MODEL_HEAD_DIM_MAX);
    FUZZ_CHECK(config->head_dim % 2 == 0 && config->rope.pairs == config->head_dim / 2);
    FUZZ_CHECK(config->head_dim * config->heads <= MODEL_HIDDEN_MAX);
    FUZZ_CHECK(config->rotary >= 2 && config->rotary % 2 == 0);
    FUZZ_CHECK(config->rotary <= config->head_dim);
}

static void check_list(const struct model_config *config)
{
    struct op_list list;
    uint32_t layers = 0;
    FUZZ_CHECK(model_list(config, 1, &list, NULL) == 0);
    FUZZ_CHECK(op_list_elements(&list) < 1ull << 50);
    for (uint32_t i = 0; i < list.group_count; i++)
        layers += list.groups[i].layers;
    FUZZ_CHECK(layers == config->layers);
    op_list_free(&list);
}

static void check_scheme(const struct list_scheme *scheme)
{
    bool whole = elements_are_whole(scheme->elements);
    FUZZ_CHECK(scheme->scale && (whole || scheme->elements == TENSOR_E4M3));
    FUZZ_CHECK(!whole || (scheme->rows == 1 && scheme->packing != PACKING_NONE && scheme->weight));
    FUZZ_CHECK(!whole || scheme->input == INPUT_AS_IT_IS);
    FUZZ_CHECK(scheme->columns % 32 == 0);
}

static void check_quantization(const struct model_config *config)
{
    const struct quantization *q = &config->quantization;
    FUZZ_CHECK(q->groups <= QUANTIZATION_GROUPS_MAX && q->text_bytes <= QUANTIZATION_TEXT_MAX);
    FUZZ_CHECK(!q->text_bytes || q->text[q->text_bytes - 1] == '\0');
    for (uint32_t i = 0; i < q->groups; i++)
        check_scheme(&q->schemes[i]);
    for (int head = 0; head < 2; head++) {
        const char *module = head ? "lm_head" : "model.layers.0.mlp.down_proj";
        const struct list_scheme *scheme = quantization_scheme(q, module, head);
        FUZZ_CHECK(!scheme || (scheme >= q->schemes && scheme < q->schemes + q->groups));
    }
}

/* What is rotated has a frequency, what is not has none. longrope's factors may be below 1. */
static void check_rope(const struct model_config *config, const struct model_rope *rope)
{
    float most = rope->kind == MODEL_ROPE_LONG ? 1001 : 1;
    FUZZ_CHECK(isfinite(rope->attention) && rope->attention > 0);
    FUZZ_CHECK(rope->pairs == config->head_dim / 2);
    for (uint32_t i = 0; i < rope->pairs; i++) {
        float frequency = rope->inverse_frequency[i];
        FUZZ_CHECK(i < config->rotary / 2 ? frequency > 0 && frequency <= most : frequency == 0);
    }
}

static void check_numbers(const struct model_config *config)
{
    FUZZ_CHECK(config->norm_eps > 0 && config->attention_scale > 0);
    check_rope(config, &config->rope);
    if (config->rope_original)
        check_rope(config, &config->rope_long);
    if (config->rope_local.pairs)
        check_rope(config, &config->rope_local);
    FUZZ_CHECK(config->attention_softcap >= 0 && isfinite(config->attention_softcap));
    FUZZ_CHECK(config->logits_softcap >= 0 && isfinite(config->logits_softcap));
    FUZZ_CHECK(config->embedding_multiplier > 0 && isfinite(config->embedding_multiplier));
    FUZZ_CHECK(config->eos_count <= MODEL_EOS_MAX);
    for (uint32_t i = 0; i < config->eos_count; i++)
        FUZZ_CHECK(config->eos_ids[i] >= 0 && (uint32_t)config->eos_ids[i] < config->vocab);
    FUZZ_CHECK(config->bos_id >= -1 && config->bos_id < (int64_t)config->vocab);
    FUZZ_CHECK(config->sampler.temperature >= 0 && config->sampler.top_p > 0);
    FUZZ_CHECK(config->sampler.top_p <= 1 && config->sampler.repetition_penalty > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *zero = size ? memchr(text, 0, size) : NULL;
    size_t length = zero ? (size_t)(zero - text) : size;
    const char *generation = zero ? zero + 1 : NULL;
    struct model_config config;
    struct error error = {0};
    int rc =
        model_config_parse(text, length, generation, zero ? size - length - 1 : 0, &config, &error);
    if (rc) {
        FUZZ_CHECK(rc == -ERR_BAD_MODEL && error.code == ERR_BAD_MODEL);
        FUZZ_CHECK(strstr(error.text, "config.json: "));
        return 0;
    }
    check_sizes(&config);
    check_numbers(&config);
    check_list(&config);
    check_quantization(&config);
    return 0;
}
