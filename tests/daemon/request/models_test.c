/* Two models in one daemon, over the native protocol: each has a queue, turns and figures of its
 * own. */
#include <stdio.h>
#include <string.h>

#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/request/server_rig.h"

static const struct ask other_one = {
    .job = JOB_GENERATE, .id = 2, .count = 1, .length = 1, .max_tokens = 2, .model = "other"};

static void setup(void)
{
    server_rig_setup();
    world_serve_beside(&world, "other,alias", 500);
}

static struct served_model *beside(void)
{
    return &world.server.models[1];
}

START_TEST(requests_go_to_the_model_that_they_name)
{
    struct ask ask = other_one;
    client_ask(&client, &one);
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    ck_assert_uint_eq(world.beside[0].count, 1);
    ask.id = 3;
    ask.model = "alias";
    client_ask(&client, &ask);
    ask.id = 4;
    ask.model = "rule";
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 2);
    ck_assert_uint_eq(world.beside[0].count, 2);
    world_finish(&world);
    ck_assert_uint_eq(beside()->requests, 2);
    ck_assert_uint_eq(beside()->prompt_tokens, 2);
    ck_assert_uint_eq(beside()->generated_tokens, 4);
    ck_assert_uint_eq(world.server.models[0].requests, 2);
    ck_assert_uint_eq(done_count(&client), 4);
}
END_TEST

START_TEST(what_is_named_and_not_there_is_refused)
{
    struct ask ask = other_one;
    ask.model = "nobody";
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_NOT_FOUND);
    client_control(&client, FRAME_MODEL, 5, "{\"model\":\"nobody\"}");
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_NOT_FOUND);
    ck_assert_uint_eq(world.beside[0].count, 0);
}
END_TEST

/* Vocabulary and context are the named model's. */
START_TEST(each_is_admitted_by_its_own_limits)
{
    struct ask ask = other_one;
    ask.first = 700; /* a token that only the first has */
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_BAD_TOKEN);
    ask.model = NULL;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), 0);
    ask = other_one;
    ask.id = 9;
    ask.max_tokens = beside()->context_max;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_TOO_LARGE);
    ask.model = NULL;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), 0);
    world_finish(&world);
}
END_TEST

/* Neither waits for the other's places, and who has much of one owes nothing at the other. */
START_TEST(a_full_model_holds_up_nobody_of_the_other)
{
    struct ask ask = one;
    world.replica.room = 2;
    world.beside[0].room = 2;
    ask.count = 8;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 2);
    ck_assert_uint_eq(world.server.models[0].waiting.count, 6);
    client_ask(&client, &other_one);
    world_turn(&world);
    ck_assert_uint_eq(world.beside[0].count, 1);
    ck_assert_uint_eq(beside()->waiting.count, 0);
    ck_assert_uint_eq(server_waiting(&world.server), 6);
    /* The other user has nothing on the second model, and takes no place of the first's. */
    ask = other_one;
    ask.count = 3;
    client_ask(&other, &ask);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 2);
    ck_assert_uint_eq(beside()->owed, 0);
    ck_assert_uint_eq(world.beside[0].count, 2);
    world_finish(&world);
    ck_assert_uint_eq(done_count(&other), 3);
}
END_TEST

START_TEST(turns_are_kept_per_model)
{
    struct ask ask = other_one;
    world.beside[0].room = 1;
    ask.count = 6;
    ask.max_tokens = 100;
    client_ask(&client, &ask);
    world_turn(&world);
    for (uint32_t i = 0; i < 5; i++) /* much is used of the first: of no weight here */
        client_ask(
            &other,
            &(struct ask){
                .job = JOB_GENERATE, .id = 10 + i, .count = 1, .length = 400, .max_tokens = 1});
    world_step(&world, 1);
    ask.count = 1;
    client_ask(&other, &ask);
    world_step(&world, 100); /* the first of six ends */
    world_turn(&world);
    ck_assert_uint_eq(world.beside[0].held[0]->user_id, 2000);
    world_finish(&world);
}
END_TEST

START_TEST(a_connection_that_goes_leaves_both_models)
{
    struct ask ask = other_one;
    ask.count = 4;
    world.beside[0].room = 1;
    client_ask(&client, &one);
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_uint_eq(beside()->running, 1);
    ck_assert_uint_eq(beside()->waiting.count, 3);
    client_free(&client);
    world_turn(&world);
    world_turn(&world);
    ck_assert_uint_eq(beside()->waiting.count, 0);
    world_finish(&world);
    ck_assert_uint_eq(beside()->running, 0);
    client_open(&world, &client, 1000);
}
END_TEST

/* The head of the answer. */
static const char *asked(uint8_t type, const char *question)
{
    static char head[1 << 16];
    struct frame frame;
    client_control(&client, type, 5, question);
    world_turn(&world);
    ck_assert(client_find(&client, type, &frame));
    snprintf(head, sizeof(head), "%.*s", (int)frame.head_length, (const char *)frame.head);
    return head;
}

START_TEST(what_is_asked_of_a_model_is_told_of_it)
{
    const char *head = asked(FRAME_MODEL, "{\"model\":\"alias\"}");
    ck_assert_ptr_nonnull(strstr(head, "\"model\":\"other\""));
    ck_assert_ptr_nonnull(strstr(head, "\"vocabulary\":500"));
    ck_assert_ptr_nonnull(strstr(head, "\"context_max\":2048"));
    ck_assert_ptr_nonnull(strstr(asked(FRAME_MODEL, ""), "\"model\":\"rule\""));
    ck_assert_ptr_nonnull(strstr(asked(FRAME_HEALTH, ""), "\"models\":[\"rule\",\"other\"]"));
    head = asked(FRAME_STATS, "");
    ck_assert_ptr_nonnull(strstr(head, "\"models\":[{\"name\":\"rule\""));
    ck_assert_ptr_nonnull(strstr(head, "{\"name\":\"other\",\"state\":\"awake\""));
}
END_TEST

START_TEST(who_lacks_memory_has_it_from_other_models_of_the_device)
{
    world.beside[0].lack = true;
    completion_control(&world.completions, COMPLETION_MEMORY);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.yields, 1);
    ck_assert_uint_eq(world.beside[0].yields, 0);
    world.beside[0].base.devices[0] = 1; /* another device */
    world.beside[0].lack = true;
    completion_control(&world.completions, COMPLETION_MEMORY);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.yields, 1);
}
END_TEST

Suite *models_suite(void)
{
    Suite *suite = suite_create("models");
    TCase *tests = tcase_create("models");
    tcase_add_checked_fixture(tests, setup, server_rig_teardown);
    tcase_add_test(tests, requests_go_to_the_model_that_they_name);
    tcase_add_test(tests, what_is_named_and_not_there_is_refused);
    tcase_add_test(tests, each_is_admitted_by_its_own_limits);
    tcase_add_test(tests, a_full_model_holds_up_nobody_of_the_other);
    tcase_add_test(tests, turns_are_kept_per_model);
    tcase_add_test(tests, a_connection_that_goes_leaves_both_models);
    tcase_add_test(tests, what_is_asked_of_a_model_is_told_of_it);
    tcase_add_test(tests, who_lacks_memory_has_it_from_other_models_of_the_device);
    suite_add_tcase(suite, tests);
    return suite;
}
