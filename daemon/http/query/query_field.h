/* Fields of the bodies of HTTP requests: the table of daemon/http/query/field.def, and what reads
 * each. Any thread.
 */
#pragma once

#include "daemon/http/query/query.h"

struct query_field;

/* A field on its way from a body into a query. */
struct reading {
    struct query *query;
    const struct query_field *field;
    const struct message_limits *limits;
    struct error *error;
};

/* All that ask a model something. */
#define QUERY_FIELD_EVERY (((1u << QUERY_KINDS) - 1) & ~(1u << QUERY_ADAPTER))

struct query_field {
    const char *name;
    unsigned kinds; /* 1 << enum query_kind, of requests that know it */
    /* Called with a value that is not null. */
    int (*read)(const struct reading *reading, const json *value);
    const char *takes, *meaning; /* as in the table */
};

const struct query_field *query_fields(size_t *ret_count);
/* NULL: requests of the kind do not know it. */
const struct query_field *query_field_find(const char *name, enum query_kind kind);
