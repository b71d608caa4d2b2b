#include "gpu/models/generation.h"

#include <stdio.h>

static int add_end(const struct fields *fields, const json *value, struct model_config *config)
{
    double id = json_number(value);
    if (!json_is_number(value) || !(id >= 0 && id < config->vocab) || id != (double)(int32_t)id) {
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "a token id from 0 to %u", config->vocab - 1);
        return field_refuse(fields, "eos_token_id", value, wanted);
    }
    for (uint32_t i = 0; i < config->eos_count; i++)
        if (config->eos_ids[i] == (int32_t)id)
            return 0;
    if (config->eos_count == MODEL_EOS_MAX)
        return error_set(fields->error, ERR_BAD_MODEL, "%s: eos_token_id: more than %u ids",
                         fields->file, MODEL_EOS_MAX);
    config->eos_ids[config->eos_count++] = (int32_t)id;
    return 0;
}

int generation_read_ends(const struct fields *fields, struct model_config *config)
{
    /* Old files write -1 for a token that the vocabulary does not have. */
    int64_t bos = config->bos_id;
    int rc = field_integer(fields, "bos_token_id", -1, (int64_t)config->vocab - 1, &bos);
    if (rc)
        return rc;
    config->bos_id = (int32_t)bos;
    const json *eos = field_get(fields, "eos_token_id");
    if (!eos)
        return 0;
    if (!json_is_array(eos))
        return add_end(fields, eos, config);
    for (const json *value = json_child(eos); value && rc == 0; value = json_next(value))
        rc = add_end(fields, value, config);
    return rc;
}

int generation_read(const struct fields *fields, struct model_config *config)
{
    bool sample = false;
    double temperature = 1, top_p = 1, min_p = 0, repetition = 1;
    int64_t top_k = 0, max_tokens = 0;
    int rc = generation_read_ends(fields, config);
    if (rc == 0)
        rc = field_flag(fields, "do_sample", &sample);
    if (rc == 0)
        rc = field_number(fields, "temperature", 0, 100, &temperature);
    if (rc == 0)
        rc = field_number(fields, "top_p", 1e-6, 1, &top_p);
    if (rc == 0)
        rc = field_number(fields, "min_p", 0, 1, &min_p);
    if (rc == 0)
        rc = field_number(fields, "repetition_penalty", 1e-3, 100, &repetition);
    if (rc == 0)
        rc = field_integer(fields, "top_k", 0, MODEL_VOCAB_MAX, &top_k);
    if (rc == 0)
        rc = field_integer(fields, "max_new_tokens", 1, MODEL_CONTEXT_MAX, &max_tokens);
    if (rc)
        return rc;
    config->sampler = (struct sampler){.temperature = sample ? (float)temperature : 0,
                                       .top_p = (float)top_p,
                                       .min_p = (float)min_p,
                                       .top_k = (int32_t)top_k,
                                       .repetition_penalty = (float)repetition};
    config->max_tokens = (uint32_t)max_tokens;
    return 0;
}
