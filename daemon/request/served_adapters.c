#include "daemon/request/served_adapters.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void served_adapters_set(struct served_adapters *served, const struct adapter_names *names)
{
    served->count = names->count;
    for (uint32_t i = 0; i < names->count; i++) {
        served->at[i] = (struct served_adapter){.load = ++served->loads};
        snprintf(served->at[i].name, MODEL_NAME_SIZE, "%s", names->at[i].name);
    }
}

uint32_t served_adapters_find(const struct served_adapters *served, const char *name)
{
    for (uint32_t i = 0; i < served->count; i++)
        if (strcmp(served->at[i].name, name) == 0)
            return i + 1;
    return 0;
}

void served_adapters_hold(struct served_adapters *served, uint32_t number)
{
    assert(number <= served->count);
    if (number)
        served->at[number - 1].live++;
}

void served_adapters_leave(struct served_adapters *served, uint32_t number)
{
    assert(!number || served->at[number - 1].live > 0);
    if (number)
        served->at[number - 1].live--;
}
