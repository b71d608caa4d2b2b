/* Inboxes: how the ranks of a group hand each other numbers in the middle of a step.
 *
 * Every rank has an inbox in its own memory, with a part for each sender. The others put numbers
 * there, and it alone takes them out. A word of an inbox is empty (all bits set) until a number is
 * put into it, and who takes the number leaves it empty; so the number itself says that it is
 * there, and nothing else is exchanged. (A number that looks empty is a NaN, and is put as another
 * NaN.) Two inboxes take turns: whoever puts into one for the second time has since taken, from
 * each rank, what that rank put after it had emptied the first.
 *
 * All ranks make the same calls in the same order, with as many rows. On the CPU device ranks meet
 * by tallies between putting and taking, as its streams may not wait inside a kernel.
 */
#pragma once

#include "gpu/gpu.h"
#include "gpu/kernels/common/kernel.h"

#define INBOX_RANKS_MAX 8 /* of a group that has inboxes */
#define INBOX_EMPTY 0xff  /* every byte of what is empty */
#define INBOX_ALIGN 16    /* bytes: parts and what is put begin at multiples */

struct inboxes {
    uint32_t rank, ranks;
    void *at[INBOX_RANKS_MAX]; /* each rank's inbox of this turn; peer memory but for the own */
    uint64_t part_bytes;       /* sender r's part of an inbox begins at r * part_bytes */
    const uint32_t *let_go;    /* pinned; not 0: the group has failed, and nobody waits any more */
    cudaStream_t tally[INBOX_RANKS_MAX]; /* CPU device alone */
};
