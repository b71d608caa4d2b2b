/* "mxfp4": experts' matrices in e2m1, of each row a scale for 32 columns, a power of two (e8m0). */
#include "gpu/models/quantization/quantization_keys.h"

int quantization_mxfp4(const struct fields *fields, struct quantization *to)
{
    static const char *const keys[] = {"quant_method", "modules_to_not_convert", NULL};
    int rc = quantization_known(fields, keys);
    to->rule = NAMES_WILD;
    to->groups = 1;
    to->all = true;
    to->schemes[0] = (struct list_scheme){.elements = TENSOR_E2M1,
                                          .rows = 1,
                                          .columns = MXFP4_BLOCK,
                                          .weight = "_blocks",
                                          .scale = "_scales"};
    return rc ? rc : quantization_names(fields, "modules_to_not_convert", QUANTIZATION_IGNORED, to);
}
