/* Errors as the program sees them. */
#pragma once

#include "client/sluice.h"
#include "protocol/base/error.h"

void failure_publish(const struct error *error, sluice_error *ret_public);
