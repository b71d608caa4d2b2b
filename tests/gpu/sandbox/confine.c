/* confine PROPERTY[=VALUE]... -- PROGRAM [ARGUMENT...]: runs the program as systemd would under
 * these properties. confine probe: prints the names of those that it runs under, by what they
 * refuse. */
#include "tests/gpu/sandbox/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void confine_die(const char *what)
{
    fprintf(stderr, "confine: %s: %s\n", what, strerror(errno));
    exit(125);
}

static bool take_switch(struct confinement *confinement, const char *name)
{
    const struct {
        const char *name;
        bool *to;
    } switches[] = {
        {"ProtectHome", &confinement->home},
        {"PrivateTmp", &confinement->tmp},
        {"ProtectKernelTunables", &confinement->tunables},
        {"ProtectControlGroups", &confinement->groups},
        {"ProtectKernelLogs", &confinement->logs},
        {"ProtectKernelModules", &confinement->modules},
        {"PrivateNetwork", &confinement->network},
        {"ProtectHostname", &confinement->host_name},
        {"User", &confinement->user},
        {"CapabilityBoundingSet", &confinement->capabilities},
        {"NoNewPrivileges", &confinement->no_new_privileges},
        {"PR_SET_MDWE", &confinement->mdwe},
    };
    bool taken = false;
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        if (!strcmp(switches[i].name, name))
            taken = *switches[i].to = true;
    }
    if (confine_filter_exists(name)) {
        if (confinement->filter_count == sizeof confinement->filters / sizeof(char *))
            confine_die("too many filters");
        confinement->filters[confinement->filter_count++] = name;
        taken = true;
    }
    return taken;
}

static bool take_value(struct confinement *confinement, const char *property)
{
    const struct {
        const char *name;
        const char **to;
    } values[] = {
        {"ReadWritePaths=", &confinement->writable},
        {"proc=", &confinement->proc},
        {"DeviceAllow=", &confinement->devices},
        {"LimitMEMLOCK=", &confinement->memlock},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        size_t length = strlen(values[i].name);
        if (!strncmp(values[i].name, property, length)) {
            *values[i].to = property + length;
            return true;
        }
    }
    return false;
}

static void limit_memlock(const char *bytes)
{
    rlim_t limit = strtoull(bytes, NULL, 10);
    if (setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){limit, limit}))
        confine_die("LimitMEMLOCK");
}

static void empty_bounding_set(void)
{
    for (unsigned long i = 0; i < CAPABILITIES; i++)
        if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1 && prctl(PR_CAPBSET_DROP, i, 0, 0, 0))
            confine_die("CapabilityBoundingSet");
}

static void become_nobody(void)
{
    if (setgroups(0, NULL) || setresgid(CONFINE_USER, CONFINE_USER, CONFINE_USER) ||
        setresuid(CONFINE_USER, CONFINE_USER, CONFINE_USER))
        confine_die("User");
}

static void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (syscall(SYS_capset, &header, none))
        confine_die("capset");
}

static void confine_process(const struct confinement *confinement)
{
    bool unprivileged = confinement->user || confinement->capabilities;
    if (confinement->memlock)
        limit_memlock(confinement->memlock);
    if (confinement->capabilities)
        empty_bounding_set();
    /* Who has no privileges may filter system calls with this alone: systemd implies it, too. */
    bool implied = unprivileged && confinement->filter_count > 0;
    if ((confinement->no_new_privileges || implied) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        confine_die("NoNewPrivileges");
    if (confinement->user)
        become_nobody();
    if (confinement->capabilities)
        drop_capabilities();
    if (confinement->mdwe && prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0))
        confine_die("PR_SET_MDWE");
    for (size_t i = 0; i < confinement->filter_count; i++)
        confine_filter(confinement->filters[i]);
}

int main(int argc, char **argv)
{
    struct confinement confinement = {.writable = NULL};
    int index = 1;
    if (argc == 2 && !strcmp(argv[1], "probe")) {
        confine_probe();
        return 0;
    }
    for (; index < argc && strcmp(argv[index], "--"); index++) {
        if (!take_switch(&confinement, argv[index]) && !take_value(&confinement, argv[index])) {
            fprintf(stderr, "confine: no property %s\n", argv[index]);
            return 125;
        }
    }
    if (index + 1 >= argc) {
        fprintf(stderr, "usage: confine PROPERTY[=VALUE]... -- PROGRAM [ARGUMENT...] | probe\n");
        return 125;
    }
    confine_mounts(&confinement);
    confine_process(&confinement);
    execv(argv[index + 1], argv + index + 1);
    confine_die(argv[index + 1]);
}
