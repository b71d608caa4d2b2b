#include "tests/gpu/sandbox/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define INSTRUCTIONS_MAX 1024
#define ANY (-1)
#define FAMILIES_PROPERTY "RestrictAddressFamilies="
#define NAMESPACES                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

/* Refuses a call when (argument & mask) is value, or is not. */
struct rule {
    const char *property;
    long call;
    int argument; /* or ANY: refuse it whatever they are */
    uint32_t mask, value;
    bool equal;
    int error;
};

static const struct rule rules[] = {
    {"MemoryDenyWriteExecute", SYS_mmap, 2, PROT_WRITE | PROT_EXEC, PROT_WRITE | PROT_EXEC, true,
     EPERM},
    {"MemoryDenyWriteExecute", SYS_mprotect, 2, PROT_EXEC, PROT_EXEC, true, EPERM},
    {"MemoryDenyWriteExecute", SYS_pkey_mprotect, 2, PROT_EXEC, PROT_EXEC, true, EPERM},
    {"MemoryDenyWriteExecute", SYS_shmat, 2, SHM_EXEC, SHM_EXEC, true, EPERM},
    {"RestrictNamespaces", SYS_unshare, 0, NAMESPACES, 0, false, EPERM},
    {"RestrictNamespaces", SYS_clone, 0, NAMESPACES, 0, false, EPERM},
    {"RestrictNamespaces", SYS_clone3, ANY, 0, 0, true, ENOSYS},
    {"RestrictNamespaces", SYS_setns, ANY, 0, 0, true, EPERM},
    {"RestrictRealtime", SYS_sched_setscheduler, 1, UINT32_MAX, SCHED_FIFO, true, EPERM},
    {"RestrictRealtime", SYS_sched_setscheduler, 1, UINT32_MAX, SCHED_RR, true, EPERM},
    {"RestrictRealtime", SYS_sched_setscheduler, 1, UINT32_MAX, SCHED_DEADLINE, true, EPERM},
    {"RestrictRealtime", SYS_sched_setattr, ANY, 0, 0, true, EPERM},
    {"RestrictSUIDSGID", SYS_chmod, 1, S_ISUID | S_ISGID, 0, false, EPERM},
    {"RestrictSUIDSGID", SYS_fchmod, 1, S_ISUID | S_ISGID, 0, false, EPERM},
    {"RestrictSUIDSGID", SYS_fchmodat, 2, S_ISUID | S_ISGID, 0, false, EPERM},
    {"RestrictSUIDSGID", SYS_mkdir, 1, S_ISUID | S_ISGID, 0, false, EPERM},
    {"RestrictSUIDSGID", SYS_mkdirat, 2, S_ISUID | S_ISGID, 0, false, EPERM},
    {"RestrictSUIDSGID", SYS_mknod, 1, S_ISUID | S_ISGID, 0, false, EPERM},
    {"RestrictSUIDSGID", SYS_mknodat, 2, S_ISUID | S_ISGID, 0, false, EPERM},
    {"LockPersonality", SYS_personality, 0, UINT32_MAX, UINT32_MAX, false, EPERM},
    {"ProtectClock", SYS_clock_adjtime, ANY, 0, 0, true, EPERM},
    {"ProtectClock", SYS_clock_settime, ANY, 0, 0, true, EPERM},
    {"ProtectClock", SYS_adjtimex, ANY, 0, 0, true, EPERM},
    {"ProtectClock", SYS_settimeofday, ANY, 0, 0, true, EPERM},
    {"ProtectHostname", SYS_sethostname, ANY, 0, 0, true, EPERM},
    {"ProtectHostname", SYS_setdomainname, ANY, 0, 0, true, EPERM},
    {"ProtectKernelLogs", SYS_syslog, ANY, 0, 0, true, EPERM},
    {"ProtectKernelModules", SYS_init_module, ANY, 0, 0, true, EPERM},
    {"ProtectKernelModules", SYS_finit_module, ANY, 0, 0, true, EPERM},
    {"ProtectKernelModules", SYS_delete_module, ANY, 0, 0, true, EPERM},
};

#define RULES (sizeof rules / sizeof rules[0])

static const long allowed[] = {
#define CALL(name) SYS_##name,
#include "tests/gpu/calls.def"
#undef CALL
};

static const struct {
    const char *name;
    uint32_t number;
} families[] = {
    {"AF_UNIX", AF_UNIX}, {"AF_INET", AF_INET}, {"AF_INET6", AF_INET6}, {"AF_NETLINK", AF_NETLINK}};

#define FAMILIES (sizeof families / sizeof families[0])

struct program {
    struct sock_filter code[INSTRUCTIONS_MAX];
    unsigned short length;
};

static void put(struct program *program, struct sock_filter instruction)
{
    if (program->length == INSTRUCTIONS_MAX)
        confine_die("a filter is too long");
    program->code[program->length++] = instruction;
}

static void put_load(struct program *program, size_t offset)
{
    put(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void put_return(struct program *program, uint32_t action)
{
    put(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static void put_begin(struct program *program)
{
    put_load(program, offsetof(struct seccomp_data, arch));
    put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    put_return(program, SECCOMP_RET_KILL_PROCESS);
}

static void put_rule(struct program *program, const struct rule *rule)
{
    uint8_t skip = rule->argument == ANY ? 1 : 4;
    put_load(program, offsetof(struct seccomp_data, nr));
    put(program,
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rule->call, 0, skip));
    if (rule->argument != ANY) {
        put_load(program, offsetof(struct seccomp_data, args) + 8 * (size_t)rule->argument);
        put(program, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, rule->mask));
        put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->value,
                                                  rule->equal ? 0 : 1, rule->equal ? 1 : 0));
    }
    put_return(program, SECCOMP_RET_ERRNO | (uint32_t)rule->error);
}

static void put_allowed(struct program *program)
{
    put_load(program, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        put(program,
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1));
        put_return(program, SECCOMP_RET_ALLOW);
    }
    put_return(program, SECCOMP_RET_ERRNO | EPERM);
}

/* The families' names with blanks between. */
static void put_families(struct program *program, const char *names)
{
    bool allow[FAMILIES] = {false};
    while (*names) {
        size_t length = strcspn(names, " "), i = 0;
        while (i < FAMILIES &&
               (strncmp(families[i].name, names, length) || families[i].name[length]))
            i++;
        if (i == FAMILIES)
            confine_die(names);
        allow[i] = true;
        names += length + (names[length] == ' ');
    }
    put_load(program, offsetof(struct seccomp_data, nr));
    put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0));
    put_return(program, SECCOMP_RET_ALLOW);
    put_load(program, offsetof(struct seccomp_data, args));
    for (size_t i = 0; i < FAMILIES; i++) {
        if (!allow[i])
            continue;
        put(program,
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, families[i].number, 0, 1));
        put_return(program, SECCOMP_RET_ALLOW);
    }
    put_return(program, SECCOMP_RET_ERRNO | EAFNOSUPPORT);
}

bool confine_filter_exists(const char *property)
{
    bool exists = !strcmp(property, "SystemCallFilter") ||
                  !strcmp(property, "SystemCallArchitectures") ||
                  !strncmp(property, FAMILIES_PROPERTY, strlen(FAMILIES_PROPERTY));
    for (size_t i = 0; i < RULES; i++)
        exists = exists || !strcmp(rules[i].property, property);
    return exists;
}

void confine_filter(const char *property)
{
    struct program program = {.length = 0};
    put_begin(&program); /* all there is to SystemCallArchitectures=native */
    for (size_t i = 0; i < RULES; i++)
        if (!strcmp(rules[i].property, property))
            put_rule(&program, &rules[i]);
    if (!strncmp(property, FAMILIES_PROPERTY, strlen(FAMILIES_PROPERTY)))
        put_families(&program, property + strlen(FAMILIES_PROPERTY));
    else if (!strcmp(property, "SystemCallFilter"))
        put_allowed(&program);
    else
        put_return(&program, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {program.length, program.code};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0))
        confine_die(property);
}
