/* Users as figures tell them. */
#include <stdio.h>
#include <string.h>

#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;
static char answer[1 << 18];

static void set_up(void)
{
    site_make(&site);
}

static void tear_down(void)
{
    site_free(&site);
}

static void complete_as(uint64_t user, const char *body)
{
    const struct exchange_peer peer = {.user = user};
    const struct exchange_head head = {
        .method = "POST", .path = "/v1/completions", .content_type = "application/json"};
    struct caller caller;
    call_as(&site, &caller, &peer, &head, body);
    site_finish(&site);
    ck_assert_uint_eq(caller.exchange->status, 200);
    caller_free(&caller);
}

static void expect(const char *line)
{
    char whole[128];
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    ck_assert_uint_eq(fetch(&site, "/metrics", NULL, answer, sizeof(answer)), 200);
    ck_assert_msg(strstr(answer, whole) != NULL, "%s", line);
}

START_TEST(figures_are_told_by_user_and_stay_when_it_goes)
{
    complete_as(7, "{\"prompt\":\"ABC\",\"max_tokens\":5}");
    complete_as(7, "{\"prompt\":\"A\",\"max_tokens\":2,\"n\":2}");
    complete_as(8, "{\"prompt\":\"AB\",\"max_tokens\":1}");
    expect("sluice_user_requests_total{user=\"7\"} 2");
    expect("sluice_user_prompt_tokens_total{user=\"7\"} 5");
    expect("sluice_user_generation_tokens_total{user=\"7\"} 9");
    expect("sluice_user_requests_total{user=\"8\"} 1");
    expect("sluice_user_generation_tokens_total{user=\"8\"} 1");
    expect("sluice_user_requests_total{user=\"other\"} 0");
}
END_TEST

START_TEST(users_beyond_the_bound_are_one_series)
{
    world_set(&site.world, "metrics-users", "3");
    for (int round = 0; round < 2; round++)
        for (uint64_t user = 1; user <= 40; user++)
            complete_as(user, "{\"prompt\":\"AB\",\"max_tokens\":3}");
    expect("sluice_user_requests_total{user=\"1\"} 2");
    expect("sluice_user_requests_total{user=\"3\"} 2");
    expect("sluice_user_requests_total{user=\"other\"} 74");
    expect("sluice_user_prompt_tokens_total{user=\"other\"} 148");
    expect("sluice_user_generation_tokens_total{user=\"other\"} 222");
    ck_assert_ptr_null(strstr(answer, "user=\"4\""));
    world_set(&site.world, "metrics-users", "40");
    complete_as(4, "{\"prompt\":\"A\",\"max_tokens\":1}");
    for (uint64_t user = 100; user < 140; user++) /* the table grows */
        complete_as(user, "{\"prompt\":\"A\",\"max_tokens\":1}");
    expect("sluice_user_requests_total{user=\"4\"} 1");
    expect("sluice_user_requests_total{user=\"1\"} 2");
    expect("sluice_user_requests_total{user=\"135\"} 1");
    expect("sluice_user_requests_total{user=\"other\"} 78");
}
END_TEST

/* The figures would tell, and so would the time that it takes. */
START_TEST(a_constraint_is_compiled_once_for_a_user_and_no_other)
{
    static const char plain[] = "{\"prompt\":\"A\",\"max_tokens\":1,"
                                "\"structured_outputs\":{\"regex\":\"[A-Z]*\"}}",
                      salted[] = "{\"prompt\":\"A\",\"max_tokens\":1,\"cache_salt\":\"s\","
                                 "\"structured_outputs\":{\"regex\":\"[A-Z]*\"}}";
    complete_as(7, plain);
    complete_as(8, plain);
    complete_as(7, salted);
    complete_as(8, salted);
    expect("sluice_constraints_total 4");
    expect("sluice_constraints_kept_total 0");
    complete_as(7, plain);
    complete_as(8, salted);
    expect("sluice_constraints_total 4");
    expect("sluice_constraints_kept_total 2");
}
END_TEST

START_TEST(with_no_users_there_is_one_series)
{
    world_set(&site.world, "metrics-users", "0");
    complete_as(7, "{\"prompt\":\"A\",\"max_tokens\":1}");
    expect("sluice_user_requests_total{user=\"other\"} 1");
    ck_assert_ptr_null(strstr(answer, "user=\"7\""));
}
END_TEST

Suite *users_suite(void)
{
    Suite *suite = suite_create("users");
    TCase *tests = tcase_create("users");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, figures_are_told_by_user_and_stay_when_it_goes);
    tcase_add_test(tests, users_beyond_the_bound_are_one_series);
    tcase_add_test(tests, a_constraint_is_compiled_once_for_a_user_and_no_other);
    tcase_add_test(tests, with_no_users_there_is_one_series);
    suite_add_tcase(suite, tests);
    return suite;
}
