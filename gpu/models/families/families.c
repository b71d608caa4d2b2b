#include "gpu/models/families/families.h"

#include <stdio.h>
#include <string.h>

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

/* Without the ending that nearly all have: a message has no room for it so many times. */
static int name_length(const char *name)
{
    size_t length = strlen(name), ending = strlen(FAMILY_CLASS);
    bool ends = length > ending && !strcmp(name + length - ending, FAMILY_CLASS);
    return (int)(ends ? length - ending : length);
}

void family_names(bool architectures, char *text, size_t size)
{
    size_t used = 0, last = FAMILIES - 1;
    text[0] = '\0';
    while (families[last]->guesses)
        last--;
    for (size_t i = 0; i <= last && used < size; i++) {
        if (families[i]->guesses)
            continue;
        const char *name = architectures ? families[i]->architecture : families[i]->type;
        used += (size_t)snprintf(text + used, size - used, "%s%.*s",
                                 !i         ? ""
                                 : i < last ? ", "
                                            : " and ",
                                 name_length(name), name);
    }
}
