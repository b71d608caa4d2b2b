/* Every path: which API it is, and what begins there. A further API is a file beside this one, and
 * its lines here. /openapi.json is made of them. */
#include "daemon/api/metrics.h"
#include "daemon/http/api/api.h"
#include "daemon/http/tensors.h"

/* A body of JSON, and an answer by the API. */
#define POST(to, query, answers, start, text)                                                      \
    {                                                                                              \
        .method = "POST", .path = (to), .body = true, .kind = (query), .api = (answers),           \
        .begin = (start), .says = (text)                                                           \
    }
#define GET(to, start, text) .method = "GET", .path = (to), .begin = (start), .says = (text)

/* Of a program, by its name or NAME/versions/1, and of all. */
#define PROGRAM(to, start, text)                                                                   \
    {                                                                                              \
        .method = "GET", .path = "/v2/models/", .prefix = true, .tail = (to), .api = &api_kserve,  \
        .begin = (start), .says = (text)                                                           \
    }
#define KSERVE(verb, to, start, text)                                                              \
    .method = (verb), .path = (to), .api = &api_kserve, .begin = (start), .says = (text)

static const struct route list[] = {
    POST("/v1/completions", QUERY_COMPLETION, &api_completions, generate_begin, "texts that go on"),
    POST("/v1/chat/completions", QUERY_CHAT, &api_chat, generate_begin, "answers in conversations"),
    POST("/v1/responses", QUERY_RESPONSES, &api_responses, generate_begin,
         "answers in conversations, as lists of items"),
    POST("/v1/messages", QUERY_MESSAGES, &api_messages, generate_begin,
         "answers in conversations, as Anthropic's API has them"),
    POST("/v1/messages/count_tokens", QUERY_COUNT_TOKENS, &api_messages, messages_count_tokens,
         "how many tokens a conversation has"),
    POST("/v1/embeddings", QUERY_EMBEDDING, &api_embeddings, generate_begin, "rows for texts"),
    POST("/tokenize", QUERY_TOKENIZE, NULL, lookup_tokenize, "tokens of a text or a conversation"),
    POST("/detokenize", QUERY_DETOKENIZE, NULL, lookup_detokenize, "the text of tokens"),
    POST("/v1/load_lora_adapter", QUERY_ADAPTER, NULL, adapters_load,
         "one more adapter; for admins"),
    POST("/v1/unload_lora_adapter", QUERY_ADAPTER, NULL, adapters_unload,
         "an adapter is taken away; for admins"),
    POST("/v1/rerank", QUERY_RERANK, &api_rerank, scores_begin, "documents by how well they fit"),
    POST("/rerank", QUERY_RERANK, &api_rerank, scores_begin, "documents by how well they fit"),
    POST("/v1/score", QUERY_SCORE, &api_score, scores_begin, "how well texts fit each other"),
    POST("/score", QUERY_SCORE, &api_score, scores_begin, "how well texts fit each other"),
    POST("/classify", QUERY_CLASSIFY, &api_classify, classify_begin, "the classes of texts"),
    POST("/v1/classify", QUERY_CLASSIFY, &api_classify, classify_begin, "the classes of texts"),
    {GET("/tokenizer_info", lookup_tokenizer, "special tokens and the chat template")},
    {GET("/v1/models", lookup_models, "the model, by each of its names")},
    {GET("/v1/models/", lookup_models, "the model, by one of its names"), .prefix = true},
    {.method = "POST",
     .path = "/sleep",
     .begin = rest_sleep,
     .says = "all models sleep; for admins"},
    {.method = "POST",
     .path = "/sleep/",
     .prefix = true,
     .begin = rest_sleep,
     .says = "a model sleeps; for admins"},
    {.method = "POST",
     .path = "/wake_up",
     .begin = rest_wake,
     .says = "all models wake; for admins"},
    {.method = "POST",
     .path = "/wake_up/",
     .prefix = true,
     .begin = rest_wake,
     .says = "a model wakes; for admins"},
    {.method = "POST",
     .path = "/reload/",
     .prefix = true,
     .begin = rest_reload,
     .says = "a new version of a model takes over; for admins"},
    {GET("/reload_state/", rest_reload_state, "which version of a model serves; for admins"),
     .prefix = true},
    {GET("/is_sleeping", rest_is_sleeping, "whether all models are asleep")},
    {GET("/health", lookup_health, "whether requests are served"), .open = true},
    {GET("/livez", lookup_live, "whether a new process would help"), .open = true},
    {GET("/readyz", lookup_health, "whether requests are served"), .open = true},
    {GET("/model_info", lookup_model_info, "the model, as SGLang's router asks for it")},
    {GET("/server_info", lookup_server_info, "the daemon, as SGLang's router asks for it")},
    {GET("/version", lookup_version, "the daemon's version")},
    {GET("/openapi.json", openapi_begin, "this description")},
    {KSERVE("GET", "/v2", kserve_server, "the server, by the inference protocol")},
    {KSERVE("GET", "/v2/", kserve_server, "the server, by the inference protocol")},
    {KSERVE("GET", "/v2/health/live", lookup_live, "whether a new process would help"),
     .open = true},
    {KSERVE("GET", "/v2/health/ready", kserve_health, "whether requests are served"), .open = true},
    {KSERVE("GET", "/v2/models/stats", kserve_stats, "figures of all programs")},
    PROGRAM("", kserve_model, "a program: its inputs and outputs"),
    PROGRAM("/ready", kserve_ready, "whether a program takes jobs"),
    PROGRAM("/config", kserve_config, "a program, as Triton's configuration"),
    PROGRAM("/stats", kserve_stats, "a program's figures"),
    {KSERVE("POST", "/v2/models/", tensors_begin, "tensors through a program"), .prefix = true,
     .tail = "/infer", .body = true, .tensors = true},
    {KSERVE("POST", "/v2/repository/index", kserve_index, "all programs")},
    {KSERVE("POST", "/v2/repository/models/", kserve_refused,
            "refused: programs are loaded from the configuration alone"),
     .prefix = true, .refused = true},
    {KSERVE("POST", "/v2/systemsharedmemory/", kserve_refused,
            "refused: Triton's shared memory by name; the native protocol shares a memfd"),
     .prefix = true, .refused = true},
    {KSERVE("POST", "/v2/cudasharedmemory/", kserve_refused,
            "refused: Triton's shared memory by name; tensors come from the host"),
     .prefix = true, .refused = true},
    {GET("/metrics", metrics_begin, "figures for Prometheus"), .metrics = true},
};

const struct routes api_routes = {list, sizeof(list) / sizeof(list[0])};
