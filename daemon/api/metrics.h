/* The figures of stats.def as Prometheus text. loop thread
 */
#pragma once

#include "daemon/api/out.h"
#include "protocol/base/clock.h"

struct server;

void metrics_write(struct out *out, struct server *server, time_us now_us);
