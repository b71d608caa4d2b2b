#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/constrain/schema/schema_inner.h"

#define URI_MAX 512

/* A schema that has an identifier is what references within it are relative to. */
struct resource {
    char uri[URI_MAX]; /* without fragment; "" where none is known */
    const json *root;
};

struct search {
    struct schema_reader *reader;
    const char *uri, *anchor; /* what is looked for; anchor NULL: the resource itself */
    const json *found;
};

static const char *identifier(struct schema_reader *reader, const json *schema)
{
    const json *id = schema_said(reader, schema, "$id");
    if (!json_is_string(id))
        id = schema_said(reader, schema, "id");
    return json_is_string(id) ? json_string(id) : NULL;
}

/* As RFC 3986 does it, but for dots in paths; without the fragment. */
static void resolve(const char *base, const char *reference, char *ret_uri)
{
    int length = (int)strcspn(reference, "#"), kept = 0;
    const char *colon = strpbrk(reference, ":/?#"), *scheme = strchr(base, ':');
    const char *host = scheme && !strncmp(scheme, "://", 3) ? scheme + 3 : base;
    if (colon && *colon == ':')
        kept = 0;
    else if (!strncmp(reference, "//", 2))
        kept = scheme ? (int)(scheme + 1 - base) : 0;
    else if (*reference == '/')
        kept = (int)(host - base) + (int)strcspn(host, "/?#");
    else if (length == 0)
        kept = (int)strlen(base);
    else if (strrchr(host, '/'))
        kept = (int)(strrchr(host, '/') + 1 - base);
    snprintf(ret_uri, URI_MAX, "%.*s%.*s", kept, base, length, reference);
}

/* What a schema's own identifier makes of where it stands. */
static struct resource within(struct schema_reader *reader, const struct resource *outer,
                              const json *schema)
{
    struct resource inner = *outer;
    const char *id = json_is_object(schema) ? identifier(reader, schema) : NULL;
    if (id && *id != '#') {
        resolve(outer->uri, id, inner.uri);
        inner.root = schema;
    }
    return inner;
}

static bool has_anchor(struct schema_reader *reader, const json *schema, const char *anchor)
{
    static const char *const names[] = {"$anchor", "$dynamicAnchor"};
    for (unsigned i = 0; i < 2; i++) {
        const json *own = schema_said(reader, schema, names[i]);
        if (json_is_string(own) && !strcmp(json_string(own), anchor))
            return true;
    }
    const char *id = identifier(reader, schema);
    return id && *id == '#' && !strcmp(id + 1, anchor);
}

static void look(struct search *search, const struct resource *outer, const json *at)
{
    struct schema_reader *reader = search->reader;
    if (search->found || !schema_step(reader))
        return;
    struct resource here = within(reader, outer, at);
    schema_spend(reader, here.root == outer->root ? 4 : 16); /* texts were copied */
    if (json_is_object(at) && !strcmp(here.uri, search->uri) &&
        (search->anchor ? has_anchor(reader, at, search->anchor) : here.root == at)) {
        search->found = at;
        return;
    }
    uint64_t passed = 0;
    for (const json *one = json_child(at); one && !search->found; one = json_next(one), passed++)
        if (json_is_object(one) || json_is_array(one))
            look(search, &here, one);
    schema_spend(reader, passed / 8);
}

static const json *by_index(struct schema_reader *reader, const json *list, const char *key)
{
    char *end;
    unsigned long index = strtoul(key, &end, 10);
    if (!json_is_array(list) || *end || end == key)
        return NULL;
    const json *at = json_child(list);
    for (; at && index > 0 && schema_step(reader); index--)
        at = json_next(at);
    return at;
}

/* A JSON pointer, percent escapes included. */
static const json *pointed(struct schema_reader *reader, const json *at, const char *pointer)
{
    while (at && *pointer == '/') {
        char key[256];
        size_t used = 0;
        for (pointer++; *pointer && *pointer != '/'; pointer++) {
            unsigned code;
            char byte = *pointer;
            if (byte == '~' && (pointer[1] == '0' || pointer[1] == '1'))
                byte = *++pointer == '0' ? '~' : '/';
            else if (byte == '%' && sscanf(pointer + 1, "%2x", &code) == 1 && code && pointer[2])
                byte = (char)code, pointer += 2;
            if (used + 1 == sizeof(key))
                return NULL;
            key[used++] = byte;
        }
        key[used] = 0;
        at = json_is_object(at) ? schema_get(reader, at, key) : by_index(reader, at, key);
    }
    return *pointer ? NULL : at;
}

static const json *refer(struct schema_reader *reader, const struct resource *here,
                         const char *reference)
{
    char uri[URI_MAX];
    const char *fragment = strchr(reference, '#');
    const json *root = here->root;
    resolve(here->uri, reference, uri);
    fragment = fragment ? fragment + 1 : "";
    struct resource top = {.root = reader->root};
    if (strcmp(uri, here->uri)) {
        struct search search = {.reader = reader, .uri = uri};
        look(&search, &top, reader->root);
        root = search.found;
    }
    if (*fragment != '/' && *fragment && root) {
        struct search search = {.reader = reader, .uri = uri, .anchor = fragment};
        look(&search, &top, reader->root);
        return search.found;
    }
    return root ? pointed(reader, root, fragment) : NULL;
}

static bool add_place(struct schema_reader *reader, const json *schema, const json *target)
{
    if (reader->places_used == reader->places_room) {
        uint32_t room = reader->places_room ? reader->places_room * 2 : 16;
        void *moved = realloc(reader->places, room * sizeof(*reader->places));
        if (!moved) {
            grammar_fail(reader->grammar, ERR_NO_MEMORY, "no memory for a constraint");
            return false;
        }
        reader->places = moved;
        reader->places_room = room;
    }
    reader->places[reader->places_used++] = (struct schema_place){schema, target};
    return true;
}

static bool walk(struct schema_reader *reader, const struct resource *outer, const json *at)
{
    struct resource here = within(reader, outer, at);
    const json *ref = json_is_object(at) ? schema_said(reader, at, "$ref") : NULL;
    if (json_is_string(ref) && !add_place(reader, at, refer(reader, &here, json_string(ref))))
        return false;
    for (const json *one = json_child(at); one && !reader->grammar->code; one = json_next(one))
        if ((json_is_object(one) || json_is_array(one)) && !walk(reader, &here, one))
            return false;
    return reader->grammar->code == 0;
}

static int by_schema(const void *left, const void *right)
{
    const struct schema_place *a = left, *b = right;
    return a->schema < b->schema ? -1 : a->schema > b->schema;
}

bool schema_places(struct schema_reader *reader)
{
    struct resource top = {.root = reader->root};
    if (!walk(reader, &top, reader->root))
        return false;
    if (reader->places_used)
        qsort(reader->places, reader->places_used, sizeof(*reader->places), by_schema);
    return true;
}

const json *schema_target(struct schema_reader *reader, const json *schema)
{
    struct schema_place key = {.schema = schema};
    const struct schema_place *found =
        reader->places_used
            ? bsearch(&key, reader->places, reader->places_used, sizeof(*reader->places), by_schema)
            : NULL;
    return found ? found->target : NULL;
}
