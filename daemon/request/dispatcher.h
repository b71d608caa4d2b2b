/* Dispatch: waiting sequences go to replicas, as their turns come, as far as replicas have room and
 * their results can be kept.
 *
 * Results have a place before they are computed: what a sequence may come to, at most, counts
 * against its connection, its user and all of them from its sending until they were read
 * (admission_keep()). A connection whose next sequence has no place is parked, and holds up nobody.
 *
 * Where no replica has room, somebody whose turn it is may have nothing on any, while others fill
 * them with sequences that go on for long. Then its sequence is sent all the same, and the replica
 * takes a slot from those who have most: so a user with less than its share need not wait for the
 * end of anything. What that costs is charged to it. One of a higher priority is sent where those
 * below it run that can give way. loop thread
 */
#pragma once

#include "protocol/base/clock.h"

/* A prompt's token that the replica has is charged as this part of one that it has to read. */
#define DISPATCH_HAD_SHARE 8

struct server;

void dispatch(struct server *server, time_us now_us);
