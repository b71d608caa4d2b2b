/* Who goes next, and how much of the device each user and connection gets. */
#include "daemon/api/session.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/request/server_rig.h"

/* The session that a connection is of. */
static const struct session *session_of_conn(const struct conn *conn)
{
    return container_of(conn, struct session, conn);
}

START_TEST(users_take_turns_and_priority_goes_first)
{
    struct ask ask = one;
    world_set(&world, "priority-max", "3");
    world.replica.room = 0;
    for (uint64_t i = 1; i <= 4; i++) {
        ask.id = i;
        client_ask(&client, &ask);
    }
    ask.id = 9;
    client_ask(&other, &ask);
    ask.id = 10;
    ask.priority = 3;
    client_ask(&other, &ask);
    world.replica.room = 1;
    world_finish(&world);
    const uint64_t users[] = {2000, 1000, 2000, 1000, 1000, 1000};
    ck_assert_uint_eq(world.replica.sent_total, 6);
    /* The order of sending is that of the ends, one by one: read from the counters of frames. */
    uint64_t ended[6];
    uint32_t count = 0;
    struct frame frame;
    while (client_find(&client, FRAME_DONE, &frame))
        ended[count++] = frame.id;
    ck_assert_uint_eq(count, 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(ended[i], i + 1);
    ck_assert(client_find(&other, FRAME_DONE, &frame));
    ck_assert_uint_eq(frame.id, 10);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_eq(world.replica.first_user[i], users[i]);
}
END_TEST

START_TEST(a_full_queue_is_busy_with_a_hint_and_a_user_has_half_of_it)
{
    struct ask ask = one;
    struct frame frame;
    struct message_error message;
    struct error error;
    world_set(&world, "queue-sequences", "8");
    world.replica.room = 0;
    ask.count = 3;
    client_ask(&client, &ask);
    ask.id = 2;
    client_ask(&client, &ask); /* 6 > 4 */
    world_turn(&world);
    ck_assert(client_find(&client, FRAME_ERROR, &frame));
    ck_assert_uint_eq(frame.id, 2);
    ck_assert_int_eq(message_decode_error(&frame, &message, &error), 0);
    ck_assert_int_eq(message.error.code, ERR_BUSY);
    ck_assert_uint_eq(message.error.limit, 4);
    ck_assert_uint_eq(message.error.value, 3);
    ck_assert_uint_gt(message.error.retry_after_ms, 0);
    ask.count = 5;
    ask.id = 3;
    client_ask(&client, &ask); /* never */
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_TOO_LARGE);
    ask.count = 4;
    client_ask(&other, &ask); /* the other half */
    world_turn(&world);
    ck_assert_uint_eq(world.server.models[0].waiting.count, 7);
    world.replica.room = 100;
    world_finish(&world);
}
END_TEST

/* So many requests of one sequence each, numbered from `id` on. */
static void ask_many(struct client *of, struct ask ask, uint64_t id, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ask.id = id + i;
        client_ask(of, &ask);
    }
}

START_TEST(a_priority_above_what_the_user_may_ask_for_is_refused)
{
    struct client root;
    struct ask ask = one;
    ask.priority = 1;
    client_ask(&client, &ask);
    world_turn(&world);
    ck_assert_int_eq(client_error(&client), ERR_DENIED);
    ck_assert_uint_eq(world.server.live_requests, 0);
    ask.priority = -8; /* lower is anybody's */
    client_ask(&client, &ask);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
    world_set(&world, "users", "1000:priority=4, root:priority=2");
    ask.priority = 4;
    client_ask(&client, &ask);
    client_ask(&other, &ask);
    ask.priority = 5;
    ask.id = 2;
    client_ask(&client, &ask);
    client_open(&world, &root, 0);
    ask.priority = 7; /* who may drain may that */
    client_ask(&root, &ask);
    world_finish(&world);
    ck_assert_int_eq(next_finish(&client), FINISH_LENGTH);
    ck_assert_int_eq(next_finish(&root), FINISH_LENGTH);
    ck_assert_int_eq(client_error(&other), ERR_DENIED);
    client_free(&root);
}
END_TEST

START_TEST(a_flood_of_the_highest_priority_leaves_others_their_share)
{
    struct ask ask = one;
    world_set(&world, "priority-max", "7");
    world_set(&world, "min-share", "10");
    world.replica.room = 0;
    ask.priority = 7;
    ask_many(&client, ask, 1, 200);
    ask.priority = 0;
    ask_many(&other, ask, 1, 50);
    world.replica.room = 1;
    while (world.replica.sent_total < 64)
        world_step(&world, 64);
    uint32_t low = 0;
    for (uint32_t i = 0; i < 64; i++)
        low += world.replica.first_user[i] == 2000;
    ck_assert_uint_ge(low, 6);
    ck_assert_uint_le(low, 7);
}
END_TEST

START_TEST(a_second_connection_is_not_behind_what_the_first_has_asked_for)
{
    struct client second;
    struct ask ask = one;
    world.replica.room = 1;
    ask.count = 1000;
    client_ask(&client, &ask);
    world_step(&world, 1);
    client_open(&world, &second, 1000);
    client_ask(&second, &one);
    for (int i = 0; i < 5; i++)
        world_step(&world, 64);
    ck_assert_uint_eq(done_count(&second), 1);
    ck_assert_uint_gt(world.server.live_sequences, 900);
    client_free(&second);
}
END_TEST

START_TEST(who_goes_and_comes_back_still_owes_what_it_used)
{
    struct ask ask = one;
    world.replica.room = 1;
    ask.max_tokens = 500;
    ask_many(&other, one, 1, 1);
    ask_many(&client, ask, 1, 1);
    ask_many(&other, one, 2, 200);
    while (done_count(&client) == 0)
        world_step(&world, 600);
    conn_lost(client.conn, world.now_us);
    world_turn(&world);
    client_free(&client);
    client_open(&world, &client, 1000);
    client_ask(&client, &one);
    /* The other one's 9 tokens a time: some 50 of them until what was used is even. */
    uint64_t before = world.replica.sent_total;
    while (done_count(&client) == 0)
        world_step(&world, 600);
    ck_assert_uint_ge(world.replica.sent_total - before, 40);
    ck_assert_uint_le(world.replica.sent_total - before, 60);
}
END_TEST

/* Two tokens and 38 to come beside 39 and one: what is to come counts when a turn is taken, by what
 * came before. (That what then does not come is let off, the simulation's books look at.) */
START_TEST(what_a_sequence_will_generate_counts_when_it_goes)
{
    struct ask long_out = one, long_in = one;
    uint64_t sent, of_first = 0;
    long_out.length = 2;
    long_out.max_tokens = 38;
    long_in.length = 39;
    long_in.max_tokens = 1;
    world.replica.room = 2;
    ask_many(&client, long_out, 1, 1);
    ask_many(&other, long_in, 1, 1);
    while (done_count(&client) == 0)
        world_step(&world, 8);
    world.replica.room = 0;
    ask_many(&client, long_out, 2, 30);
    ask_many(&other, long_in, 2, 30);
    world_turn(&world);
    sent = world.replica.sent_total;
    world.replica.room = 20;
    world_turn(&world);
    ck_assert_uint_eq(world.replica.sent_total, sent + 20);
    for (uint64_t i = sent; i < sent + 20; i++)
        of_first += world.replica.first_user[i] == 1000;
    ck_assert_uint_ge(of_first, 9);
    ck_assert_uint_le(of_first, 11);
}
END_TEST

/* Neither for its prompt nor for what it would have generated; and it is no longer owed a slot. */
START_TEST(who_ends_for_want_of_memory_is_charged_nothing)
{
    const struct served_model *model = &world.server.models[0];
    struct ask ask = one;
    client_ask(&client, &one); /* its user's sequences are known from it to generate five */
    world_finish(&world);
    const struct user *user = session_of_conn(client.conn)->sink.user;
    const struct waiting_share *share = &user->waiting.shares[-WAITING_PRIORITY_MIN];
    const uint64_t used = share->turn.used, credit = share->credit;
    const uint32_t mean = share->mean_out;
    ck_assert_uint_gt(mean, 0);
    ask.id = 2;
    server_rig_refuses = 1;
    client_ask(&client, &ask);
    world_finish(&world);
    ck_assert_int_eq(client_error(&client), ERR_NO_MEMORY);
    ck_assert_uint_eq(share->turn.used - share->credit, used - credit);
    ck_assert_uint_eq(share->mean_out, mean);
    ask.id = 3;
    ask.count = 80;
    ask.max_tokens = 1000;
    world.replica.room = 8;
    client_ask(&client, &ask);
    world_step(&world, 1);
    server_rig_refuses = 1;
    client_ask(&other, &one);
    world_step(&world, 10); /* more than was expected: the first has used more */
    ck_assert_uint_eq(server_rig_refuses, 0);
    ck_assert_int_eq(client_error(&other), ERR_NO_MEMORY);
    ck_assert_uint_eq(world.server.counts.owed_total, 1);
    ck_assert_uint_eq(model->owed, 0);
}
END_TEST

/* The replica is full of the first client's, which go on for long. */
static void fill(uint32_t slots)
{
    struct ask ask = one;
    ask.count = 10 * slots;
    ask.max_tokens = 1000;
    world.replica.room = slots;
    client_ask(&client, &ask);
    world_step(&world, 1);
    ck_assert_uint_eq(world.replica.count, slots);
}

START_TEST(a_full_replica_makes_way_for_a_user_that_has_nothing_there)
{
    fill(8);
    client_ask(&other, &one);
    world_step(&world, 1); /* tokens come: the first has used more */
    ck_assert_uint_eq(world.replica.count, 9);
    const struct seq *seq = world.replica.held[8];
    ck_assert_uint_eq(seq->user_id, 2000);
    ck_assert(seq->owed);
    ck_assert_uint_eq(seq->way_sink, session_of_conn(client.conn)->sink.number);
    ck_assert_uint_eq(seq->way_user, 1000);
    /* The next one waits for its turn: a user is owed its part, and no more. */
    struct ask more = one;
    more.id = 2;
    client_ask(&other, &more);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 9);
    ck_assert_uint_eq(world.server.counts.owed_total, 1);
    world_step(&world, 5);
    ck_assert_int_eq(next_finish(&other), FINISH_LENGTH);
}
END_TEST

START_TEST(a_full_replica_makes_way_for_a_connection_that_has_nothing_there)
{
    struct client second;
    fill(8);
    client_open(&world, &second, 1000);
    client_ask(&second, &one);
    world_step(&world, 1); /* tokens come: the first has used more */
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 9);
    ck_assert_uint_eq(world.server.counts.owed_total, 1);
    client_free(&second);
}
END_TEST

/* Over HTTP each request has a connection of its own; here the first of them is owed its slot. */
START_TEST(among_connections_with_one_sequence_each_one_that_can_makes_way)
{
    struct client more[4];
    struct client third;
    struct ask ask = one;
    ask.max_tokens = 1000;
    world.replica.room = 3;
    ask_many(&other, ask, 1, 3);
    world_step(&world, 1);
    client_ask(&client, &ask);
    world_step(&world, 1);
    ck_assert_uint_eq(world.replica.count, 4);
    ck_assert(world.replica.held[3]->owed);
    world.replica.room = 8;
    for (int i = 0; i < 4; i++) {
        client_open(&world, &more[i], 1000);
        client_ask(&more[i], &ask);
        world_step(&world, 1);
    }
    ck_assert_uint_eq(world.replica.count, 8);
    client_open(&world, &third, 3000);
    client_ask(&third, &one);
    world_step(&world, 1);
    ck_assert_uint_eq(world.replica.count, 9);
    ck_assert_uint_eq(world.replica.held[8]->user_id, 3000);
    ck_assert_uint_eq(world.replica.held[8]->way_sink,
                      session_of_conn(more[3].conn)->sink.number); /* the youngest */
    client_free(&third);
    for (int i = 0; i < 4; i++)
        client_free(&more[i]);
}
END_TEST

START_TEST(without_a_share_nobody_makes_way)
{
    world_set(&world, "min-share", "0");
    fill(8);
    client_ask(&other, &one);
    for (int i = 0; i < 10; i++)
        world_step(&world, 1);
    ck_assert_uint_eq(world.server.counts.owed_total, 0);
    ck_assert_uint_eq(world.server.models[0].waiting.count, 73);
}
END_TEST

/* What an owed sequence costs others is paid for: asking again and again does not get more. */
START_TEST(making_way_is_paid_for)
{
    fill(8);
    for (int i = 0; i < 400; i++)
        world_step(&world, 1);
    struct ask ask = one;
    ask.max_tokens = 1;
    for (uint64_t id = 1; id <= 100; id++) {
        ask.id = id;
        client_ask(&other, &ask);
        world_step(&world, 1);
    }
    /* Each takes 400 tokens from the others, which come to 8 a step. */
    ck_assert_uint_ge(world.server.counts.owed_total, 2);
    ck_assert_uint_le(world.server.counts.owed_total, 12);
}
END_TEST

/* As many as those below that run: each takes the place of one. */
START_TEST(who_is_above_goes_where_others_give_way)
{
    struct ask ask = one;
    world_set(&world, "priority-max", "3");
    world.replica.room = 2;
    world.replica.gives_way = _i < 2;
    ask_many(&client, ask, 1, 4);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 2);
    ask.priority = _i == 0 ? 1 : _i == 1 ? 0 : 3;
    ask_many(&client, ask, 10, 3);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, _i == 0 ? 4 : 2);
    ck_assert_uint_eq(world.server.models[0].waiting.count, _i == 0 ? 3 : 5);
    for (uint32_t i = 0; i < world.replica.count; i++)
        ck_assert_int_eq(world.replica.held[i]->priority, i < 2 ? 0 : 1);
    world.replica.room = 100;
    world_finish(&world);
    for (uint32_t level = 0; level < WAITING_LEVELS; level++)
        ck_assert_uint_eq(world.replica.base.below[level], 0);
}
END_TEST

/* Those that the share of lower priorities let in keep their places: and are let in, though others
 * go above them meanwhile. */
START_TEST(who_is_above_takes_no_place_that_a_share_gave)
{
    struct ask ask = one;
    world_set(&world, "priority-max", "3");
    world_set(&world, "min-share", "50");
    world.replica.room = 0;
    ask_many(&client, ask, 1, 20);
    ask.priority = 1;
    ask_many(&client, ask, 30, 20);
    world_turn(&world);
    world.replica.room = 10;
    world_turn(&world);
    uint32_t low = 0;
    for (uint32_t i = 0; i < world.replica.count; i++)
        low += world.replica.held[i]->low;
    ck_assert_uint_ge(low, 4);
    world.replica.gives_way = true;
    ask.priority = 3;
    ask_many(&client, ask, 60, 20);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 20 - low); /* one above each of the others */
    world.replica.room = 100;
    world_finish(&world);
}
END_TEST

Suite *share_suite(void)
{
    Suite *suite = suite_create("share");
    TCase *tcase = tcase_create("share");
    tcase_add_checked_fixture(tcase, server_rig_setup, server_rig_teardown);
    tcase_add_test(tcase, users_take_turns_and_priority_goes_first);
    tcase_add_test(tcase, a_full_queue_is_busy_with_a_hint_and_a_user_has_half_of_it);
    tcase_add_test(tcase, a_priority_above_what_the_user_may_ask_for_is_refused);
    tcase_add_test(tcase, a_flood_of_the_highest_priority_leaves_others_their_share);
    tcase_add_test(tcase, a_second_connection_is_not_behind_what_the_first_has_asked_for);
    tcase_add_test(tcase, who_goes_and_comes_back_still_owes_what_it_used);
    tcase_add_test(tcase, what_a_sequence_will_generate_counts_when_it_goes);
    tcase_add_test(tcase, who_ends_for_want_of_memory_is_charged_nothing);
    tcase_add_test(tcase, a_full_replica_makes_way_for_a_user_that_has_nothing_there);
    tcase_add_test(tcase, a_full_replica_makes_way_for_a_connection_that_has_nothing_there);
    tcase_add_test(tcase, among_connections_with_one_sequence_each_one_that_can_makes_way);
    tcase_add_test(tcase, without_a_share_nobody_makes_way);
    tcase_add_test(tcase, making_way_is_paid_for);
    tcase_add_loop_test(tcase, who_is_above_goes_where_others_give_way, 0, 3);
    tcase_add_test(tcase, who_is_above_takes_no_place_that_a_share_gave);
    suite_add_tcase(suite, tcase);
    return suite;
}
