#include "tests/gpu/sandbox/confine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Each asks for what fails otherwise for another reason than the property, or succeeds. */

static bool failed(long result, int error)
{
    return result < 0 && errno == error;
}

static bool write_execute(void)
{
    void *memory =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED && errno == EPERM && prctl(PR_GET_MDWE, 0, 0, 0, 0) != 1;
}

static bool kernel_write_execute(void)
{
    return prctl(PR_GET_MDWE, 0, 0, 0, 0) == 1;
}

static bool families(void)
{
    return failed(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), EAFNOSUPPORT);
}

static bool namespaces(void)
{
    return failed(syscall(SYS_unshare, CLONE_NEWUTS | CLONE_FS), EPERM);
}

static bool realtime(void)
{
    const struct sched_param param = {.sched_priority = 1};
    return failed(syscall(SYS_sched_setscheduler, 0, SCHED_RR, &param), EPERM);
}

static bool set_ids(void)
{
    return failed(syscall(SYS_chmod, "/no/such/file", S_ISUID), EPERM);
}

static bool lock_personality(void)
{
    return failed(personality(ADDR_NO_RANDOMIZE), EPERM);
}

static bool clocks(void)
{
    const struct timespec time = {0};
    return failed(syscall(SYS_clock_settime, 9999, &time), EPERM);
}

static bool host_name(void)
{
    return failed(syscall(SYS_sethostname, "x", -1), EPERM);
}

static bool logs(void)
{
    return failed(klogctl(10, NULL, 0), EPERM);
}

static bool modules(void)
{
    return failed(syscall(SYS_delete_module, "no such module", O_NONBLOCK), EPERM);
}

static bool calls(void)
{
    return failed(syscall(SYS_ioprio_set, -1, 0, 0), EPERM);
}

static bool user(void)
{
    return getuid() == CONFINE_USER && getgid() == CONFINE_USER;
}

static bool capabilities(void)
{
    for (unsigned long i = 0; i < CAPABILITIES; i++)
        if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1)
            return false;
    return true;
}

static bool no_new_privileges(void)
{
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
}

static bool memlock(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur <= 8u << 20;
}

static bool read_only(void)
{
    return failed(open("/usr/confine-probe", O_RDONLY | O_CREAT | O_CLOEXEC, 0600), EROFS) ||
           failed(access("/usr", W_OK), EROFS);
}

static bool is_empty(const char *path)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    bool empty = true;
    while (directory && (entry = readdir(directory)))
        empty = empty && *entry->d_name == '.' && strlen(entry->d_name) < 3;
    if (directory)
        closedir(directory);
    return empty;
}

static bool home(void)
{
    return is_empty("/root") && is_empty("/home");
}

static bool temporary(void)
{
    return is_empty("/tmp");
}

static bool subset(void)
{
    return access("/proc/self", F_OK) == 0 && access("/proc/cpuinfo", F_OK) != 0;
}

static bool invisible(void)
{
    char options[4096] = "";
    FILE *mounts = fopen("/proc/self/mounts", "re");
    bool hidden = false;
    while (mounts && fgets(options, sizeof options, mounts))
        if (!strncmp(options, "proc /proc ", 11))
            hidden = strstr(options, "hidepid=invisible") || strstr(options, "hidepid=2");
    if (mounts)
        fclose(mounts);
    return hidden;
}

static bool devices(void)
{
    return access("/dev/null", W_OK) == 0 && access("/dev/kmsg", F_OK) != 0;
}

static bool tunables(void)
{
    return failed(access("/proc/sys/kernel/domainname", W_OK), EROFS) ||
           failed(access("/sys/kernel", W_OK), EROFS);
}

static bool network(void)
{
    char line[256];
    int count = -2; /* its headings */
    FILE *file = fopen("/proc/self/net/dev", "re");
    while (file && fgets(line, sizeof line, file))
        count++;
    if (file)
        fclose(file);
    return count == 1;
}

void confine_probe(void)
{
    static const struct {
        const char *name;
        bool (*holds)(void);
    } probes[] = {
        {"ReadWritePaths=", read_only},
        {"ProtectHome", home},
        {"PrivateTmp", temporary},
        {"ProtectProc=", invisible},
        {"ProcSubset=", subset},
        {"DeviceAllow=", devices},
        {"ProtectKernelTunables", tunables},
        {"PrivateNetwork", network},
        {"User", user},
        {"CapabilityBoundingSet", capabilities},
        {"LimitMEMLOCK=", memlock},
        {"NoNewPrivileges", no_new_privileges},
        {"PR_SET_MDWE", kernel_write_execute},
        {"MemoryDenyWriteExecute", write_execute},
        {"RestrictAddressFamilies=", families},
        {"RestrictNamespaces", namespaces},
        {"RestrictSUIDSGID", set_ids},
        {"LockPersonality", lock_personality},
        {"ProtectClock", clocks},
        {"ProtectHostname", host_name},
        {"ProtectKernelLogs", logs},
        {"ProtectKernelModules", modules},
        {"SystemCallFilter", calls},
        {"RestrictRealtime", realtime}, /* last: it would change this process */
    };
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++)
        if (probes[i].holds())
            printf("%s\n", probes[i].name);
}
