/* Requests to an OpenAI-compatible server, over HTTP: streamed completions of token prompts. */
#pragma once

#include "client/bench/transport.h"

/* url: "http://HOST:PORT", with /v1 behind it or without, or "unix:PATH". model NULL: the first one
 * that the server lists. key "": none is sent (api_key.h). As many connections are opened as
 * requests are open. */
int openai_open(const char *url, const char *model, const char *key,
                struct transport **ret_transport, struct transport_info *ret_info,
                struct error *error);
