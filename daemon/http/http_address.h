/* Addresses of HTTP listeners: "unix:PATH", "HOST:PORT" and "[HOST]:PORT", with commas between.
 * HOST is a number or localhost. Before the loop starts.
 */
#pragma once

#include "daemon/net/listen.h"

/* Opens the first of the list, which the option `option` holds; *list moves behind it, to "" after
 * the last. Errors start with the option's name. */
int address_open(const char **list, const char *option, struct listener *ret_listener,
                 struct error *error);
/* The same without opening it: ret_listener has a path, or tcp and loopback, and its name. */
int address_read(const char **list, const char *option, struct listener *ret_listener,
                 struct error *error);
