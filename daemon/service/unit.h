/* The systemd unit that reads a configuration file, as far as it takes something from the daemon:
 * /etc/sluice/sluiced.conf is sluiced.service's, /etc/sluice/NAME.conf is sluiced@NAME.service's.
 *
 * Read from the unit's file and its drop-ins, in systemd's order, so that it holds what an
 * administrator has changed, and no systemd need run. What it does not know it takes as allowed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define UNIT_DIRECTORY "/etc/sluice/"
#define UNIT_NAME_MAX 128
#define UNIT_LIST_MAX 4096

struct unit {
    char name[UNIT_NAME_MAX];
    char user[64];                /* "": root */
    bool home_hidden;             /* ProtectHome=yes, tmpfs */
    bool home_bindable;           /* ProtectHome=tmpfs: what is bound below it is seen */
    bool tmp_private;             /* PrivateTmp= */
    bool network_private;         /* PrivateNetwork= */
    bool system_read_only;        /* ProtectSystem=strict */
    bool families_limited;        /* RestrictAddressFamilies= names those that are left */
    bool inet, inet6;             /* among them */
    bool other_root;              /* RootDirectory=, RootImage=: nothing is known of paths */
    char bound[UNIT_LIST_MAX];    /* what is seen all the same, with blanks between */
    char writable[UNIT_LIST_MAX]; /* and may be written to */
};

/* False where the configuration is no unit's, or there is no such unit. `root`, a whole path,
 * stands before all paths of systemd's and of ours, "" outside of tests. */
bool unit_read(const char *root, const char *config, struct unit *ret_unit);
/* Lines of one unit file, on top of what there is. */
void unit_apply(struct unit *unit, const char *text, size_t length);
