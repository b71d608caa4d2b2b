/* Constraints that mean harm: schemas, expressions and grammars that are endless, huge, ambiguous
 * or exponential. Natively and over HTTP each is refused or bounded, several of one kind at a time,
 * and the canary hears nothing of it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/sluice.h"
#include "tests/hostile/http_rig.h"
#include "tests/hostile/http_suites.h"

#define ANSWER_MS 60000
#define MAX_TOKENS 24

static const int32_t sum[] = {'4', '1', '7', '+', '3', '8', '5', '='}, result[] = {'8', '0', '2'};
static const struct canary_song known = {sum, result, 8, 3};

/* `head`, `times` of the pattern, `tail`; %u in the pattern are its number and the one behind it.
 */
struct evil {
    int kind;
    const char *head, *pattern, *tail;
    uint32_t times;
    const char *says; /* of what is refused; NULL: it is answered */
};

#define S SLUICE_CONSTRAINT_SCHEMA
#define P SLUICE_CONSTRAINT_PATTERN
#define G SLUICE_CONSTRAINT_GRAMMAR
#define C SLUICE_CONSTRAINT_CHOICE

/* Each branch of a oneOf is held against each. */
#define REF "{\"$ref\":\"#/$defs/b\"},"
#define REF5 REF REF REF REF REF
#define REFS                                                                                       \
    REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5 REF5

static const struct evil evils[] = {
    /* without an end */
    {S, "{\"$ref\":\"#\"}", "", "", 0, "leads to itself"},
    {S, "{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#\"}}", "", "", 0,
     "nothing finite"},
    {S, "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "", "", 0, NULL},
    {S, "{\"type\":\"array\",\"minItems\":1000000}", "", "", 0, NULL},
    {G, "root ::= root \"a\" | \"a\"", "", "", 0, "leads to itself"},
    {G, "root ::= \"a\" root", "", "", 0, "nothing finite"},
    {G, "root ::= \"a\" root root | \"a\"", "", "", 0, NULL},
    {P, "a{1000000}", "", "", 0, NULL},
    /* huge */
    {S, "{\"enum\":[", "\"%u\",", "0]}", 200000, "more than 1048576 bytes"},
    {S, "{\"enum\":[", "\"%u\",", "0]}", 1000000, "more than"},
    {P, "", "a", "", 10 * MIB, "more than"},
    {G, "root ::= ", "\"a\" ", "", 2500000, "more than"},
    {P, "", "a", "", 9000, "8192"},
    {C, "[", "\"%u\",", "\"\"]", 70000, "65536"},
    {S, "", "{\"items\":", "1", 200, "nested"},
    {S, "{\"properties\":{", "\"p%u\":{\"$ref\":\"#\"},", "\"p\":{}}}", 3000, "steps"},
    {S, "{\"oneOf\":[" REFS "{}],\"$defs\":{\"b\":{", "\"x%u\":1,", "\"x\":1}}}", 50000, "steps"},
    {S, "{\"$defs\":{\"b\":{\"$anchor\":\"a\"}},", "\"x%u\":{\"$ref\":\"#a\"},", "\"x\":1}", 20000,
     "steps"},
    {P, "", "(", "", 3000, "nested"},
    {G, "root ::= ", "(", "", 3000, "nested"},
    {G, "root ::= \"a\"\n", "a%u ::= \"a\"\n", "", 20000, "rules"},
    {G, "root ::= ", "[\\U000%05u\\U000%05u] ", "", 30000, "too much work"},
    /* ambiguous */
    {P, "(a|a)*b", "", "", 0, NULL},
    {P, "(.*.*.*.*)*x", "", "", 0, NULL},
    {P, "((a?){100}){100}", "", "", 0, "too many ways"},
    {P, "q((a?){100}){100}", "", "", 0, "too many ways"}, /* not before it runs */
    {P, "(a|b)*a(a|b){30}", "", "", 0, NULL},
    {G, "root ::= s s s s s s\ns ::= (\"x\" | \"xx\" | \"xxx\" s)*", "", "", 0, NULL},
    {G, "root ::= (\"a\"{0,10000} \"b\"?){0,10000}", "", "", 0, "too many ways"},
    /* exponential */
    {G, "root ::= r0\n", "r%u ::= r%u | r%u r%u\n", "r60 ::= \"a\"", 60, "too many ways"},
    {G, "root ::= r0\n", "r%u ::= r%u r%u\n", "r60 ::= \"a\"", 60, NULL},
    {S, "{\"allOf\":[", "{\"anyOf\":[{\"properties\":{\"p%u\":{}}},{\"required\":[\"q%u\"]}]},",
     "{}]}", 24, "more than"},
    {S, "{\"allOf\":[", "{\"not\":{\"required\":[\"q%u\",\"r%u\"]}},", "{}]}", 20, "more than"},
    {S, "{\"allOf\":[{\"pattern\":\"(a|b)*a(a|b){15}\"},{\"pattern\":\"(a|b)*b(a|b){14}\"}]}", "",
     "", 0, "pattern"},
};
#define EVILS ((int)(sizeof evils / sizeof evils[0]))

static char *text_of(const struct evil *evil)
{
    size_t room =
        strlen(evil->head) + strlen(evil->tail) + 1 + evil->times * (strlen(evil->pattern) + 24);
    char *text = malloc(room);
    size_t used = (size_t)snprintf(text, room, "%s", evil->head);
    for (uint32_t i = 0; i < evil->times; i++)
        used += (size_t)snprintf(text + used, room - used, evil->pattern, i, i + 1, i + 1, i + 1);
    snprintf(text + used, room - used, "%s", evil->tail);
    return text;
}

/* A list of choices stands in a body as it is, what else there is as a string. */
static char *body_of(const struct evil *evil, const char *text, size_t *ret_length)
{
    static const char *const fields[] = {
        [S] = "json", [P] = "regex", [G] = "grammar", [C] = "choice"};
    const char *quote = evil->kind == C ? "" : "\"";
    char *body = malloc(2 * strlen(text) + 256), *to = body;
    to +=
        sprintf(to, "{\"prompt\":\"417+385=\",\"max_tokens\":%d,\"structured_outputs\":{\"%s\":%s",
                MAX_TOKENS, fields[evil->kind], quote);
    for (; *text; text++) {
        if (evil->kind != C && (*text == '"' || *text == '\\' || *text == '\n'))
            *to++ = '\\';
        *to++ = *text == '\n' && evil->kind != C ? 'n' : *text;
    }
    to += sprintf(to, "%s}}", quote);
    *ret_length = (size_t)(to - body);
    return body;
}

static void over_http(const struct evil *evil, const char *text)
{
    int fds[AT_A_TIME];
    char answer[4096];
    size_t length;
    char *body = body_of(evil, text, &length);
    for (int i = 0; i < AT_A_TIME; i++) {
        fds[i] = http_head("/v1/completions", length);
        ck_assert(http_send(fds[i], body, length));
    }
    for (int i = 0; i < AT_A_TIME; i++) {
        int status = http_status(fds[i], answer, sizeof(answer));
        bool right = evil->says ? status == 400 && strstr(answer, evil->says)
                                : status == 200 && strstr(answer, "\"finish_reason\":");
        ck_assert_msg(right, "%.60s: %d %s", text, status, answer);
        close(fds[i]);
    }
    free(body);
}

struct answer {
    uint32_t ends;
    int finish;
    sluice_error error;
};

static void take_end(void *context, uint32_t sequence, const sluice_end *end)
{
    struct answer *answer = context;
    (void)sequence;
    answer->ends++;
    answer->finish = end->finish;
    answer->error = end->error;
}

static void natively(const struct evil *evil, const char *text)
{
    struct answer answer = {.ends = 0};
    sluice_client *client;
    sluice_error error;
    sluice_params params;
    sluice_batch batch;
    sluice_params_init(&params);
    sluice_batch_init(&batch);
    params.max_tokens = MAX_TOKENS;
    const sluice_prompt prompt = {.tokens = sum, .token_count = 8, .params = &params};
    batch.prompts = &prompt;
    batch.prompt_count = 1;
    batch.constraint = evil->kind;
    batch.constraint_text = text;
    batch.callbacks.end = take_end;
    batch.context = &answer;
    ck_assert_int_eq(sluice_connect(scene.spawn.socket, ANSWER_MS, &client, &error), 0);
    int rc = sluice_run(client, &batch, ANSWER_MS);
    bool failed = rc != 0 || answer.finish == SLUICE_FINISH_ERROR;
    const char *said = answer.finish == SLUICE_FINISH_ERROR ? answer.error.text
                                                            : sluice_client_error(client)->text;
    ck_assert_uint_le(answer.ends, 1);
    const char *says = strlen(text) > MIB ? "too many prompts or parameters for one message"
                                          : evil->says; /* a head has no room for more */
    ck_assert_msg(says ? failed && strstr(said, says) : !failed && answer.ends == 1, "%.60s: %d %s",
                  text, rc, said);
    sluice_close(client);
}

static void start(void)
{
    http_make();
    http_start("deploy/demo-model", "256MiB", &known);
    scene.slack = 256 * MIB; /* the last constraints are kept, with up to 16 MiB each */
}

static void stop(void)
{
    scene_free(&scene);
}

START_TEST(a_constraint_is_refused_or_bounded_and_nobody_notices)
{
    for (int i = _i; i < EVILS; i += 4) {
        char *text = text_of(&evils[i]);
        over_http(&evils[i], text);
        natively(&evils[i], text);
        scene_check(&scene);
        free(text);
    }
    scene_end(&scene);
}
END_TEST

Suite *constraint_suite(void)
{
    Suite *suite = suite_create("constraint");
    TCase *tcase = tcase_create("constraint");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_loop_test(tcase, a_constraint_is_refused_or_bounded_and_nobody_notices, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}
