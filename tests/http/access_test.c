/* Who may call under which name, from which page, and for whom. */
#include <stdio.h>
#include <string.h>

#include "daemon/base/api_key.h"
#include "daemon/http/access.h"
#include "tests/http/caller.h"
#include "tests/http/http_suites.h"

static struct site site;

static void set_up(void)
{
    static const char file[] = "web secret\nother second\n";
    struct error error;
    site_make(&site);
    ck_assert_int_eq(keys_read(&site.http.keys, "keys", file, sizeof(file) - 1, &error), 0);
}

static void tear_down(void)
{
    site_free(&site);
}

static const struct exchange_peer tcp = {.user = KEY_USER_ANONYMOUS, .tcp = true};

/* ---- names -------------------------------------------------------------------------------------
 */

static const struct {
    const char *host;
    unsigned status;
} hosts[] = {
    {"llm.example.com", 200},
    {"LLM.Example.Com:8443", 200},
    {"llm.example.com:", 200},
    {"second_name", 200},
    {"localhost:1", 200},
    {"127.0.0.1", 200},
    {"example.com", 421},
    {"a.llm.example.com", 421},
    {"llm.example.com.evil.com", 421},
    {"llm.example.comx", 421},
    {"llm.example.com.", 421},
    {"*", 421},
    {"llm.example.com,evil", 421},
    {"", 421},
    {NULL, 421},
};

/* The first words of the authors' test vectors: key 00 .. 0f, messages 00, 01, ... */
START_TEST(users_numbers_are_siphash_under_a_secret)
{
    static const uint64_t want[] = {[0] = 0x726fdb47dd0e0e31u,
                                    [1] = 0x74f839c593dc67fdu,
                                    [8] = 0x93f5f5799a932462u,
                                    [15] = 0xa129ca6149be45e5u};
    char bytes[16];
    for (int i = 0; i < 16; i++)
        bytes[i] = (char)i;
    uint64_t before = keys_user_of("ann", 3);
    keys_set_secret(0x0706050403020100u, 0x0f0e0d0c0b0a0908u);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        if (want[i])
            ck_assert_uint_eq(keys_hash(bytes, i), want[i]);
    ck_assert_uint_ne(keys_user_of("ann", 3), before);
    ck_assert_uint_gt(keys_user_of("ann", 3), KEY_USER_ANONYMOUS);
    keys_set_secret(0, 0);
    ck_assert_uint_eq(keys_user_of("ann", 3), before);
}
END_TEST

START_TEST(names_for_us_are_those_that_were_given)
{
    const struct exchange_head head = {.method = "GET",
                                       .path = "/v1/models",
                                       .host = hosts[_i].host,
                                       .authorization = "Bearer secret"};
    struct caller caller;
    world_set(&site.world, "http-names", "llm.example.com,second_name");
    call_as(&site, &caller, &tcp, &head, NULL);
    ck_assert_msg(caller.exchange->status == hosts[_i].status, "%s", caller_read(&caller));
    caller_free(&caller);
}
END_TEST

/* ---- pages -------------------------------------------------------------------------------------
 */

struct page {
    const char *origin;
    bool may;
};
static const struct page pages[] = {
    {"https://app.example.com", true},
    {"http://localhost:3000", true},
    {"http://app.example.com", false},
    {"https://app.example.com:444", false},
    {"https://app.example.com/", false},
    {"https://evil.app.example.com", false},
    {"https://app.example.com.evil", false},
    {"HTTPS://app.example.com", false},
    {"null", false},
    {"*", false},
    {"", false},
    {NULL, false},
};

static void fields(const struct exchange *exchange, char *text, size_t size)
{
    text[access_fields(exchange, text, size)] = '\0';
}

/* A request is answered whatever page it comes from; who may read the answer is the browser's to
 * hold. */
START_TEST(a_page_may_read_the_answer_where_its_origin_is_listed)
{
    char text[2048];
    struct caller caller;
    struct exchange_head head = {.method = "GET",
                                 .path = "/v1/models",
                                 .host = "localhost",
                                 .authorization = "Bearer secret",
                                 .origin = pages[_i].origin};
    world_set(&site.world, "cors-origins", "https://app.example.com, http://localhost:3000");
    for (int key = 0; key < 2; key++) {
        head.authorization = key ? "Bearer secret" : NULL; /* an error may be read, too */
        call_as(&site, &caller, &tcp, &head, NULL);
        ck_assert_uint_eq(caller.exchange->status, key ? 200 : 401);
        fields(caller.exchange, text, sizeof(text));
        ck_assert_ptr_nonnull(strstr(text, "Vary: Origin\r\n"));
        bool told = strstr(text, "Access-Control-Allow-Origin: ") != NULL;
        ck_assert(told == pages[_i].may);
        if (told)
            ck_assert_ptr_nonnull(strstr(text, pages[_i].origin));
        ck_assert_ptr_null(strchr(text, '*'));
        caller_free(&caller);
    }
}
END_TEST

START_TEST(a_preflight_is_answered_by_origin_and_without_a_key)
{
    char text[2048];
    struct caller caller;
    const struct exchange_head head = {.method = "OPTIONS",
                                       .path = "/v1/chat/completions",
                                       .host = "localhost",
                                       .origin = pages[_i].origin,
                                       .cors_method = "POST",
                                       .cors_headers = "authorization,content-type"};
    world_set(&site.world, "cors-origins", "https://app.example.com, http://localhost:3000");
    call_as(&site, &caller, &tcp, &head, NULL);
    unsigned refused = pages[_i].origin ? 403 : 405; /* without Origin it is no preflight */
    ck_assert_uint_eq(caller.exchange->status, pages[_i].may ? 204 : refused);
    fields(caller.exchange, text, sizeof(text));
    if (pages[_i].may) {
        ck_assert_ptr_nonnull(strstr(text, "Access-Control-Allow-Methods: GET, POST\r\n"));
        ck_assert_ptr_nonnull(
            strstr(text, "Access-Control-Allow-Headers: authorization,content-type\r\n"));
        ck_assert_str_eq(caller_read(&caller), "");
    } else {
        ck_assert_ptr_null(strstr(text, "Access-Control-Allow"));
    }
    caller_free(&caller);
}
END_TEST

START_TEST(figures_without_a_key_are_for_no_page)
{
    char text[2048];
    struct caller caller;
    const struct exchange_peer only = {.user = 5, .tcp = true, .metrics_only = true};
    struct exchange_head head = {
        .method = "GET", .path = "/metrics", .host = "localhost", .origin = "https://a.b"};
    world_set(&site.world, "cors-origins", "https://a.b");
    call_as(&site, &caller, &only, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 200);
    fields(caller.exchange, text, sizeof(text));
    ck_assert_ptr_null(strstr(text, "Access-Control"));
    caller_free(&caller);
    head.method = "OPTIONS";
    head.cors_method = "GET";
    call_as(&site, &caller, &only, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, 403);
    caller_free(&caller);
}
END_TEST

static const struct {
    const char *origins, *host, *path, *method, *headers;
    unsigned status;
} preflights[] = {
    {"", "localhost", "/v1/models", "GET", NULL, 405}, /* as before there were origins */
    {"https://a.b", "localhost", "/v1/models", "GET", NULL, 204},
    {"https://a.b", "localhost", "/v1/models", NULL, NULL, 405},
    {"https://a.b", "localhost", "/v1/none", "GET", NULL, 404},
    {"https://a.b", "evil.example", "/v1/models", "GET", NULL, 421},
    {"https://a.b", "localhost", "/v1/models", "GET", "a: b", 400},
    {"https://a.b", "localhost", "/v1/models", "GET", "\"*\"", 400},
};

START_TEST(what_is_no_preflight_of_a_page_that_may_is_refused)
{
    struct caller caller;
    const struct exchange_head head = {.method = "OPTIONS",
                                       .path = preflights[_i].path,
                                       .host = preflights[_i].host,
                                       .origin = "https://a.b",
                                       .cors_method = preflights[_i].method,
                                       .cors_headers = preflights[_i].headers};
    world_set(&site.world, "cors-origins", preflights[_i].origins);
    call_as(&site, &caller, &tcp, &head, NULL);
    ck_assert_uint_eq(caller.exchange->status, preflights[_i].status);
    caller_free(&caller);
}
END_TEST

START_TEST(headers_of_a_preflight_are_bounded)
{
    static char headers[4096], text[2048];
    struct caller caller;
    struct exchange_head head = {.method = "OPTIONS",
                                 .path = "/v1/models",
                                 .host = "localhost",
                                 .origin = "https://a.b",
                                 .cors_method = "GET",
                                 .cors_headers = headers};
    world_set(&site.world, "cors-origins", "https://a.b");
    for (size_t length = 1; length < sizeof(headers); length += 509) {
        memset(headers, 'x', length);
        headers[length] = '\0';
        call_as(&site, &caller, &tcp, &head, NULL);
        bool fits = length < EXCHANGE_CORS_HEADERS_MAX;
        ck_assert_uint_eq(caller.exchange->status, fits ? 204 : 400);
        fields(caller.exchange, text, sizeof(text));
        caller_free(&caller);
    }
}
END_TEST

/* ---- for whom ----------------------------------------------------------------------------------
 */

static const struct {
    const char *authorization, *user;
    bool tcp;
    unsigned status;
    const char *name;
} named[] = {
    {"Bearer secret", NULL, true, 200, "key/web"},
    {"Bearer secret", "ann", true, 200, "key/web/ann"},
    {"Bearer secret", "ann@example.com", true, 200, "key/web/ann@example.com"},
    {"Bearer second", NULL, true, 200, "key/other"},
    {"Bearer second", "ann", true, 403, NULL}, /* not trusted */
    {"Bearer wrong", "ann", true, 401, NULL},
    {NULL, "ann", true, 401, NULL},
    {NULL, NULL, false, 200, "5"},
    {NULL, "ann", false, 403, NULL}, /* a Unix socket has no keys */
    {"Bearer secret", "ann", false, 403, NULL},
    {"Bearer secret", "", true, 400, NULL},
    {"Bearer secret", "two words", true, 400, NULL},
    {"Bearer secret", "a\xff", true, 400, NULL},
    {"Bearer secret", "0123456789012345678901234567890123456789012345678901234567890123", true, 200,
     "key/web/0123456789012345678901234567890123456789012345678901234567890123"},
    {"Bearer secret", "01234567890123456789012345678901234567890123456789012345678901234", true,
     400, NULL},
};

START_TEST(a_trusted_key_may_name_its_user_and_nobody_else)
{
    struct caller caller;
    const struct exchange_peer peer = {.user = named[_i].tcp ? KEY_USER_ANONYMOUS : 5,
                                       .tcp = named[_i].tcp};
    const struct exchange_head head = {.method = "POST",
                                       .path = "/tokenize",
                                       .host = "localhost",
                                       .content_type = "application/json",
                                       .authorization = named[_i].authorization,
                                       .user = named[_i].user};
    world_set(&site.world, "trusted-keys", "proxy,web");
    call_as(&site, &caller, &peer, &head, "{\"prompt\":\"A\"}");
    ck_assert_msg(caller.exchange->status == named[_i].status, "%s", caller_read(&caller));
    if (named[_i].name)
        ck_assert_str_eq(caller.exchange->sink.user->name, named[_i].name);
    caller_free(&caller);
}
END_TEST

/* Whether what it computes is kept, for the user or the salt. */
static bool caches(const char *authorization, const char *user, const char *body)
{
    struct caller caller;
    const struct exchange_head head = {.method = "POST",
                                       .path = "/v1/completions",
                                       .host = "localhost",
                                       .content_type = "application/json",
                                       .authorization = authorization,
                                       .user = user};
    call_as(&site, &caller, &tcp, &head, body);
    ck_assert_ptr_nonnull(caller.exchange->request);
    bool kept = caller.exchange->request->seqs[0].caches;
    site_finish(&site);
    caller_free(&caller);
    return kept;
}

/* A router asks for many: what it does not tell apart is not shared. */
START_TEST(behind_a_trusted_key_users_and_salts_share_and_nobody_else)
{
    static const char plain[] = "{\"prompt\":\"ABC\",\"max_tokens\":1}",
                      salted[] = "{\"prompt\":\"ABC\",\"max_tokens\":1,\"cache_salt\":\"s\"}",
                      none[] = "{\"prompt\":\"ABC\",\"max_tokens\":1,\"cache\":false,"
                               "\"cache_salt\":\"s\"}";
    site.world.server.models[0].info.block_tokens = 4;
    world_set(&site.world, "trusted-keys", "web");
    ck_assert(!caches("Bearer secret", NULL, plain));
    ck_assert(caches("Bearer secret", "ann", plain));
    ck_assert(caches("Bearer secret", NULL, salted));
    ck_assert(!caches("Bearer secret", NULL, none));
    ck_assert(!caches("Bearer secret", "ann", none));
    ck_assert(caches("Bearer second", NULL, plain)); /* not trusted: it is one user */
}
END_TEST

static uint64_t asked_as; /* the number of its last caller */

/* What the names of its prompt's blocks begin with: who has the same finds what was computed. */
static struct prefix_key root_of(const struct exchange_peer *peer, const char *authorization,
                                 const char *body)
{
    struct caller caller;
    const struct exchange_head head = {.method = "POST",
                                       .path = "/v1/completions",
                                       .host = "localhost",
                                       .content_type = "application/json",
                                       .authorization = authorization};
    call_as(&site, &caller, peer, &head, body);
    ck_assert_ptr_nonnull(caller.exchange->request);
    const struct seq *seq = &caller.exchange->request->seqs[0];
    struct prefix_key root = seq->key_root;
    ck_assert(seq->caches);
    asked_as = seq->user_id;
    site_finish(&site);
    caller_free(&caller);
    return root;
}

/* Nobody can tell them apart: they have one account, and find what any of them has asked. Nobody else
 * does, not even a key of that name; and whoever gives a key or a salt is apart. */
START_TEST(callers_without_a_key_are_one_user_who_shares_with_nobody_else)
{
    static const char file[] = "anonymous secret\n",
                      plain[] = "{\"prompt\":\"ABC\",\"max_tokens\":1}",
                      salted[] = "{\"prompt\":\"ABC\",\"max_tokens\":1,\"cache_salt\":\"s\"}",
                      by_name[] = "{\"prompt\":\"ABC\",\"max_tokens\":1,"
                                "\"cache_salt\":\"anonymous\"}";
    struct exchange_peer loopback = tcp;
    const struct exchange_peer uid = {.user = 1000};
    struct error error;
    keys_free(&site.http.keys);
    ck_assert_int_eq(keys_read(&site.http.keys, "keys", file, sizeof(file) - 1, &error), 0);
    loopback.loopback = true;
    site.http.free_loopback = true;
    site.world.server.models[0].info.block_tokens = 4;
    struct prefix_key first = root_of(&loopback, NULL, plain);
    struct prefix_key second = root_of(&loopback, "Bearer made-up", plain);
    struct prefix_key apart = root_of(&loopback, NULL, salted);
    ck_assert(prefix_key_same(&first, &second));
    ck_assert(!prefix_key_same(&first, &apart));
    apart = root_of(&loopback, NULL, by_name);
    ck_assert(!prefix_key_same(&first, &apart));
    apart = root_of(&uid, NULL, plain);
    ck_assert(!prefix_key_same(&first, &apart));
    apart = root_of(&loopback, "Bearer secret", plain); /* who gives one is its user here, too */
    second = root_of(&tcp, "Bearer secret", plain);
    ck_assert(!prefix_key_same(&first, &apart));
    ck_assert(prefix_key_same(&second, &apart));
    uint64_t key_user = asked_as;
    ck_assert_uint_ne(key_user, KEY_USER_ANONYMOUS);
    (void)root_of(&loopback, "Bearer secret", plain);
    ck_assert_uint_eq(asked_as, key_user);
    (void)root_of(&loopback, "Bearer made-up", plain);
    ck_assert_uint_eq(asked_as, KEY_USER_ANONYMOUS);
}
END_TEST

static unsigned ask_with_priority(const char *user)
{
    struct caller caller;
    const struct exchange_head head = {.method = "POST",
                                       .path = "/v1/completions",
                                       .host = "localhost",
                                       .content_type = "application/json",
                                       .authorization = "Bearer secret",
                                       .user = user};
    call_as(&site, &caller, &tcp, &head, "{\"prompt\":\"A\",\"max_tokens\":1,\"priority\":3}");
    site_finish(&site);
    unsigned status = caller.exchange->status;
    caller_free(&caller);
    return status;
}

/* What the key may, each of its users may, unless something was said of that one. */
START_TEST(users_of_a_trusted_key_have_its_grants_or_their_own)
{
    world_set(&site.world, "trusted-keys", "web");
    ck_assert_uint_eq(ask_with_priority("ann"), 403);
    world_set(&site.world, "users", "key/web:priority=3,key/web/bob:priority=-1");
    ck_assert_uint_eq(ask_with_priority(NULL), 200);
    ck_assert_uint_eq(ask_with_priority("ann"), 200);
    ck_assert_uint_eq(ask_with_priority("bob"), 403);
    world_set(&site.world, "users", "key/web/ann:priority=3");
    ck_assert_uint_eq(ask_with_priority("ann"), 200);
    ck_assert_uint_eq(ask_with_priority(NULL), 403);
    ck_assert_uint_eq(ask_with_priority("bob"), 403);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

Suite *access_suite(void)
{
    Suite *suite = suite_create("access");
    TCase *tests = tcase_create("access");
    tcase_add_test(tests, users_numbers_are_siphash_under_a_secret);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, names_for_us_are_those_that_were_given, 0, COUNT(hosts));
    tcase_add_loop_test(tests, a_page_may_read_the_answer_where_its_origin_is_listed, 0,
                        COUNT(pages));
    tcase_add_loop_test(tests, a_preflight_is_answered_by_origin_and_without_a_key, 0,
                        COUNT(pages));
    tcase_add_loop_test(tests, what_is_no_preflight_of_a_page_that_may_is_refused, 0,
                        COUNT(preflights));
    tcase_add_test(tests, figures_without_a_key_are_for_no_page);
    tcase_add_test(tests, headers_of_a_preflight_are_bounded);
    tcase_add_loop_test(tests, a_trusted_key_may_name_its_user_and_nobody_else, 0, COUNT(named));
    tcase_add_test(tests, callers_without_a_key_are_one_user_who_shares_with_nobody_else);
    tcase_add_test(tests, users_of_a_trusted_key_have_its_grants_or_their_own);
    tcase_add_test(tests, behind_a_trusted_key_users_and_salts_share_and_nobody_else);
    suite_add_tcase(suite, tests);
    return suite;
}
