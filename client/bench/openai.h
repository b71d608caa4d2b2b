/* Requests to an OpenAI-compatible server, over HTTP: streamed completions of token prompts. */
#pragma once

#include "client/bench/transport.h"

/* url: "http://HOST:PORT" or "unix:PATH". model NULL: the first one that the server lists. As many
 * connections are opened as requests are open. */
int openai_open(const char *url, const char *model, struct transport **ret_transport,
                struct transport_info *ret_info, struct error *error);
