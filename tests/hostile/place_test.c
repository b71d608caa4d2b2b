/* A daemon whose socket goes, with its folder or without, and one whose descriptors are all taken,
 * while clients work. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/hostile/scene.h"
#include "tests/hostile/start_suites.h"
#include "tests/sim/chance.h"

#define ROUNDS 12
#define CROWD 100 /* more than the daemon has descriptors */
#define DESCRIPTORS 48

static struct scene scene;
static char folder[80];

static void setup(void)
{
    spawn_make(&scene.spawn);
    snprintf(folder, sizeof(folder), "%s/run", scene.spawn.directory);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    snprintf(scene.spawn.socket, sizeof(scene.spawn.socket), "%s/s.sock", folder);
}

/* And what the daemon left in a folder that was moved away. */
static void remove_folder(const char *path)
{
    static const char *const names[] = {"s.sock", "s.sock.lock", "moved"};
    char file[160];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(file, sizeof(file), "%s/%s", path, names[i]);
        unlink(file);
    }
    rmdir(path);
}

static void teardown(void)
{
    if (scene.spawn.pid > 0)
        kill(scene.spawn.pid, SIGKILL);
    remove_folder(folder);
    scene_free(&scene);
}

static void take_away(unsigned how)
{
    char moved[112];
    switch (how) {
    case 0:
        ck_assert_int_eq(unlink(scene.spawn.socket), 0);
        break;
    case 1:
        snprintf(moved, sizeof(moved), "%s/moved", folder);
        ck_assert_int_eq(rename(scene.spawn.socket, moved), 0);
        break;
    default:
        snprintf(moved, sizeof(moved), "%s/away", scene.spawn.directory);
        ck_assert_int_eq(rename(folder, moved), 0);
        ck_assert_int_eq(mkdir(folder, 0700), 0);
        remove_folder(moved);
    }
}

static void await_reachable(unsigned how)
{
    int fd = -1;
    for (int i = 0; i < SPAWN_PATIENCE_MS / 10 && (fd = wire_connect(&scene.spawn)) < 0; i++)
        poll(NULL, 0, 10);
    ck_assert_msg(fd >= 0, "nobody listens any more, after %u", how);
    close(fd);
    spawn_await_ready(&scene.spawn);
}

START_TEST(a_socket_that_goes_while_clients_work_comes_back)
{
    uint64_t random = 18;
    scene_start(&scene, scene_null_model, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned how = round < 3 ? round : (unsigned)chance_below(&random, 3);
        take_away(how);
        scene_check(&scene); /* who is connected sees nothing of it */
        await_reachable(how);
    }
    scene_end(&scene);
    ck_assert_int_ne(access(scene.spawn.socket, F_OK), 0);
}
END_TEST

/* Who finds none is let in and out at once, not kept waiting. */
START_TEST(where_no_descriptor_is_left_nobody_waits)
{
    int fds[CROWD];
    uint32_t refused = 0;
    scene.spawn.descriptors = DESCRIPTORS;
    scene_start(&scene, scene_null_model, NULL);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = wire_connect(&scene.spawn);
        ck_assert_int_ge(fds[i], 0);
    }
    for (int i = CROWD - 1; i >= CROWD - 20; i--) {
        struct pollfd ready = {fds[i], POLLIN, 0};
        char byte;
        /* Nobody is closed for saying nothing before that. */
        ck_assert_msg(poll(&ready, 1, 5000) == 1, "connection %d waits", i);
        refused += recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0;
    }
    ck_assert_uint_eq(refused, 20);
    scene_check(&scene);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    spawn_await_ready(&scene.spawn);
    ck_assert(spawn_logs(&scene.spawn, "no file descriptor is left"));
    scene_end(&scene);
}
END_TEST

Suite *place_suite(void)
{
    Suite *suite = suite_create("place");
    TCase *tcase = tcase_create("place");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_socket_that_goes_while_clients_work_comes_back);
    tcase_add_test(tcase, where_no_descriptor_is_left_nobody_waits);
    suite_add_tcase(suite, tcase);
    return suite;
}
