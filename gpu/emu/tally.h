/* Tallies (emu.h): a tally is a stream on which nothing is ever enqueued. `done` is its count, and
 * who waits for it is on its list of waiters.
 */
#pragma once

struct CUstream_st;

void tally_raise(struct CUstream_st *tally); /* work_run: the thread of the stream that owns it */
/* Lets go whoever waits for a tally: after a sticky error nobody raises one any more. Any thread.
 */
void tally_release_all(void);
