/* A system that refuses: sluiced_faults is the daemon with the calls of calls.def in between.
 *
 * SLUICE_TEST_FAULT=call:nth:fault makes the nth call of that name end as calls.def says, in any
 * thread; SLUICE_TEST_SEEN=PATH is a file of one struct faults_seen in which all are counted.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

enum faults_call {
#define CALL(name, type, parameters, arguments, faults) FAULTS_##name,
#define BYTES(name, type, parameters, arguments, part, faults) FAULTS_##name,
#define OTHER(name, faults) FAULTS_##name,
#include "tests/faults/calls.def"
#undef CALL
#undef BYTES
#undef OTHER
    FAULTS_CALLS
};

struct faults_seen {
    atomic_ulong calls[FAULTS_CALLS];
    atomic_ulong struck; /* how many calls ended by the fault */
};

/* A pipe or an eventfd that does not wait, or does; a file or a socket. */
enum faults_kind { FAULTS_PIPE, FAULTS_WAITING_PIPE, FAULTS_STREAM };
enum faults_kind faults_kind(int fd);
