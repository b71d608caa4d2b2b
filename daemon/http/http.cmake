# HTTP: the OpenAI API and the metrics.
target_sources(sluice_daemon PRIVATE
    http/http_address.c http/access.c http/answer.c http/answer_tokens.c http/body.c http/query/query.c http/query/query_constraint.c http/query/query_field.c http/query/query_convert.c http/query/query_messages.c http/query/query_responses.c http/query/query_tools.c http/echo.c http/encode.c http/exchange.c
    http/framing.c http/hint.c http/http_server.c http/http_conn.c http/generate.c base/api_key.c base/web_access.c http/lookup.c api/metrics.c api/out.c http/route.c
    http/api/chat.c http/api/completions.c http/api/embeddings.c http/api/messages.c http/api/openapi.c http/api/scores.c http/api/responses.c http/api/routes.c)
