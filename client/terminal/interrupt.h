/* SIGINT and SIGTERM: the first asks the program to cancel its work, a second one ends it at once.
 */
#pragma once

#include <stdbool.h>

void interrupt_watch(void);
bool interrupt_came(void);
/* Readable once it came; -1 before interrupt_watch(). */
int interrupt_fd(void);
/* Instead of interrupt_watch(), for a program that goes on after SIGINT: each is one of its own,
 * until interrupt_take() forgets it. SIGTERM stays. */
void interrupt_watch_each(void);
/* SIGINT, SIGTERM or 0: what came, once. */
int interrupt_take(void);
