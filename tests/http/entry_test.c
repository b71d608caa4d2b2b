/* Who gets in, by which key, to what, and with which priority. */
#include <string.h>

#include "tests/http/caller.h"
#include "tests/http/has.h"
#include "tests/http/http_suites.h"

static struct site site;

static void set_up(void)
{
    site_make(&site);
}

static void tear_down(void)
{
    site_free(&site);
}

struct entry {
    const char *host, *type, *authorization;
    bool tcp;
    unsigned status;
};

static const struct entry entries[] = {
    {NULL, "application/json", NULL, false, 200},
    {"any.name", "application/json", NULL, false, 200},
    {NULL, "text/plain", NULL, false, 415},
    {NULL, NULL, NULL, false, 415},
    {"localhost:8000", "application/json", "Bearer secret", true, 200},
    {"127.0.0.1", "application/json", "bearer secret", true, 200},
    {"[::1]:80", "application/json", "Bearer secret", true, 200},
    {"evil.example", "application/json", "Bearer secret", true, 421},
    {NULL, "application/json", "Bearer secret", true, 421},
    {"localhost", "application/json", NULL, true, 401},
    {"localhost", "application/json", "Bearer secre", true, 401},
    {"localhost", "application/json", "Bearer secrett", true, 401},
    {"localhost", "application/json", "Bearer ", true, 401},
    {"localhost", "application/json", "secret", true, 401},
};

START_TEST(only_who_may_gets_in)
{
    const struct entry *entry = &entries[_i];
    static const char file[] = "# keys\n\nme secret\nyou other\n";
    const struct exchange_peer peer = {.user = 5, .tcp = entry->tcp};
    const struct exchange_head head = {.method = "POST",
                                       .path = "/tokenize",
                                       .host = entry->host,
                                       .content_type = entry->type,
                                       .authorization = entry->authorization};
    struct caller caller;
    struct error error;
    ck_assert_int_eq(keys_read(&site.http.keys, "keys", file, sizeof(file) - 1, &error), 0);
    call_as(&site, &caller, &peer, &head, "{\"prompt\":\"A\"}");
    ck_assert_msg(caller.exchange->status == entry->status, "%s", caller_read(&caller));
    if (entry->status == 200)
        ck_assert_str_eq(caller.exchange->sink.user->name, entry->tcp ? "key/me" : "5");
    else
        has(caller_read(&caller), entry->status == 401 ? "authentication_error" : "error");
    caller_free(&caller);
}
END_TEST

START_TEST(only_callers_from_this_machine_may_need_no_key)
{
    struct exchange_peer peer = {.user = KEY_USER_ANONYMOUS, .tcp = true};
    const struct exchange_head head = {.method = "GET", .path = "/version", .host = "localhost"};
    struct caller caller;
    site.http.free_loopback = true;
    call_as(&site, &caller, &peer, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 401);
    caller_free(&caller);
    peer.loopback = true;
    call_as(&site, &caller, &peer, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 200);
    ck_assert_str_eq(caller.exchange->sink.user->name, "anonymous");
    caller_free(&caller);
}
END_TEST

START_TEST(listeners_of_the_figures_have_nothing_else)
{
    const struct exchange_peer apart = {.user = 5, .metrics_apart = true};
    const struct exchange_peer only = {.user = 5, .metrics_only = true, .tcp = true};
    struct exchange_head head = {.method = "GET", .path = "/metrics", .host = "localhost"};
    struct caller caller;
    call_as(&site, &caller, &apart, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 404);
    caller_free(&caller);
    call_as(&site, &caller, &only, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 200);
    caller_free(&caller);
    head.path = "/v1/models";
    call_as(&site, &caller, &only, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 404);
    caller_free(&caller);
}
END_TEST

START_TEST(a_request_keeps_the_name_that_it_was_given)
{
    const struct exchange_peer peer = {.user = 5};
    struct exchange_head head = {.method = "GET", .path = "/version", .request_id = "run-17"};
    struct caller caller;
    call_as(&site, &caller, &peer, &head, NULL);
    ck_assert_str_eq(caller.exchange->request_id, "run-17");
    caller_free(&caller);
    head.request_id = "two words\r\n";
    call_as(&site, &caller, &peer, &head, NULL);
    ck_assert_str_eq(caller.exchange->request_id, caller.exchange->answer_id);
    caller_free(&caller);
}
END_TEST

static const char *const bad_keys[] = {"",
                                       "# none\n",
                                       "name\n",
                                       "name \n",
                                       "name key more\n",
                                       " key\n",
                                       "a\033[2Jb key\n",
                                       "\377 key\n",
                                       "a/b key\n", /* the user b of a trusted key a */
                                       "one key\ntwo key\n"};

START_TEST(a_file_of_keys_that_is_wrong_is_refused_by_its_line)
{
    struct keys keys;
    struct error error;
    ck_assert_int_eq(keys_read(&keys, "keys", bad_keys[_i], strlen(bad_keys[_i]), &error),
                     -ERR_BAD_CONFIG);
    has(error.text, "keys");
}
END_TEST

static const struct {
    uint64_t user;
    bool admin;
    unsigned status;
} askers[] = {{1000, false, 403}, {1000, true, 200}, {0, false, 200}};

START_TEST(a_priority_is_for_who_may_ask_for_it)
{
    struct caller caller;
    uint64_t user = askers[_i].user ? askers[_i].user : keys_user_of("me", 2);
    const struct exchange_peer peer = {.user = user, .admin = askers[_i].admin};
    const struct exchange_head head = {
        .method = "POST", .path = "/v1/completions", .content_type = "application/json"};
    world_set(&site.world, "users", "key/me:priority=3");
    call_as(&site, &caller, &peer, &head, "{\"prompt\":\"A\",\"max_tokens\":2,\"priority\":3}");
    site_finish(&site);
    ck_assert_uint_eq(caller.exchange->status, askers[_i].status);
    if (askers[_i].status == 403)
        has(caller_read(&caller), "priority-max");
    caller_free(&caller);
}
END_TEST

Suite *entry_suite(void)
{
    Suite *suite = suite_create("entry");
    TCase *tests = tcase_create("entry");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, only_who_may_gets_in, 0, sizeof(entries) / sizeof(entries[0]));
    tcase_add_test(tests, only_callers_from_this_machine_may_need_no_key);
    tcase_add_test(tests, listeners_of_the_figures_have_nothing_else);
    tcase_add_test(tests, a_request_keeps_the_name_that_it_was_given);
    tcase_add_loop_test(tests, a_file_of_keys_that_is_wrong_is_refused_by_its_line, 0,
                        sizeof(bad_keys) / sizeof(bad_keys[0]));
    tcase_add_loop_test(tests, a_priority_is_for_who_may_ask_for_it, 0,
                        sizeof(askers) / sizeof(askers[0]));
    suite_add_tcase(suite, tests);
    return suite;
}
