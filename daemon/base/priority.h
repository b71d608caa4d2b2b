/* The priorities that a request may have: the highest is served first. */
#pragma once

#define WAITING_PRIORITY_MIN (-8)
#define WAITING_PRIORITY_MAX 7
#define WAITING_LEVELS (WAITING_PRIORITY_MAX - WAITING_PRIORITY_MIN + 1)
