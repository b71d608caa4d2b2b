#include "gpu/models/family.h"

#include <stdio.h>
#include <string.h>

#define FAMILY(name) extern const struct family family_##name;
#include "gpu/models/families.def"
#undef FAMILY

static const struct family *const families[] = {
#define FAMILY(name) &family_##name,
#include "gpu/models/families.def"
#undef FAMILY
};

#define FAMILIES (sizeof families / sizeof families[0])

const struct family *family_at(size_t i)
{
    return i < FAMILIES ? families[i] : NULL;
}

const struct family *family_of(const char *type)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        if (!strcmp(families[i]->type, type))
            return families[i];
    }
    return NULL;
}

void family_names(bool architectures, char *text, size_t size)
{
    const char *names[FAMILIES];
    size_t count = 0, used = 0;
    for (size_t i = 0; i < FAMILIES; i++) {
        if (families[i]->architecture)
            names[count++] = architectures ? families[i]->architecture : families[i]->type;
    }
    text[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 !i              ? ""
                                 : i + 1 < count ? ", "
                                                 : " and ",
                                 names[i]);
}
