/* The server with two clients of memory, of users 1000 and 2000, and a replica that answers by a
 * rule: what the suites of tests/daemon/request stand on that ask it.
 */
#pragma once

#include "tests/daemon/rig/world.h"

extern struct world world;
extern struct client client, other;
extern const struct ask one; /* a request of one sequence */

/* So many sequences that are to be sent get no memory for their results; the linker has calls of
 * seq_make_room() come here. */
extern uint32_t server_rig_refuses;

void server_rig_setup(void);
void server_rig_teardown(void);

/* Of the next DONE, or ACCEPT, that a client finds. */
enum finish next_finish(struct client *of);
uint64_t next_accept(struct client *of);
uint32_t done_count(struct client *of); /* skips all that came */
