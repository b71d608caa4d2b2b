/* /openapi.json: what is served, described by the tables that serve it: routes.c and field.def. */
#include <stdio.h>
#include <string.h>

#include "daemon/http/api/api.h"
#include "daemon/http/query/query_field.h"

/* ---- bodies ------------------------------------------------------------------------------------
 */

/* What must be given; a text or a conversation for /tokenize. */
static void put_needed(struct json_writer *writer, enum query_kind kind)
{
    static const char *const either[] = {"prompt", "messages"};
    if (query_needs(kind, 0)) {
        json_open(writer, "required", '[');
        for (unsigned i = 0; query_needs(kind, i); i++)
            json_put_text(writer, NULL, query_needs(kind, i));
        json_close(writer, ']');
        return;
    }
    json_open(writer, "anyOf", '[');
    for (size_t i = 0; i < sizeof(either) / sizeof(either[0]); i++) {
        json_open(writer, NULL, '{');
        json_open(writer, "required", '[');
        json_put_text(writer, NULL, either[i]);
        json_close(writer, ']');
        json_close(writer, '}');
    }
    json_close(writer, ']');
}

static bool is_needed(const struct query_field *field, enum query_kind kind)
{
    for (unsigned i = 0; query_needs(kind, i); i++)
        if (strcmp(field->name, query_needs(kind, i)) == 0)
            return true;
    return false;
}

static void put_body(struct json_writer *writer, const struct route *route)
{
    size_t count;
    const struct query_field *fields = query_fields(&count);
    json_open(writer, "requestBody", '{');
    json_put_bool(writer, "required", true);
    json_open(writer, "content", '{');
    json_open(writer, "application/json", '{');
    json_open(writer, "schema", '{');
    json_put_text(writer, "type", "object");
    json_put_bool(writer, "additionalProperties", false);
    put_needed(writer, route->kind);
    json_open(writer, "properties", '{');
    for (size_t i = 0; i < count; i++)
        if (fields[i].kinds & 1u << route->kind)
            openapi_field(writer, &fields[i], is_needed(&fields[i], route->kind));
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
}

/* Of the inference protocol: {"id", "parameters", "inputs": [...], "outputs": [...]}. */
static void put_tensor_body(struct json_writer *writer)
{
    static const char *const members[] = {"id", "parameters", "inputs", "outputs"};
    static const char *const types[] = {"string", "object", "array", "array"};
    json_open(writer, "requestBody", '{');
    json_put_bool(writer, "required", true);
    json_open(writer, "content", '{');
    json_open(writer, "application/json", '{');
    json_open(writer, "schema", '{');
    json_put_text(writer, "type", "object");
    json_put_bool(writer, "additionalProperties", false);
    json_open(writer, "required", '[');
    json_put_text(writer, NULL, "inputs");
    json_close(writer, ']');
    json_open(writer, "properties", '{');
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        json_open(writer, members[i], '{');
        json_put_text(writer, "type", types[i]);
        if (strcmp(types[i], "array") == 0) {
            json_open(writer, "items", '{');
            json_put_text(writer, "type", "object");
            json_close(writer, '}');
        }
        if (strcmp(members[i], "inputs") == 0)
            json_put_int(writer, "minItems", 1);
        json_close(writer, '}');
    }
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
}

/* ---- paths -------------------------------------------------------------------------------------
 */

static void put_content(struct json_writer *writer, const char *type, const char *schema)
{
    json_open(writer, type, '{');
    json_open(writer, "schema", '{');
    if (schema)
        json_put_text(writer, "$ref", schema);
    json_close(writer, '}');
    json_close(writer, '}');
}

static void put_answers(struct json_writer *writer, const struct route *route)
{
    json_open(writer, "responses", '{');
    json_open(writer, "200", '{');
    json_put_text(writer, "description", route->says);
    json_open(writer, "content", '{');
    put_content(writer, route->metrics ? "text/plain" : "application/json", NULL);
    if (route->api && route->api->piece)
        put_content(writer, "text/event-stream", NULL);
    json_close(writer, '}');
    json_close(writer, '}');
    json_open(writer, "default", '{');
    json_put_text(writer, "description", "why there is no answer");
    json_open(writer, "content", '{');
    put_content(writer, "application/json",
                route->api == &api_kserve ? "#/components/schemas/TensorError"
                                          : "#/components/schemas/Error");
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
}

static void put_name(struct json_writer *writer)
{
    json_open(writer, "parameters", '[');
    json_open(writer, NULL, '{');
    json_put_text(writer, "name", "name");
    json_put_text(writer, "in", "path");
    json_put_bool(writer, "required", true);
    json_open(writer, "schema", '{');
    json_put_text(writer, "type", "string");
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, ']');
}

static void put_path(struct json_writer *writer, const struct route *route)
{
    char path[128];
    snprintf(path, sizeof(path), "%s%s%s", route->path, route->prefix ? "{name}" : "",
             route->tail ? route->tail : "");
    json_open(writer, path, '{');
    json_open(writer, strcmp(route->method, "GET") == 0 ? "get" : "post", '{');
    json_put_text(writer, "summary", route->says);
    if (route->open) { /* whatever stands below for all */
        json_open(writer, "security", '[');
        json_close(writer, ']');
    }
    if (route->prefix)
        put_name(writer);
    if (route->tensors)
        put_tensor_body(writer);
    else if (route->body)
        put_body(writer, route);
    put_answers(writer, route);
    json_close(writer, '}');
    json_close(writer, '}');
}

/* ---- the document ------------------------------------------------------------------------------
 */

static void put_string_member(struct json_writer *writer, const char *name)
{
    json_open(writer, name, '{');
    json_put_text(writer, "type", "string");
    json_close(writer, '}');
}

/* {"error": {"message", ...}}: what OpenAI's form and Anthropic's have in common. */
static void put_error(struct json_writer *writer)
{
    json_open(writer, "Error", '{');
    json_put_text(writer, "type", "object");
    json_open(writer, "required", '[');
    json_put_text(writer, NULL, "error");
    json_close(writer, ']');
    json_open(writer, "properties", '{');
    json_open(writer, "error", '{');
    json_put_text(writer, "type", "object");
    json_open(writer, "required", '[');
    json_put_text(writer, NULL, "message");
    json_put_text(writer, NULL, "type");
    json_close(writer, ']');
    json_open(writer, "properties", '{');
    put_string_member(writer, "message");
    put_string_member(writer, "type");
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
}

/* {"error": TEXT}, as the inference protocol has it; what was refused before its path was looked at
 * has OpenAI's form. */
static void put_tensor_error(struct json_writer *writer)
{
    json_open(writer, "TensorError", '{');
    json_put_text(writer, "type", "object");
    json_open(writer, "required", '[');
    json_put_text(writer, NULL, "error");
    json_close(writer, ']');
    json_open(writer, "properties", '{');
    json_open(writer, "error", '{');
    json_open(writer, "type", '[');
    json_put_text(writer, NULL, "string");
    json_put_text(writer, NULL, "object");
    json_close(writer, ']');
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
}

static void put_components(struct json_writer *writer)
{
    json_open(writer, "components", '{');
    json_open(writer, "schemas", '{');
    put_error(writer);
    put_tensor_error(writer);
    json_close(writer, '}');
    json_open(writer, "securitySchemes", '{');
    json_open(writer, "bearer", '{');
    json_put_text(writer, "type", "http");
    json_put_text(writer, "scheme", "bearer");
    json_close(writer, '}');
    json_open(writer, "key", '{');
    json_put_text(writer, "type", "apiKey");
    json_put_text(writer, "in", "header");
    json_put_text(writer, "name", "X-Api-Key");
    json_close(writer, '}');
    json_close(writer, '}');
    json_close(writer, '}');
    json_open(writer, "security", '[');
    json_open(writer, NULL, '{');
    json_open(writer, "bearer", '[');
    json_close(writer, ']');
    json_close(writer, '}');
    json_open(writer, NULL, '{');
    json_open(writer, "key", '[');
    json_close(writer, ']');
    json_close(writer, '}');
    json_close(writer, ']');
}

static void put_document(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    const struct routes *routes = exchange->http->routes;
    json_open(writer, NULL, '{');
    json_put_text(writer, "openapi", "3.1.0");
    json_open(writer, "info", '{');
    json_put_text(writer, "title", "Sluice");
    json_put_text(writer, "version", SLUICE_VERSION);
    json_close(writer, '}');
    json_open(writer, "paths", '{');
    for (size_t i = 0; i < routes->count; i++)
        if (!routes->list[i].refused)
            put_path(writer, &routes->list[i]);
    json_close(writer, '}');
    put_components(writer);
    json_close(writer, '}');
}

void openapi_begin(struct exchange *exchange, time_us now_us)
{
    (void)now_us;
    exchange_status(exchange, 200, "application/json");
    out_json(&exchange->out, put_document, exchange);
    exchange_finish(exchange);
}
