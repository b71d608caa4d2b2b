/* One constraint of a kind: compiling it ends, and where it compiles, masks and single tokens agree
 * all along a text that the rest of the input draws, which never comes to a place without a way on.
 * What stands up to a NUL is the constraint. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/constrain/constraint.h"

void constrain_check(enum constraint_kind kind, const uint8_t *data, size_t size);
