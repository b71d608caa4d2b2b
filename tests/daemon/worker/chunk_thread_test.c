/* The thread that makes chunks of host memory, and what it leaves to others. */
#include "daemon/worker/chunk_thread.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "daemon/base/host_memory.h"
#include "protocol/base/error.h"
#include "tests/daemon/replica_suites.h"
#include "tests/daemon/rig/fake_device.h"

#define MIB (1024ull * 1024)

static char root[64];

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/sluice-host-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

static void put(const char *folder, const char *file, const char *text)
{
    char path[256], command[300];
    snprintf(path, sizeof(path), "%s/%s", root, folder);
    snprintf(command, sizeof(command), "mkdir -p '%s'", path);
    ck_assert_int_eq(system(command), 0);
    snprintf(path, sizeof(path), "%s/%s/%s", root, folder, file);
    FILE *to = fopen(path, "w");
    ck_assert_ptr_nonnull(to);
    fputs(text, to);
    fclose(to);
}

/* In KiB. */
static void put_machine(uint64_t all, uint64_t left)
{
    char text[200];
    snprintf(text, sizeof(text), "MemTotal: %lu kB\nMemFree: 1 kB\nMemAvailable:   %lu kB\n",
             (unsigned long)all, (unsigned long)left);
    put("proc", "meminfo", text);
}

START_TEST(what_is_left_is_told_by_the_machine_and_by_each_group)
{
    struct host_memory memory;
    put_machine(64 * 1024, 48 * 1024);
    ck_assert(host_memory_read(root, &memory));
    ck_assert_uint_eq(memory.all, 64 * MIB);
    ck_assert_uint_eq(memory.left, 48 * MIB);
    put("proc/self", "cgroup", "4:memory:/old\n0::/a.slice/b.service\n");
    ck_assert(host_memory_read(root, &memory)); /* no such group: nothing is limited */
    ck_assert_uint_eq(memory.left, 48 * MIB);
    put("sys/fs/cgroup/a.slice/b.service", "memory.max", "max\n");
    put("sys/fs/cgroup/a.slice/b.service", "memory.current", "41943040\n");
    ck_assert(host_memory_read(root, &memory));
    ck_assert_uint_eq(memory.left, 48 * MIB);
    /* One above has a limit, of which files take a part that goes when it is needed. */
    put("sys/fs/cgroup/a.slice", "memory.max", "52428800\n");
    put("sys/fs/cgroup/a.slice", "memory.current", "47185920\n");
    ck_assert(host_memory_read(root, &memory));
    ck_assert_uint_eq(memory.all, 50 * MIB);
    ck_assert_uint_eq(memory.left, 5 * MIB);
    put("sys/fs/cgroup/a.slice", "memory.stat",
        "anon 1\nfile 3\ninactive_file 1048576\nactive_file 2097152\n");
    ck_assert(host_memory_read(root, &memory));
    ck_assert_uint_eq(memory.left, 8 * MIB);
    put("sys/fs/cgroup", "memory.max", "1048576\n"); /* and the one above all */
    put("sys/fs/cgroup", "memory.current", "2097152\n");
    ck_assert(host_memory_read(root, &memory));
    ck_assert_uint_eq(memory.left, 0);
}
END_TEST

/* As in a service that does not see meminfo. */
START_TEST(what_is_left_is_told_without_meminfo)
{
    struct host_memory memory;
    struct sysinfo info;
    ck_assert_int_eq(sysinfo(&info), 0);
    uint64_t all = (uint64_t)info.totalram * info.mem_unit;
    ck_assert(host_memory_read(root, &memory));
    ck_assert_uint_eq(memory.all, all);
    ck_assert_uint_lt(memory.left, all);
    put("sys/fs/cgroup", "memory.stat", "inactive_file 18446744073709551615\n");
    ck_assert(host_memory_read(root, &memory)); /* all is files' */
    ck_assert_uint_eq(memory.left, all);
}
END_TEST

START_TEST(a_sixteenth_of_all_memory_stays)
{
    struct host_memory memory = {.all = 160, .left = 100};
    ck_assert(host_memory_spares(&memory, 90));
    ck_assert(!host_memory_spares(&memory, 91));
    memory.left = 9;
    ck_assert(!host_memory_spares(&memory, 0));
}
END_TEST

static void ready(void *context)
{
    ssize_t written = write(*(int *)context, &(uint64_t){1}, sizeof(uint64_t));
    (void)written; /* who waits for it would see */
}

static bool ask(struct chunk_thread *thread, int fd, uint32_t chunk, bool make)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    uint64_t drained;
    bool good = false;
    chunk_thread_ask(thread, 0, chunk, make);
    ck_assert_int_eq(poll(&poll_fd, 1, 60000), 1);
    ck_assert_int_eq(read(fd, &drained, sizeof(drained)), sizeof(drained));
    ck_assert(chunk_thread_told(thread, &good));
    ck_assert(!chunk_thread_told(thread, &good)); /* once */
    return good;
}

/* With a thread, and without one. */
START_TEST(chunks_are_made_told_of_and_given_back)
{
    struct fake_shape shape = {.slots_max = 1,
                               .tokens_max = 8,
                               .context_max = 8,
                               .block_tokens = 8,
                               .group_count = 1,
                               .slab_blocks = 1,
                               .slabs_max = 1,
                               .chunk_blocks = 4,
                               .chunks_max = 2};
    struct gpu_engine *engine = fake_create(&shape, 1);
    struct chunk_thread *thread;
    struct error error;
    bool good;
    int fd = eventfd(0, 0);
    ck_assert_int_eq(
        chunk_thread_make(&fake_api, engine, fake_model(engine), ready, &fd, &thread, &error), 0);
    put_machine(1024, 64 + 4); /* KiB: a chunk more than what stays */
    if (_i == 0)
        chunk_thread_threaded(thread, root);
    ck_assert(!chunk_thread_told(thread, &good));
    ck_assert(ask(thread, fd, 0, true));
    ck_assert_uint_eq(fake_counts(engine).chunks, 1);
    put_machine(1024, 64 + 3);
    ck_assert_int_eq(ask(thread, fd, 1, true), _i != 0); /* who has no thread looks at nothing */
    ck_assert_uint_eq(fake_counts(engine).chunks, 1 + (uint32_t)_i);
    ck_assert(ask(thread, fd, 0, false));
    ck_assert_uint_eq(fake_counts(engine).chunks, (uint32_t)_i);
    fake_knobs(engine)->chunk_refused = 100;
    put_machine(1024, 1024);
    ck_assert(!ask(thread, fd, 0, true));
    ck_assert_str_eq(fake_fault(engine), "");
    chunk_thread_free(thread);
    fake_destroy(engine);
    close(fd);
}
END_TEST

Suite *chunk_thread_suite(void)
{
    Suite *suite = suite_create("chunk thread");
    TCase *tcase = tcase_create("chunks");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_is_left_is_told_by_the_machine_and_by_each_group);
    tcase_add_test(tcase, what_is_left_is_told_without_meminfo);
    tcase_add_test(tcase, a_sixteenth_of_all_memory_stays);
    tcase_add_loop_test(tcase, chunks_are_made_told_of_and_given_back, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
