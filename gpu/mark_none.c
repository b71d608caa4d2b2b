#include "gpu/mark.h"

void mark_begin(const char *name)
{
    (void)name;
}

void mark_end(void)
{
}
