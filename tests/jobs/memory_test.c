/* Memory that clients share: what is mapped, and what is refused before it is. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/jobs/mapping.h"
#include "tests/jobs/daemon_suites.h"

#define BYTES 10000

enum kind {
    GOOD,
    GOOD_OUTPUTS,
    NO_MEMFD,
    UNSEALED,
    SHRINKS,
    TOO_SHORT,
    HOLES,
    HOLE_INSIDE,
    OUTPUTS_SEALED,
    OUTPUTS_SHRINK,
    A_PIPE,
    KINDS
};

static const struct {
    const char *text; /* of the refusal; NULL: it is taken */
    bool writable;
} expected[KINDS] = {
    [GOOD] = {NULL, false},
    [GOOD_OUTPUTS] = {NULL, true},
    [NO_MEMFD] = {"no memfd", false},
    [UNSEALED] = {"sealed against shrinking and writing", false},
    [SHRINKS] = {"sealed against shrinking and writing", false},
    [TOO_SHORT] = {"has 9999 bytes, the tensors take 10000", false},
    [HOLES] = {"has holes: 0 of", false},
    [HOLE_INSIDE] = {"has holes", false},
    [OUTPUTS_SEALED] = {"is sealed against writing", true},
    [OUTPUTS_SHRINK] = {"must be sealed against shrinking", true},
    [A_PIPE] = {"no memfd", false},
};

static int seals_of(enum kind kind)
{
    switch (kind) {
    case UNSEALED:
    case OUTPUTS_SHRINK:
        return 0;
    case SHRINKS:
        return F_SEAL_WRITE | F_SEAL_GROW;
    case GOOD_OUTPUTS:
        return F_SEAL_SHRINK | F_SEAL_GROW;
    default:
        return F_SEAL_SHRINK | F_SEAL_WRITE;
    }
}

static int make(enum kind kind)
{
    static const char bytes[3 * BYTES] = {1, 2, 3};
    int fd, ends[2];
    if (kind == NO_MEMFD)
        return fileno(tmpfile());
    if (kind == A_PIPE) {
        ck_assert_int_eq(pipe(ends), 0);
        close(ends[1]);
        return ends[0];
    }
    fd = memfd_create("test", MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    size_t length = kind == TOO_SHORT ? BYTES - 1 : kind == HOLE_INSIDE ? sizeof(bytes) : BYTES;
    if (kind == HOLES)
        ck_assert_int_eq(ftruncate(fd, (off_t)length), 0);
    else
        ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
    if (kind == HOLE_INSIDE)
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192), 0);
    if (seals_of(kind))
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals_of(kind)), 0);
    return fd;
}

START_TEST(memory_is_mapped_or_refused_by_what_is_wrong)
{
    struct job_memory memory = {0};
    struct error error;
    int fd = make((enum kind)_i);
    int rc = job_memory_map(fd, BYTES, expected[_i].writable, "inputs", &memory, &error);
    close(fd);
    if (expected[_i].text) {
        ck_assert_int_eq(rc, -ERR_BAD_VALUE);
        ck_assert_msg(strstr(error.text, expected[_i].text), "%s", error.text);
        ck_assert_ptr_null(memory.address);
        return;
    }
    ck_assert_msg(rc == 0, "%s", error.text);
    ck_assert_uint_eq(memory.bytes, BYTES);
    ck_assert_mem_eq(memory.address, "\1\2\3", 4);
    if (expected[_i].writable)
        ((char *)memory.address)[BYTES - 1] = 7;
    job_memory_unmap(&memory);
    ck_assert_ptr_null(memory.address);
    job_memory_unmap(&memory); /* and again */
}
END_TEST

/* ---- mappings ----------------------------------------------------------------------------------
 */

#define LARGE ((uint64_t)2 << 20)

static int share(uint64_t bytes, bool writable)
{
    int fd = memfd_create("test", MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | (writable ? 0 : F_SEAL_WRITE)), 0);
    return fd;
}

static struct job_mappings mappings;

static struct job_mapping *take(uint64_t user, int fd, uint64_t bytes, bool writable)
{
    struct job_mapping *mapping = NULL;
    struct error error;
    ck_assert_msg(
        !job_mappings_take(&mappings, user, fd, bytes, writable, "inputs", &mapping, &error), "%s",
        error.text);
    return mapping;
}

START_TEST(what_is_shared_again_is_the_same_mapping_for_its_user_alone)
{
    int first = share(LARGE, false), second = share(LARGE, false);
    job_mappings_init(&mappings, 8 * LARGE);
    struct job_mapping *a = take(1, first, LARGE, false);
    ck_assert_ptr_eq(take(1, dup(first), LARGE / 2, false), a); /* beside the first */
    job_mappings_give(&mappings, a);
    job_mappings_give(&mappings, a);
    ck_assert_ptr_eq(take(1, first, LARGE, false), a); /* and after it */
    struct job_mapping *b = take(1, second, LARGE, false), *c = take(2, first, LARGE, false);
    ck_assert(a != b && a != c && b != c);
    ck_assert(job_mapping_address(a) != job_mapping_address(c));
    job_mappings_give(&mappings, a);
    job_mappings_give(&mappings, b);
    job_mappings_give(&mappings, c);
    ck_assert_ptr_null(job_mapping_address(NULL));
    job_mappings_destroy(&mappings);
}
END_TEST

START_TEST(memory_that_is_wrong_by_now_is_refused_although_it_is_mapped)
{
    struct job_mapping *mapping = NULL;
    struct error error;
    int fd = share(LARGE, true);
    job_mappings_init(&mappings, 8 * LARGE);
    job_mappings_give(&mappings, take(1, fd, LARGE, true));
    ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192), 0);
    ck_assert_int_eq(job_mappings_take(&mappings, 1, fd, LARGE, true, "outputs", &mapping, &error),
                     -ERR_BAD_VALUE);
    ck_assert_ptr_null(mapping);
    ck_assert_int_eq(job_mappings_take(&mappings, 1, -1, LARGE, true, "outputs", &mapping, &error),
                     -ERR_BAD_VALUE);
    job_mappings_destroy(&mappings);
}
END_TEST

START_TEST(mappings_are_kept_for_a_while_and_not_too_many)
{
    int files[5];
    job_mappings_init(&mappings, 3 * LARGE);
    ck_assert_uint_eq(job_mappings_due(&mappings), 0);
    for (int i = 0; i < 5; i++) {
        files[i] = share(LARGE, true);
        job_mappings_turn(&mappings, 1000 + (time_us)i);
        job_mappings_give(&mappings, take(1, files[i], LARGE, true));
    }
    ck_assert_uint_eq(mappings.idle_count, 3);
    ck_assert_uint_eq(mappings.idle_bytes, 3 * LARGE);
    ck_assert_uint_eq(job_mappings_due(&mappings), 1002 + JOB_MAPPINGS_IDLE_US);
    job_mappings_turn(&mappings, 1003 + JOB_MAPPINGS_IDLE_US);
    ck_assert_uint_eq(mappings.idle_count, 1);
    job_mappings_give(&mappings, take(1, files[0], LARGE / 4, true)); /* too small to be kept */
    ck_assert_uint_eq(mappings.idle_count, 1);
    job_mappings_destroy(&mappings);
}
END_TEST

Suite *memory_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");
    tcase_add_loop_test(tests, memory_is_mapped_or_refused_by_what_is_wrong, 0, KINDS);
    tcase_add_test(tests, what_is_shared_again_is_the_same_mapping_for_its_user_alone);
    tcase_add_test(tests, memory_that_is_wrong_by_now_is_refused_although_it_is_mapped);
    tcase_add_test(tests, mappings_are_kept_for_a_while_and_not_too_many);
    suite_add_tcase(suite, tests);
    return suite;
}
