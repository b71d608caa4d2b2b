/* What compressed-tensors' pack-quantized says of weights in whole numbers of 4 and 8 bits. */
#include <string.h>

#include "gpu/models/quantization/quantization_keys.h"

/* By what columns were sorted while they were quantized; only "group" shows in the checkpoint. */
static int order_read(const struct fields *fields, struct list_scheme *scheme)
{
    const json *value = field_get(fields, "actorder");
    const char *word = json_string(value);
    if (quantization_unsaid(value) ||
        (json_is_string(value) && (!strcmp(word, "weight") || !strcmp(word, "static"))))
        return 0;
    if (!(json_is_bool(value) ||
          (json_is_string(value) && (!strcmp(word, "group") || !strcmp(word, "dynamic")))))
        return field_refuse(fields, "actorder", value, "supported (group and weight are)");
    scheme->groups = "weight_g_idx";
    scheme->grouped = true;
    return 0;
}

static int strategy_read(const struct fields *fields, struct list_scheme *scheme)
{
    const json *size = field_get(fields, "group_size");
    bool groups = size && !json_is_null(size);
    const char *strategy = groups ? "group" : "channel";
    int rc = 0;
    if (!quantization_unsaid(field_get(fields, "strategy")))
        rc = field_string(fields, "strategy", &strategy);
    if (rc)
        return rc;
    if (!strcmp(strategy, "group"))
        return quantization_group_size(fields, "group_size", scheme);
    if (strcmp(strategy, "channel") != 0)
        return field_refuse(fields, "strategy", field_get(fields, "strategy"),
                            "supported (group and channel are)");
    return groups && json_number(size) != -1
               ? field_refuse(fields, "group_size", size, "null, as channels have it")
               : 0;
}

int quantization_whole(const struct fields *weights, struct list_scheme *ret)
{
    static const char *const known[] = {"num_bits",    "type",       "symmetric", "strategy",
                                        "dynamic",     "group_size", "observer",  "observer_kwargs",
                                        "scale_dtype", "zp_dtype",   "actorder",  NULL};
    bool symmetric = true, dynamic = false;
    *ret = (struct list_scheme){.scale = "weight_scale",
                                .packing = PACKING_COMPRESSED,
                                .weight = "weight_packed",
                                .sizes = "weight_shape"};
    int rc = quantization_known(weights, known);
    if (rc == 0)
        rc = quantization_word(weights, "type", "int");
    if (rc == 0)
        rc = quantization_bits(weights, "num_bits", ret);
    if (rc == 0)
        rc = strategy_read(weights, ret);
    if (rc == 0)
        rc = field_flag(weights, "symmetric", &symmetric);
    if (rc == 0)
        rc = field_flag(weights, "dynamic", &dynamic);
    if (rc == 0 && dynamic)
        rc = field_refuse(weights, "dynamic", field_get(weights, "dynamic"), "false");
    if (!symmetric)
        ret->zeros = "weight_zero_point";
    return rc ? rc : order_read(weights, ret);
}
