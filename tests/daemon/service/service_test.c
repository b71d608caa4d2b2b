#include "tests/daemon/daemon_suites.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/message.h"
#include "tests/daemon/rig/spawn.h"

static struct spawn spawn;
static struct wire wire;
static const char *const null_model[] = {"--model", "synthetic:null", "--device", "cpu", NULL};

static void setup(void)
{
    spawn_make(&spawn);
}

static void teardown(void)
{
    spawn_free(&spawn);
}

static struct message_done done(struct wire *on)
{
    struct message_done message;
    struct frame frame;
    struct error error;
    wire_find(on, FRAME_DONE, &frame);
    ck_assert_int_eq(message_decode_done(&frame, &message, &error), 0);
    return message;
}

START_TEST(requests_are_served_and_the_daemon_ends_cleanly)
{
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    for (uint64_t id = 1; id <= 20; id++) {
        wire_generate(&wire, id, 3, 7);
        for (int i = 0; i < 3; i++) {
            struct message_done message = done(&wire);
            ck_assert_int_eq(message.finish, FINISH_LENGTH);
            ck_assert_uint_eq(message.completion_tokens, 7);
        }
    }
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    ck_assert(spawn_logged(&spawn, "job=generate"));
    wire_close(&wire);
}
END_TEST

START_TEST(who_shuts_down_its_writing_side_is_answered_and_then_closed)
{
    struct frame frame;
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    uint32_t descriptors = spawn_descriptors(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 8, 4000);
    wire_generate(&wire, 2, 8, 4000);
    ck_assert_int_eq(shutdown(wire.fd, SHUT_WR), 0);
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(done(&wire).finish, FINISH_LENGTH);
    ck_assert(!wire_next(&wire, &frame));
    wire_close(&wire);
    wire_open(&wire, &spawn);
    ck_assert_int_eq(shutdown(wire.fd, SHUT_WR), 0);
    ck_assert(!wire_next(&wire, &frame)); /* there was nothing to wait for */
    wire_close(&wire);
    /* Gone altogether: what would take a day is cancelled, or SIGTERM would wait for it. */
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 64, 8000);
    ck_assert_int_eq(shutdown(wire.fd, SHUT_WR), 0);
    wire_find(&wire, FRAME_TOKENS, &frame);
    wire_close(&wire);
    for (int i = 0; spawn_descriptors(&spawn) > descriptors; i++) {
        ck_assert_int_lt(i, SPAWN_PATIENCE_MS / 10);
        usleep(10000);
    }
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert(spawn_logged(&spawn, " cancelled="));
}
END_TEST

START_TEST(sigterm_lets_running_work_end)
{
    struct frame frame;
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 8, 4000);
    wire_find(&wire, FRAME_TOKENS, &frame);
    kill(spawn.pid, SIGTERM);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(done(&wire).finish, FINISH_LENGTH);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    wire_close(&wire);
}
END_TEST

START_TEST(who_connected_before_sigterm_is_still_told)
{
    static const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "x"};
    unsigned char buffer[512];
    struct frame frame;
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    struct wire late = {.fd = wire_connect(&spawn)};
    ck_assert_int_ge(late.fd, 0);
    wire_open(&wire, &spawn); /* the daemon has accepted the one before, too */
    kill(spawn.pid, SIGTERM);
    while (!spawn_logged(&spawn, "SIGTERM: ends when"))
        usleep(1000);
    wire_send(&late, buffer, message_encode_hello(buffer, sizeof(buffer), &hello));
    ck_assert(wire_next(&late, &frame));
    ck_assert_uint_eq(frame.type, FRAME_WELCOME);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    wire_close(&late);
    wire_close(&wire);
}
END_TEST

START_TEST(after_the_drain_timeout_the_rest_is_cancelled)
{
    const char *const arguments[] = {
        "--model", "synthetic:null",  "--device", "cpu", "--drain-timeout",
        "0",       "--sequences-max", "1",        NULL};
    struct frame frame;
    int finished[FINISH_ERROR + 1] = {0};
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 64, 8000);
    wire_find(&wire, FRAME_TOKENS, &frame);
    kill(spawn.pid, SIGTERM);
    for (int i = 0; i < 64; i++)
        finished[done(&wire).finish]++;
    ck_assert_int_gt(finished[FINISH_CANCELLED], 0);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    wire_close(&wire);
}
END_TEST

START_TEST(options_are_read_again_whole_or_not_at_all)
{
    const char *arguments[] = {"--model", "synthetic:null", "--device", "cpu", "--config", NULL,
                               NULL};
    static const struct {
        const char *text;
        uint32_t batch_max;
    } steps[] = {{"batch-max = 2\n", 2},
                 {"batch-max = 3\nn-max = none\n", 2},
                 {"batch-max = 3\ntp = 2\n", 2},
                 {"batch-max = 5\n", 5}};
    arguments[5] = spawn.config;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct frame frame;
        struct message_welcome welcome = {0};
        struct error error;
        FILE *file = fopen(spawn.config, "w");
        fputs(steps[i].text, file);
        fclose(file);
        if (i == 0)
            spawn_start(&spawn, arguments, NULL);
        else
            kill(spawn.pid, SIGHUP);
        spawn_await_ready(&spawn); /* the signal was handled before this connection was */
        const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "x"};
        unsigned char buffer[512];
        wire = (struct wire){.fd = wire_connect(&spawn)};
        wire_send(&wire, buffer, message_encode_hello(buffer, sizeof(buffer), &hello));
        wire_find(&wire, FRAME_WELCOME, &frame);
        ck_assert_int_eq(message_decode_welcome(&frame, &welcome, &error), 0);
        ck_assert_uint_eq(welcome.batch_max, steps[i].batch_max);
        wire_close(&wire);
    }
    ck_assert(spawn_logs(&spawn, "config:2: n-max: a whole number"));
    ck_assert(spawn_logs(&spawn, "tp cannot change while the daemon runs"));
}
END_TEST

static const struct {
    const char *arguments[8];
    int code;
    const char *says;
} refused[] = {
    {{NULL}, 78, "sluiced --model synthetic:null"},
    {{"--model", "synthetic:unknown", "--device", "cpu"}, 78, "unknown"},
    {{"--model", "/nonexistent", "--device", "cpu"}, 78, "/nonexistent"},
    {{"--model", "/nonexistent", "--device", "cpu", "--check"}, 78, "/nonexistent"},
    {{"--model", "synthetic:null", "--device", "cpu", "--check"}, 0, "synthetic:null"},
    {{"--pp", "0"}, 64, "pp: must lie between"},
    {{"--model", "synthetic:null", "--device", "cpu", "--http", "unix:"},
     78,
     "path of a socket is empty"},
    {{"--config", "/nonexistent"}, 78, "cannot read /nonexistent"},
    {{"--print-config"}, 0, "#queue-tokens = 16777216"},
    {{"--help"}, 0, "--queue-tokens N"},
    {{"--version"}, 0, "sluiced "},
};

START_TEST(what_cannot_start_says_why_and_ends_with_its_code)
{
    spawn_start(&spawn, refused[_i].arguments, NULL);
    ck_assert_int_eq(spawn_wait(&spawn), refused[_i].code);
    ck_assert_msg(spawn_logged(&spawn, refused[_i].says), "%s", refused[_i].says);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
}
END_TEST

START_TEST(a_second_daemon_on_the_socket_is_refused_and_the_first_goes_on)
{
    struct spawn second = {0};
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    memcpy(&second, &spawn, sizeof(second));
    spawn_start(&second, null_model, NULL);
    ck_assert_int_eq(spawn_wait(&second), 78);
    ck_assert(spawn_logged(&spawn, "another daemon listens on"));
    spawn_await_ready(&spawn);
}
END_TEST

START_TEST(a_thousand_connections_leave_no_descriptor_behind)
{
    static int fds[1000];
    spawn_start(&spawn, null_model, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    uint32_t before = spawn_descriptors(&spawn), after = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 1000; i++) {
            fds[i] = wire_connect(&spawn);
            ck_assert_int_ge(fds[i], 0);
        }
        wire_generate(&wire, 1, 1, 3); /* somebody else is served meanwhile */
        ck_assert_int_eq(done(&wire).finish, FINISH_LENGTH);
        for (int i = 0; i < 1000; i++)
            close(fds[i]);
        for (int tries = 0; tries < 1000 && (after = spawn_descriptors(&spawn)) > before; tries++)
            usleep(10000);
        ck_assert_uint_eq(after, before);
    }
    wire_close(&wire);
}
END_TEST

/* Under a sanitizer freed memory is kept on purpose. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RESIDENT_MORE (1u << 30)
#else
#define RESIDENT_MORE (2u << 20)
#endif

START_TEST(a_thousand_clients_leave_no_memory_behind)
{
    static struct wire wires[1000];
    const char *const arguments[] = {"--model",           "synthetic:null", "--device", "cpu",
                                     "--kv-idle-release", "100ms",          NULL};
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 3);
    ck_assert_int_eq(done(&wire).finish, FINISH_LENGTH);
    uint64_t before = spawn_resident(&spawn), after = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++) {
            wire_open(&wires[i], &spawn);
            wire_generate(&wires[i], 1, 2, 20);
        }
        for (int i = 0; i < 1000; i++)
            ck_assert_int_eq(done(&wires[i]).finish, FINISH_LENGTH);
        for (int i = 0; i < 1000; i++)
            wire_close(&wires[i]);
    }
    for (int tries = 0; tries < 500; tries++) {
        after = spawn_resident(&spawn);
        if (after <= before + RESIDENT_MORE)
            break;
        usleep(10000);
    }
    ck_assert_uint_le(after, before + RESIDENT_MORE);
    wire_close(&wire);
}
END_TEST

/* Layouts whose devices fail amid their work. */
static const struct {
    const char *arguments[16], *fault, *hang;
} layouts[] = {
    {{"--model", "synthetic:null", "--device", "cpu", "--step-timeout", "100ms"},
     "SLUICE_EMU_FAULT=cudaMemcpyAsync:200:illegal-address",
     "SLUICE_EMU_FAULT=launch:20:hang"},
    {{"--model", "synthetic:null", "--device", "cpu", "--step-timeout", "100ms", "--cpu-devices",
      "3", "--gpus", "0,1,2", "--dp", "3"},
     "SLUICE_EMU_FAULT=cudaMemcpyAsync:200:illegal-address",
     "SLUICE_EMU_FAULT=launch:20:hang"},
    {{"--model", "synthetic:tiny", "--device", "cpu", "--step-timeout", "100ms", "--cpu-devices",
      "2", "--gpus", "0,1", "--tp", "2"},
     "SLUICE_EMU_FAULT=cudaGraphLaunch:21:illegal-address",
     "SLUICE_EMU_FAULT=launch:300:hang"},
};

START_TEST(after_a_sticky_error_clients_are_told_and_the_process_is_gone)
{
    const char *const environment[] = {layouts[_i].fault, NULL};
    uint32_t failed = 0;
    spawn_start(&spawn, layouts[_i].arguments, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 16, 4000);
    for (struct frame frame; wire_next(&wire, &frame);) {
        struct message_error message;
        struct error error;
        ck_assert_uint_ne(frame.type, FRAME_DONE);
        if (frame.type != FRAME_ERROR)
            continue;
        ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
        ck_assert_int_eq(message.error.code, ERR_DEVICE);
        ck_assert_int_eq(error_retry(message.error.code), RETRY_LATER);
        failed++;
    }
    ck_assert_uint_eq(failed, 16);
    ck_assert_int_eq(spawn_wait(&spawn), 75);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    wire_close(&wire);
}
END_TEST

START_TEST(a_stuck_device_is_told_by_health)
{
    const char *const environment[] = {layouts[_i].hang, NULL};
    struct frame frame;
    bool stuck = false;
    spawn_start(&spawn, layouts[_i].arguments, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 4000);
    for (int tries = 0; tries < 500 && !stuck; tries++) {
        wire_control(&wire, FRAME_HEALTH, "");
        wire_find(&wire, FRAME_HEALTH, &frame);
        stuck = memmem(frame.head, frame.head_length, "\"status\":\"stuck\"", 16) != NULL;
        usleep(10000);
    }
    ck_assert(stuck);
    kill(spawn.pid, SIGTERM);
    while (!spawn_logged(&spawn, "SIGTERM: ")) /* two that come at once are one */
        usleep(10000);
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 1);
    wire_close(&wire);
}
END_TEST

/* ---- a log that nobody reads -------------------------------------------------------------------
 */

#define REQUESTS_UNREAD 12000
#define REQUESTS_UNDER_WAY 500

/* Requests of one sequence each, so many under way that answers and not round trips take the time. */
static void ask_many(uint32_t count)
{
    uint64_t sent = 0;
    for (uint32_t answered = 0; answered < count; answered++) {
        for (; sent < count && sent - answered < REQUESTS_UNDER_WAY; sent++)
            wire_generate(&wire, 1 + sent, 1, 1);
        ck_assert_int_eq(done(&wire).finish, FINISH_LENGTH);
    }
}

static uint64_t lines_dropped(void)
{
    struct frame frame;
    unsigned long long count;
    wire_control(&wire, FRAME_STATS, "");
    wire_find(&wire, FRAME_STATS, &frame);
    const char *figure = memmem(frame.head, frame.head_length, "\"log_lines_dropped_total\":", 26);
    ck_assert_ptr_nonnull(figure);
    ck_assert_int_eq(sscanf(figure + 26, "%llu", &count), 1);
    return count;
}

/* Whether it is said how many were dropped, until the log says `what`. */
static bool gap_is_told(int log, const char *what, uint64_t count)
{
    static char text[8u << 20];
    char told[64];
    size_t length = 0;
    snprintf(told, sizeof(told), " %llu lines were dropped", (unsigned long long)count);
    while (!memmem(text, length, what, strlen(what))) {
        struct pollfd readable = {.fd = log, .events = POLLIN};
        ck_assert_int_eq(poll(&readable, 1, SPAWN_PATIENCE_MS), 1);
        ssize_t got = read(log, text + length, sizeof(text) - length);
        ck_assert_int_gt((int)got, 0);
        length += (size_t)got;
    }
    return memmem(text, length, told, strlen(told)) != NULL;
}

/* The daemon's stderr is a pipe that the test holds open: nobody reads it, or nobody yet. */
START_TEST(a_log_that_nobody_reads_stops_neither_requests_nor_the_end)
{
    const char *const arguments[] = {"--model",           "synthetic:null", "--device", "cpu",
                                     "--queue-sequences", "1000",           NULL};
    ck_assert_int_eq(mkfifo(spawn.log, 0600), 0);
    int log = open(spawn.log, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(log, 0);
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    ask_many(REQUESTS_UNREAD);
    uint64_t dropped = lines_dropped();
    ck_assert_uint_gt(dropped, 0);
    if (_i == 0) {
        ck_assert(gap_is_told(log, "lines were dropped: ", dropped));
        wire_generate(&wire, 1, 1, 1);
        ck_assert_int_eq(done(&wire).finish, FINISH_LENGTH);
        ck_assert_uint_eq(lines_dropped(), dropped);
    }
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    wire_close(&wire);
    close(log);
}
END_TEST

/* Summary and file go to pipes that take no more; the one thread of the pool serves texts. */
START_TEST(a_profile_that_nobody_reads_keeps_no_thread_of_the_pool)
{
    static char bytes[4096], text[9000];
    static unsigned char question[16384];
    char path[112];
    struct frame frame;
    snprintf(path, sizeof(path), "%s/profile", spawn.directory);
    const char *const arguments[] = {"--model",         "synthetic:null", "--device",       "cpu",
                                     "--profile-steps", "2",              "--profile-file", path,
                                     NULL};
    static const char *const environment[] = {"UV_THREADPOOL_SIZE=1", NULL};
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int pipe_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(pipe_fd, 0);
    while (write(pipe_fd, bytes, sizeof(bytes)) > 0)
        continue;
    spawn_start(&spawn, arguments, environment);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 20);
    ck_assert_int_eq(done(&wire).finish, FINISH_LENGTH);
    while (!spawn_logged(&spawn, "profile: replica 0")) /* the summary: the file is next */
        usleep(1000);
    memset(text, 'a', sizeof(text));
    const struct message_tokenize ask = {.text = text, .length = sizeof(text)};
    size_t length = message_encode_tokenize(question, sizeof(question), 2, &ask);
    ck_assert_uint_gt(length, sizeof(text));
    wire_send(&wire, question, length);
    wire_find(&wire, FRAME_ERROR, &frame); /* that the text is too long, found by the pool */
    wire_close(&wire);
    close(pipe_fd);
    unlink(path);
}
END_TEST

/* The process is gone although its last words are not read, by whichever way it goes. */
START_TEST(a_log_that_nobody_reads_keeps_no_daemon_that_must_end)
{
    static const struct {
        const char *fault;
        int signals, code;
    } ways[] = {{"launch:100:illegal-address", 0, 75}, {"launch:100:hang", 2, 1}};
    static char bytes[4096];
    char variable[128];
    const char *const environment[] = {variable, NULL};
    struct frame frame;
    snprintf(variable, sizeof(variable), "SLUICE_EMU_FAULT=%s", ways[_i].fault);
    ck_assert_int_eq(mkfifo(spawn.log, 0600), 0);
    int log = open(spawn.log, O_RDWR | O_CLOEXEC);
    spawn_start(&spawn, null_model, environment);
    spawn_await_ready(&spawn);
    /* By another file than the daemon's: its own stays as it is. */
    int filler = open(spawn.log, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    while (write(filler, bytes, sizeof(bytes)) > 0)
        continue;
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 4000);
    bool draining = ways[_i].signals < 2;
    if (ways[_i].signals > 0)
        kill(spawn.pid, SIGTERM);
    while (!draining) { /* two that come at once are one */
        wire_control(&wire, FRAME_HEALTH, "");
        wire_find(&wire, FRAME_HEALTH, &frame);
        draining = memmem(frame.head, frame.head_length, "\"draining\"", 10) != NULL;
        usleep(10000);
    }
    if (ways[_i].signals > 1)
        kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), ways[_i].code);
    wire_close(&wire);
    close(filler);
    close(log);
}
END_TEST

/* The word must not come out of the daemon again but in the answers of its own client. */
#define CANARY "xyzzyCANARYplugh"

static const char *const canaries[] = {
    "{\"job\":\"%s\",\"lengths\":[2]}",
    "{\"%s\":1,\"job\":\"generate\",\"lengths\":[2]}",
    "{\"job\":\"generate\",\"texts\":[\"%s\"]}",
    "{\"job\":\"generate\",\"lengths\":[2],\"stop\":[\"%s\"]}",
    "{\"job\":\"generate\",\"lengths\":[\"%s\"]}",
    "{\"job\":\"generate\",\"lengths\":[2],\"logit_bias\":{\"%s\":1}}",
    "{\"job\":\"generate\",\"lengths\":[2],\"%s",
    "%s",
};

START_TEST(content_of_requests_appears_in_no_log_and_no_status)
{
    const char *const arguments[] = {"--model",     "synthetic:null", "--device", "cpu",
                                     "--log-level", "debug",          NULL};
    struct frame frame;
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    for (size_t i = 0; i < sizeof(canaries) / sizeof(canaries[0]); i++) {
        for (int type = FRAME_HELLO; type <= FRAME_TYPE_MAX; type++) {
            _Alignas(8) unsigned char bytes[512];
            char text[256];
            size_t length = (size_t)snprintf(text, sizeof(text), canaries[i], CANARY);
            size_t head = frame_pad(length);
            memset(bytes, ' ', sizeof(bytes));
            frame_encode_header(bytes, (uint8_t)type, 0, 7, (uint32_t)head,
                                type == FRAME_SUBMIT ? 8 : 0);
            memcpy(bytes + FRAME_HEADER_SIZE, text, length);
            wire_open(&wire, &spawn);
            size_t size = FRAME_HEADER_SIZE + head + (type == FRAME_SUBMIT ? 8 : 0);
            size += message_encode_control(bytes + size, sizeof(bytes) - size, FRAME_HEALTH, 0, 1,
                                           "", 0);
            wire_send(&wire, bytes, size);
            while (wire_next(&wire, &frame) && frame.type != FRAME_HEALTH)
                continue;
            wire_close(&wire);
        }
    }
    wire_open(&wire, &spawn);
    wire_control(&wire, FRAME_STATS, "{\"requests\":true}");
    wire_find(&wire, FRAME_STATS, &frame);
    ck_assert_ptr_null(memmem(frame.head, frame.head_length, CANARY, strlen(CANARY)));
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert(!spawn_logged(&spawn, CANARY));
    ck_assert(spawn_logged(&spawn, "is closed"));
    wire_close(&wire);
}
END_TEST

/* ---- service manager ---------------------------------------------------------------------------
 * A double of its socket: whatever the daemon sends is collected, messages end with a newline.
 */

struct manager {
    int fd;
    char path[112], variable[160];
    char all[1u << 16];
    size_t length;
};

static struct manager manager;

static void manager_open(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memset(&manager, 0, sizeof(manager));
    snprintf(manager.path, sizeof(manager.path), "%s/notify", spawn.directory);
    snprintf(manager.variable, sizeof(manager.variable), "NOTIFY_SOCKET=%s", manager.path);
    memcpy(address.sun_path, manager.path, strlen(manager.path));
    manager.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(manager.fd, (const struct sockaddr *)&address, sizeof(address)), 0);
}

static void manager_take(int flags)
{
    size_t room = sizeof(manager.all) - manager.length - 1;
    ck_assert_uint_gt(room, 600);
    ssize_t got = recv(manager.fd, manager.all + manager.length, room - 1, flags);
    if (got <= 0)
        return;
    manager.length += (size_t)got;
    manager.all[manager.length++] = '\n';
}

/* The first place of `text` from `at` on, waiting for it. */
static const char *manager_await(const char *at, const char *text)
{
    struct timeval patience = {.tv_sec = SPAWN_PATIENCE_MS / 1000};
    setsockopt(manager.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    for (;;) {
        const char *found = strstr(at, text);
        if (found)
            return found;
        size_t before = manager.length;
        manager_take(0);
        ck_assert_msg(manager.length > before, "no %s after\n%s", text, at);
    }
}

static void manager_close(void)
{
    close(manager.fd);
    unlink(manager.path);
}

static void write_config(const char *text)
{
    FILE *file = fopen(spawn.config, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

START_TEST(the_service_manager_is_told_in_order)
{
    const char *const arguments[] = {"--model",  "synthetic:null", "--device", "cpu",
                                     "--config", spawn.config,     NULL};
    manager_open();
    write_config("batch-max = 2\n");
    const char *const environment[] = {manager.variable, "WATCHDOG_USEC=100000", NULL};
    spawn_start(&spawn, arguments, environment);
    const char *at = manager_await(manager.all, "STATUS=Loading the model");
    at = manager_await(at, "STATUS=The model is loaded, a first request is under way\n");
    at = manager_await(at, "READY=1\nSTATUS=Serving synthetic:null on ");
    ck_assert(spawn_logs(&spawn, "job=generate")); /* it was answered by then */
    at = manager_await(at, "WATCHDOG=1\nSTATUS=Serving");
    kill(spawn.pid, SIGHUP);
    at = manager_await(at, "RELOADING=1\nMONOTONIC_USEC=");
    at = manager_await(at, "READY=1\nSTATUS=Serving");
    write_config("batch-max = none\n");
    kill(spawn.pid, SIGHUP);
    at = manager_await(at, "RELOADING=1\nMONOTONIC_USEC=");
    at = manager_await(at, "READY=1\nSTATUS=Serving");
    at = manager_await(at, "the last reload failed");
    kill(spawn.pid, SIGTERM);
    at = manager_await(at,
                       "STOPPING=1\nEXTEND_TIMEOUT_USEC=62000000\nSTATUS=Finishing 0 sequences\n");
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    manager_close();
}
END_TEST

/* Its queue is full while the daemon becomes ready, and is read later. */
START_TEST(a_word_that_the_service_manager_waits_for_is_not_lost)
{
    static const char junk[] = "STATUS=junk";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct frame frame;
    manager_open();
    const char *const environment[] = {manager.variable, NULL};
    memcpy(address.sun_path, manager.path, strlen(manager.path));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    while (sendto(fd, junk, strlen(junk), 0, (const struct sockaddr *)&address,
                  sizeof(address)) > 0)
        continue;
    spawn_start(&spawn, null_model, environment);
    spawn_await_ready(&spawn);
    while (!spawn_logged(&spawn, "job=generate")) /* the first request, of its own */
        usleep(1000);
    wire_open(&wire, &spawn);
    wire_control(&wire, FRAME_HEALTH, "");
    wire_find(&wire, FRAME_HEALTH, &frame); /* the turn after which it would be told */
    wire_close(&wire);
    while (recv(manager.fd, manager.all, sizeof(manager.all), MSG_DONTWAIT) == sizeof(junk) - 1)
        continue;
    manager_await(manager.all, "READY=1\nSTATUS=Serving");
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    manager_close();
    close(fd);
}
END_TEST

/* It came every 50 ms; a second without it is what the manager kills for. */
START_TEST(a_stuck_device_leaves_the_watchdog_unfed)
{
    const char *const arguments[] = {"--model",        "synthetic:null", "--device", "cpu",
                                     "--step-timeout", "100ms",          NULL};
    struct timeval silence = {.tv_sec = 1};
    manager_open();
    const char *const environment[] = {manager.variable, "WATCHDOG_USEC=100000",
                                       "SLUICE_EMU_FAULT=launch:20:hang", NULL};
    spawn_start(&spawn, arguments, environment);
    const char *at = manager_await(manager.all, "READY=1\n");
    wire_open(&wire, &spawn);
    wire_generate(&wire, 1, 1, 4000);
    at = manager_await(at, "STATUS=A step makes no progress\n");
    setsockopt(manager.fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
    size_t before = manager.length;
    manager_take(0);
    ck_assert_msg(manager.length == before, "told after it was stuck: %s", at);
    ck_assert(spawn_logs(&spawn, "the watchdog is no longer fed"));
    wire_close(&wire);
    manager_close();
}
END_TEST

START_TEST(a_device_that_fails_its_first_request_is_never_ready)
{
    manager_open();
    const char *const environment[] = {manager.variable,
                                       "SLUICE_EMU_FAULT=launch:1:illegal-address", NULL};
    spawn_start(&spawn, null_model, environment);
    const char *at = manager_await(manager.all, "a first request is under way\n");
    at = manager_await(at, "STOPPING=1\nSTATUS=The device failed\n");
    ck_assert_int_eq(spawn_wait(&spawn), 75);
    ck_assert_ptr_null(strstr(manager.all, "READY=1"));
    manager_close();
}
END_TEST

Suite *service_suite(void)
{
    Suite *suite = suite_create("service");
    TCase *tcase = tcase_create("service");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, requests_are_served_and_the_daemon_ends_cleanly);
    tcase_add_test(tcase, who_shuts_down_its_writing_side_is_answered_and_then_closed);
    tcase_add_test(tcase, sigterm_lets_running_work_end);
    tcase_add_test(tcase, who_connected_before_sigterm_is_still_told);
    tcase_add_test(tcase, after_the_drain_timeout_the_rest_is_cancelled);
    tcase_add_test(tcase, options_are_read_again_whole_or_not_at_all);
    tcase_add_loop_test(tcase, what_cannot_start_says_why_and_ends_with_its_code, 0,
                        (int)(sizeof(refused) / sizeof(refused[0])));
    tcase_add_test(tcase, a_second_daemon_on_the_socket_is_refused_and_the_first_goes_on);
    tcase_add_test(tcase, a_thousand_connections_leave_no_descriptor_behind);
    tcase_add_test(tcase, a_thousand_clients_leave_no_memory_behind);
    tcase_add_loop_test(tcase, after_a_sticky_error_clients_are_told_and_the_process_is_gone, 0,
                        (int)(sizeof(layouts) / sizeof(layouts[0])));
    tcase_add_loop_test(tcase, a_stuck_device_is_told_by_health, 0,
                        (int)(sizeof(layouts) / sizeof(layouts[0])));
    tcase_add_loop_test(tcase, a_log_that_nobody_reads_stops_neither_requests_nor_the_end, 0, 2);
    tcase_add_test(tcase, a_profile_that_nobody_reads_keeps_no_thread_of_the_pool);
    tcase_add_loop_test(tcase, a_log_that_nobody_reads_keeps_no_daemon_that_must_end, 0, 2);
    tcase_add_test(tcase, content_of_requests_appears_in_no_log_and_no_status);
    tcase_add_test(tcase, the_service_manager_is_told_in_order);
    tcase_add_test(tcase, a_word_that_the_service_manager_waits_for_is_not_lost);
    tcase_add_test(tcase, a_stuck_device_leaves_the_watchdog_unfed);
    tcase_add_test(tcase, a_device_that_fails_its_first_request_is_never_ready);
    suite_add_tcase(suite, tcase);
    return suite;
}
