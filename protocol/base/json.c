#include "protocol/base/json.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/base/json_scan.h"

/* Up to here comparing all pairs of keys is quicker than sorting them. */
#define PAIRS_MAX 16

struct member {
    const char *key;
    uint64_t index;
};

/* Looks for a duplicate key, object by object in the order in which the text opens them. */
struct search {
    struct member *members; /* room for sorting, kept from object to object */
    size_t members_max;
    uint64_t objects;
    uint64_t object, member; /* where the duplicate stands */
};

enum outcome { ALL_DIFFER, DUPLICATE, NO_MEMORY };

static enum outcome compare_pairs(const cJSON *object, uint64_t *ret_member)
{
    uint64_t index = 0;
    for (const cJSON *member = object->child; member; member = member->next, index++)
        for (const cJSON *before = object->child; before != member; before = before->next)
            if (before->string[0] == member->string[0] &&
                strcmp(before->string, member->string) == 0) {
                *ret_member = index;
                return DUPLICATE;
            }
    return ALL_DIFFER;
}

static int compare_members(const void *a, const void *b)
{
    const struct member *left = a, *right = b;
    int order = strcmp(left->key, right->key);
    if (order)
        return order;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* Sorted, since a hash would let whoever chooses the keys choose the time, too. */
static enum outcome compare_sorted(struct search *search, const cJSON *object, size_t count,
                                   uint64_t *ret_member)
{
    if (count > search->members_max) {
        struct member *members = realloc(search->members, count * sizeof(*members));
        if (!members)
            return NO_MEMORY;
        search->members = members;
        search->members_max = count;
    }
    size_t used = 0;
    for (const cJSON *member = object->child; member; member = member->next, used++)
        search->members[used] = (struct member){.key = member->string, .index = used};
    qsort(search->members, used, sizeof(*search->members), compare_members);
    for (size_t i = 1; i < used; i++)
        if (strcmp(search->members[i - 1].key, search->members[i].key) == 0) {
            *ret_member = search->members[i].index;
            return DUPLICATE;
        }
    return ALL_DIFFER;
}

/* Recursion is as deep as the scan has let the text nest. */
static enum outcome search_keys(struct search *search, const cJSON *value)
{
    if (cJSON_IsObject(value)) {
        uint64_t object = search->objects++, member = 0;
        size_t count = json_count(value);
        enum outcome outcome = count <= PAIRS_MAX ? compare_pairs(value, &member)
                                                  : compare_sorted(search, value, count, &member);
        search->object = object;
        search->member = member;
        if (outcome != ALL_DIFFER)
            return outcome;
    }
    for (const cJSON *child = value->child; child; child = child->next)
        if (child->child || cJSON_IsObject(child)) {
            enum outcome outcome = search_keys(search, child);
            if (outcome != ALL_DIFFER)
                return outcome;
        }
    return ALL_DIFFER;
}

static int check_keys(const char *text, size_t length, const cJSON *document, struct error *error)
{
    struct search search = {.members = NULL};
    enum outcome outcome = search_keys(&search, document);
    free(search.members);
    if (outcome == NO_MEMORY)
        return error_set(error, ERR_NO_MEMORY, "no memory for JSON of %zu bytes", length);
    if (outcome == DUPLICATE)
        return error_set(error, ERR_BAD_HEAD, "JSON at byte %zu: duplicate key",
                         json_scan_key(text, length, search.object, search.member));
    return 0;
}

int json_parse(const char *text, size_t length, struct json_bounds bounds, json **ret_document,
               struct error *error)
{
    assert(bounds.depth_max <= JSON_DEPTH_MAX);
    if (length > bounds.bytes_max)
        return error_limit(error, ERR_TOO_LARGE, bounds.bytes_max, length,
                           "JSON of %zu bytes, at most %zu are accepted", length, bounds.bytes_max);
    int rc = json_scan(text, length, bounds.depth_max, bounds.values_max, error);
    if (rc)
        return rc;
    cJSON *document = cJSON_ParseWithLengthOpts(text, length, NULL, 0);
    if (!document)
        return error_set(error, ERR_NO_MEMORY, "no memory for JSON of %zu bytes", length);
    rc = check_keys(text, length, document, error);
    if (rc) {
        cJSON_Delete(document);
        return rc;
    }
    *ret_document = document;
    return 0;
}

void json_free(json *document)
{
    cJSON_Delete(document);
}

static bool is_one_of(const char *key, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

void json_keep(json *object, const char *const *keys, size_t count)
{
    cJSON *next;
    for (cJSON *member = object->child; member; member = next) {
        next = member->next;
        if (!is_one_of(member->string, keys, count))
            cJSON_Delete(cJSON_DetachItemViaPointer(object, member));
    }
}

bool json_is_object(const json *value)
{
    return cJSON_IsObject(value);
}

bool json_is_array(const json *value)
{
    return cJSON_IsArray(value);
}

bool json_is_string(const json *value)
{
    return cJSON_IsString(value);
}

bool json_is_number(const json *value)
{
    return cJSON_IsNumber(value);
}

bool json_is_bool(const json *value)
{
    return cJSON_IsBool(value);
}

bool json_is_null(const json *value)
{
    return cJSON_IsNull(value);
}

const json *json_get(const json *object, const char *key)
{
    if (!cJSON_IsObject(object))
        return NULL;
    const cJSON *member = object->child;
    while (member && strcmp(member->string, key) != 0)
        member = member->next;
    return member;
}

const json *json_child(const json *container)
{
    return container ? container->child : NULL;
}

const json *json_next(const json *value)
{
    return value->next;
}

const char *json_key(const json *member)
{
    return member->string ? member->string : "";
}

size_t json_count(const json *container)
{
    size_t count = 0;
    for (const cJSON *child = json_child(container); child; child = child->next)
        count++;
    return count;
}

const char *json_string(const json *value)
{
    return cJSON_IsString(value) ? value->valuestring : "";
}

bool json_bool(const json *value)
{
    return cJSON_IsTrue(value);
}

double json_number(const json *value)
{
    return cJSON_IsNumber(value) ? value->valuedouble : 0.0;
}

int json_integer(const json *value, const char *what, int64_t min, int64_t max, int64_t *ret,
                 struct error *error)
{
    if (!value)
        return error_set(error, ERR_BAD_VALUE, "%s is missing", what);
    double number = json_number(value);
    /* A number with an exponent passes the scan beyond 2^53, where doubles are no longer exact. */
    bool whole = json_is_number(value) && number >= -(double)JSON_INTEGER_MAX &&
                 number <= (double)JSON_INTEGER_MAX && (double)(int64_t)number == number;
    if (!whole)
        return error_set(error, ERR_BAD_VALUE, "%s is not a whole number", what);
    int64_t integer = (int64_t)number;
    if (integer < min)
        return error_set(error, ERR_BAD_VALUE, "%s is %lld, at least %lld is needed", what,
                         (long long)integer, (long long)min);
    if (integer > max)
        return error_limit(error, ERR_BAD_VALUE, (uint64_t)max, (uint64_t)integer,
                           "%s is %lld, at most %lld is accepted", what, (long long)integer,
                           (long long)max);
    *ret = integer;
    return 0;
}
