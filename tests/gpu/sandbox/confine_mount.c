#include "tests/gpu/sandbox/confine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NODES_MAX 64
#define PATH_SIZE 512

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void set_read_only(const char *path, bool on)
{
    struct mount_attr attributes = {.attr_set = on ? MOUNT_ATTR_RDONLY : 0,
                                    .attr_clr = on ? 0 : MOUNT_ATTR_RDONLY};
    if (syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attributes, sizeof attributes))
        confine_die(path);
}

static void bind_itself(const char *path)
{
    if (mount(path, path, NULL, MS_BIND | MS_REC, NULL))
        confine_die(path);
}

static void make_read_only(const char *path)
{
    if (!exists(path))
        return;
    bind_itself(path);
    set_read_only(path, true);
}

static void make_empty(const char *path, const char *options)
{
    if (exists(path) && mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options))
        confine_die(path);
}

static void make_inaccessible(const char *path)
{
    struct stat status;
    if (stat(path, &status))
        return;
    if (S_ISDIR(status.st_mode))
        make_empty(path, "mode=000");
    else if (mount("/dev/null", path, NULL, MS_BIND, NULL))
        confine_die(path);
}

/* ---- device files ------------------------------------------------------------------------------
 */

struct node {
    char path[PATH_SIZE];
    mode_t mode;
    dev_t device;
};

struct nodes {
    struct node nodes[NODES_MAX];
    size_t count;
};

/* Notes the device files of a folder, and of the folders in it, of this name or, without `whole`,
 * whose names start so. */
static void list_nodes(struct nodes *nodes, const char *folder, const char *name, bool whole)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        char path[PATH_SIZE];
        struct stat status;
        if (strncmp(entry->d_name, name, strlen(name)) || (whole && strcmp(entry->d_name, name)) ||
            *entry->d_name == '.')
            continue;
        snprintf(path, sizeof path, "%.200s/%.255s", folder, entry->d_name);
        if (lstat(path, &status))
            continue;
        if (S_ISDIR(status.st_mode))
            list_nodes(nodes, path, "", false);
        if (!S_ISCHR(status.st_mode))
            continue;
        if (nodes->count == NODES_MAX)
            confine_die("too many device files");
        struct node *node = &nodes->nodes[nodes->count++];
        snprintf(node->path, sizeof node->path, "%s", path);
        node->mode = status.st_mode;
        node->device = status.st_rdev;
    }
    if (directory)
        closedir(directory);
}

static bool is_listed(const char *majors, unsigned major_number)
{
    while (*majors) {
        if (strtoul(majors, NULL, 10) == major_number)
            return true;
        majors += strcspn(majors, ",");
        majors += *majors == ',';
    }
    return false;
}

static void make_node(const struct node *node, mode_t mode)
{
    char folder[PATH_SIZE];
    snprintf(folder, sizeof folder, "%s", node->path);
    *strrchr(folder, '/') = 0;
    mkdir(folder, 0755);
    if (mknod(node->path, S_IFCHR | mode, node->device) || chmod(node->path, mode))
        confine_die(node->path);
}

/* A /dev of its own with the files that DevicePolicy=closed always leaves. NVIDIA's whose majors
 * are not listed are there, but nobody may open them, as under the policy. */
static void make_devices(const char *majors)
{
    static const char *const pseudo[] = {"null",    "zero", "full", "random",
                                         "urandom", "tty",  "ptmx"};
    static struct nodes nodes; /* large */
    for (size_t i = 0; i < sizeof pseudo / sizeof pseudo[0]; i++)
        list_nodes(&nodes, "/dev", pseudo[i], true);
    size_t always = nodes.count;
    if (*majors)
        list_nodes(&nodes, "/dev", "nvidia", false);
    if (mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755"))
        confine_die("/dev");
    for (size_t i = 0; i < nodes.count; i++) {
        const struct node *node = &nodes.nodes[i];
        bool may = i < always || is_listed(majors, major(node->device));
        make_node(node, may ? node->mode & 0777 : 0);
    }
    if (mkdir("/dev/shm", 0777) || chmod("/dev/shm", 01777) || symlink("/proc/self/fd", "/dev/fd"))
        confine_die("/dev");
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static void raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
        confine_die("the loopback");
    close(fd);
}

/* Before /dev and /proc are changed, for these stay as they are. */
static void protect_system(const char *writable)
{
    static const char *const interfaces[] = {"/dev", "/proc", "/sys"};
    bind_itself(writable);
    set_read_only("/", true);
    set_read_only(writable, false);
    for (size_t i = 0; i < sizeof interfaces / sizeof interfaces[0]; i++)
        set_read_only(interfaces[i], false);
}

static void protect_kernel(const struct confinement *confinement)
{
    static const char *const tunables[] = {
        "/proc/sys", "/proc/sysrq-trigger", "/proc/acpi", "/proc/irq", "/proc/fs", "/sys"};
    for (size_t i = 0; confinement->tunables && i < sizeof tunables / sizeof tunables[0]; i++)
        make_read_only(tunables[i]);
    if (confinement->groups)
        make_read_only("/sys/fs/cgroup");
    if (confinement->logs) {
        make_inaccessible("/proc/kmsg");
        make_inaccessible("/dev/kmsg");
    }
    if (confinement->modules)
        make_inaccessible("/usr/lib/modules");
}

void confine_mounts(const struct confinement *confinement)
{
    int flags = CLONE_NEWNS | (confinement->network ? CLONE_NEWNET : 0) |
                (confinement->host_name ? CLONE_NEWUTS : 0);
    if (unshare(flags) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
        confine_die("namespaces");
    if (confinement->network)
        raise_loopback();
    if (confinement->writable)
        protect_system(confinement->writable);
    if (confinement->home) {
        make_empty("/home", "mode=755");
        make_empty("/root", "mode=700");
        make_empty("/run/user", "mode=755");
    }
    if (confinement->tmp) {
        make_empty("/tmp", "mode=1777");
        make_empty("/var/tmp", "mode=1777");
    }
    if (confinement->devices)
        make_devices(confinement->devices);
    if (confinement->proc &&
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, confinement->proc))
        confine_die("/proc");
    protect_kernel(confinement);
}
