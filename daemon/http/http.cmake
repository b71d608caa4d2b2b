# HTTP: the OpenAI API and the metrics, over libmicrohttpd.
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.71)
target_sources(sluice_daemon PRIVATE
    http/address.c http/answer.c http/body.c http/query.c http/echo.c http/encode.c http/exchange.c
    http/front.c http/generate.c http/hint.c http/key.c http/lookup.c http/metrics.c http/out.c
    http/route.c)
target_link_libraries(sluice_daemon PUBLIC PkgConfig::MICROHTTPD)
