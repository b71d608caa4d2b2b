#include "gpu/jobs/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/jobs/elf.h"

#define MODULE_BYTES_MAX ((off_t)1 << 30)

/* Belongs to root or to whom the daemon runs as, and nobody else can change it. */
static int check_owner(const struct stat *status, const char *what, struct error *error)
{
    if (status->st_uid != 0 && status->st_uid != geteuid())
        return error_set(error, ERR_BAD_CONFIG, "%s belongs to uid %u: root's, or the daemon's own",
                         what, (unsigned)status->st_uid);
    if (status->st_mode & (S_IWGRP | S_IWOTH))
        return error_set(error, ERR_BAD_CONFIG, "%s can be written to by others (mode %04o)", what,
                         (unsigned)(status->st_mode & 07777));
    return 0;
}

static int check_folder(const char *real, struct error *error)
{
    char folder[PATH_MAX];
    struct stat status;
    snprintf(folder, sizeof(folder), "%s", real);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    if (stat(folder, &status) != 0)
        return error_set(error, ERR_BAD_CONFIG, "its folder: %s", strerror(errno));
    return check_owner(&status, "its folder", error);
}

static int check_file(int fd, off_t *ret_length, struct error *error)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return error_set(error, ERR_BAD_CONFIG, "it is no regular file");
    if (status.st_size <= 0 || status.st_size > MODULE_BYTES_MAX)
        return error_set(error, ERR_BAD_CONFIG, "it is empty, or larger than 1 GiB");
    *ret_length = status.st_size;
    return check_owner(&status, "it", error);
}

static int check_bytes(int fd, off_t length, const char *device, struct error *error)
{
    void *bytes = mmap(NULL, (size_t)length, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return error_set(error, error_of_system(errno, ERR_IO), "cannot read it: %s",
                         strerror(errno));
    int rc = elf_check(bytes, (size_t)length, !strcmp(device, "cuda"), error);
    munmap(bytes, (size_t)length);
    return rc;
}

/* By the descriptor: whatever the name means by now, this is what was looked at. */
static int load(int fd, const char *device, struct program *ret_program, struct error *error)
{
    char name[64];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    void *module = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return error_set(error, ERR_BAD_CONFIG, "it cannot be loaded: %.200s", dlerror());
    snprintf(name, sizeof(name), "sluice_program_%s", device);
    const struct sluice_program *said = dlsym(module, name);
    int rc = said ? program_read(said, ret_program, error)
                  : error_set(error, ERR_BAD_CONFIG, "it has no body for the device %s (no %s)",
                              device, name);
    if (rc)
        dlclose(module);
    return rc;
}

static int open_checked(const char *real, const char *device, struct program *ret_program,
                        struct error *error)
{
    off_t length = 0;
    int rc = check_folder(real, error);
    if (rc)
        return rc;
    int fd = open(real, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return error_set(error, error_of_system(errno, ERR_BAD_CONFIG), "it cannot be opened: %s",
                         strerror(errno));
    rc = check_file(fd, &length, error);
    if (!rc)
        rc = check_bytes(fd, length, device, error);
    if (!rc)
        rc = load(fd, device, ret_program, error);
    if (rc)
        close(fd);
    return rc; /* else it stays open: the loader knows modules by their names, so no two have one */
}

int module_load(const char *path, const char *device, struct program *ret_program,
                struct error *error)
{
    char real[PATH_MAX];
    struct error why;
    int rc = realpath(path, real) ? open_checked(real, device, ret_program, &why)
                                  : error_set(&why, error_of_system(errno, ERR_BAD_CONFIG), "%s",
                                              strerror(errno));
    return rc ? error_limit(error, why.code, why.limit, why.value, "program %.256s: %s", path,
                            why.text)
              : 0;
}
