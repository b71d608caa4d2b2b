/* What awq says of weights in whole numbers of 4 bits. */
#include <strings.h>

#include "gpu/models/quantization/quantization_keys.h"

/* Zeros are there either way: where they do not differ they are all 8. */
static int awq_check(const struct fields *fields)
{
    const char *version = "gemm";
    bool zeros = true;
    int rc = field_string(fields, "version", &version);
    if (rc == 0 && strcasecmp(version, "gemm") != 0)
        rc = field_refuse(fields, "version", field_get(fields, "version"), "supported (gemm is)");
    return rc ? rc : field_flag(fields, "zero_point", &zeros);
}

struct list_scheme quantization_awq_scheme(void)
{
    return (struct list_scheme){
        .scale = "scales", .zeros = "qzeros", .packing = PACKING_AWQ, .weight = "qweight"};
}

int quantization_awq(const struct fields *fields, struct quantization *to)
{
    static const char *const known[] = {"quant_method",
                                        "bits",
                                        "w_bit",
                                        "group_size",
                                        "q_group_size",
                                        "sym",
                                        "zero_point",
                                        "version",
                                        "backend",
                                        "do_fuse",
                                        "fuse_max_seq_len",
                                        "exllama_config",
                                        "modules_to_fuse",
                                        "modules_to_not_convert",
                                        NULL};
    struct list_scheme *scheme = &to->schemes[0];
    const char *bits = field_get(fields, "bits") ? "bits" : "w_bit";
    const char *group = field_get(fields, "group_size") ? "group_size" : "q_group_size";
    *scheme = quantization_awq_scheme();
    to->groups = 1;
    to->all = true;
    to->rule = NAMES_INSIDE;
    int rc = quantization_known_of(fields, known, quantization_autoround_keys);
    if (rc == 0)
        rc = quantization_bits(fields, bits, scheme);
    if (rc == 0 && scheme->elements != TENSOR_U4)
        rc = field_refuse(fields, bits, field_get(fields, bits), "supported for awq (4 is)");
    if (rc == 0)
        rc = quantization_group_size(fields, group, scheme);
    if (rc == 0)
        rc = awq_check(fields);
    if (rc == 0)
        rc = quantization_alone(fields);
    return rc ? rc : quantization_names(fields, "modules_to_not_convert", QUANTIZATION_IGNORED, to);
}
