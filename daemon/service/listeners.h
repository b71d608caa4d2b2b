/* The loop's listening sockets: who connects is taken in, as far as there are descriptors. That
 * clients still find a socket by its path is socket's own watch (reach.h). loop thread
 */
#pragma once

struct event_loop;
struct event_loop_listener;

/* Takes in who waits. */
void listeners_accept(struct event_loop_listener *listener);
/* Is told again of who waits. */
void listeners_watch(struct event_loop_listener *listener);
/* All of them; more than once does nothing. */
void listeners_close(struct event_loop *loop);
