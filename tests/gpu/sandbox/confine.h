/* What systemd's hardening properties do to a process, one by one, without systemd: for
 * tests/gpu/sandbox.sh.
 *
 * A struct confinement is filled from the command line and applied to the calling process, in
 * systemd's order: mounts, limits, user and capabilities, filters of system calls last. Every
 * function ends the process with a line on stderr when the kernel refuses: a confinement that is
 * not there must not pass for one. x86-64 only, needs root.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONFINE_USER = 65534, CAPABILITIES = 64 }; /* nobody */

#ifndef PR_SET_MDWE /* Linux 6.3, and newer than some headers */
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#define PR_GET_MDWE 66
#endif

struct confinement {
    /* mounts */
    const char *writable; /* with ProtectSystem=strict: what may be written all the same */
    const char *proc;     /* options of a /proc of its own: "hidepid=invisible,subset=pid" */
    const char
        *devices;   /* majors of the device files that may be opened, as "195,511"; "" = none */
    bool home, tmp; /* ProtectHome, PrivateTmp */
    bool tunables, groups;   /* ProtectKernelTunables, ProtectControlGroups */
    bool logs, modules;      /* files of ProtectKernelLogs, ProtectKernelModules */
    bool network, host_name; /* namespaces of PrivateNetwork, ProtectHostname */
    /* the process */
    bool user, capabilities, no_new_privileges, mdwe;
    const char *memlock; /* bytes */
    /* names of filters, see confine_filter() */
    const char *filters[16];
    size_t filter_count;
};

void confine_die(const char *what) __attribute__((noreturn));

/* confine_mount.c: namespaces, and what the file system shows in them. */
void confine_mounts(const struct confinement *confinement);
/* confine_filter.c: the seccomp filter of one property, by its systemd name; false: none of that
 * name. */
bool confine_filter_exists(const char *name);
void confine_filter(const char *name);
/* confine_probe.c */
void confine_probe(void);
