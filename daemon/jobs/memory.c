#include "daemon/jobs/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

static int check_seals(int fd, bool writable, const char *what, struct error *error)
{
    const int needed = F_SEAL_SHRINK | (writable ? 0 : F_SEAL_WRITE);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return error_set(error, ERR_BAD_VALUE, "memory of %s: the descriptor is no memfd", what);
    if ((seals & needed) != needed)
        return error_set(error, ERR_BAD_VALUE, "memory of %s must be sealed against shrinking%s",
                         what, writable ? "" : " and writing");
    if (writable && seals & F_SEAL_WRITE)
        return error_set(error, ERR_BAD_VALUE, "memory of %s is sealed against writing", what);
    return 0;
}

static int check_size(int fd, uint64_t bytes, const char *what, struct error *error)
{
    struct stat status;
    struct statfs system;
    if (fstat(fd, &status) != 0 || fstatfs(fd, &system) != 0)
        return error_set(error, ERR_IO, "memory of %s: %s", what, strerror(errno));
    /* Huge pages may not be had when they are looked at. */
    if (system.f_type != TMPFS_MAGIC)
        return error_set(error, ERR_BAD_VALUE, "memory of %s must be a memfd without huge pages",
                         what);
    if ((uint64_t)status.st_size < bytes)
        return error_limit(error, ERR_BAD_VALUE, bytes, (uint64_t)status.st_size,
                           "memory of %s has %" PRIu64 " bytes, the tensors take %" PRIu64, what,
                           (uint64_t)status.st_size, bytes);
    if ((uint64_t)status.st_blocks * 512 < (uint64_t)status.st_size)
        return error_limit(error, ERR_BAD_VALUE, (uint64_t)status.st_size,
                           (uint64_t)status.st_blocks * 512,
                           "memory of %s has holes: %" PRIu64 " of its %" PRIu64 " bytes are there",
                           what, (uint64_t)status.st_blocks * 512, (uint64_t)status.st_size);
    return 0;
}

int job_memory_check(int fd, uint64_t bytes, bool writable, const char *what, struct error *error)
{
    int rc = check_seals(fd, writable, what, error);
    return rc ? rc : check_size(fd, bytes, what, error);
}

int job_memory_map(int fd, uint64_t bytes, bool writable, const char *what,
                   struct job_memory *ret_memory, struct error *error)
{
    int rc = job_memory_check(fd, bytes, writable, what, error);
    if (rc)
        return rc;
    void *address =
        mmap(NULL, (size_t)bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED)
        return error_set(error, error_of_system(errno, ERR_NO_MEMORY),
                         "memory of %s cannot be mapped: %s", what, strerror(errno));
    *ret_memory = (struct job_memory){.address = address, .bytes = bytes};
    return 0;
}

void job_memory_unmap(struct job_memory *memory)
{
    if (memory->address)
        munmap(memory->address, (size_t)memory->bytes);
    *memory = (struct job_memory){0};
}
