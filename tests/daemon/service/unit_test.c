/* What a service would see of its configuration: the shipped units, and drop-ins. */
#include "tests/daemon/daemon_suites.h"

#include <errno.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/option.h"
#include "daemon/net/listen.h"
#include "daemon/service/sockets.h"
#include "daemon/service/unit_check.h"
#include "tests/runner.h"

#define PATH_BYTES 512

static char root[64];
static struct error error;

static void make_directory(const char *path)
{
    char part[PATH_BYTES];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        ck_assert(mkdir(part, 0755) == 0 || errno == EEXIST);
    }
}

/* A file below the root, with its directories. */
static void put(const char *name, const char *text)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s%s", root, name);
    make_directory(path);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void ship(const char *name)
{
    char from[128], to[128], text[8192];
    snprintf(from, sizeof(from), "deploy/systemd/%s", name);
    snprintf(to, sizeof(to), "/usr/lib/systemd/system/%s", name);
    FILE *file = fopen(from, "r");
    ck_assert_msg(file != NULL, "%s", from);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    put(to, text);
}

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/sluice-unit-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    ship("sluiced.service");
    ship("sluiced@.service");
    put("/etc/sluice/sluiced.conf", "");
    put("/etc/sluice/web.conf", "");
    put("/etc/other/sluiced.conf", "");
}

static void teardown(void)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static bool unit_of(const char *config, struct unit *unit)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s%s", root, config);
    return unit_read(root, path, unit);
}

/* What stands against these lines of a file; "" where nothing does. */
static const char *finding(const struct unit *unit, const char *text)
{
    struct options *options;
    ck_assert_int_eq(options_defaults(&options, &error), 0);
    ck_assert_int_eq(options_read_text(options, "test", text, strlen(text), &error), 0);
    int rc = unit_check(unit, options, &error);
    options_free(options);
    ck_assert(rc == 0 || rc == -ERR_BAD_CONFIG);
    return rc ? error.text : "";
}

static void says(const char *text, const char *part)
{
    ck_assert_msg(*part ? strstr(text, part) != NULL : !*text, "\"%s\" instead of \"%s\"", text,
                  part);
}

static const struct {
    const char *options, *says;
} seen[] = {
    {"model = /var/lib/sluice/m\n", ""},
    {"model = synthetic:null\nhttp = unix:/run/x/http.sock\n",
     "http: sluiced.service may not write"},
    {"model = synthetic:null\nhttp = 127.0.0.1:8000\n",
     "http: sluiced.service has no network of its own to listen on 127.0.0.1:8000 with "
     "(RestrictAddressFamilies=)"},
    {"model = synthetic:null\nhttp = 127.0.0.1:8000\n", "systemctl enable sluiced-tcp.socket"},
    {"model = synthetic:null\nmetrics = [::1]:9464\n", "systemctl enable sluiced-metrics.socket"},
    {"model = synthetic:null\nagent-check = [::1]:9474\n", "systemctl enable sluiced-agent.socket"},
    {"model = /home/ann/m\n", "model: /home/ann/m is in a home directory, which sluiced.service "
                              "does not see (ProtectHome=)"},
    {"model = /root\n", "ProtectHome="},
    {"model = /rooted/m\n", ""},
    {"model = /tmp/m\n", "directory for temporary files"},
    {"model = m\n", "model: m is no whole path"},
    {"model = synthetic:null\nprofile-steps = 1\nprofile-file = /var/lib/trace\n",
     "profile-file: sluiced.service may not write to /var/lib/trace"},
    {"model = synthetic:null\nprofile-steps = 1\nprofile-file = /var/cache/sluice/trace\n", ""},
    {"model = synthetic:null\napi-key-file = /home/ann/keys\n", "api-key-file: "},
    {"program = /usr/lib/sluice/programs/affine-cpu.so\n", ""},
    {"program = /usr/lib/x.so, /home/ann/x.so\n", "program: /home/ann/x.so is in a home directory"},
    {"program = x.so\n", "program: x.so is no whole path"},
    {"model = /srv/m\nadapter = a=/srv/a, b=/home/ann/b\n", "adapter: /home/ann/b is in a home directory"},
    {"program = /usr/lib/x.so\nstate-dir = /srv/state\n", "state-dir: sluiced.service may not write"},
    {"program = /usr/lib/x.so\nstate-dir = /var/lib/sluice/state\n", ""},
    {"model = synthetic:null\nchat-template = /home/ann/t.jinja\n", "chat-template: "},
    {"model = synthetic:null\nsocket = /run/sluice/mine.sock\n", "socket: "},
};

START_TEST(what_the_shipped_unit_hides_is_told)
{
    struct unit unit;
    ck_assert(unit_of("/etc/sluice/sluiced.conf", &unit));
    ck_assert_str_eq(unit.user, "sluice");
    says(finding(&unit, seen[_i].options), seen[_i].says);
}
END_TEST

static const struct {
    const char *file, *text, *options, *says;
} drop_ins[] = {
    /* What is bound into a hidden home is seen, but not where that is made inaccessible. */
    {"/etc/systemd/system/sluiced.service.d/a.conf",
     "[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths=-/home/ann/m /x:/home/bob/m:rbind\n",
     "model = /home/bob/m/1\n", ""},
    {"/etc/systemd/system/sluiced.service.d/a.conf", "[Service]\nBindReadOnlyPaths=/home/ann/m\n",
     "model = /home/ann/m\n", "ProtectHome="},
    {"/etc/systemd/system/sluiced.service.d/a.conf", "[Service]\nProtectHome=read-only\n",
     "model = /home/ann/m\n", ""},
    {"/run/systemd/system/service.d/a.conf", "[Service]\nPrivateTmp=\\\n  no\n", "model = /tmp/m\n",
     ""},
    {"/etc/systemd/system/sluiced.service.d/a.conf",
     "[Unit]\nProtectHome=no\n[Service]\n#ProtectHome=no\n", "model = /home/ann/m\n",
     "ProtectHome="},
    /* CUDA's: with addresses of TCP, but still without a network. */
    {"/usr/lib/systemd/system/sluiced.service.d/a.conf",
     "[Service]\nRestrictAddressFamilies=AF_INET AF_NETLINK\n",
     "model = synthetic:null\nhttp = 127.0.0.1:8000\n", "(PrivateNetwork=)"},
    {"/etc/systemd/system/sluiced.service.d/a.conf",
     "[Service]\nRestrictAddressFamilies=AF_INET\nPrivateNetwork=no\n",
     "model = synthetic:null\nhttp = 127.0.0.1:8000\n", ""},
    {"/etc/systemd/system/sluiced.service.d/a.conf",
     "[Service]\nRestrictAddressFamilies=\nPrivateNetwork=no\n",
     "model = synthetic:null\nhttp = [::1]:8000\n", ""},
    {"/etc/systemd/system/sluiced.service.d/a.conf",
     "[Service]\nReadWritePaths=/srv/traces /srv/more\n",
     "model = synthetic:null\nprofile-steps = 1\nprofile-file = /srv/more/trace\n", ""},
    {"/etc/systemd/system/sluiced.service", "[Service]\nUser=ann\n", "model = /home/ann/m\n", ""},
    {"/etc/systemd/system/sluiced.service.d/a.txt", "[Service]\nProtectHome=no\n",
     "model = /home/ann/m\n", "ProtectHome="},
};

START_TEST(a_drop_in_counts)
{
    struct unit unit;
    put(drop_ins[_i].file, drop_ins[_i].text);
    ck_assert(unit_of("/etc/sluice/sluiced.conf", &unit));
    says(finding(&unit, drop_ins[_i].options), drop_ins[_i].says);
}
END_TEST

START_TEST(drop_ins_go_by_their_names_and_the_nearest_stands_for_its_name)
{
    struct unit unit;
    put("/usr/lib/systemd/system/sluiced.service.d/50-x.conf", "[Service]\nUser=vendor\n");
    put("/etc/systemd/system/sluiced.service.d/50-x.conf", "[Service]\nUser=admin\n");
    put("/run/systemd/system/sluiced.service.d/40-x.conf", "[Service]\nUser=early\n");
    ck_assert(unit_of("/etc/sluice/sluiced.conf", &unit));
    ck_assert_str_eq(unit.user, "admin");
    put("/usr/lib/systemd/system/sluiced.service.d/60-x.conf", "[Service]\nUser=late\n");
    ck_assert(unit_of("/etc/sluice/sluiced.conf", &unit));
    ck_assert_str_eq(unit.user, "late");
}
END_TEST

START_TEST(an_instance_has_its_own_drop_ins_and_those_of_all)
{
    struct unit unit;
    put("/etc/systemd/system/sluiced@.service.d/a.conf", "[Service]\nPrivateTmp=no\n");
    put("/etc/systemd/system/sluiced@web.service.d/b.conf", "[Service]\nProtectHome=no\n");
    put("/etc/systemd/system/sluiced@other.service.d/c.conf", "[Service]\nPrivateNetwork=no\n");
    ck_assert(unit_of("/etc/sluice/web.conf", &unit));
    ck_assert_str_eq(unit.name, "sluiced@web.service");
    says(finding(&unit, "model = /tmp/m\n"), "");
    says(finding(&unit, "model = /home/m\n"), "");
    says(finding(&unit, "model = synthetic:null\nhttp = 127.0.0.1:8000\n"),
         "systemctl enable sluiced-tcp@web.socket");
}
END_TEST

START_TEST(what_is_no_units_configuration_is_nobodys)
{
    struct unit unit;
    ck_assert(!unit_of("/etc/other/sluiced.conf", &unit));
    ck_assert(!unit_of("/etc/sluice/none.conf", &unit));
    put("/etc/sluice/keys", "");
    ck_assert(!unit_of("/etc/sluice/keys", &unit));
    ck_assert(!unit_read(root, NULL, &unit));
    ck_assert(!unit_read("/nonexistent", "/etc/passwd", &unit));
}
END_TEST

START_TEST(a_link_to_a_home_directory_is_told)
{
    struct unit unit;
    char model[PATH_BYTES], file[PATH_BYTES + 32], text[PATH_BYTES + 32];
    ck_assert(unit_of("/etc/sluice/sluiced.conf", &unit));
    unit.tmp_private = false; /* where this test's files are */
    put("/model/config.json", "{}");
    snprintf(model, sizeof(model), "%s/model", root);
    snprintf(text, sizeof(text), "model = %s\n", model);
    says(finding(&unit, text), "");
    snprintf(file, sizeof(file), "%s/model.safetensors", model);
    ck_assert_int_eq(symlink("/home", file), 0);
    says(finding(&unit, text), "model: /home is in a home directory");
}
END_TEST

START_TEST(root_looks_as_the_units_user)
{
    struct unit unit = {.name = "sluiced.service", .user = "nobody"};
    if (geteuid() != 0 || !getpwnam("nobody"))
        RUNNER_SKIP("it needs root, and a user nobody");
    pid_t child = fork();
    if (child == 0) {
        int rc = unit_become(&unit, &error);
        error_set(&error, ERR_BAD_MODEL, "no model");
        unit_explain(&unit, &error);
        bool told = strstr(error.text, "no model (as user nobody, as sluiced.service)") != NULL;
        _exit(!rc && told && geteuid() != 0 && setuid(0) != 0 ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    snprintf(unit.user, sizeof(unit.user), "no-such-user");
    ck_assert(!unit_is_user(&unit));
    ck_assert_int_eq(unit_become(&unit, &error), -ERR_BAD_CONFIG);
    says(error.text, "there is no user no-such-user");
}
END_TEST

/* ---- passed sockets ----------------------------------------------------------------------------
 */

static const struct {
    const char *given, *path;
    bool tcp;
    int kind; /* -1: refused */
} passed[] = {
    {"sluice", "/run/sluice/sluice.sock", false, SOCKET_NATIVE},
    {"sluice", "/run/sluice/http.sock", false, SOCKET_HTTP},
    {"sluice", "/run/sluice/web.sock", false, SOCKET_NATIVE},
    {"sluice", "/run/sluice/web-http.sock", false, SOCKET_HTTP},
    {"sluice", "/run/sluice/web-metrics.sock", false, SOCKET_METRICS},
    {"sluice", "/run/sluice/web-agent.sock", false, SOCKET_AGENT},
    {"sluice", "/run/sluice/nohttp.sock", false, SOCKET_NATIVE},
    {"sluiced.socket", "/run/http.sock/sluice.sock", false, SOCKET_NATIVE},
    {"", "", false, SOCKET_NATIVE},
    {"native", "/run/sluice/http.sock", false, SOCKET_NATIVE},
    {"http", "/run/sluice/sluice.sock", false, SOCKET_HTTP},
    {"http", "", true, SOCKET_HTTP},
    {"metrics", "", true, SOCKET_METRICS},
    {"agent", "", true, SOCKET_AGENT},
    {"native", "", true, -1},
    {"sluice", "", true, -1},
};

START_TEST(passed_sockets_are_told_apart_by_name_or_address)
{
    struct listener listener = {.tcp = passed[_i].tcp};
    enum socket_kind kind = SOCKET_NATIVE;
    snprintf(listener.given, sizeof(listener.given), "%s", passed[_i].given);
    snprintf(listener.path, sizeof(listener.path), "%s", passed[_i].path);
    int rc = sockets_tell(&listener, &kind, &error);
    ck_assert_int_eq(rc, passed[_i].kind < 0 ? -ERR_BAD_CONFIG : 0);
    if (rc == 0)
        ck_assert_int_eq((int)kind, passed[_i].kind);
}
END_TEST

START_TEST(a_network_of_ones_own_is_noticed)
{
    const struct listener listener = {.fd = socket(AF_UNIX, SOCK_STREAM, 0)};
    uint64_t cookie;
    socklen_t length = sizeof(cookie);
    ck_assert(!listen_is_apart(&listener));
    if (getsockopt(listener.fd, SOL_SOCKET, 71, &cookie, &length) != 0)
        RUNNER_SKIP("the kernel does not tell networks apart");
    pid_t child = fork();
    if (child == 0)
        _exit(unshare(CLONE_NEWNET) != 0 ? 77 : listen_is_apart(&listener));
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    close(listener.fd);
    if (WEXITSTATUS(status) == 77)
        RUNNER_SKIP("no network namespace can be made");
    ck_assert_int_eq(WEXITSTATUS(status), 1);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("unit");
    TCase *tcase = tcase_create("unit");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, what_the_shipped_unit_hides_is_told, 0,
                        sizeof(seen) / sizeof(seen[0]));
    tcase_add_loop_test(tcase, a_drop_in_counts, 0, sizeof(drop_ins) / sizeof(drop_ins[0]));
    tcase_add_test(tcase, drop_ins_go_by_their_names_and_the_nearest_stands_for_its_name);
    tcase_add_test(tcase, an_instance_has_its_own_drop_ins_and_those_of_all);
    tcase_add_test(tcase, what_is_no_units_configuration_is_nobodys);
    tcase_add_test(tcase, a_link_to_a_home_directory_is_told);
    tcase_add_test(tcase, root_looks_as_the_units_user);
    tcase_add_loop_test(tcase, passed_sockets_are_told_apart_by_name_or_address, 0,
                        sizeof(passed) / sizeof(passed[0]));
    tcase_add_test(tcase, a_network_of_ones_own_is_noticed);
    suite_add_tcase(suite, tcase);
    return suite;
}
