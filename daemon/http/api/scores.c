/* /v1/rerank and /score: pairs of texts, scored. No checkpoint that is served has a head for that,
 * so they are refused by name, and never answered by something else. */
#include "daemon/http/api/api.h"

void scores_begin(struct exchange *exchange, time_us now_us)
{
    struct error error;
    (void)now_us;
    error_set(&error, ERR_UNSUPPORTED,
              "%s: the model has no head that scores pairs of texts; it writes text, and "
              "/v1/embeddings gives rows",
              exchange->route->path);
    exchange_refuse(exchange, &error, "");
}
