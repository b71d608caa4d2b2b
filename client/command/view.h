/* The daemon's JSON answers as tables for people. */
#pragma once

#include "protocol/base/json.h"

void view_object(const json *object); /* a line per field, objects indented */
void view_stats(const json *stats);
