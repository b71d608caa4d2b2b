/* Programs in a daemon as a process: what it loads, what hostile clients get, and what stays of a
 * job that fails, hangs or crashes. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/message_job.h"
#include "tests/client/program.h"
#include "tests/daemon/rig/spawn.h"
#include "tests/jobs/service_suites.h"
#include "tests/runner.h"

static struct spawn spawn;
static struct program program;
static char state_dir[80], record[128];
static const char *const environment[] = {state_dir, NULL};

static void setup(void)
{
    spawn_make(&spawn);
    setenv("SLUICE_SOCKET", spawn.socket, 1);
    snprintf(state_dir, sizeof(state_dir), "STATE_DIRECTORY=%s", spawn.directory);
    snprintf(record, sizeof(record), "%s/program-poison.off", spawn.directory);
}

static void teardown(void)
{
    char http[96];
    snprintf(http, sizeof(http), "%s/http", spawn.directory);
    unlink(http);
    snprintf(http, sizeof(http), "%s/http.lock", spawn.directory);
    unlink(http);
    unlink(record);
    spawn_free(&spawn);
}

static void start(void)
{
    char http[96];
    const char *const arguments[] = {"--program",
                                     POISON_CPU,
                                     "--program",
                                     AFFINE_CPU,
                                     "--device",
                                     "cpu",
                                     "--job-timeout",
                                     "500ms",
                                     "--tensors-max",
                                     "64MiB",
                                     "--cpu-threads",
                                     "2",
                                     "--http",
                                     http,
                                     NULL};
    snprintf(http, sizeof(http), "unix:%s/http", spawn.directory);
    spawn_start(&spawn, arguments, environment);
    spawn_await_ready(&spawn);
}

static void stop(void)
{
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
}

/* ---- by the wire -------------------------------------------------------------------------------
 */

static size_t encode(unsigned char *buffer, size_t size, uint64_t id, const char *head,
                     size_t payload)
{
    size_t padded = frame_pad(strlen(head));
    ck_assert_uint_le(FRAME_HEADER_SIZE + padded + payload, size);
    frame_encode_header(buffer, FRAME_JOB, 0, id, (uint32_t)padded, (uint32_t)payload);
    memset(buffer + FRAME_HEADER_SIZE, ' ', padded);
    memcpy(buffer + FRAME_HEADER_SIZE, head, strlen(head));
    memset(buffer + FRAME_HEADER_SIZE + padded, 1, payload);
    return FRAME_HEADER_SIZE + padded + payload;
}

static void send_with(struct wire *wire, const void *bytes, size_t length, const int *fds,
                      uint32_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        struct cmsghdr *header = (struct cmsghdr *)(void *)control;
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof(int)),
                                   .cmsg_level = SOL_SOCKET,
                                   .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    ck_assert_int_eq(sendmsg(wire->fd, &message, MSG_NOSIGNAL), (ssize_t)length);
}

/* The code of the next ERROR, whosever it is. */
static int next_error(struct wire *wire, struct error *ret_error)
{
    struct frame frame;
    struct message_error message;
    wire_find(wire, FRAME_ERROR, &frame);
    ck_assert_int_eq(message_decode_error(&frame, &message, ret_error), 0);
    *ret_error = message.error;
    return message.error.code;
}

/* What was closed here is closed there a moment later. */
static void check_descriptors(uint32_t most)
{
    for (int tries = 0; tries < SPAWN_PATIENCE_MS / 10 && spawn_descriptors(&spawn) > most; tries++)
        usleep(10000);
    ck_assert_uint_le(spawn_descriptors(&spawn), most);
}

/* Another client's job is answered as ever. */
static void check_canary(void)
{
    static _Alignas(8) unsigned char buffer[512];
    struct wire wire;
    struct frame frame;
    struct message_tensors tensors;
    struct error error;
    wire_open(&wire, &spawn);
    wire_send(&wire, buffer,
              encode(buffer, sizeof(buffer), 1,
                     "{\"program\":\"affine\",\"items\":[{\"inputs\":{\"x\":{\"dtype\":\"f32\","
                     "\"shape\":[2]}}}]}",
                     8));
    wire_find(&wire, FRAME_TENSORS, &frame);
    ck_assert_int_eq(message_decode_tensors(&frame, &tensors, &error), 0);
    ck_assert_uint_eq(tensors.bytes, 8);
    ck_assert_mem_eq(tensors.data, "\1\1\1\1\1\1\1\1", 8);
    ck_assert_int_eq(wire_done(&wire).finish, FINISH_STOP);
    wire_close(&wire);
}

/* ---- hostile tensors ---------------------------------------------------------------------------
 */

#define AFFINE(item) "{\"program\":\"affine\",\"items\":[{" item "}]}"
#define X(dtype, shape) "\"inputs\":{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape "}}"

static const struct {
    const char *head;
    size_t payload;
    int code;
    const char *text;
} hostile[] = {
    {AFFINE(X("f64", "[1]")), 8, ERR_BAD_VALUE, "input x is f64, it must be f32"},
    {AFFINE(X("f32", "[1,2]")), 8, ERR_BAD_VALUE, "x has 2 dimensions, it must have 1"},
    {AFFINE(X("f32", "[]")), 8, ERR_BAD_VALUE, "x has 0 dimensions"},
    {AFFINE("\"inputs\":{\"y\":{\"dtype\":\"f32\",\"shape\":[2]}}"), 8, ERR_UNKNOWN_FIELD,
     "no input y"},
    {AFFINE("\"inputs\":{\"x\":{\"dtype\":\"f32\",\"shape\":[1]},\"z\":{\"dtype\":\"u8\",\"shape\":"
            "[1]}}"),
     16, ERR_UNKNOWN_FIELD, "no input z"},
    {AFFINE(X("f32", "[2]") ",\"parameters\":{\"c\":1}"), 8, ERR_UNKNOWN_FIELD, "no parameter c"},
    {AFFINE(X("f32", "[2]") ",\"parameters\":{\"a\":true}"), 8, ERR_BAD_VALUE,
     "parameter a is a number"},
    {AFFINE(X("f32", "[2]") ",\"parameters\":{\"a\":1e300}"), 8, ERR_BAD_VALUE,
     "parameter a is a number"},
    {AFFINE(X("f32", "[2]") ",\"parameters\":{\"a\":NaN}"), 8, ERR_BAD_HEAD, ""},
    {AFFINE(X("f32", "[4611686018427387904]")), 8, ERR_BAD_HEAD, "integer beyond 2^53"},
    {AFFINE(X("f32", "[2147483649]")), 8, ERR_BAD_VALUE, "8 are left of the payload"},
    {AFFINE(X("f32", "[2]")), 4096, ERR_BAD_VALUE,
     "the tensors take 8 bytes, the payload has 4096"},
    {"{\"program\":\"nothing\",\"items\":[{" X("f32", "[2]") "}]}", 8, ERR_NOT_FOUND,
     "no program nothing"},
    {"{\"program\":\"poison\",\"items\":[{" X("u8", "[8]") "}]}", 8, ERR_BAD_VALUE,
     "parameter how is missing"},
    {"{\"program\":\"poison\",\"items\":[{" X("u8", "[8]") ",\"parameters\":{\"how\":0.5}}]}", 8,
     ERR_BAD_VALUE, "parameter how is a whole number from 0 to 4"},
    {"{\"program\":\"affine\",\"memory\":{\"inputs\":8},\"items\":[{" X("f32", "[2]") "}]}", 0,
     ERR_BAD_VALUE, "its descriptor did not come"},
    {"{\"program\":\"affine\",\"priority\":7,\"items\":[{" X("f32", "[2]") "}],\"more\":1}", 8,
     ERR_UNKNOWN_FIELD, "more"},
};

START_TEST(hostile_tensors_get_errors_that_name_them)
{
    static _Alignas(8) unsigned char buffer[8192];
    struct wire wire;
    struct error error;
    start();
    wire_open(&wire, &spawn);
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        wire_send(&wire, buffer,
                  encode(buffer, sizeof(buffer), i + 1, hostile[i].head, hostile[i].payload));
        ck_assert_msg(next_error(&wire, &error) == hostile[i].code, "%s: %s", hostile[i].head,
                      error.text);
        ck_assert_msg(strstr(error.text, hostile[i].text), "%s: %s", hostile[i].head, error.text);
    }
    check_canary();
    wire_close(&wire);
    stop();
}
END_TEST

static int memory(uint64_t bytes, bool filled, int seals)
{
    int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    if (filled)
        ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)bytes), 0);
    else
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    if (seals)
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

#define SHARED(inputs, length)                                                                     \
    "{\"program\":\"affine\",\"memory\":{\"inputs\":" inputs                                       \
    "},\"items\":[{" X("f32", "[" length "]") "}]}"
#define SEALED (F_SEAL_SHRINK | F_SEAL_WRITE)

static const struct {
    const char *head;
    uint64_t bytes;
    bool filled;
    int seals;
    int code;
    const char *text;
} memories[] = {
    {SHARED("8000", "2000"), 8000, true, 0, ERR_BAD_VALUE, "must be sealed"},
    {SHARED("8000", "2000"), 7996, true, SEALED, ERR_BAD_VALUE,
     "has 7996 bytes, the tensors take 8000"},
    {SHARED("8000000", "2000000"), 8000000, false, SEALED, ERR_BAD_VALUE,
     "has holes: 0 of its 8000000 bytes"},
    /* Gigabytes, of which none is there: refused by their number before anybody looks. */
    {SHARED("8589934592", "2147483648"), 8589934592, false, SEALED, ERR_TOO_LARGE, "tensors-max"},
    {SHARED("8000", "1999"), 8000, true, SEALED, ERR_BAD_VALUE, "the tensors take 8000 bytes"},
};

START_TEST(hostile_memory_is_refused_before_it_is_looked_at)
{
    static _Alignas(8) unsigned char buffer[1024];
    struct wire wire;
    struct error error;
    start();
    wire_open(&wire, &spawn);
    const uint32_t descriptors = spawn_descriptors(&spawn);
    for (size_t i = 0; i + 1 < sizeof(memories) / sizeof(memories[0]); i++) {
        int fd = memory(memories[i].bytes, memories[i].filled, memories[i].seals);
        send_with(&wire, buffer, encode(buffer, sizeof(buffer), i + 1, memories[i].head, 0), &fd,
                  1);
        close(fd);
        ck_assert_msg(next_error(&wire, &error) == memories[i].code, "%s: %s", memories[i].head,
                      error.text);
        ck_assert_msg(strstr(error.text, memories[i].text), "%s: %s", memories[i].head, error.text);
    }
    check_descriptors(descriptors);
    ck_assert_uint_lt(spawn_peak(&spawn), (uint64_t)1 << 30);
    check_canary();
    wire_close(&wire);
    stop();
}
END_TEST

/* Those that no message takes, and more than one can take. */
START_TEST(descriptors_that_nobody_asked_for_end_the_connection)
{
    static _Alignas(8) unsigned char buffer[1024];
    struct wire wire;
    struct frame frame;
    struct error error;
    int fds[3];
    start();
    const uint32_t descriptors = spawn_descriptors(&spawn);
    wire_open(&wire, &spawn);
    for (int i = 0; i < 3; i++)
        fds[i] = memory(8000, true, SEALED);
    send_with(&wire, buffer,
              encode(buffer, sizeof(buffer), 1,
                     _i ? SHARED("8000", "2000") : AFFINE(X("f32", "[2]")), _i ? 0 : 8),
              fds,
              _i == 2   ? 3
              : _i == 1 ? 2
                        : 1);
    int code = next_error(&wire, &error);
    ck_assert_msg(code == (_i == 2 ? ERR_TOO_LARGE : ERR_BAD_FRAME), "%s", error.text);
    while (wire_next(&wire, &frame))
        continue; /* to the end of the connection */
    wire_close(&wire);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    check_canary();
    check_descriptors(descriptors);
    stop();
}
END_TEST

/* A message of megabytes that never comes holds up nobody. */
START_TEST(a_message_that_is_announced_and_not_sent_holds_up_nobody)
{
    static _Alignas(8) unsigned char buffer[1024];
    struct wire wires[4];
    start();
    for (int i = 0; i < 4; i++) {
        wire_open(&wires[i], &spawn);
        size_t length = encode(buffer, sizeof(buffer), 1, AFFINE(X("f32", "[3000000]")), 8);
        const uint32_t announced = 12000000;
        memcpy(buffer + 20, &announced, 4);
        wire_send(&wires[i], buffer, length);
    }
    check_canary();
    ck_assert_uint_lt(spawn_resident(&spawn), (uint64_t)512 << 20);
    for (int i = 0; i < 4; i++)
        wire_close(&wires[i]);
    stop();
}
END_TEST

/* ---- poison ------------------------------------------------------------------------------------
 */

static void send_poison(struct wire *wire, int how)
{
    static _Alignas(8) unsigned char buffer[512];
    char head[256];
    snprintf(
        head, sizeof(head),
        "{\"program\":\"poison\",\"items\":[{\"inputs\":{\"x\":{\"dtype\":\"u8\",\"shape\":[8]}},"
        "\"parameters\":{\"how\":%d}}]}",
        how);
    wire_send(wire, buffer, encode(buffer, sizeof(buffer), 5, head, 8));
}

START_TEST(a_program_that_fails_fails_its_job_alone)
{
    struct wire wire;
    struct error error;
    start();
    wire_open(&wire, &spawn);
    send_poison(&wire, 1);
    ck_assert_int_eq(next_error(&wire, &error), ERR_PROGRAM);
    ck_assert_ptr_nonnull(strstr(error.text, "program poison returned 7"));
    send_poison(&wire, 0);
    ck_assert_int_eq(wire_done(&wire).finish, FINISH_STOP);
    ck_assert_int_ne(access(record, F_OK), 0);
    check_canary();
    wire_close(&wire);
    stop();
}
END_TEST

static void check_off(const char *reason)
{
    struct wire wire;
    struct error error;
    wire_open(&wire, &spawn);
    send_poison(&wire, 0);
    ck_assert_int_eq(next_error(&wire, &error), ERR_PROGRAM_OFF);
    ck_assert_msg(strstr(error.text, reason), "%s", error.text);
    wire_close(&wire);
    check_canary();
}

/* A crash, and a job that never ends. The next daemon does not run it again. */
START_TEST(a_poisoned_program_stays_off_until_an_admin_enables_it)
{
    static const struct {
        int how, code;
        const char *reason;
    } cases[] = {{2, -1, "crashed"}, {3, 75, "job-timeout"}, {4, -1, "crashed"}};
    struct wire wire;
    struct error error;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (cases[_i].code == -1)
        RUNNER_SKIP("the sanitizer says what became of a fault, and ends the process itself");
#endif
    start();
    wire_open(&wire, &spawn);
    send_poison(&wire, cases[_i].how);
    if (cases[_i].code == 75)
        ck_assert_int_eq(next_error(&wire, &error), ERR_DEVICE);
    ck_assert_int_eq(spawn_wait(&spawn), cases[_i].code);
    wire_close(&wire);
    ck_assert_int_eq(access(record, F_OK), 0);
    start();
    check_off(cases[_i].reason);
    program_run(&program, "programs", NULL);
    ck_assert_msg(program.status == 0 && strstr(program.out_text, cases[_i].reason), "%s",
                  program.out_text);
    program_run(&program, "stats", "--prometheus", NULL);
    ck_assert_ptr_nonnull(strstr(program.out_text, "sluice_program_off{program=\"poison\"} 1\n"));
    ck_assert_ptr_nonnull(
        strstr(program.out_text, "sluice_program_jobs_total{program=\"affine\"} 1\n"));
    program_run(&program, "programs", "--enable", "nothing", NULL);
    ck_assert_int_eq(program.status, 1);
    program_run(&program, "programs", "--enable", "poison", NULL);
    ck_assert_msg(program.status == 0, "%s", program.err_text);
    ck_assert_int_ne(access(record, F_OK), 0);
    wire_open(&wire, &spawn);
    send_poison(&wire, 0);
    ck_assert_int_eq(wire_done(&wire).finish, FINISH_STOP);
    wire_close(&wire);
    stop();
}
END_TEST

/* ---- what is loaded ----------------------------------------------------------------------------
 */

static int check_exit(const char *first, const char *second)
{
    const char *const arguments[] = {"--program", first, "--program", second,
                                     "--device",  "cpu", "--check",   NULL};
    spawn_start(&spawn, arguments, environment);
    return spawn_wait(&spawn);
}

START_TEST(check_says_what_can_be_loaded)
{
    char copy[128], command[512];
    ck_assert_int_eq(check_exit(POISON_CPU, AFFINE_CPU), 0);
    ck_assert(spawn_logged(&spawn, "affine: y = a x + b"));
    ck_assert_int_eq(check_exit(AFFINE_CPU, AFFINE_CPU), 78);
    ck_assert(spawn_logged(&spawn, "there is one named affine already"));
    ck_assert_int_eq(check_exit(AFFINE_CPU, "/none.so"), 78);
    ck_assert(spawn_logged(&spawn, "/none.so"));
    snprintf(copy, sizeof(copy), "%s/copy.so", spawn.directory);
    snprintf(command, sizeof(command), "cp %s %s && chmod 0777 %s", POISON_CPU, copy, copy);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(check_exit(AFFINE_CPU, copy), 78);
    ck_assert(spawn_logged(&spawn, "can be written to by others (mode 0777)"));
    unlink(copy);
}
END_TEST

/* stored: NULL, or where --calibrate-store puts it. */
static int calibrate_exit(const char *option, const char *value, const char *stored)
{
    const char *store = stored ? "--calibrate-store" : NULL;
    const char *const arguments[] = {"--program",     AFFINE_CPU, "--device",    "cpu",
                                     "--job-chunk",   "64KiB",    "--job-lanes", "1",
                                     "--cpu-threads", "2",        "--calibrate", option,
                                     value,           store,      stored,        NULL};
    spawn_start(&spawn, arguments, environment);
    return spawn_wait(&spawn);
}

/* Which point is best is the machine's; that there is one, and that nothing else is measured, ours.
 */
static void check_page(const char *path, const char *has)
{
    char text[65536];
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s", path);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    ck_assert_ptr_nonnull(strstr(text, has));
}

START_TEST(calibrate_says_what_to_set_for_one_program)
{
    char page[200], figures[200], stored[200];
    snprintf(page, sizeof(page), "%s/page.html", spawn.directory);
    snprintf(figures, sizeof(figures), "%s/page.json", spawn.directory);
    snprintf(stored, sizeof(stored), "%s/stored.conf", spawn.directory);
#if defined(__SANITIZE_THREAD__)
    RUNNER_SKIP("it measures for a minute what other tests run");
#endif
#if !defined(__SANITIZE_ADDRESS__) /* one sweep, where it takes tens of seconds */
    ck_assert_int_eq(calibrate_exit(NULL, NULL, NULL), 0);
    ck_assert(spawn_logged(&spawn, "# affine on cpu: GB/s"));
    ck_assert(spawn_logged(&spawn, "#    1MiB ")); /* 16 times job-chunk */
    ck_assert(!spawn_logged(&spawn, "#    2MiB "));
    ck_assert(spawn_logged(&spawn, "job-chunk = "));
    ck_assert(spawn_logged(&spawn, "job-lanes = "));
#endif
    ck_assert_int_eq(calibrate_exit("--calibrate-page", page, stored), 0);
    check_page(page, "<svg");
    check_page(figures, "\"machine\":{\"emulated\":true");
    check_page(stored, "\njob-lanes = ");
    ck_assert_int_eq(calibrate_exit("--calibrate-page", spawn.directory, NULL), 75);
    ck_assert_int_eq(calibrate_exit("--program", POISON_CPU, NULL), 78);
    ck_assert(spawn_logged(&spawn, "--calibrate takes one program, not 2"));
    ck_assert_int_eq(calibrate_exit("--model", "synthetic:null", NULL), 78);
    ck_assert(spawn_logged(&spawn, "no model"));
}
END_TEST

/* Of /v1/embeddings; tokens that no device takes would wait for ever. */
static void check_http(const char *body, const char *says)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[4096];
    size_t got = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/http", spawn.directory);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    int length = snprintf(text, sizeof(text),
                          "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                          strlen(body), body);
    ck_assert_int_eq(write(fd, text, (size_t)length), length);
    for (ssize_t more; (more = read(fd, text + got, sizeof(text) - 1 - got)) > 0;)
        got += (size_t)more;
    text[got] = '\0';
    close(fd);
    ck_assert_msg(strstr(text, says), "%s", text);
}

/* What it has not, it refuses by name. */
START_TEST(a_daemon_of_programs_alone_refuses_tokens_and_one_of_a_model_alone_jobs)
{
    static const char *const model[] = {"--model", "synthetic:null", "--device", "cpu", NULL};
    static const char *const both[] = {"--model",   "synthetic:null", "--device", "cpu",
                                       "--program", AFFINE_CPU,       NULL};
    struct wire wire;
    struct error error;
    start();
    wire_open(&wire, &spawn);
    wire_generate(&wire, 3, 1, 4);
    ck_assert_int_eq(next_error(&wire, &error), ERR_UNSUPPORTED);
    wire_close(&wire);
    check_http("{\"input\":[[1,2]]}", "this daemon serves programs and no model");
    check_http("{\"input\":[[1,2]],\"model\":\"x\"}", "this daemon serves programs and no model");
    program_run(&program, "generate", "text", NULL);
    ck_assert_int_eq(program.status, 1);
    stop();
    spawn_start(&spawn, model, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    send_poison(&wire, 0);
    ck_assert_int_eq(next_error(&wire, &error), ERR_UNSUPPORTED);
    wire_close(&wire);
    stop();
    spawn_start(&spawn, both, environment);
    spawn_await_ready(&spawn);
    check_canary();
    wire_open(&wire, &spawn);
    wire_generate(&wire, 3, 1, 4);
    ck_assert_int_eq(wire_done(&wire).finish, FINISH_LENGTH);
    wire_close(&wire);
    stop();
}
END_TEST

Suite *service_suite(void)
{
    Suite *suite = suite_create("service");
    TCase *tests = tcase_create("service");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, hostile_tensors_get_errors_that_name_them);
    tcase_add_test(tests, hostile_memory_is_refused_before_it_is_looked_at);
    tcase_add_loop_test(tests, descriptors_that_nobody_asked_for_end_the_connection, 0, 3);
    tcase_add_test(tests, a_message_that_is_announced_and_not_sent_holds_up_nobody);
    tcase_add_test(tests, a_program_that_fails_fails_its_job_alone);
    tcase_add_loop_test(tests, a_poisoned_program_stays_off_until_an_admin_enables_it, 0, 3);
    tcase_add_test(tests, check_says_what_can_be_loaded);
    tcase_add_test(tests, calibrate_says_what_to_set_for_one_program);
    tcase_add_test(tests, a_daemon_of_programs_alone_refuses_tokens_and_one_of_a_model_alone_jobs);
    suite_add_tcase(suite, tests);
    return suite;
}
