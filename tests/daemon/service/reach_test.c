/* A daemon whose socket is removed while it listens. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/rig/spawn.h"

static struct spawn spawn;
static struct wire wire;
static char folder[80], http[96], lock[112];

static void setup(void)
{
    spawn_make(&spawn);
    snprintf(folder, sizeof(folder), "%s/run", spawn.directory);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    snprintf(spawn.socket, sizeof(spawn.socket), "%s/s.sock", folder);
    snprintf(http, sizeof(http), "unix:%s/h.sock", folder);
    snprintf(lock, sizeof(lock), "%s.lock", spawn.socket);
}

static void teardown(void)
{
    char path[112];
    if (spawn.pid > 0)
        kill(spawn.pid, SIGKILL);
    static const char *const names[] = {"s.sock", "s.sock.lock", "h.sock", "h.sock.lock"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    spawn_free(&spawn);
}

static void start(void)
{
    const char *const arguments[] = {"--model", "synthetic:null", "--device", "cpu", "--http", http,
                                     NULL};
    spawn_start(&spawn, arguments, NULL);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
}

static void await_logged(const char *text)
{
    for (int tries = 0; tries < SPAWN_PATIENCE_MS / 10 && !spawn_logged(&spawn, text); tries++)
        usleep(10000);
    ck_assert_msg(spawn_logged(&spawn, text), "%s", text);
}

static void await_file(const char *path)
{
    for (int tries = 0; tries < SPAWN_PATIENCE_MS / 10 && access(path, F_OK); tries++)
        usleep(10000);
    ck_assert_msg(access(path, F_OK) == 0, "%s", path);
}

static void expect_health(struct wire *on, const char *text)
{
    struct frame frame;
    wire_control(on, FRAME_HEALTH, "");
    wire_find(on, FRAME_HEALTH, &frame);
    ck_assert_msg(memmem(frame.head, frame.head_length, text, strlen(text)) != NULL,
                  "no %s in %.*s", text, (int)frame.head_length, (const char *)frame.head);
}

/* Who answers at the socket. */
static pid_t server_of(const struct spawn *at)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    int fd = wire_connect(at);
    if (fd < 0)
        return 0;
    ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length), 0);
    close(fd);
    return peer.pid;
}

START_TEST(a_socket_that_is_removed_is_there_again)
{
    struct stat status;
    struct wire again;
    start();
    ck_assert_int_eq(chmod(spawn.socket, 0620), 0);
    expect_health(&wire, "ok"); /* it has seen that by now */
    for (int round = 0; round < 3; round++) {
        ck_assert_int_eq(unlink(spawn.socket), 0);
        await_file(spawn.socket);
        expect_health(&wire, "\"unreachable\":[]"); /* the connection from before is still served */
        wire_open(&again, &spawn);
        expect_health(&again, "\"status\":\"ok\"");
        wire_close(&again);
        ck_assert_int_eq(stat(spawn.socket, &status), 0);
        ck_assert_int_eq(status.st_mode & 07777, 0620);
    }
    ck_assert(spawn_logs(&spawn, "was gone, and is listened on again"));
    wire_close(&wire);
    kill(spawn.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&spawn), 0);
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    ck_assert_int_ne(access(lock, F_OK), 0);
}
END_TEST

START_TEST(so_is_that_of_http)
{
    start();
    ck_assert_int_eq(unlink(http + strlen("unix:")), 0);
    await_file(http + strlen("unix:"));
    wire_close(&wire);
}
END_TEST

START_TEST(a_socket_whose_folder_goes_comes_back_with_the_folder)
{
    char away[96], path[112];
    start();
    snprintf(away, sizeof(away), "%s/away", spawn.directory);
    ck_assert_int_eq(rename(folder, away), 0);
    await_logged("clients cannot reach");
    expect_health(&wire, "s.sock: cannot make");
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    await_file(spawn.socket);
    await_file(http + strlen("unix:"));
    ck_assert_int_eq(server_of(&spawn), spawn.pid);
    static const char *const names[] = {"s.sock", "s.sock.lock", "h.sock", "h.sock.lock"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", away, names[i]);
        unlink(path);
    }
    ck_assert_int_eq(rmdir(away), 0);
    wire_close(&wire);
}
END_TEST

START_TEST(another_daemon_in_its_place_is_left_alone)
{
    const char *const arguments[] = {"--model", "synthetic:null", "--device", "cpu", NULL};
    struct spawn second = spawn;
    start();
    kill(spawn.pid, SIGSTOP); /* else it would be back before the other one is there */
    ck_assert_int_eq(unlink(spawn.socket), 0);
    ck_assert_int_eq(unlink(lock), 0);
    spawn_start(&second, arguments, NULL);
    spawn_await_ready(&second);
    kill(spawn.pid, SIGCONT);
    await_logged("clients cannot reach");
    expect_health(&wire, "another daemon listens on");
    ck_assert_int_eq(server_of(&second), second.pid);
    kill(second.pid, SIGTERM);
    ck_assert_int_eq(spawn_wait(&second), 0);
    await_logged("was gone, and is listened on again");
    expect_health(&wire, "\"unreachable\":[]");
    ck_assert_int_eq(server_of(&spawn), spawn.pid);
    wire_close(&wire);
}
END_TEST

/* As systemd starts it, with the socket at 3. */
static void become_passed(int fd)
{
    char command[512];
    snprintf(command, sizeof(command),
             "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=native exec " SLUICED
             " --module-dir " SLUICE_MODULES " --model synthetic:null --device cpu 2>>%s",
             spawn.log);
    if (fd != 3)
        dup2(fd, 3);
    execl("/bin/sh", "sh", "-c", command, NULL);
    _exit(127);
}

START_TEST(of_a_passed_socket_health_says_so)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path, spawn.socket, strlen(spawn.socket));
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    spawn.pid = fork();
    ck_assert_int_ge(spawn.pid, 0);
    if (spawn.pid == 0)
        become_passed(fd);
    close(fd);
    spawn_await_ready(&spawn);
    wire_open(&wire, &spawn);
    expect_health(&wire, "\"unreachable\":[]");
    ck_assert_int_eq(unlink(spawn.socket), 0);
    await_logged("clients cannot reach");
    expect_health(&wire, "s.sock: systemd passed it: restart its socket unit");
    ck_assert_int_ne(access(spawn.socket, F_OK), 0);
    wire_close(&wire);
}
END_TEST

Suite *reach_suite(void)
{
    Suite *suite = suite_create("reach");
    TCase *tcase = tcase_create("reach");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_socket_that_is_removed_is_there_again);
    tcase_add_test(tcase, so_is_that_of_http);
    tcase_add_test(tcase, a_socket_whose_folder_goes_comes_back_with_the_folder);
    tcase_add_test(tcase, another_daemon_in_its_place_is_left_alone);
    tcase_add_test(tcase, of_a_passed_socket_health_says_so);
    suite_add_tcase(suite, tcase);
    return suite;
}
