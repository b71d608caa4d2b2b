/* Who times requests through the prefix cache, or reads every figure that is told, learns nothing
 * of what another has asked: whatever that was, all that he sees is the same to the microsecond.
 * Where both share what is cached the very same attacks tell what it was. The daemon's loop and
 * scheduler by HTTP, on a model of a GPU's steps, in virtual time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/api_key.h"
#include "daemon/base/buffer.h"
#include "tests/bench/latency/machine.h"
#include "tests/daemon/rig/timed_replica.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

#define LEVELS 4u
#define CHOICES 4u
#define LEVEL_TOKENS 512u /* of a prompt, that are one of so many choices */
#define TAIL_TOKENS 8u
#define BODY_MAX (LEVELS * LEVEL_TOKENS * 5u)
#define FEW_SLABS 24u /* of 512 tokens */
#define REPLICAS 2u
#define STRANGER 1001u
#define SEEN_MAX ((size_t)64 << 20)

static const uint32_t secrets[][LEVELS] = {{0, 1, 2, 3}, {3, 0, 0, 1}, {2, 2, 1, 0}};
#define SECRETS (sizeof(secrets) / sizeof(secrets[0]))

struct who {
    uint64_t uid; /* 0: by TCP */
    const char *key, *named, *salt;
};

static const struct {
    const char *what;
    struct who victim, attacker;
    bool shared;
} pairs[] = {
    {"two users of a socket", {.uid = 1000}, {.uid = STRANGER}, false},
    {"one user of a socket", {.uid = 1000}, {.uid = 1000}, true},
    {"two keys", {.key = "second"}, {.key = "third"}, false},
    {"one key", {.key = "second"}, {.key = "second"}, true},
    {"two whom a router names",
     {.key = "secret", .named = "ann"},
     {.key = "secret", .named = "bob"},
     false},
    {"one whom it names",
     {.key = "secret", .named = "ann"},
     {.key = "secret", .named = "ann"},
     true},
    {"some whom it does not name", {.key = "secret"}, {.key = "secret"}, false},
    {"some of these with one salt",
     {.key = "secret", .salt = "s"},
     {.key = "secret", .salt = "s"},
     true},
    {"two users with one salt", {.uid = 1000, .salt = "s"}, {.uid = STRANGER, .salt = "s"}, true},
    {"one user with two salts", {.uid = 1000, .salt = "s"}, {.uid = 1000, .salt = "t"}, false},
    {"a user's name as a salt", {.uid = 1000}, {.uid = STRANGER, .salt = "1000"}, false},
    {"callers without a key", {.uid = 0}, {.uid = 0}, true},
};
#define PAIRS ((int)(sizeof(pairs) / sizeof(pairs[0])))

enum attack { ATTACK_AFTER, ATTACK_BESIDE, ATTACK_MEMORY };

static const struct {
    enum attack attack;
    uint32_t replicas;
} ways[] = {{ATTACK_AFTER, 1},
            {ATTACK_AFTER, 2},
            {ATTACK_BESIDE, 1},
            {ATTACK_BESIDE, 2},
            {ATTACK_MEMORY, 1}};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

static struct {
    struct site site;
    struct gpu_model model;
    struct timed_replica replicas[REPLICAS];
    uint32_t count;
    struct who attacker;
    struct client client; /* his as well, by the native protocol */
    struct buffer seen;   /* all that the attacker saw */
    uint32_t asked;
} all;

/* ---- the daemon --------------------------------------------------------------------------------
 */

static void open_all(uint32_t replicas, uint32_t slabs_max)
{
    static const char keys[] = "web secret\none second\nother third\n";
    struct error error;
    struct replica *bases[REPLICAS];
    memset(&all, 0, sizeof(all));
    site_make(&all.site);
    ck_assert_int_eq(keys_read(&all.site.http.keys, "keys", keys, sizeof(keys) - 1, &error), 0);
    all.site.http.free_loopback = true;
    world_set(&all.site.world, "trusted-keys", "web");
    world_set(&all.site.world, "metrics-vllm", "yes");
    all.model = machine_model;
    all.model.vocab = all.site.world.server.models[0].info.vocab;
    all.model.sampler = all.site.world.server.models[0].info.sampler;
    all.count = replicas;
    for (uint32_t i = 0; i < replicas; i++) {
        timed_replica_init(&all.replicas[i], &all.site.world, &all.model, true, slabs_max, NULL);
        bases[i] = &all.replicas[i].base;
    }
    server_serve(&all.site.world.server, &all.model, all.model.context_max, UINT64_MAX, "memory",
                 bases, replicas);
    client_open(&all.site.world, &all.client, STRANGER);
}

static void close_all(void)
{
    client_free(&all.client);
    site_free(&all.site);
    for (uint32_t i = 0; i < all.count; i++)
        timed_replica_destroy(&all.replicas[i]);
    buffer_free(&all.seen);
}

static void turn(void)
{
    site_turn(&all.site);
    for (uint32_t i = 0; i < all.count; i++)
        timed_replica_submit(&all.replicas[i]);
    timed_replicas_advance(all.replicas, all.count);
}

/* ---- who asks ----------------------------------------------------------------------------------
 */

struct answer {
    struct caller caller;
    time_us sent_us, waited_us;
    uint32_t cached;
    bool there;
};

static void send(struct answer *answer, const struct who *who, const char *path, const char *body)
{
    char authorization[64] = "";
    struct exchange_peer peer = {.user = who->uid, .loopback = true};
    if (who->key)
        snprintf(authorization, sizeof(authorization), "Bearer %s", who->key);
    if (!who->uid) {
        peer.user = KEY_USER_ANONYMOUS;
        peer.tcp = true;
    }
    const struct exchange_head head = {.method = body ? "POST" : "GET",
                                       .path = path,
                                       .host = "localhost",
                                       .content_type = "application/json",
                                       .content_length = body ? strlen(body) : 0,
                                       .authorization = who->key ? authorization : NULL,
                                       .user = who->named};
    *answer = (struct answer){.sent_us = all.site.world.now_us};
    call_as(&all.site, &answer->caller, &peer, &head, body);
}

/* Some levels, and something behind them that nobody else has. All numbers have three digits: how
 * long a prompt is shows in the bytes that were read. */
static void ask(struct answer *answer, const struct who *who, const uint32_t *choices,
                uint32_t levels)
{
    static char body[BODY_MAX];
    size_t used = (size_t)snprintf(body, sizeof(body), "{\"max_tokens\":1,");
    if (who->salt)
        used +=
            (size_t)snprintf(body + used, sizeof(body) - used, "\"cache_salt\":\"%s\",", who->salt);
    used += (size_t)snprintf(body + used, sizeof(body) - used, "\"prompt\":[");
    for (uint32_t i = 0; i < levels * LEVEL_TOKENS; i++)
        used += (size_t)snprintf(body + used, sizeof(body) - used, "%u,",
                                 100 + i / LEVEL_TOKENS * CHOICES + choices[i / LEVEL_TOKENS]);
    all.asked++;
    for (uint32_t i = 0; i < TAIL_TOKENS; i++)
        used += (size_t)snprintf(body + used, sizeof(body) - used, "%s%u", i > 0 ? "," : "",
                                 200 + (i > 0 ? 0 : all.asked % 50));
    ck_assert_uint_lt(used + 2, sizeof(body));
    strcpy(body + used, "]}");
    send(answer, who, "/v1/completions", body);
}

static void wait_for(struct answer *answers, uint32_t count)
{
    for (uint32_t left = count, turns = 0; left > 0; turns++) {
        ck_assert_uint_lt(turns, 100000);
        turn();
        for (uint32_t i = 0; i < count; i++) {
            struct answer *answer = &answers[i];
            if (answer->there || !exchange_ready(answer->caller.exchange))
                continue;
            answer->there = true;
            answer->waited_us = all.site.world.now_us - answer->sent_us;
            left--;
        }
    }
}

static void see(const char *text)
{
    ck_assert(buffer_append(&all.seen, text, strlen(text), SEEN_MAX));
}

/* What is told to all, of which he reads everything. */
static void look_around(void)
{
    static const char *const pages[] = {"/metrics", "/health", "/server_info"};
    struct frame frame;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        struct answer page;
        send(&page, &all.attacker, pages[i], NULL);
        wait_for(&page, 1);
        see(caller_read(&page.caller));
        caller_free(&page.caller);
    }
    all.client.got_length = all.client.read_at = 0;
    client_control(&all.client, FRAME_STATS, 1, "{\"buckets\":true,\"requests\":true}");
    turn();
    ck_assert(client_find(&all.client, FRAME_STATS, &frame));
    ck_assert(buffer_append(&all.seen, frame.head, frame.head_length, SEEN_MAX));
}

/* The answers of the attacker, and how long they took. */
static void read_all(struct answer *answers, uint32_t count)
{
    char line[96];
    wait_for(answers, count);
    for (uint32_t i = 0; i < count; i++) {
        struct answer *answer = &answers[i];
        const char *text = caller_read(&answer->caller),
                   *cached = strstr(text, "\"cached_tokens\":");
        ck_assert_msg(answer->caller.exchange->status == 200, "%s", text);
        answer->cached = cached ? (uint32_t)strtoul(strchr(cached, ':') + 1, NULL, 10) : 0;
        snprintf(line, sizeof(line), "%" PRIu64 " us, %u cached\n", answer->waited_us,
                 answer->cached);
        see(line);
        see(strstr(text, "\"choices\""));
        caller_free(&answer->caller);
    }
    look_around();
}

/* The victim's answer is its own. */
static void drop(struct answer *answer)
{
    wait_for(answer, 1);
    caller_free(&answer->caller);
}

/* ---- attacks -----------------------------------------------------------------------------------
 */

/* The choices of a level behind those before it, one after the other: the one that came soonest. */
static uint32_t time_level(uint32_t *known, uint32_t level)
{
    uint32_t best = 0;
    time_us best_us = 0;
    for (uint32_t choice = 0; choice < CHOICES; choice++) {
        struct answer answer;
        known[level] = choice;
        ask(&answer, &all.attacker, known, level + 1);
        read_all(&answer, 1);
        if (choice == 0 || answer.waited_us < best_us) {
            best = choice;
            best_us = answer.waited_us;
        }
    }
    return best;
}

static void attack_after(const struct who *victim, const uint32_t *secret, uint32_t *ret_guess)
{
    struct answer asked;
    ask(&asked, victim, secret, LEVELS);
    drop(&asked);
    for (uint32_t level = 0; level < LEVELS; level++)
        ret_guess[level] = time_level(ret_guess, level);
}

static uint32_t most_cached(const struct answer *answers)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < CHOICES; i++)
        best = answers[i].cached > answers[best].cached ? i : best;
    return best;
}

/* All choices of the first level at once, while the victim's prompt is read. */
static void attack_beside(const struct who *victim, const uint32_t *secret, uint32_t *ret_guess)
{
    struct answer asked, answers[CHOICES];
    ask(&asked, victim, secret, LEVELS);
    turn();
    for (uint32_t choice = 0; choice < CHOICES; choice++)
        ask(&answers[choice], &all.attacker, &choice, 1);
    read_all(answers, CHOICES);
    drop(&asked);
    ret_guess[0] = most_cached(answers);
}

static void fill(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t others[LEVELS] = {50 + all.asked % 40, 50, 50, 50};
        struct answer answer;
        ask(&answer, &all.attacker, others, LEVELS);
        read_all(&answer, 1);
    }
}

/* The device is full of the attacker's own; he looks at what has left it once the victim has asked.
 */
static void attack_memory(const struct who *victim, const uint32_t *secret, uint32_t *ret_guess)
{
    struct answer asked, answers[CHOICES];
    for (uint32_t choice = 0; choice < CHOICES; choice++) {
        ask(&answers[choice], &all.attacker, &choice, 1);
        read_all(&answers[choice], 1);
    }
    fill(4);
    ask(&asked, victim, secret, LEVELS);
    drop(&asked);
    fill(2);
    for (uint32_t choice = 0; choice < CHOICES; choice++) {
        ask(&answers[choice], &all.attacker, &choice, 1);
        read_all(&answers[choice], 1);
    }
    ret_guess[0] = most_cached(answers);
}

/* How many levels were guessed; *ret_seen is the caller's. */
static uint32_t attack(int pair, int way, const uint32_t *secret, struct buffer *ret_seen)
{
    uint32_t guess[LEVELS] = {0}, right = 0;
    const struct who *victim = &pairs[pair].victim;
    uint32_t levels = ways[way].attack == ATTACK_AFTER ? LEVELS : 1;
    open_all(ways[way].replicas, ways[way].attack == ATTACK_MEMORY ? FEW_SLABS : 1600);
    all.attacker = pairs[pair].attacker;
    switch (ways[way].attack) {
    case ATTACK_AFTER:
        attack_after(victim, secret, guess);
        break;
    case ATTACK_BESIDE:
        attack_beside(victim, secret, guess);
        break;
    case ATTACK_MEMORY:
        attack_memory(victim, secret, guess);
        break;
    }
    while (right < levels && guess[right] == secret[right])
        right++;
    *ret_seen = all.seen;
    all.seen = (struct buffer){0};
    close_all();
    return right == levels ? LEVELS : right;
}

/* Where what was seen is another; NULL: nowhere. */
static const char *difference(const struct buffer *a, const struct buffer *b)
{
    size_t at = 0, line = 0;
    while (at < a->length && at < b->length && a->data[at] == b->data[at])
        line = a->data[at++] == '\n' ? at : line;
    return at == a->length && at == b->length ? NULL : b->data + line;
}

START_TEST(timing_tells_another_users_prompt_where_it_is_shared_and_nowhere_else)
{
    int pair = _i / WAYS, way = _i % WAYS;
    struct buffer first, seen;
    uint32_t right = attack(pair, way, secrets[0], &first), whole = right == LEVELS;
    for (size_t i = 1; i < SECRETS; i++) {
        whole += attack(pair, way, secrets[i], &seen) == LEVELS;
        const char *shown = difference(&first, &seen);
        ck_assert_msg(!shown == !pairs[pair].shared, "%s, in way %d: %.99s", pairs[pair].what, way,
                      shown ? shown : "all is the same");
        buffer_free(&seen);
    }
    ck_assert_msg(!pairs[pair].shared || whole == SECRETS, "%s: %u of %zu were guessed, in way %d",
                  pairs[pair].what, whole, SECRETS, way);
    ck_assert(pairs[pair].shared || whole <= 1); /* one guess, whatever the secret is */
    buffer_free(&first);
}
END_TEST

Suite *timing_suite(void)
{
    Suite *suite = suite_create("timing");
    TCase *tests = tcase_create("timing");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests,
                        timing_tells_another_users_prompt_where_it_is_shared_and_nowhere_else, 0,
                        PAIRS * WAYS);
    suite_add_tcase(suite, tests);
    return suite;
}
