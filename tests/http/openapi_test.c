/* /openapi.json says what is served: every path, and of each body every field. */
#include <stdio.h>
#include <string.h>

#include "daemon/http/api/api.h"
#include "daemon/http/query/query_field.h"
#include "protocol/base/json.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 18];

static void set_up(void)
{
    site_make(&site);
}

static void tear_down(void)
{
    site_free(&site);
}

/* Its type, its values, or neither where anything is taken. */
static void check_taken(const struct route *route, const struct query_field *field,
                        const json *property)
{
    bool told =
        json_get(property, "type") || json_get(property, "enum") || json_get(property, "anyOf");
    ck_assert_msg(told == (strcmp(field->takes, "anything") != 0), "%s: %s", route->path,
                  field->name);
}

/* GET, and POST with what is no request. */
static void check_route(const struct route *route, const json *operation)
{
    size_t count, named = 0;
    const struct query_field *fields = query_fields(&count);
    const json *schema = json_get(json_get(operation, "requestBody"), "content");
    ck_assert_msg(operation != NULL, "%s is not described", route->path);
    ck_assert(json_string(json_get(operation, "summary"))[0]);
    ck_assert_int_eq(schema != NULL, route->body);
    if (!route->body)
        return;
    schema = json_get(json_get(schema, "application/json"), "schema");
    const json *properties = json_get(schema, "properties");
    if (route->tensors) { /* its members are of the protocol, and stand in no table */
        ck_assert(json_get(properties, "inputs") && json_get(properties, "outputs"));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (!(fields[i].kinds & 1u << route->kind))
            continue;
        named++;
        ck_assert_msg(json_get(properties, fields[i].name) != NULL, "%s: %s", route->path,
                      fields[i].name);
        check_taken(route, &fields[i], json_get(properties, fields[i].name));
    }
    ck_assert_uint_eq(json_count(properties), named);
    ck_assert(!json_bool(json_get(schema, "additionalProperties")));
}

START_TEST(every_path_and_field_is_described)
{
    const struct json_bounds bounds = {.bytes_max = sizeof(answer), .depth_max = 32};
    struct error error;
    json *document;
    ck_assert_uint_eq(fetch(&site, "/openapi.json", NULL, answer, sizeof(answer)), 200);
    ck_assert_msg(json_parse(answer, strlen(answer), bounds, &document, &error) == 0, "%s",
                  error.text);
    const json *paths = json_get(document, "paths");
    size_t described = 0;
    for (size_t i = 0; i < api_routes.count; i++) {
        const struct route *route = &api_routes.list[i];
        char path[128];
        described += !route->refused;
        snprintf(path, sizeof(path), "%s%s%s", route->path, route->prefix ? "{name}" : "",
                 route->tail ? route->tail : "");
        const json *operation =
            json_get(json_get(paths, path), strcmp(route->method, "GET") == 0 ? "get" : "post");
        if (route->refused)
            ck_assert_ptr_null(operation);
        else
            check_route(route, operation);
        ck_assert(!operation || route->open == (json_get(operation, "security") != NULL));
    }
    ck_assert_uint_eq(json_count(paths), described);
    json_free(document);
}
END_TEST

struct shape {
    enum query_kind kind;
    const char *field, *text;
};

static const struct shape shapes[] = {
    {QUERY_CHAT, "temperature", "\"type\":[\"number\",\"null\"],\"minimum\":0,\"maximum\":100}"},
    {QUERY_CHAT, "top_p", "\"type\":[\"number\",\"null\"],\"exclusiveMinimum\":0,\"maximum\":1}"},
    {QUERY_CHAT, "presence_penalty", "\"minimum\":-100,\"maximum\":100}"},
    {QUERY_CHAT, "seed", "\"integer\",\"null\"],\"minimum\":0,\"maximum\":9007199254740992}"},
    {QUERY_CHAT, "priority", "\"integer\",\"null\"],\"minimum\":-8,\"maximum\":7}"},
    {QUERY_CHAT, "store", "\"type\":[\"boolean\",\"null\"]}"},
    {QUERY_RESPONSES, "store", "\"enum\":[false,null]}"},
    {QUERY_CHAT, "length_penalty", "\"enum\":[1,null]}"},
    {QUERY_CHAT, "modalities", "\"items\":{\"enum\":[\"text\"]},\"minItems\":1,\"maxItems\":1}"},
    {QUERY_CHAT, "bad_words", "\"type\":[\"array\",\"null\"],\"maxItems\":0}"},
    {QUERY_CHAT, "verbosity", "\"enum\":[\"medium\",null]}"},
    {QUERY_CHAT, "tool_choice",
     "\"anyOf\":[{\"enum\":[\"auto\",\"none\",\"required\",null]},{\"type\":\"object\"}]}"},
    {QUERY_CHAT, "tools", "\"items\":{\"type\":\"object\"},\"maxItems\":128}"},
    {QUERY_CHAT, "messages", "\"type\":[\"array\"],\"items\":{\"type\":\"object\"}}"},
    {QUERY_TOKENIZE, "messages", "\"type\":[\"array\",\"null\"],"},
    {QUERY_CHAT, "cache_salt", "\"minLength\":1,\"maxLength\":256}"},
    {QUERY_CHAT, "stop",
     "\"type\":[\"string\",\"array\",\"null\"],\"items\":{\"type\":\"string\"}}"},
    {QUERY_COMPLETION, "suffix", "\"type\":\"null\"}"},
};

START_TEST(what_a_field_takes_is_a_schema)
{
    const struct shape *shape = &shapes[_i];
    const struct query_field *field = query_field_find(shape->field, shape->kind);
    struct json_writer writer;
    json_writer_init(&writer, answer, sizeof(answer));
    json_open(&writer, NULL, '{');
    openapi_field(&writer, field,
                  shape->kind != QUERY_TOKENIZE && strcmp(shape->field, "messages") == 0);
    json_close(&writer, '}');
    answer[writer.used] = '\0';
    ck_assert_msg(strstr(answer, shape->text) != NULL, "%s: %s", shape->field, answer);
}
END_TEST

Suite *openapi_suite(void)
{
    Suite *suite = suite_create("openapi");
    TCase *tests = tcase_create("openapi");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, every_path_and_field_is_described);
    tcase_add_loop_test(tests, what_a_field_takes_is_a_schema, 0,
                        (int)(sizeof(shapes) / sizeof(shapes[0])));
    suite_add_tcase(suite, tests);
    return suite;
}
