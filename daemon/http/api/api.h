/* The APIs: each a file that says how its answers are written, and all their paths (routes.c).
 */
#pragma once

#include "daemon/http/exchange.h"

extern const struct routes api_routes;

extern const struct api api_chat, api_completions, api_embeddings, api_responses, api_messages,
    api_rerank, api_score, api_classify, api_kserve;

void openapi_begin(struct exchange *exchange, time_us now_us);
/* A member of a body's properties. needed: null is not taken for it. */
struct json_writer;
struct query_field;
void openapi_field(struct json_writer *writer, const struct query_field *field, bool needed);
void scores_begin(struct exchange *exchange, time_us now_us);
void classify_begin(struct exchange *exchange, time_us now_us);
void messages_count_tokens(struct exchange *exchange, time_us now_us);

void kserve_server(struct exchange *exchange, time_us now_us);
/* Not ready is an error, told as all others of this API. */
void kserve_health(struct exchange *exchange, time_us now_us);
void kserve_index(struct exchange *exchange, time_us now_us);
void kserve_model(struct exchange *exchange, time_us now_us);
void kserve_ready(struct exchange *exchange, time_us now_us);
void kserve_config(struct exchange *exchange, time_us now_us);
void kserve_stats(struct exchange *exchange, time_us now_us);
void kserve_refused(struct exchange *exchange, time_us now_us);
