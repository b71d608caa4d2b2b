/* Names of calls: which a program may import. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/jobs/elf.h"
#include "tests/jobs/bench.h"
#include "tests/runner.h"

#define NAME_BYTES 80 /* more than any call of the runtime's has */
#define RUNTIME_CALLS 250

/* A module whose one import has a long name, over which others are written. */
static unsigned char *module;
static size_t module_bytes;

static void make_module(void)
{
    char path[] = "/tmp/sluice-calls-XXXXXX", name[NAME_BYTES + 1] = {0}, command[600];
    int fd = mkstemp(path);
    memset(name, 'a', NAME_BYTES);
    snprintf(command, sizeof(command),
             "echo 'int %s(void); int f(void) { return %s(); }' | " COMPILER
             " -x c -shared -fPIC -s -o %s -",
             name, name, path);
    ck_assert(fd >= 0 && system(command) == 0);
    FILE *file = fopen(path, "rb"); /* a new file may stand there by now */
    ck_assert(file && !fseek(file, 0, SEEK_END));
    module_bytes = (size_t)ftell(file);
    rewind(file);
    module = malloc(module_bytes);
    ck_assert_uint_eq(fread(module, 1, module_bytes, file), module_bytes);
    fclose(file);
    close(fd);
    unlink(path);
}

static void drop_module(void)
{
    free(module);
}

/* What elf_check says of a module that imports this; NULL: nothing. */
static const char *said(const char *name, int cuda)
{
    static struct error error;
    char was[NAME_BYTES + 1] = {0};
    memset(was, 'a', NAME_BYTES);
    unsigned char *at = memmem(module, module_bytes, was, NAME_BYTES);
    ck_assert(at && strlen(name) < NAME_BYTES);
    memcpy(at, name, strlen(name) + 1);
    const int rc = elf_check(module, module_bytes, cuda, &error);
    memset(at, 'a', NAME_BYTES);
    return rc ? error.text : NULL;
}

static void refused(const char *name, const char *why)
{
    const char *text = said(name, 1);
    ck_assert_msg(text && strstr(text, name) && strstr(text, why), "%s: %s", name, text);
}

static const char *with(const char *name, const char *ending)
{
    static char both[2 * NAME_BYTES];
    snprintf(both, sizeof(both), "%s%s", name, ending);
    return both;
}

/* ---- the table ---------------------------------------------------------------------------------
 */

static void forbidden(const char *name, const char *why, bool family)
{
    refused(name, why);
    refused(with(name, "_ptsz"), why);
    refused(with(name, "_ptds"), why);
    if (family)
        refused(with(name, "Further_ptsz"), why);
}

static void plain(const char *name)
{
    refused(name, "--default-stream per-thread");
    ck_assert_ptr_null(said(with(name, "_ptsz"), 1));
}

START_TEST(test_each_name_of_the_table_is_refused)
{
#define FORBIDDEN(name, why) forbidden(#name, why, false);
#define FAMILY(beginning, why) forbidden(#beginning, why, true);
#define PLAIN(name) plain(#name);
#include "gpu/jobs/forbidden.def"
#undef FORBIDDEN
#undef FAMILY
#undef PLAIN
}
END_TEST

START_TEST(test_what_programs_need_is_taken)
{
    static const char *const calls[] = {"__cudaPushCallConfiguration",
                                        "__cudaRegisterFatBinary",
                                        "__cudaLaunchKernel_ptsz",
                                        "cudaGetLastError",
                                        "cudaPeekAtLastError",
                                        "cudaGetErrorString",
                                        "cudaFuncSetAttribute",
                                        "cudaFuncGetAttributes",
                                        "cudaLaunchKernelExC_ptsz",
                                        "cudaEventRecord_ptsz",
                                        "cudaStreamWaitEvent_ptsz",
                                        "cudaMemcpyAsync_ptsz",
                                        "cudaMemsetAsync_ptsz",
                                        "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                                        "cudaDeviceGetAttribute",
                                        "cudaGetDevice",
                                        "malloc",
                                        "memcpy",
                                        "exits",
                                        "sluice_fork"};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        ck_assert_msg(!said(calls[i], 1), "%s: %s", calls[i], said(calls[i], 1));
    ck_assert_ptr_nonnull(said("cudaGetDevice", 0));
}
END_TEST

/* ---- the runtime's own header ------------------------------------------------------------------
 */

static bool begins(const char *name, const char *const *words)
{
    while (*words && strncmp(name, *words, strlen(*words)) != 0)
        words++;
    return *words != NULL;
}

static bool has(const char *name, const char *const *words)
{
    while (*words && !strstr(name, *words))
        words++;
    return *words != NULL;
}

/* By the words of a name: it waits, or makes, changes or ends what the daemon has. */
static bool is_dangerous(const char *name)
{
    static const char *const words[] = {"Synchronize", "Malloc",   "Alloc",   "Free",    "Reset",
                                        "Callback",    "HostFunc", "Capture", "MemPool", "Ipc",
                                        "Register",    "Trim",     NULL};
    static const char *const beginnings[] = {"cudaStreamCreate",
                                             "cudaStreamDestroy",
                                             "cudaEventCreate",
                                             "cudaEventDestroy",
                                             "cudaDeviceSet",
                                             "cudaGraph",
                                             "cudaImport",
                                             "cudaSetDevice",
                                             "cudaSetValid",
                                             "cudaLibrary",
                                             "cudaThread",
                                             "cudaGetDriverEntry",
                                             "cudaDeviceEnable",
                                             "cudaDeviceDisable",
                                             "cudaInit",
                                             "cudaLogs",
                                             NULL};
    /* What tells, and what ends or changes something that nobody could begin. */
    static const char *const harmless[] = {
        "cudaDeviceGetDefaultMemPool", "cudaDeviceGetMemPool",
        "cudaMemGetDefaultMemPool",    "cudaMemGetMemPool",
        "cudaStreamIsCapturing",       "cudaStreamGetCaptureInfo",
        "cudaStreamEndCapture",        "cudaStreamUpdateCapture",
        "cudaDeviceUnregister",        NULL};
    return (has(name, words) || begins(name, beginnings)) && !begins(name, harmless);
}

/* A copy that is not called Async. */
static bool waits(const char *name)
{
    static const char *const copies[] = {"cudaMemcpy", "cudaMemset", NULL};
    return begins(name, copies) && !strstr(name, "Async");
}

/* cudaFoo of "... CUDARTAPI cudaFoo(", NULL where the line has none. */
static const char *declared(char *line)
{
    char *at = strstr(line, "CUDARTAPI cuda");
    if (!at)
        return NULL;
    at += strlen("CUDARTAPI ");
    at[strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] = '\0';
    return at;
}

START_TEST(test_what_the_runtime_has_and_a_program_may_not_call_is_in_the_table)
{
    FILE *header = fopen(RUNTIME_HEADER, "r");
    char line[4096];
    uint32_t count = 0;
    if (!header)
        RUNNER_SKIP("no header of CUDA's runtime here");
    while (fgets(line, sizeof(line), header)) {
        const char *name = declared(line);
        if (!name)
            continue;
        count++;
        if (is_dangerous(name) || waits(name))
            ck_assert_msg(said(with(name, "_ptsz"), 1), "%s is taken", name);
        if (strstr(name, "Async") && !strstr(name, "AsyncNotification"))
            ck_assert_msg(said(name, 1), "%s is taken without an ending", name);
    }
    fclose(header);
    ck_assert_uint_gt(count, RUNTIME_CALLS);
}
END_TEST

Suite *calls_suite(void)
{
    Suite *suite = suite_create("calls");
    TCase *tests = tcase_create("names");
    tcase_add_checked_fixture(tests, make_module, drop_module);
    tcase_add_test(tests, test_each_name_of_the_table_is_refused);
    tcase_add_test(tests, test_what_programs_need_is_taken);
    tcase_add_test(tests, test_what_the_runtime_has_and_a_program_may_not_call_is_in_the_table);
    suite_add_tcase(suite, tests);
    return suite;
}
