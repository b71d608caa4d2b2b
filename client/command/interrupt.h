/* SIGINT and SIGTERM: the first asks the program to cancel its work, a second one ends it at once.
 */
#pragma once

#include <stdbool.h>

void interrupt_watch(void);
bool interrupt_came(void);
/* Readable once it came; -1 before interrupt_watch(). */
int interrupt_fd(void);
