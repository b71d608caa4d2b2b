#include "daemon/net/listen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon_suites.h"
#include "tests/runner.h"

static char directory[64], path[96];
static struct error error;

static void setup(void)
{
    snprintf(directory, sizeof(directory), "/tmp/sluice-listen-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/s.sock", directory);
}

static void teardown(void)
{
    char lock[112];
    snprintf(lock, sizeof(lock), "%s.lock", path);
    unlink(path);
    unlink(lock);
    rmdir(directory);
}

static int plain_socket(bool listening)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path, path, strlen(path));
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    if (listening)
        ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

static int connected(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path, path, strlen(path));
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

START_TEST(a_socket_of_ours_has_mode_0600_and_goes_with_us)
{
    struct listener listener;
    struct stat status;
    ck_assert_msg(listen_open(path, &listener, &error) == 0, "%s", error.text);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 0777, 0600);
    close(connected());
    listen_close(&listener);
    listen_close(&listener);
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

START_TEST(who_connects_is_known)
{
    struct listener listener;
    struct peer peer;
    ck_assert_int_eq(listen_open(path, &listener, &error), 0);
    ck_assert_int_eq(listen_accept(&listener), -EAGAIN);
    int client = connected(), fd = listen_accept(&listener);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(listen_peer(fd, LISTEN_NO_GROUP, &peer, &error), 0);
    ck_assert_uint_eq(peer.uid, getuid());
    ck_assert_int_eq(peer.pid, getpid());
    ck_assert(peer.admin); /* the daemon's own user */
    close(client);
    close(fd);
    listen_close(&listener);
}
END_TEST

START_TEST(a_stale_socket_is_replaced)
{
    struct listener listener;
    close(plain_socket(true));
    ck_assert_msg(listen_open(path, &listener, &error) == 0, "%s", error.text);
    close(connected());
    listen_close(&listener);
}
END_TEST

START_TEST(a_live_socket_is_refused)
{
    struct listener listener;
    int fd = plain_socket(true);
    ck_assert_int_eq(listen_open(path, &listener, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "somebody listens on"));
    ck_assert_int_eq(access(path, F_OK), 0);
    close(fd);
}
END_TEST

START_TEST(a_second_daemon_is_refused)
{
    struct listener listener, second;
    ck_assert_int_eq(listen_open(path, &listener, &error), 0);
    ck_assert_int_eq(listen_open(path, &second, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "another daemon listens"));
    close(connected());
    listen_close(&listener);
    ck_assert_int_eq(listen_open(path, &second, &error), 0);
    listen_close(&second);
}
END_TEST

START_TEST(of_many_daemons_at_once_one_listens)
{
    int report[2], go[2], winners = 0;
    char byte = 0;
    ck_assert_int_eq(pipe(report), 0);
    ck_assert_int_eq(pipe(go), 0);
    close(plain_socket(true)); /* stale: the race is about replacing it */
    for (int i = 0; i < 8; i++)
        if (fork() == 0) {
            struct listener listener;
            close(go[1]);
            while (read(go[0], &byte, 1) > 0)
                continue;
            byte = listen_open(path, &listener, &error) == 0;
            if (write(report[1], &byte, 1) != 1)
                _exit(1);
            usleep(300000);
            _exit(0);
        }
    close(go[0]);
    close(go[1]);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(read(report[0], &byte, 1), 1);
        winners += byte;
    }
    ck_assert_int_eq(winners, 1);
    close(connected());
    while (wait(NULL) > 0)
        continue;
    close(report[0]);
    close(report[1]);
}
END_TEST

START_TEST(a_file_that_is_no_socket_is_left_alone)
{
    struct listener listener;
    FILE *file = fopen(path, "w");
    fputs("precious", file);
    fclose(file);
    ck_assert_int_eq(listen_open(path, &listener, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "is no socket"));
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(another_socket_at_our_path_is_not_unlinked)
{
    struct listener listener;
    ck_assert_int_eq(listen_open(path, &listener, &error), 0);
    unlink(path);
    int fd = plain_socket(true);
    listen_close(&listener);
    ck_assert_int_eq(access(path, F_OK), 0);
    close(fd);
}
END_TEST

START_TEST(a_path_that_the_system_would_cut_is_refused)
{
    struct listener listener;
    char longer[LISTEN_PATH_MAX + 1];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[0] = '/';
    longer[sizeof(longer) - 1] = '\0';
    ck_assert_int_eq(listen_open(longer, &listener, &error), -ERR_BAD_CONFIG);
    ck_assert_uint_eq(error.limit, LISTEN_PATH_MAX - 1);
    ck_assert_uint_eq(error.value, LISTEN_PATH_MAX);
}
END_TEST

START_TEST(the_default_path_of_root_is_the_services)
{
    char found[LISTEN_PATH_MAX];
    if (geteuid() != 0)
        RUNNER_SKIP("only root is root");
    ck_assert_int_eq(listen_default_path(found, &error), 0);
    ck_assert_str_eq(found, "/run/sluice/sluice.sock");
}
END_TEST

START_TEST(the_default_path_is_the_users)
{
    char found[LISTEN_PATH_MAX];
    if (geteuid() == 0)
        ck_assert_int_eq(seteuid(65534), 0);
    unsetenv("INVOCATION_ID");
    setenv("XDG_RUNTIME_DIR", directory, 1);
    ck_assert_int_eq(listen_default_path(found, &error), 0);
    ck_assert_int_eq(strncmp(found, directory, strlen(directory)), 0);
    unsetenv("XDG_RUNTIME_DIR");
    ck_assert_int_eq(listen_default_path(found, &error), -ERR_BAD_CONFIG);
    ck_assert_ptr_nonnull(strstr(error.text, "--socket"));
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

/* In a child, whose descriptors from 3 on may be chosen freely. */
static int passed_in_child(const char *names, bool own_pid, bool listening)
{
    pid_t child = fork();
    if (child == 0) {
        struct listener listeners[LISTEN_MAX];
        uint32_t count = 99;
        char pid[32];
        int fd = plain_socket(listening);
        if (fd != 3) {
            dup2(fd, 3);
            close(fd);
        }
        snprintf(pid, sizeof(pid), "%d", own_pid ? getpid() : 1);
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", "1", 1);
        if (names)
            setenv("LISTEN_FDNAMES", names, 1);
        int rc = listen_passed(listeners, &count, &error);
        if (rc)
            _exit(100);
        if (count == 0)
            _exit(0);
        bool named = strcmp(listeners[0].given, names ? names : "") == 0;
        listen_close(&listeners[0]);
        _exit(count == 1 && named && access(path, F_OK) == 0 && !getenv("LISTEN_FDS") ? 1 : 101);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

START_TEST(passed_sockets_are_taken_by_name_and_never_unlinked)
{
    ck_assert_int_eq(passed_in_child("sluiced.socket", true, true), 1);
}
END_TEST

START_TEST(sockets_passed_to_another_process_are_not_ours)
{
    ck_assert_int_eq(passed_in_child(NULL, false, true), 0);
}
END_TEST

START_TEST(a_passed_descriptor_that_does_not_listen_is_refused)
{
    ck_assert_int_eq(passed_in_child(NULL, true, false), 100);
}
END_TEST

Suite *listen_suite(void)
{
    Suite *suite = suite_create("listen");
    TCase *tcase = tcase_create("listen");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_socket_of_ours_has_mode_0600_and_goes_with_us);
    tcase_add_test(tcase, who_connects_is_known);
    tcase_add_test(tcase, a_stale_socket_is_replaced);
    tcase_add_test(tcase, a_live_socket_is_refused);
    tcase_add_test(tcase, a_second_daemon_is_refused);
    tcase_add_test(tcase, of_many_daemons_at_once_one_listens);
    tcase_add_test(tcase, a_file_that_is_no_socket_is_left_alone);
    tcase_add_test(tcase, another_socket_at_our_path_is_not_unlinked);
    tcase_add_test(tcase, a_path_that_the_system_would_cut_is_refused);
    tcase_add_test(tcase, the_default_path_of_root_is_the_services);
    tcase_add_test(tcase, the_default_path_is_the_users);
    tcase_add_test(tcase, passed_sockets_are_taken_by_name_and_never_unlinked);
    tcase_add_test(tcase, sockets_passed_to_another_process_are_not_ours);
    tcase_add_test(tcase, a_passed_descriptor_that_does_not_listen_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
