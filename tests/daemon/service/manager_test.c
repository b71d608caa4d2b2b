/* What the service manager is told, and when. */
#include "tests/daemon/daemon_suites.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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
    while (sendto(fd, junk, strlen(junk), 0, (const struct sockaddr *)&address, sizeof(address)) >
           0)
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

/* Asleep, waking and unable to: none is an illness, and the status says so. */
START_TEST(models_that_sleep_and_wake_and_cannot_are_told_and_the_watchdog_is_fed)
{
    char here[2048], from[2200], link[112], model[160];
    struct frame frame;
    ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
    snprintf(from, sizeof(from), "%s/deploy/demo-model", here);
    snprintf(link, sizeof(link), "%s/model", spawn.directory);
    snprintf(model, sizeof(model), "demo=%s", link);
    ck_assert_int_eq(symlink(from, link), 0);
    const char *const arguments[] = {"--model", "null=synthetic:null", "--model", model,
                                     "--device", "cpu", NULL};
    manager_open();
    const char *const environment[] = {manager.variable, "WATCHDOG_USEC=400000", NULL};
    spawn_start(&spawn, arguments, environment);
    const char *at = manager_await(manager.all, "READY=1\nSTATUS=Serving null and 1 more on ");
    at = manager_await(at, "waiting\n");
    wire_open(&wire, &spawn);
    wire_control(&wire, FRAME_MODEL, "{\"model\":\"demo\",\"sleep\":true}");
    at = manager_await(at, "WATCHDOG=1\nSTATUS=Serving null and 1 more on ");
    at = manager_await(at, "waiting; 1 of 2 models asleep\n");
    ck_assert(spawn_logs(&spawn, "demo is asleep")); /* who still falls is not woken */
    unlink(link);
    wire_control(&wire, FRAME_MODEL, "{\"model\":\"demo\",\"sleep\":false}");
    at = manager_await(at, "waiting; 1 of 2 models asleep, 1 could not wake, see the log\n");
    ck_assert(spawn_logs(&spawn, "demo cannot wake, and 0 sequences are refused: "));
    wire_control(&wire, FRAME_HEALTH, "");
    wire_find(&wire, FRAME_HEALTH, &frame);
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "\"status\":\"ok\"", 13));
    ck_assert_ptr_nonnull(memmem(frame.head, frame.head_length, "\"failing\":[\"demo\"]", 18));
    ck_assert_int_eq(symlink(from, link), 0);
    wire_control(&wire, FRAME_MODEL, "{\"model\":\"demo\",\"sleep\":false}");
    at = manager_await(at, "waiting\n"); /* it is awake again */
    wire_close(&wire);
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert_ptr_null(strstr(manager.all, "makes no progress"));
    unlink(link);
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

Suite *manager_suite(void)
{
    Suite *suite = suite_create("manager");
    TCase *tcase = tcase_create("manager");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_service_manager_is_told_in_order);
    tcase_add_test(tcase, a_word_that_the_service_manager_waits_for_is_not_lost);
    tcase_add_test(tcase, a_stuck_device_leaves_the_watchdog_unfed);
    tcase_add_test(tcase, models_that_sleep_and_wake_and_cannot_are_told_and_the_watchdog_is_fed);
    tcase_add_test(tcase, a_device_that_fails_its_first_request_is_never_ready);
    suite_add_tcase(suite, tcase);
    return suite;
}
