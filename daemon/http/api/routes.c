/* Every path: which API it is, and what begins there. A further API is a file beside this one, and
 * its lines here. */
#include "daemon/api/metrics.h"
#include "daemon/http/api/api.h"

static const struct route list[] = {
    {.method = "POST",
     .path = "/v1/completions",
     .body = true,
     .kind = QUERY_COMPLETION,
     .api = &api_completions,
     .begin = generate_begin},
    {.method = "POST",
     .path = "/v1/chat/completions",
     .body = true,
     .kind = QUERY_CHAT,
     .api = &api_chat,
     .begin = generate_begin},
    {.method = "POST",
     .path = "/v1/embeddings",
     .body = true,
     .kind = QUERY_EMBEDDING,
     .api = &api_embeddings,
     .begin = generate_begin},
    {.method = "POST",
     .path = "/tokenize",
     .body = true,
     .kind = QUERY_TOKENIZE,
     .begin = lookup_tokenize},
    {.method = "POST",
     .path = "/detokenize",
     .body = true,
     .kind = QUERY_DETOKENIZE,
     .begin = lookup_detokenize},
    {.method = "GET", .path = "/tokenizer_info", .begin = lookup_tokenizer},
    {.method = "GET", .path = "/v1/models", .begin = lookup_models},
    {.method = "GET", .path = "/v1/models/", .prefix = true, .begin = lookup_models},
    {.method = "GET", .path = "/health", .open = true, .begin = lookup_health},
    {.method = "GET", .path = "/livez", .open = true, .begin = lookup_live},
    {.method = "GET", .path = "/readyz", .open = true, .begin = lookup_health},
    {.method = "GET", .path = "/model_info", .begin = lookup_model_info},
    {.method = "GET", .path = "/server_info", .begin = lookup_server_info},
    {.method = "GET", .path = "/version", .begin = lookup_version},
    {.method = "GET", .path = "/metrics", .metrics = true, .begin = metrics_begin},
};

const struct routes api_routes = {list, sizeof(list) / sizeof(list[0])};
