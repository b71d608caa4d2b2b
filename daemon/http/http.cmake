# HTTP: the OpenAI API and the metrics.
target_sources(sluice_daemon PRIVATE
    http/address.c http/answer.c http/body.c http/query.c http/echo.c http/encode.c http/exchange.c
    http/framing.c http/front.c http/front_conn.c http/generate.c http/key.c http/lookup.c http/metrics.c http/out.c http/route.c)
