/* A configuration as the service would see it: as its user, without what its unit hides.
 *
 * For --check, which is run by an administrator who sees everything, and for a service that could
 * not start, to say why. Before the loop starts.
 */
#pragma once

#include "daemon/service/unit.h"
#include "protocol/base/error.h"

struct options;

/* What the unit keeps the daemon from that the options ask for: ERR_BAD_CONFIG with the option, the
 * setting of the unit, and what to do. */
int unit_check(const struct unit *unit, const struct options *options, struct error *error);
/* This process goes on as the unit's user, where it is root's. Else it goes on as it is, and the
 * log says so where that is somebody else. */
int unit_become(const struct unit *unit, struct error *error);
/* Whether it does: an unprivileged administrator is somebody else. */
bool unit_is_user(const struct unit *unit);
/* Who looked is part of what went wrong. */
void unit_explain(const struct unit *unit, struct error *error);
