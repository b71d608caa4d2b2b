/* With whom a request shares what is cached, and what the loop makes of what a replica has. */
#include <string.h>

#include "daemon/base/prefix_hint.h"
#include "daemon/base/siphash.h"
#include "daemon/request/dispatcher.h"
#include "tests/daemon/daemon_suites.h"
#include "tests/daemon/request/server_rig.h"

#define BLOCK 4u

static void set_up(void)
{
    server_rig_setup();
    world.server.models[0].info.block_tokens = BLOCK;
}

/* The sequence that is sent for it. */
static const struct seq *sent(struct client *from, const struct ask *ask)
{
    static uint64_t id = 100;
    struct ask own = *ask;
    own.id = id++;
    world_finish(&world);
    client_ask(from, &own);
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    return world.replica.held[0];
}

static struct prefix_key name_of(struct client *from, const struct ask *ask)
{
    const struct seq *seq = sent(from, ask);
    ck_assert(seq->caches);
    ck_assert_uint_eq(seq->key_count, ask->length / BLOCK);
    return seq->keys[0];
}

static bool same(struct prefix_key a, struct prefix_key b)
{
    return prefix_key_same(&a, &b);
}

START_TEST(beginnings_are_shared_by_user_or_by_salt)
{
    struct ask ask = one, salted = one, others = one;
    ask.length = salted.length = others.length = 9;
    salted.salt = "between us";
    others.salt = "1000"; /* a user's name is no salt */
    struct prefix_key mine = name_of(&client, &ask), ours = name_of(&client, &salted);
    ck_assert(same(mine, name_of(&client, &ask)));
    ck_assert(!same(mine, name_of(&other, &ask)));
    ck_assert(!same(mine, ours));
    ck_assert(same(ours, name_of(&other, &salted)));
    ck_assert(!same(mine, name_of(&other, &others)));
}
END_TEST

/* Keys and values are the adapter's, and so are their names. */
START_TEST(adapters_share_nothing)
{
    struct ask ask = one, other_ask = one, none = one;
    struct replica *replica = &world.replica.base;
    struct gpu_model model = world.server.models[0].info;
    ask.length = other_ask.length = none.length = 9;
    ask.adapter = "a";
    other_ask.adapter = "b";
    world_set(&world, "adapter", "a=/x,b=/y");
    server_serve(&world.server, &model, model.context_max, UINT64_MAX, "memory", &replica, 1);
    struct prefix_key a = name_of(&client, &ask), b = name_of(&client, &other_ask);
    ck_assert_uint_eq(sent(&client, &ask)->adapter, 1);
    ck_assert_uint_eq(sent(&client, &other_ask)->adapter, 2);
    ck_assert_uint_eq(sent(&client, &none)->adapter, 0);
    ck_assert(same(a, name_of(&client, &ask)));
    ck_assert(!same(a, b) && !same(a, name_of(&client, &none)) && !same(b, name_of(&client, &none)));
}
END_TEST

START_TEST(names_hold_for_one_load_and_one_kind_of_kv)
{
    struct ask ask = one;
    ask.length = 9;
    struct prefix_key before = name_of(&client, &ask);
    struct replica *replica = &world.replica.base;
    struct gpu_model model = world.server.models[0].info;
    server_serve(&world.server, &model, model.context_max, UINT64_MAX, "memory", &replica, 1);
    ck_assert(!same(before, name_of(&client, &ask)));
    before = name_of(&client, &ask);
    world.server.models[0].info.kv_token_bytes++;
    ck_assert(!same(before, name_of(&client, &ask)));
    world.server.models[0].info.kv_token_bytes--;
    snprintf(world.server.models[0].info.dtype, sizeof(world.server.models[0].info.dtype), "other");
    ck_assert(!same(before, name_of(&client, &ask)));
}
END_TEST

START_TEST(a_block_is_named_by_all_tokens_before_it)
{
    static const int32_t tokens[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    int32_t changed[12];
    struct prefix_key root = {{1, 2}}, keys[3], others[3];
    ck_assert_uint_eq(prefix_keys(root, tokens, 12, 4, keys), 3);
    ck_assert_uint_eq(prefix_keys(root, tokens, 11, 4, others), 2);
    for (uint32_t at = 0; at < 12; at++) {
        memcpy(changed, tokens, sizeof(changed));
        changed[at]++;
        prefix_keys(root, changed, 12, 4, others);
        for (uint32_t i = 0; i < 3; i++)
            ck_assert_int_eq(same(keys[i], others[i]), i < at / 4);
    }
    ck_assert(same(keys[1], prefix_key_next(keys[0], tokens + 4, 1, tokens + 5, 3)));
}
END_TEST

START_TEST(who_leaves_the_cache_alone_has_no_names)
{
    struct ask ask = one;
    ask.length = 9;
    ask.no_cache = true;
    ck_assert(!sent(&client, &ask)->caches);
    ask.salt = "salt";
    ck_assert(!sent(&client, &ask)->caches);
    ask.no_cache = false;
    ck_assert(sent(&client, &ask)->caches);
    world_set(&world, "prefix-cache", "no");
    ck_assert(!sent(&client, &ask)->caches);
}
END_TEST

/* Its room and its user are charged for what is left to read, of jobs that leave positions out. */
START_TEST(what_a_replica_has_is_charged_less)
{
    struct ask ask = one;
    ask.length = 13;
    world.replica.cached = 2;
    uint64_t used = world.server.models[0].waiting.used;
    ck_assert_uint_eq(sent(&client, &ask)->had, 2 * BLOCK);
    ck_assert_uint_eq(world.server.models[0].waiting.used - used, 13 - 8 + 8 / DISPATCH_HAD_SHARE);
    world.replica.cached = 9; /* a token is left to compute, whatever it says */
    ck_assert_uint_eq(sent(&client, &ask)->had, 3 * BLOCK);
    ask.job = JOB_SCORE;
    ck_assert_uint_eq(sent(&client, &ask)->had, 0);
    ask.job = JOB_GENERATE;
    ask.no_cache = true;
    ck_assert_uint_eq(sent(&client, &ask)->had, 0);
}
END_TEST

/* ---- who waits ---------------------------------------------------------------------------------
 */

static void wait(struct ask *ask, uint64_t id)
{
    ask->id = id;
    client_ask(&client, ask);
    world_turn(&world);
}

/* From when it comes until it is sent, or ends. */
START_TEST(a_replica_keeps_what_waits_for_it)
{
    struct ask ask = one;
    ask.length = 9; /* two blocks */
    world.replica.room = 0;
    wait(&ask, 1);
    wait(&ask, 2);
    ck_assert_uint_eq(world.replica.wanted, 2 + 2);
    client_control(&client, FRAME_CANCEL, 1, "");
    world_turn(&world);
    ck_assert_uint_eq(world.replica.wanted, 2);
    world.replica.room = 1;
    world_turn(&world);
    ck_assert_uint_eq(world.replica.count, 1);
    ck_assert_uint_eq(world.replica.wanted, 0);
}
END_TEST

START_TEST(a_prompt_waits_once_and_for_what_it_may_find)
{
    struct ask ask = one;
    ask.length = 9;
    world.replica.room = 0;
    ask.no_cache = true;
    wait(&ask, 1);
    ck_assert_uint_eq(world.replica.wanted, 0);
    ask.no_cache = false;
    ask.job = JOB_SCORE;
    wait(&ask, 2);
    ck_assert_uint_eq(world.replica.wanted, 0);
    ask.job = JOB_GENERATE;
    ask.n = 3;
    wait(&ask, 3);
    ck_assert_uint_eq(world.replica.wanted, 2);
    ask.n = 1;
    world.replica.wants_none = true; /* and nothing is taken back that was not there */
    wait(&ask, 4);
    world.replica.room = WORLD_HELD_MAX;
    world_turn(&world);
    ck_assert_uint_eq(world.replica.wanted, 0);
}
END_TEST

/* Many who come and go: nobody is missed while there is room, and nobody is left. */
START_TEST(marks_stay_as_long_as_somebody_waits)
{
    struct prefix_wants wants;
    struct prefix_key keys[40][8];
    bool waits[40] = {false};
    ck_assert_int_eq(prefix_wants_init(&wants, 200), 0);
    for (int32_t i = 0; i < 40; i++) {
        int32_t tokens[8] = {1, 2, i / 4, 4, i, 6, 7, 8}; /* some begin alike */
        prefix_keys((struct prefix_key){{5, 6}}, tokens, 8, 1, keys[i]);
    }
    for (uint32_t time = 0; time < 4000; time++) {
        uint32_t i = time * 7919 % 40, count = 0;
        if (waits[i])
            prefix_wants_drop(&wants, keys[i], 8);
        waits[i] = !waits[i] && prefix_wants_add(&wants, keys[i], 8);
        for (uint32_t j = 0; j < 40; j++) {
            count += waits[j];
            ck_assert_int_eq(prefix_wants_any(&wants, 1, &keys[j][7]), waits[j]);
        }
        ck_assert_uint_eq(wants.room, 200 - 8 * count);
        ck_assert_int_eq(prefix_wants_any(&wants, 1, &keys[0][0]), count > 0);
    }
    for (uint32_t i = 0; i < 40; i++)
        if (waits[i])
            prefix_wants_drop(&wants, keys[i], 8);
    for (uint64_t i = 0; i < wants.mask; i++)
        ck_assert_uint_eq(atomic_load(&wants.marks[i]), 0);
    prefix_wants_destroy(&wants);
    ck_assert(!prefix_wants_any(&wants, 1, &keys[0][0]));
}
END_TEST

/* All of a prompt or nothing; and more than a mark counts does no harm. */
START_TEST(marks_are_of_whole_prompts)
{
    struct prefix_wants wants;
    struct prefix_key keys[8];
    int32_t tokens[8] = {0};
    prefix_keys((struct prefix_key){{5, 6}}, tokens, 8, 1, keys);
    ck_assert_int_eq(prefix_wants_init(&wants, 7), 0);
    ck_assert(!prefix_wants_add(&wants, keys, 8) && !prefix_wants_add(&wants, keys, 0));
    ck_assert(prefix_wants_add(&wants, keys, 7) && !prefix_wants_add(&wants, keys, 1));
    prefix_wants_drop(&wants, keys, 7);
    ck_assert_uint_eq(wants.room, 7);
    prefix_wants_drop(&wants, keys, 7); /* of a worker that is no more */
    ck_assert_uint_eq(wants.room, 7);
    prefix_wants_destroy(&wants);
    ck_assert_int_eq(prefix_wants_init(&wants, 400), 0);
    for (int i = 0; i < 400; i++)
        ck_assert(prefix_wants_add(&wants, keys, 1));
    for (int i = 0; i < 254; i++)
        prefix_wants_drop(&wants, keys, 1);
    ck_assert(prefix_wants_any(&wants, 1, keys));
    prefix_wants_drop(&wants, keys, 1);
    ck_assert(!prefix_wants_any(&wants, 1, keys));
    prefix_wants_destroy(&wants);
}
END_TEST

/* ---- the hint ----------------------------------------------------------------------------------
 */

START_TEST(a_hint_tells_what_is_there_and_what_may_be)
{
    struct prefix_hint hint;
    struct prefix_key keys[8], root = {{3, 4}};
    int32_t tokens[8] = {0};
    prefix_keys(root, tokens, 8, 1, keys);
    ck_assert_int_eq(prefix_hint_init(&hint, 100), 0);
    prefix_hint_expect(&hint, keys, 6);
    ck_assert_uint_eq(prefix_hint_count(&hint, keys, 8, false), 0);
    ck_assert_uint_eq(prefix_hint_count(&hint, keys, 8, true), 6);
    for (uint32_t i = 0; i < 3; i++)
        prefix_hint_put(&hint, &keys[i]);
    prefix_hint_expect(&hint, keys, 6);
    ck_assert_uint_eq(prefix_hint_count(&hint, keys, 8, false), 3);
    ck_assert_uint_eq(prefix_hint_count(&hint, keys, 2, false), 2);
    for (uint32_t i = 6; i-- > 1;)
        prefix_hint_drop(&hint, &keys[i]);
    ck_assert_uint_eq(prefix_hint_count(&hint, keys, 8, true), 1);
    prefix_hint_destroy(&hint);
    ck_assert_uint_eq(prefix_hint_count(&hint, keys, 8, true), 0);
}
END_TEST

/* The first of the authors' vectors of 128 bits: key 00 .. 0f, messages of 0, 1, 8 and 15 bytes; in
 * pieces, too. */
START_TEST(wide_hashes_are_the_authors)
{
    static const struct {
        size_t length;
        unsigned char want[16];
    } vectors[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02,
          0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc,
          0x45}},
    };
    const struct siphash_key key = {{0x0706050403020100u, 0x0f0e0d0c0b0a0908u}};
    unsigned char bytes[40];
    for (unsigned char i = 0; i < sizeof(bytes); i++)
        bytes[i] = i;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        struct siphash hash;
        uint64_t words[2];
        siphash_begin_wide(&hash, &key);
        siphash_add(&hash, bytes, vectors[i].length);
        siphash_end_wide(&hash, words);
        ck_assert_mem_eq(words, vectors[i].want, 16);
    }
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        struct siphash whole, parts;
        uint64_t one_piece[2], two[2];
        siphash_begin_wide(&whole, &key);
        siphash_add(&whole, bytes, sizeof(bytes));
        siphash_end_wide(&whole, one_piece);
        siphash_begin_wide(&parts, &key);
        siphash_add(&parts, bytes, cut);
        siphash_add(&parts, bytes + cut, sizeof(bytes) - cut);
        siphash_end_wide(&parts, two);
        ck_assert_mem_eq(one_piece, two, sizeof(two));
    }
}
END_TEST

Suite *cache_suite(void)
{
    Suite *suite = suite_create("prefix cache");
    TCase *tcase = tcase_create("server");
    tcase_add_checked_fixture(tcase, set_up, server_rig_teardown);
    tcase_add_test(tcase, beginnings_are_shared_by_user_or_by_salt);
    tcase_add_test(tcase, adapters_share_nothing);
    tcase_add_test(tcase, names_hold_for_one_load_and_one_kind_of_kv);
    tcase_add_test(tcase, who_leaves_the_cache_alone_has_no_names);
    tcase_add_test(tcase, what_a_replica_has_is_charged_less);
    tcase_add_test(tcase, a_replica_keeps_what_waits_for_it);
    tcase_add_test(tcase, a_prompt_waits_once_and_for_what_it_may_find);
    suite_add_tcase(suite, tcase);
    TCase *names = tcase_create("names");
    tcase_add_test(names, a_block_is_named_by_all_tokens_before_it);
    tcase_add_test(names, a_hint_tells_what_is_there_and_what_may_be);
    tcase_add_test(names, marks_stay_as_long_as_somebody_waits);
    tcase_add_test(names, marks_are_of_whole_prompts);
    tcase_add_test(names, wide_hashes_are_the_authors);
    suite_add_tcase(suite, names);
    return suite;
}
