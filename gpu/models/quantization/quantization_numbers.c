/* What methods of whole numbers, weights alone in 4 and 8 bits, have in common: bits, groups, and
 * what AutoRound adds to any of them. */
#include "gpu/models/quantization/quantization_keys.h"

#define GROUP 32 /* columns of a group, or some such */

int quantization_bits(const struct fields *fields, const char *key, struct list_scheme *scheme)
{
    int64_t bits = 0;
    int rc = field_require(fields, key);
    if (rc == 0)
        rc = field_integer(fields, key, 1, 64, &bits);
    if (rc == 0 && bits != 4 && bits != 8)
        rc = field_refuse(fields, key, field_get(fields, key), "supported (4 and 8 are)");
    scheme->elements = bits == 8 ? TENSOR_U8 : TENSOR_U4;
    scheme->zero = bits == 8 ? 128 : 8;
    scheme->rows = 1;
    return rc;
}

int quantization_group_size(const struct fields *fields, const char *key,
                            struct list_scheme *scheme)
{
    int64_t size = 0;
    int rc = field_require(fields, key);
    if (rc == 0)
        rc = field_integer(fields, key, -1, 1 << 20, &size);
    if (rc == 0 && size != -1 && (size < GROUP || size % GROUP))
        rc = field_refuse(fields, key, field_get(fields, key),
                          "supported (-1 and multiples of 32 are)");
    scheme->columns = size == -1 ? 0 : (uint32_t)size;
    return rc;
}

/* With what and how long the rounding was learned: nothing of what came of it, but for two that
 * quantization_alone() reads. */
const char *const quantization_autoround_keys[] = {"autoround_version",
                                                   "act_bits",
                                                   "act_data_type",
                                                   "act_dynamic",
                                                   "act_group_size",
                                                   "act_sym",
                                                   "amp",
                                                   "batch_size",
                                                   "data_type",
                                                   "dataset",
                                                   "dynamic_max_gap",
                                                   "enable_adam",
                                                   "enable_alg_ext",
                                                   "enable_deterministic_algorithms",
                                                   "enable_minmax_tuning",
                                                   "enable_norm_bias_tuning",
                                                   "enable_quanted_input",
                                                   "enable_torch_compile",
                                                   "gradient_accumulate_steps",
                                                   "iters",
                                                   "low_cpu_mem_usage",
                                                   "low_gpu_mem_usage",
                                                   "lr",
                                                   "minmax_lr",
                                                   "model_free",
                                                   "momentum",
                                                   "nblocks",
                                                   "not_use_best_mse",
                                                   "nsamples",
                                                   "provider",
                                                   "scale_dtype",
                                                   "seed",
                                                   "seqlen",
                                                   "train_bs",
                                                   NULL};

int quantization_alone(const struct fields *fields)
{
    int64_t bits = QUANTIZATION_BITS_ALL;
    int rc = quantization_word(fields, "data_type", "int");
    if (rc == 0)
        rc = field_integer(fields, "act_bits", 1, 64, &bits);
    if (rc == 0 && bits < QUANTIZATION_BITS_ALL)
        rc = field_refuse(fields, "act_bits", field_get(fields, "act_bits"),
                          "supported (16 and more are)");
    return rc;
}
