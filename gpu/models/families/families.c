#include "gpu/models/families/families.h"

#include <stdio.h>

#define FAMILY(name) extern const struct family family_##name;
#include "gpu/models/families/families.def"
#undef FAMILY

static const struct family *const families[] = {
#define FAMILY(name) &family_##name,
#include "gpu/models/families/families.def"
#undef FAMILY
};

#define FAMILIES (sizeof families / sizeof families[0])

const struct family *family_at(size_t i)
{
    return i < FAMILIES ? families[i] : NULL;
}

void family_names(bool architectures, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < FAMILIES && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 !i                 ? ""
                                 : i + 1 < FAMILIES ? ", "
                                                    : " and ",
                                 architectures ? families[i]->architecture : families[i]->type);
}
