/* Which sockets are tried, and what is said when none answers. */
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/net/address.h"
#include "client/sluice.h"
#include "tests/client/client_suites.h"
#include "tests/client/stub.h"

static char folder[] = "/tmp/sluice-address-XXXXXX";

static void setup(void)
{
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    unsetenv("SLUICE_SOCKET");
    setenv("XDG_RUNTIME_DIR", folder, 1);
}

static void teardown(void)
{
    rmdir(folder);
}

START_TEST(the_users_socket_comes_before_the_systems)
{
    struct address address;
    char expected[128];
    address_find(NULL, &address);
    snprintf(expected, sizeof(expected), "%s/sluice.sock", folder);
    ck_assert_uint_eq(address.count, 2);
    ck_assert_str_eq(address.paths[0], expected);
    ck_assert_str_eq(address.paths[1], "/run/sluice/sluice.sock");
    unsetenv("XDG_RUNTIME_DIR");
    address_find(NULL, &address);
    ck_assert_uint_eq(address.count, 1);
    ck_assert_str_eq(address.paths[0], "/run/sluice/sluice.sock");
}
END_TEST

START_TEST(a_given_socket_is_the_only_one)
{
    struct address address;
    setenv("SLUICE_SOCKET", "/tmp/from-environment", 1);
    address_find(NULL, &address);
    ck_assert_uint_eq(address.count, 1);
    ck_assert_str_eq(address.paths[0], "/tmp/from-environment");
    address_find("/tmp/given", &address);
    ck_assert_uint_eq(address.count, 1);
    ck_assert_str_eq(address.paths[0], "/tmp/given");
}
END_TEST

/* Whatever daemon this machine has: not the system's own socket, but another that is not there. */
START_TEST(a_failure_names_every_path_and_why)
{
    struct address address;
    struct error failure;
    char expected[ADDRESS_PATH_MAX + 32];
    int fd;
    address_find(NULL, &address);
    ck_assert_uint_eq(address.count, 2);
    snprintf(address.paths[1], sizeof(address.paths[1]), "%s/system.sock", folder);
    ck_assert_int_eq(address_connect(&address, 0, &fd, &failure), -ERR_CONNECT);
    for (uint32_t i = 0; i < address.count; i++) {
        snprintf(expected, sizeof(expected), "%s: no such socket", address.paths[i]);
        ck_assert_msg(strstr(failure.text, expected), "%s", failure.text);
    }
    ck_assert_ptr_nonnull(strstr(failure.text, "is sluiced running?"));
}
END_TEST

START_TEST(a_failure_is_told_by_its_number)
{
    sluice_client *client;
    sluice_error error;
    setenv("SLUICE_SOCKET", "/tmp/from-environment", 1);
    ck_assert_int_eq(sluice_connect(NULL, 1000, &client, &error), -SLUICE_E_CONNECT);
    ck_assert_int_eq(error.code, SLUICE_E_CONNECT);
    ck_assert_ptr_nonnull(strstr(error.text, "/tmp/from-environment: no such socket"));
}
END_TEST

START_TEST(a_path_too_long_for_a_socket_is_not_cut)
{
    sluice_client *client;
    sluice_error error;
    char path[300];
    memset(path, 'x', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    ck_assert_int_eq(sluice_connect(path, 1000, &client, &error), -SLUICE_E_CONNECT);
    ck_assert_ptr_nonnull(strstr(error.text, "107 bytes"));
}
END_TEST

/* Root may enter everything: as root the test becomes somebody else, in its own process. */
static void become_nobody(void)
{
    if (geteuid() == 0) {
        ck_assert_int_eq(chmod(folder, 0711), 0);
        ck_assert_int_eq(setgroups(0, NULL), 0);
        ck_assert_int_eq(setegid(65534), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
}

START_TEST(a_missing_permission_says_which_group_has_it)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat status;
    sluice_client *client;
    sluice_error error;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/sluice.sock", folder);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(stat(address.sun_path, &status), 0);
    /* Writing needs the group, whose member the one that tries is not; or nobody has it at all. */
    bool grouped = geteuid() == 0;
    ck_assert_int_eq(chmod(address.sun_path, grouped ? 0060 : 0), 0);
    become_nobody();
    ck_assert_int_eq(sluice_connect(NULL, 1000, &client, &error), -SLUICE_E_CONNECT);
    ck_assert_ptr_nonnull(strstr(error.text, "no permission"));
    ck_assert_ptr_nonnull(strstr(error.text, grouped ? "usermod -aG" : "only its owner"));
    ck_assert_ptr_null(strstr(error.text, "is sluiced running?"));
    if (grouped) {
        ck_assert_int_eq(seteuid(0), 0);
        ck_assert_int_eq(setegid(0), 0);
    }
    close(fd);
    unlink(address.sun_path);
}
END_TEST

START_TEST(the_first_that_accepts_is_taken)
{
    const char *path;
    char link_path[128];
    sluice_client *client;
    sluice_error error;
    struct stub *stub = stub_start(&(struct stub_options){0}, &path);
    snprintf(link_path, sizeof(link_path), "%s/sluice.sock", folder);
    ck_assert_int_eq(symlink(path, link_path), 0);
    ck_assert_int_eq(sluice_connect(NULL, 10000, &client, &error), 0);
    ck_assert_str_eq(sluice_client_info(client)->device, "stub");
    ck_assert_uint_eq(sluice_client_info(client)->vocabulary, 257);
    sluice_close(client);
    unlink(link_path);
    stub_stop(stub);
}
END_TEST

START_TEST(a_daemon_that_says_nothing_is_not_waited_for_longer_than_asked)
{
    const char *path;
    sluice_client *client;
    sluice_error error;
    struct stub *stub = stub_start(&(struct stub_options){.silent = true}, &path);
    ck_assert_int_eq(sluice_connect(path, 20, &client, &error), -SLUICE_E_TIMEOUT);
    stub_stop(stub);
}
END_TEST

START_TEST(a_full_backlog_is_not_waited_for_longer_than_asked)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sluice_client *client;
    sluice_error error;
    int fds[2], fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/sluice.sock", folder);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 0), 0);
    for (int i = 0; i < 2; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fds[i], (struct sockaddr *)&address, sizeof(address));
    }
    ck_assert_int_eq(sluice_connect(address.sun_path, 20, &client, &error), -SLUICE_E_CONNECT);
    ck_assert_ptr_nonnull(strstr(error.text, "does not accept"));
    close(fds[0]);
    close(fds[1]);
    close(fd);
    unlink(address.sun_path);
}
END_TEST

START_TEST(a_refused_connection_says_when_to_come_back)
{
    const char *path;
    sluice_client *client;
    sluice_error error;
    struct stub *stub = stub_start(&(struct stub_options){.refuse = true}, &path);
    ck_assert_int_eq(sluice_connect(path, 10000, &client, &error), -SLUICE_E_BUSY);
    ck_assert_uint_eq(error.retry_after_ms, 7);
    stub_stop(stub);
}
END_TEST

Suite *address_suite(void)
{
    Suite *suite = suite_create("address");
    TCase *tcase = tcase_create("address");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_users_socket_comes_before_the_systems);
    tcase_add_test(tcase, a_given_socket_is_the_only_one);
    tcase_add_test(tcase, a_failure_names_every_path_and_why);
    tcase_add_test(tcase, a_failure_is_told_by_its_number);
    tcase_add_test(tcase, a_path_too_long_for_a_socket_is_not_cut);
    tcase_add_test(tcase, a_missing_permission_says_which_group_has_it);
    tcase_add_test(tcase, the_first_that_accepts_is_taken);
    tcase_add_test(tcase, a_daemon_that_says_nothing_is_not_waited_for_longer_than_asked);
    tcase_add_test(tcase, a_full_backlog_is_not_waited_for_longer_than_asked);
    tcase_add_test(tcase, a_refused_connection_says_when_to_come_back);
    suite_add_tcase(suite, tcase);
    return suite;
}
