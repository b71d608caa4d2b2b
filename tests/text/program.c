#include "tests/text/program.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/chance.h"

const char program_given[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\" a b\\nc "
    "\"},{\"role\":\"tool\",\"content\":\"\\u00e9\\u20ac\"}],"
    "\"extra\":{\"rows\":[{\"a\":3,\"b\":{\"c\":\"x\"}},{\"a\":1,\"b\":{\"c\":\"y\"}},{\"a\":2,"
    "\"b\":{\"c\":\"y\"}}],"
    "\"deep\":[[[[[[[[1,\"a\"]]]]]],{\"k\":[{\"k\":[]}]}]],\"small\":{\"a\":1,\"b\":[2],\"c\":"
    "\"d\"},"
    "\"text\":\"The quick  brown\\tfox,\\u00a0jumps \\u00fcber\\nthe lazy\\r\\ndog.\"}}";

struct draw {
    uint64_t chance;
    char *text;
    size_t used;
};

static void put(struct draw *draw, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct draw *draw, const char *format, ...)
{
    va_list arguments;
    size_t room = PROGRAM_MAX - draw->used;
    va_start(arguments, format);
    int length = vsnprintf(draw->text + draw->used, room, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < room)
        draw->used += (size_t)length;
    else
        draw->text[draw->used] = 0; /* no room: left out */
}

/* ---- names -------------------------------------------------------------------------------------
 */

static const char *const filters[] = {
#define FILTER(name) #name,
#include "daemon/text/template/chat_names.def"
};
static const char *const tests[] = {
#define TEST(name) #name,
#include "daemon/text/template/chat_names.def"
};
static const char *const methods[] = {
#define METHOD(name) #name,
#include "daemon/text/template/chat_names.def"
};
static const char *const functions[] = {
#define FUNCTION(name) #name,
#include "daemon/text/template/chat_names.def"
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NAMES (COUNT(filters) + COUNT(tests) + COUNT(methods) + COUNT(functions))
#define PICK(draw, array) ((array)[chance_below(&(draw)->chance, COUNT(array))])

/* ---- expressions -------------------------------------------------------------------------------
 * Of lists, strings, dicts, numbers and anything; a letter behind % in a rule stands for one. T is
 * a list or a string, the same each time, so that what compares values goes through all of them.
 */

static const char *const lists[] = {
    "[%A, %A]",
    "[%A, %A, %A]",
    "(%L, %L)",
    "%L + %L",
    "%L + %L",
    "%L[::-1]",
    "%L[%N:%N]",
    "%L[%N:]",
    "%L[::%N]",
    "%L|sort",
    "%L|sort(reverse=true)",
    "%L|sort(attribute=%S)",
    "%L|sort(case_sensitive=true)",
    "%L|unique|list",
    "%L|reverse|list",
    "%L|map('string')|list",
    "%L|map('upper')|list",
    "%L|map('length')|list",
    "%L|map('tojson')|list",
    "%L|map(attribute='a')|list",
    "%L|map(attribute=%S, default=%A)|list",
    "%L|select|list",
    "%L|select('lt', %A)|list",
    "%L|select('in', %L)|list",
    "%L|reject('eq', %A)|list",
    "%L|rejectattr('a', 'ge', %A)|list",
    "%L|selectattr('b.c', 'eq', %A)|list",
    "%S.split(%S)",
    "%S.split()",
    "%S.split(%S, %N)",
    "%S.rsplit(%S, %N)",
    "%S.splitlines()",
    "%S|list",
    "%D|list",
    "%D.items()|list",
    "%D.keys()|list",
    "%D.values()|list",
    "%D|items|list",
    "%D|dictsort",
    "%D|dictsort(by='value')",
    "range(%N)|list",
    "range(%N, %N, %N)|list",
    "rows",
    "deep",
    "messages",
    "%L if %A else %L",
    "%L or %L",
    "[%T, %T, %T]|sort",
    "[%T, %T, %A]|unique|list",
    "[%T, %N, %T]|select('eq', %T)|list",
    "[[%T, 2], [%T, 1]]|sort",
    "%L|default(%L)",
};
static const char *const strings[] = {
    "%S ~ %S",
    "%S + %S",
    "%A ~ %A",
    "%S * %N",
    "%S|replace(%S, %S)",
    "%S.replace(%S, %S)",
    "%S.replace(%S, %S, %N)",
    "%S.strip()",
    "%S.strip(%S)",
    "%S.lstrip(%S)",
    "%S.rstrip(%S)",
    "%S|trim",
    "%S|trim(%S)",
    "%S|upper",
    "%S|lower",
    "%S|title",
    "%S|capitalize",
    "%S.title()",
    "%A|string",
    "%A|tojson",
    "%A|tojson(indent=%N)",
    "%A|tojson(indent=%S)",
    "%D|tojson(sort_keys=true)",
    "%A|tojson(ensure_ascii=true)",
    "%S|indent(%N)",
    "%S|indent(%S, true, true)",
    "%S[%N:%N]",
    "%S[::%N]",
    "%S[%N]",
    "%S[%N:]",
    "%L|join(%S)",
    "%L|join",
    "%S.join(%L|map('string')|list)",
    "strftime_now(%S)",
    "strftime_now('%%A %%c %%x')",
    "(%S * 99).strip(('b' * 900) ~ %S)",
    "(%S * 300).rsplit((%S * 99) ~ 'b', %N)",
    "(%S * 300).rfind((%S * 99) ~ 'b')",
    "%S|safe",
    "text",
    "messages[%N].content",
    "%L[%N]",
    "%D.c",
};
static const char *const dicts[] = {
    "{'a': %A, 'b': %A}",
    "{%S: %A, %S: %A}",
    "{%N: %A, %N: %A, %N: %A}",
    "dict(%D)",
    "dict(%D, a=%A, b=%A)",
    "small",
    "rows[%N]",
    "%D or %D",
};
static const char *const numbers[] = {
    "%L|length",    "%S|length",
    "%L.count(%A)", "%L.index(%A)",
    "%S.find(%S)",  "%S.rfind(%S)",
    "%S.count(%S)", "%S.index(%S)",
    "%S|int",       "%S|float",
    "%N + %N",      "%N - %N",
    "%N * %N",      "%N // %N",
    "%N %% %N",     "%N ** %N",
    "%N / %N",      "-%N",
    "%N|abs",       "%F %% %F",
    "%F",           "%L|map('length')|sum",
};
static const char *const anything[] = {
    "%L",
    "%L",
    "%S",
    "%D",
    "%N",
    "%L|min",
    "%L|max",
    "%L|first",
    "%L|last",
    "%L|sum(start=%L)",
    "%L[%N]",
    "%D[%S]",
    "%D.get(%A)",
    "%D.get(%S, %A)",
    "%D|attr(%S)",
    "%L|max|list",
    "%T < %T",
    "%T == %T",
    "[%T, 1] >= [%T, 2]",
    "%T in [%N, %T]",
    "[%T, %T]|max",
    "[%T, %T]|min",
    "[%N, %T].index(%T)",
    "[%T, %T].count(%T)",
    "{'a': %T} == {'a': %T}",
    "[%T] is lt([%T])",
    "%A == %A",
    "%A == %A",
    "%A != %A",
    "%A < %A",
    "%A <= %A",
    "%L < %L",
    "%L >= %L",
    "%L == %L",
    "%L < %L",
    "%S < %S",
    "%A in %L",
    "%A not in %L",
    "%S in %S",
    "%A in %D",
    "%L in %L",
    "%A is eq(%A)",
    "%A is sameas(%A)",
    "%L is lt(%L)",
    "%A is in(%L)",
    "%S is lower",
    "%S is upper",
    "%N is odd",
    "%N is divisibleby(%N)",
    "%A is iterable",
    "%S.startswith(%S)",
    "%S.endswith((%S, %S, %S))",
    "%S.startswith(%L)",
    "%S.isdigit()",
    "%S.isspace()",
    "not %A",
    "%A and %A",
    "%A or %A",
    "%A if %A else %A",
    "nobody",
    "none",
    "true",
    "%A|default(%A, true)",
    "wide.startswith(%L)",
    "wide in %L",
    "%L|map(attribute=wide)|list",
    "wide == wild",
    "{wide: %A, wild: %A}",
    "%L.count(wide)",
    "m(%A, %A)",
    "m(%A, n=%N)",
    "w(40)",
};

static void expression(struct draw *draw, char kind, int depth);

/* A name applied to anything, right or wrong. */
static void call(struct draw *draw, uint32_t name, int depth)
{
    static const size_t counts[] = {COUNT(filters), COUNT(tests), COUNT(methods), COUNT(functions)};
    static const char *const *const names[] = {filters, tests, methods, functions};
    uint32_t count = chance_below(&draw->chance, 4), form = 0;
    while (name >= counts[form])
        name -= (uint32_t)counts[form++];
    put(draw, "(");
    if (form < 3)
        expression(draw, "ALSD"[chance_below(&draw->chance, 4)], depth);
    put(draw,
        form == 0   ? "|%s("
        : form == 1 ? " is %s("
        : form == 2 ? ".%s("
                    : "%s(",
        names[form][name]);
    for (uint32_t i = 0; i < count; i++) {
        put(draw, "%s", i > 0 ? ", " : "");
        expression(draw, "ALSN"[chance_below(&draw->chance, 4)], depth);
    }
    put(draw, "))");
}

static void leaf(struct draw *draw, char kind)
{
    static const char *const number[] = {"0", "1", "2", "3", "7", "40", "300", "-1", "-5", "n0"};
    static const char *const floats[] = {"1e308", "1e-300", "0.1", "1234567.891", "2.5"};
    static const char *const text[] = {"''", "'a'", "'ab'", "' '", "'a.b'", "'\\n'", "'\xc3\xa9'"};
    static const char *const other[] = {"1", "none", "'a'", "nobody", "0.1", "l0", "s0"};
    uint32_t pick = chance_below(&draw->chance, 4);
    switch (kind) {
    case 'L':
        put(draw, "l%u", pick);
        break;
    case 'S':
        if (pick == 3)
            put(draw, "%s", PICK(draw, text));
        else
            put(draw, "s%u", pick);
        break;
    case 'D':
        put(draw, "d%u", pick % 2);
        break;
    case 'N':
        put(draw, "%s", PICK(draw, number));
        break;
    case 'F':
        put(draw, "%s", PICK(draw, floats));
        break;
    default:
        put(draw, "%s", PICK(draw, other));
        break;
    }
}

/* What was drawn the first time. */
static void same(struct draw *draw, char twin[8])
{
    if (!*twin)
        snprintf(twin, 8, "%c%u", chance_one_in(&draw->chance, 4) ? 's' : 'l',
                 chance_below(&draw->chance, 3));
    if (chance_one_in(&draw->chance, 3))
        put(draw, "[%s][0]", twin);
    else
        put(draw, "%s", twin);
}

static const char *rule_of(struct draw *draw, char kind)
{
    switch (kind) {
    case 'L':
        return PICK(draw, lists);
    case 'S':
        return PICK(draw, strings);
    case 'D':
        return PICK(draw, dicts);
    case 'N':
        return PICK(draw, numbers);
    default:
        return PICK(draw, anything);
    }
}

static void expression(struct draw *draw, char kind, int depth)
{
    if (depth <= 0 || kind == 'F' || chance_one_in(&draw->chance, 3)) {
        leaf(draw, kind);
        return;
    }
    if (chance_one_in(&draw->chance, 12)) {
        call(draw, chance_below(&draw->chance, NAMES), depth - 1);
        return;
    }
    char twin[8] = "";
    put(draw, "(");
    for (const char *at = rule_of(draw, kind); *at; at++) {
        if (*at != '%')
            put(draw, "%c", *at);
        else if (*++at == '%')
            put(draw, "%%");
        else if (*at == 'T')
            same(draw, twin);
        else
            expression(draw, *at, depth - 1);
    }
    put(draw, ")");
}

/* ---- statements --------------------------------------------------------------------------------
 */

/* A value that grows by being put together with itself, again and again. */
static void grow(struct draw *draw, const char *name, const char *first, const char *next,
                 uint32_t times)
{
    put(draw, "{%% set ns.x = %s %%}{%% for i in range(%u) %%}{%% set ns.x = %s %%}{%% endfor %%}",
        first, times, next);
    put(draw, "{%% set %s = ns.x %%}\n", name);
}

static void make_list(struct draw *draw, uint32_t number)
{
    static const char *const firsts[] = {"[1]",
                                         "['a', 'b']",
                                         "[1, 'a']",
                                         "['ab' * 300]",
                                         "rows",
                                         "[nobody]",
                                         "[0.1 + 0.2, 1 / 3]",
                                         "(wild, wild)",
                                         "[wild]",
                                         "range(50)|list",
                                         "deep",
                                         "range(50)|map('string')|list",
                                         "[{'a': 1}]"};
    static const char *const longer[] = {"ns.x + ns.x", "ns.x + [i]", "ns.x + [i|string]",
                                         "ns.x + [[i]]"};
    static const char *const deeper[] = {"[ns.x, ns.x]",    "[ns.x]",
                                         "[ns.x, i]",       "(ns.x, ns.x)",
                                         "[i, ns.x, ns.x]", "[{'a': ns.x, 'b': ns.x}, ns.x]"};
    char name[16];
    snprintf(name, sizeof(name), "l%u", number);
    const char *first = PICK(draw, firsts);
    if (chance_one_in(&draw->chance, 2))
        grow(draw, name, first, PICK(draw, deeper), chance_between(&draw->chance, 1, 70));
    else
        grow(draw, name, first, *first == '(' ? longer[0] : PICK(draw, longer),
             chance_between(&draw->chance, 1, 13));
}

static void make_text(struct draw *draw, uint32_t number)
{
    static const char *const firsts[] = {"'a'",  "' '",       "'ab'", "'a\\n'", "'\xe2\x82\xac'",
                                         "text", "'a' * 999", "'0'",  "'a.'"};
    static const char *const nexts[] = {"ns.x ~ ns.x", "ns.x + ns.x", "'b' ~ ns.x", "ns.x ~ 'b'",
                                        "ns.x|replace('a', 'ab')"};
    char name[16];
    snprintf(name, sizeof(name), "s%u", number);
    const char *first = PICK(draw, firsts);
    grow(draw, name, first, PICK(draw, nexts), chance_between(&draw->chance, 1, 16));
}

static void make_dict(struct draw *draw, uint32_t number)
{
    static const char *const nexts[] = {"{'a': ns.x, 'b': ns.x}", "dict(ns.x, a=ns.x)",
                                        "{'a': ns.x, 'k': i}", "{i: ns.x, 'b': ns.x}"};
    char name[16];
    snprintf(name, sizeof(name), "d%u", number);
    if (chance_one_in(&draw->chance, 2)) {
        grow(draw, name, "small", PICK(draw, nexts), chance_between(&draw->chance, 1, 60));
        return;
    }
    put(draw, "{%% set %s = {", name);
    uint32_t count = chance_between(&draw->chance, 1, 150);
    const char *key = chance_one_in(&draw->chance, 2) ? "s0 ~ " : "";
    for (uint32_t i = 0; i < count; i++)
        put(draw, "%s'%03u': %u, ", key, i, i);
    put(draw, "'c': s0} %%}\n");
}

static void body(struct draw *draw, int depth);

static void statement(struct draw *draw, int depth)
{
    static const char *const heads[] = {"{% for x in ", "{% for x in ", "{% if ", "{% set l0 = ",
                                        "{% set s0 = ", "{% set y %}",  "{{ ",    "{{ ",
                                        "{{ ",          "{{ "};
    static const char kinds[] = "LDALSAAALS";
    uint32_t pick = chance_below(&draw->chance, depth > 0 ? 10 : 5) + (depth > 0 ? 0 : 5);
    if (chance_one_in(&draw->chance, 8))
        put(draw,
            "{%% for x in range(2000) %%}{%% if n0 == x %%}{{ x }}{%% endif %%}{%% endfor %%}");
    put(draw, "%s", heads[pick]);
    if (pick != 5)
        expression(draw, kinds[pick], (int)chance_between(&draw->chance, 1, 3));
    if (pick >= 6)
        put(draw, " }}");
    else if (pick != 5)
        put(draw, " %%}");
    if (pick == 0 && chance_one_in(&draw->chance, 3))
        put(draw, "{{ loop.cycle(loop.index, loop.last, x) }}{%% if loop.index > 9 %%}{%% break "
                  "%%}{%% endif %%}");
    if (pick < 3 || pick == 5)
        body(draw, depth - 1);
    if (pick < 3)
        put(draw, pick == 2 ? "{%% endif %%}" : "{%% endfor %%}");
    else if (pick == 5)
        put(draw, "{%% endset %%}");
    put(draw, "\n");
}

static void body(struct draw *draw, int depth)
{
    uint32_t count = chance_between(&draw->chance, 1, 2);
    for (uint32_t i = 0; i < count; i++)
        statement(draw, depth);
}

void program_draw(uint64_t seed, char program[PROGRAM_MAX])
{
    struct draw draw = {.chance = seed, .text = program};
    *program = 0;
    put(&draw, "{%% set ns = namespace() %%}{%% set n0 = %u %%}\n",
        chance_below(&draw.chance, 1000));
    put(&draw, "{%% macro m(a, b, n=2) %%}{{ 'x' * 999 }}{{ a|length }}"
               "{%% if n > 0 %%}{{ m(a, b, n - 1) }}{%% endif %%}{%% endmacro %%}\n"
               "{%% set wide = ('x' * 1000) * 120 %%}{%% set wild = wide[1:] ~ 'y' %%}{%% macro "
               "w(n) %%}{{ wide }}"
               "{%% if n > 0 %%}{{ w(n - 1) }}{%% endif %%}{%% endmacro %%}\n");
    for (uint32_t i = 0; i < 3; i++)
        make_text(&draw, i);
    for (uint32_t i = 0; i < 4; i++)
        make_list(&draw, i);
    for (uint32_t i = 0; i < 2; i++)
        make_dict(&draw, i);
    if (chance_one_in(&draw.chance, 4))
        for (uint32_t i = 0; i < 400; i++)
            put(&draw, "{%% set v%03u = %u %%}", i, i);
    if (seed % 3 > 0) {
        body(&draw, 2);
        return;
    }
    put(&draw, "{{ "); /* each name in turn */
    call(&draw, (uint32_t)(seed / 3 % NAMES), 0);
    put(&draw, " }}");
}
