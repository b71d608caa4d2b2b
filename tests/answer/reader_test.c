/* Answers and what they say, however they are cut. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answer/call_format.h"
#include "tests/answer/answer_script.h"
#include "tests/answer/answer_suites.h"

#define HERMES "<tool_call></tool_call>"
#define THINKS "<think></think>"
#define LLAMA "<|start_header_id|> \"parameters\": "
#define MISTRAL "[TOOL_CALLS]"
#define NAMED "[TOOL_CALLS][ARGS]"
#define GRANITE "respond with <|tool_call|> and a list"
#define PHI "functools[...]"
#define HARMONY "<|channel|>analysis<|message|><|end|>"
#define CODER "<tool_call><function=></tool_call>"
#define GLM "<tool_call>{{ name }}<arg_key></tool_call>"
#define DEEPSEEK "tools <｜tool▁calls▁begin｜> ```json"
#define DEEPSEEK31 "tools <｜tool▁calls▁begin｜>"
#define CALLS "<｜tool▁calls▁begin｜>"
#define CALL "<｜tool▁call▁begin｜>"
#define SEP "<｜tool▁sep｜>"
#define CALL_END "<｜tool▁call▁end｜>"
#define CALLS_END "<｜tool▁calls▁end｜>"
#define CHANNEL "\xff<|channel|>"
#define MESSAGE "\xff<|message|>"
#define NEXT "\xff<|end|>\xff<|start|>assistant"

struct example {
    const char *chat_template, *text, *events;
    bool special, thinks, no_tools;
    const char *names, *types;
};

/* What f's parameters may be. */
#define TYPES                                                                                      \
    "f\0s\0\x08"                                                                                   \
    "f\0n\0\x04"                                                                                   \
    "f\0b\0\x02"                                                                                   \
    "f\0o\0\x09"                                                                                   \
    "f\0l\0\x30"                                                                                   \
    "f\0a\0\x3f"                                                                                   \
    "\0"
#define PARAMETER(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define FUNCTION(name, parameters)                                                                 \
    "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"
#define ARGUMENT(key, value) "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"

#define EXAMPLE(from, answer, told, ...)                                                           \
    {                                                                                              \
        .chat_template = (from), .text = (answer), .events = (told), __VA_ARGS__                   \
    }

static const struct example examples[] = {
    EXAMPLE(HERMES, "hello", "C(hello)"),
    EXAMPLE(HERMES, " hello \n", "C( hello \n)"),
    EXAMPLE(HERMES, "a < b <tool> <tool_cal", "C(a < b <tool> <tool_cal)"),
    EXAMPLE(HERMES,
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"}\\\"\"]}}\n</tool_call>",
            "[f]({\"x\": [1, \"}\\\"\"]})"),
    EXAMPLE(HERMES,
            "Look:\n<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</"
            "tool_call>\n<tool_call>\n{\"name\": "
            "\"g\", \"arguments\": {\"a\":{}}}\n</tool_call>\n",
            "C(Look:)[f]({})[g]({\"a\":{}})"),
    EXAMPLE(HERMES, "<tool_call>{\"name\":\"f\"}</tool_call> done", "[f]({})C( done)"),
    /* Cut by length: arguments end where they end. */
    EXAMPLE(HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"a",
            "[f]({\"x\": \"a)"),
    EXAMPLE(HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool", "[f]({})"),
    EXAMPLE(HERMES, "<tool_call>\n{\"name\": \"f", "C(<tool_call>\n{\"name\": \"f)"),
    /* What is no call is content; what began as one stays one, as it was written. */
    EXAMPLE(HERMES, "so <tool_call> no", "C(so <tool_call> no)"),
    EXAMPLE(HERMES, "<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call>",
            "C(<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call>)"),
    EXAMPLE(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}</tool_call>",
            "C(<tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}</tool_call>)"),
    EXAMPLE(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\" 1}}\n</tool_call>b",
            "[f]({\"a\" 1}})C(b)"),
    EXAMPLE(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}}\n</tool_call>",
            "[f]({})C(}\n</tool_call>)"),
    EXAMPLE(HERMES,
            "<tool_call>{\"id\":7,\"name\":\"f\",\"arguments\":{}, \"x\":[null]}</tool_call>",
            "[f]({})"),
    EXAMPLE(HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
            "C(<tool_call>{\"name\":"
            "\"f\",\"arguments\":{}}</tool_call>)",
            .no_tools = true),
    /* Special tokens: what is spelled out is none. */
    EXAMPLE(HERMES, "<tool_call>{", "C(<tool_call>{)", .special = true),
    EXAMPLE(HERMES, "a \xff<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n\xff</tool_call>\n",
            "C(a)[f]({})", .special = true),
    EXAMPLE(HERMES, "\xff<tool_call>{\"name\"\xff<tool_call>{\"name\":\"f\"}",
            "C({\"name\")[f]({})", .special = true),
    EXAMPLE(HERMES, "a\xff</tool_call>b", "C(ab)", .special = true),
    EXAMPLE(LLAMA, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", "[f]({\"x\": 1})"),
    EXAMPLE(LLAMA,
            "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", "
            "\"parameters\": {}}",
            "[f]({})[g]({})"),
    EXAMPLE(LLAMA, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "[f]({})"),
    EXAMPLE(LLAMA, "\xff<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "[f]({})",
            .special = true),
    EXAMPLE(LLAMA, "{\"name\": \"Ada\", \"age\": 36}", "C({\"name\": \"Ada\", \"age\": 36})",
            .names = "f\0"),
    EXAMPLE(LLAMA, "{\"name\": \"f\"}", "[f]({})", .names = "g\0f\0"),
    EXAMPLE(LLAMA, "text {\"name\": \"f\", \"parameters\": {}}",
            "C(text {\"name\": \"f\", \"parameters\": {}})"),
    EXAMPLE(LLAMA, "{\"name\": \"f\", \"parameters\": {}} and", "[f]({})C( and)"),
    EXAMPLE(MISTRAL,
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}, {\"name\": \"g\", "
            "\"arguments\": {}}]",
            "[f]({\"x\": 1})[g]({})"),
    EXAMPLE(MISTRAL,
            "\xff[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"123456789\"}]",
            "[f]({})", .special = true),
    EXAMPLE(MISTRAL, "a [TOOL_CALLS] b", "C(a [TOOL_CALLS] b)"),
    EXAMPLE(NAMED,
            "\xff[TOOL_CALLS]f\xff[ARGS]{\"x\": 1}\xff[TOOL_CALLS]g\xff[CALL_ID]ab12\xff[ARGS]{}",
            "[f]({\"x\": 1})[g]({})", .special = true),
    EXAMPLE(NAMED, "[TOOL_CALLS]f[ARGS]{\"x\": {}}[TOOL_CALLS]g{}", "[f]({\"x\": {}})[g]({})"),
    EXAMPLE(NAMED, "[TOOL_CALLS]f[ARGS]{\"x\": ", "[f]({\"x\": )"),
    EXAMPLE(NAMED, "[TOOL_CALLS]f[ARGS]no", "C([TOOL_CALLS]f[ARGS]no)"),
    EXAMPLE(GRANITE,
            "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"x\": [1]}}, {\"name\": \"g\", "
            "\"arguments\": {}}]\n",
            "[f]({\"x\": [1]})[g]({})"),
    EXAMPLE(GRANITE,
            "so\n\xff<|tool_call|> [ {\"arguments\": {}} ] \xff<|tool_call|>[{\"name\":\"f\"}]",
            "C(so\n [ {\"arguments\": {}} ])[f]({})", .special = true),
    EXAMPLE(GRANITE, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"x\": \"a",
            "[f]({\"x\": \"a)"),
    EXAMPLE(GRANITE, "<|tool_call|>{\"name\": \"f\"}", "C(<|tool_call|>{\"name\": \"f\"})"),
    EXAMPLE(GRANITE, "<|tool_call|>no [{\"name\": \"f\"}]",
            "C(<|tool_call|>no [{\"name\": \"f\"}])"),
    EXAMPLE(GRANITE, "\xff<|tool_call|>[\xff<|tool_call|>[{\"name\": \"f\"}\n] so",
            "C([)[f]({})C( so)", .special = true),
    EXAMPLE(GRANITE, "<|tool_call|>[]", "C(<|tool_call|>[])"),
    EXAMPLE(PHI, "functools[{\"name\": \"f\", \"arguments\": {\"x\": 1}}] so",
            "[f]({\"x\": 1})C( so)"),
    EXAMPLE(PHI, "of functools, and functools[1]", "C(of functools, and functools[1])"),
    /* Arguments that are texts between marks become JSON, by their types. */
    EXAMPLE(CODER, "so\n" FUNCTION("f", PARAMETER("s", "a\n\"b\"\n")) "\n" FUNCTION("g", ""),
            "C(so)[f]({\"s\": \"a\\n\\\"b\\\"\\n\"})[g]({})", .types = TYPES),
    EXAMPLE(CODER, FUNCTION("f", PARAMETER("n", "12") PARAMETER("b", "True") PARAMETER("x", "7")),
            "[f]({\"n\": 12, \"b\": true, \"x\": \"7\"})", .types = TYPES),
    EXAMPLE(CODER,
            FUNCTION("f", PARAMETER("o", "null") PARAMETER("o", "none") PARAMETER("s", "null")),
            "[f]({\"o\": null, \"o\": \"none\", \"s\": \"null\"})", .types = TYPES),
    EXAMPLE(CODER, FUNCTION("f", PARAMETER("l", "[1, {\"a\": \"</b>\"}]") PARAMETER("l", "[1,")),
            "[f]({\"l\": [1, {\"a\": \"</b>\"}], \"l\": \"[1,\"})", .types = TYPES),
    EXAMPLE(CODER, FUNCTION("f", PARAMETER("s", "<parameter=x></tool_call></para\x01")),
            "[f]({\"s\": \"<parameter=x></tool_call></para\\u0001\"})", .types = TYPES),
    EXAMPLE(CODER, FUNCTION("f", PARAMETER("n", "many") "<parameter=s>\n</parameter>"),
            "[f]({\"n\": \"many\", \"s\": \"\"})", .types = TYPES),
    EXAMPLE(CODER, FUNCTION("f", PARAMETER("a", "7") PARAMETER("a", "\"7\"") PARAMETER("a", "")),
            "[f]({\"a\": 7, \"a\": \"\\\"7\\\"\", \"a\": \"\"})", .types = TYPES),
    EXAMPLE(CODER, FUNCTION("g", "") "and", "C(" FUNCTION("g", "") "and)", .names = "f\0"),
    EXAMPLE(CODER, FUNCTION("f", "") " and", "[f]({})C( and)", .names = "f\0"),
    EXAMPLE(CODER, "<tool_call>\n<function=f>\n<parameter=s>\nab", "[f]({\"s\": \"ab)",
            .types = TYPES),
    EXAMPLE(CODER, "<tool_call>\n<function=f>\n<parameter=n>\n12", "[f]({\"n\": )", .types = TYPES),
    EXAMPLE(CODER, "<tool_call>\n<function=f", "C(<tool_call>\n<function=f)"),
    EXAMPLE(CODER, "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
            "C(<tool_call>\n{\"name\": \"f\"}\n</tool_call>)"),
    EXAMPLE(CODER, "<tool_call><function=f>no</function></tool_call>b", "[f]({no</function>)C(b)"),
    EXAMPLE(CODER, "<tool_call>\n<tool_call>\n<function=f>\n<tool_call><function=g>\n</function>",
            "C(<tool_call>\n)[f]({)[g]({})"),
    EXAMPLE(CODER,
            "\xff<tool_call>\n\xff<function=f>\n\xff<parameter=s>\n<tool_call>a\n\xff</parameter>\n"
            "\xff</function>\n\xff</tool_call>\n",
            "[f]({\"s\": \"<tool_call>a\"})", .special = true, .types = TYPES),
    EXAMPLE(GLM, "<tool_call>f\n" ARGUMENT("s", " a\n") ARGUMENT("n", " 7 ") "</tool_call>",
            "[f]({\"s\": \" a\\n\", \"n\": 7})", .types = TYPES),
    EXAMPLE(GLM, "\n<tool_call>f" ARGUMENT("x", "7") ARGUMENT("y", "w") "</tool_call> so",
            "[f]({\"x\": 7, \"y\": \"w\"})C( so)", .types = TYPES),
    EXAMPLE(GLM, "a\n<tool_call>g</tool_call>\n<tool_call>f\n</tool_call>", "C(a)[g]({})[f]({})"),
    EXAMPLE(GLM, "<tool_call>h\n" ARGUMENT("s", "a") "</tool_call>",
            "C(<tool_call>h\n" ARGUMENT("s", "a") "</tool_call>)", .names = "f\0g\0"),
    EXAMPLE(GLM, "<tool_call>f\n<arg_key>s</arg_key>\nno<arg_value>a</arg_value></tool_call>b",
            "[f]({no<arg_value>a</arg_value>)C(b)", .types = TYPES),
    EXAMPLE(GLM, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a</arg", "[f]({\"s\": \"a</arg)",
            .types = TYPES),
    EXAMPLE(GLM,
            "\xff<tool_call>f\n\xff<arg_key>s\xff</arg_key>\n\xff<arg_value></arg_value>\xff</"
            "arg_value>"
            "\n\xff<tool_call>g\n\xff</tool_call>",
            "[f]({\"s\": \"</arg_value>\")[g]({})", .special = true, .types = TYPES),
    EXAMPLE(DEEPSEEK,
            "so" CALLS CALL "function" SEP "f\n```json\n{\"x\": \"<｜tool\"}\n```" CALL_END
            "\n" CALL "function" SEP "g\n```json\n{}\n```" CALL_END CALLS_END,
            "C(so)[f]({\"x\": \"<｜tool\"})[g]({})"),
    EXAMPLE(DEEPSEEK31,
            CALLS CALL "f" SEP "{\"x\": 1}" CALL_END CALL "g" SEP "{}" CALL_END CALLS_END "b",
            "[f]({\"x\": 1})[g]({})C(b)"),
    EXAMPLE(DEEPSEEK,
            "\xff" CALLS "\xff" CALL "function\xff" SEP "f\n```json\n{\"x\": \"" CALL_END
            "\"}\n```\xff" CALL_END "\xff" CALLS_END,
            "[f]({\"x\": \"" CALL_END "\"})", .special = true),
    EXAMPLE(DEEPSEEK31, CALLS CALL "f" SEP "{\"x\": [", "[f]({\"x\": [)"),
    EXAMPLE(DEEPSEEK31, CALLS CALL "h" SEP "{}", "C(" CALLS CALL "h" SEP "{})", .names = "f\0"),
    EXAMPLE(DEEPSEEK, CALLS "no" CALL, "C(" CALLS "no" CALL ")"),
    EXAMPLE(DEEPSEEK31, CALLS CALL "f" SEP "{\"x\" 1}" CALL_END CALLS_END "b",
            "[f]({\"x\" 1}" CALL_END ")C(b)"),
    EXAMPLE(DEEPSEEK31, CALLS CALL "f" SEP "{" CALL_END CALLS_END, "[f]({" CALL_END ")"),
    EXAMPLE(DEEPSEEK31, CALLS CALL "f" SEP "{}" CALL_END CALL "g" SEP "no",
            "[f]({})C(" CALL "g" SEP "no)"),
    EXAMPLE(THINKS, "<think>\nso it is\n</think>\n\nyes", "R(so it is)C(yes)"),
    EXAMPLE(THINKS, "\nso it\nis\n</think>\n\nyes\n", "R(so it\nis)C(yes\n)", .thinks = true),
    EXAMPLE(THINKS, "so </thin", "R(so </thin)", .thinks = true),
    EXAMPLE(THINKS, "a <think> b</think>", "C(a <think> b</think>)"),
    EXAMPLE(THINKS, "<think>\n\n</think>\n\n", ""),
    EXAMPLE(THINKS, "\xff<think>a</think>\xff</think>b", "R(a</think>)C(b)", .special = true),
    EXAMPLE(HERMES THINKS,
            "<think>\na <tool_call> {\n</think>\n\n<tool_call>\n{\"name\": \"f\", "
            "\"arguments\": {}}\n</tool_call>",
            "R(a <tool_call> {)[f]({})"),
    EXAMPLE(LLAMA THINKS, "<think>a</think>\n{\"name\":\"f\",\"parameters\":{}}", "R(a)[f]({})"),
    /* Messages with headers: whom a call is for stands before the channel or behind it. */
    EXAMPLE(HARMONY,
            CHANNEL "analysis" MESSAGE "so it is\n" NEXT CHANNEL "final" MESSAGE " yes <|end|>",
            "R(so it is\n)C( yes <|end|>)", .special = true),
    EXAMPLE(HARMONY,
            CHANNEL "analysis" MESSAGE "hm" NEXT CHANNEL
                    "commentary to=functions.f \xff<|constrain|>json" MESSAGE "{\"x\": 1}",
            "R(hm)[f]({\"x\": 1})", .special = true),
    EXAMPLE(HARMONY,
            CHANNEL "analysis" MESSAGE "hm" NEXT " to=functions.f" CHANNEL "commentary json" MESSAGE
                    "{\"x\": ",
            "R(hm)[f]({\"x\": )", .special = true),
    EXAMPLE(HARMONY,
            " to=functions.g" CHANNEL "commentary" MESSAGE "{}" NEXT CHANNEL
            "commentary to=functions.f" MESSAGE "{}",
            "[g]({})[f]({})", .special = true),
    EXAMPLE(HARMONY,
            CHANNEL "commentary" MESSAGE "I look." NEXT CHANNEL "commentary to=functions.f" MESSAGE
                    "{}",
            "C(I look.)[f]({})", .special = true),
    EXAMPLE(HARMONY, CHANNEL "commentary to=functions.f" MESSAGE "{}", "C({})", .special = true,
            .names = "g\0"),
    EXAMPLE(HARMONY, CHANNEL "commentary to=functions.f" MESSAGE "{}", "C({})", .special = true,
            .no_tools = true),
    EXAMPLE(HARMONY, CHANNEL "analysis to=python code" MESSAGE "1 + 1", "R(1 + 1)",
            .special = true),
    EXAMPLE(HARMONY, "then" NEXT CHANNEL "final" MESSAGE "x", "R(then)C(x)", .special = true,
            .thinks = true),
    EXAMPLE(HARMONY, " to no one", "C( to no one)", .special = true),
    EXAMPLE(HARMONY, "a\xff<|message|>b", "C(ab)", .special = true),
    EXAMPLE(HARMONY, CHANNEL "analysis" MESSAGE "a" CHANNEL "final" MESSAGE "b", "R(a)C(b)",
            .special = true),
    EXAMPLE(HARMONY, CHANNEL "final\xff<|constrain|>json" MESSAGE "[1, 2]", "C([1, 2])",
            .special = true),
    EXAMPLE(HARMONY, CHANNEL "analysis" MESSAGE "a\xff<|end|>", "R(a)", .special = true),
    EXAMPLE(HARMONY,
            CHANNEL "final" MESSAGE "a\xff<|end|> to=functions.f"
                    "\xff<|start|>assistant" CHANNEL "final" MESSAGE "b",
            "C(ab)", .special = true),
    EXAMPLE(HARMONY,
            "<|channel|>analysis<|message|>a <| b<|end|><|start|>assistant<|channel|>final"
            "<|message|>c <|mess",
            "R(a <| b)C(c <|mess)"),
};

/* ---- cuts --------------------------------------------------------------------------------------
 */

static size_t at_each_byte(void *context)
{
    (void)context;
    return 1;
}

struct two {
    size_t first, second;
    int taken;
};

static size_t at_two_places(void *context)
{
    struct two *two = context;
    return two->taken++ == 0 ? two->first : two->taken == 2 ? two->second : SIZE_MAX;
}

START_TEST(an_answer_says_what_it_says_however_it_is_cut)
{
    const struct example *example = &examples[_i];
    struct answer_script script;
    size_t length = strlen(example->text);
    answer_script_make(&script, example->chat_template, example->special);
    script.thinks = example->thinks;
    script.tools = !example->no_tools;
    script.names = example->names;
    script.types = example->types;
    char *told = answer_script_read(&script, example->text, length, NULL, NULL);
    ck_assert_str_eq(told, example->events);
    free(told);
    told = answer_script_read(&script, example->text, length, at_each_byte, NULL);
    ck_assert_str_eq(told, example->events);
    free(told);
    for (size_t first = 1; first < length; first++)
        for (size_t second = 1; first + second < length; second++) {
            struct two two = {first, second, 0};
            told = answer_script_read(&script, example->text, length, at_two_places, &two);
            ck_assert_msg(strcmp(told, example->events) == 0, "%s: cut at %zu and %zu: %s",
                          example->text, first, first + second, told);
            free(told);
        }
}
END_TEST

START_TEST(what_may_become_a_mark_is_none_where_a_special_token_follows)
{
    static const char text[] =
        CHANNEL "analysis<|message|>a <|mess" NEXT CHANNEL "final<|message|>b";
    struct answer_script script;
    answer_script_make(&script, HARMONY, true);
    struct answer_mark *mark = &script.form.marks[ANSWER_MARK_SECOND]; /* this one is a text */
    memmove(mark->text, mark->text + 1, --mark->length);
    char *told = answer_script_read(&script, text, sizeof(text) - 1, NULL, NULL);
    ck_assert_str_eq(told, "R(a <|mess)C(b)");
    free(told);
}
END_TEST

/* ---- drawn -------------------------------------------------------------------------------------
 */

static const char *const pieces[] = {"<tool_call>",
                                     "</tool_call>",
                                     "<think>",
                                     "</think>",
                                     "[TOOL_CALLS]",
                                     "[ARGS]",
                                     "[CALL_ID]",
                                     "<|tool_call|>",
                                     "\xff<|tool_call|>",
                                     "functools",
                                     "functools[{\"name\": \"f\"",
                                     "\xff<tool_call>",
                                     "\xff</tool_call>",
                                     "\xff<think>",
                                     "\xff</think>",
                                     "\xff[TOOL_CALLS]",
                                     "\xff[ARGS]",
                                     "\xff[CALL_ID]",
                                     "<function=",
                                     "f>\n",
                                     "<parameter=",
                                     "</parameter>",
                                     "</function>",
                                     "\xff</parameter>",
                                     "\xff<function=",
                                     "<arg_key>",
                                     "</arg_key>",
                                     "<arg_value>",
                                     "</arg_value>",
                                     "\xff<arg_key>",
                                     "\xff</arg_value>",
                                     CALLS,
                                     CALL,
                                     SEP,
                                     CALL_END,
                                     CALLS_END,
                                     "\xff" CALLS,
                                     "\xff" CALL,
                                     "```json\n",
                                     "<|python_tag|>",
                                     "<|channel|>",
                                     "<|message|>",
                                     "\xff<|channel|>",
                                     "\xff<|message|>",
                                     "\xff<|start|>",
                                     "\xff<|end|>",
                                     "\xff<|constrain|>",
                                     "analysis",
                                     " to=functions.f",
                                     "\xff<|python_tag|>",
                                     "{\"name\": \"f\"",
                                     ", \"arguments\": ",
                                     ", \"parameters\": ",
                                     "{\"x\": 1}",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     "\"",
                                     "\\",
                                     ", ",
                                     "; ",
                                     ":",
                                     "\n",
                                     " ",
                                     "f",
                                     "text",
                                     "7",
                                     "\xc3\xa4"};

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t at_random(void *context)
{
    return 1 + draw(context) % 9;
}

static size_t draw_text(uint64_t *state, char *text)
{
    size_t length = 0;
    for (uint64_t count = draw(state) % 24; count > 0; count--) {
        const char *piece = pieces[draw(state) % (sizeof(pieces) / sizeof(pieces[0]))];
        memcpy(text + length, piece, strlen(piece));
        length += strlen(piece);
    }
    return length;
}

START_TEST(drawn_answers_say_the_same_however_they_are_cut)
{
    static const char *const templates[] = {
        HERMES THINKS, LLAMA THINKS,    MISTRAL THINKS, NAMED THINKS, GRANITE THINKS,
        PHI THINKS,    HERMES,          LLAMA,          HARMONY,      CODER THINKS,
        GLM THINKS,    DEEPSEEK THINKS, CODER,          GLM,          DEEPSEEK31};
    const size_t count = sizeof(templates) / sizeof(templates[0]);
    uint64_t state = 1;
    char text[24 * 32];
    for (unsigned round = 0; round < 20000; round++) {
        struct answer_script script;
        uint64_t kind = draw(&state), cuts = draw(&state) | 1;
        answer_script_make(&script, templates[(kind >> 8) % count], kind >> 3 & 1);
        script.thinks = script.form.reasoning && (kind >> 4 & 1);
        script.names = kind >> 5 & 1 ? "f\0" : NULL;
        script.types = kind >> 6 & 1 ? "f\0f>\0\x08\0" : NULL;
        size_t length = draw_text(&state, text);
        char *whole = answer_script_read(&script, text, length, NULL, NULL);
        char *cut = answer_script_read(&script, text, length, at_random, &cuts);
        ck_assert_msg(strcmp(whole, cut) == 0, "%.*s\n%s\n%s", (int)length, text, whole, cut);
        ck_assert_msg(!strchr(whole, '\xff'), "%.*s: %s", (int)length, text, whole);
        free(whole);
        free(cut);
    }
}
END_TEST

/* ---- templates ---------------------------------------------------------------------------------
 */

START_TEST(a_template_says_how_calls_are_written)
{
    static const struct {
        const char *chat_template, *format;
    } cases[] = {{HARMONY, "harmony"},
                 {HERMES, "hermes"},
                 {LLAMA, "llama3"},
                 {MISTRAL, "mistral"},
                 {NAMED, "mistral, named"},
                 {GRANITE, "granite"},
                 {PHI, "phi4-mini"},
                 {CODER, "qwen3-coder"},
                 {GLM, "glm4.5"},
                 {DEEPSEEK, "deepseek"},
                 {DEEPSEEK31, "deepseek, 3.1"},
                 {CALLS "{{ message.tool_calls }}", NULL}, /* tells the model of no tools */
                 {"{{ messages }}", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct call_format *format = call_format_find(cases[i].chat_template);
        ck_assert_int_eq(format != NULL, cases[i].format != NULL);
        if (format)
            ck_assert_str_eq(format->name, cases[i].format);
    }
}
END_TEST

START_TEST(a_prompt_may_have_begun_what_is_thought)
{
    struct answer_form form;
    answer_form_find(&form, THINKS, NULL);
    ck_assert(answer_form_thinks(&form, "a<think>\n", 9));
    ck_assert(!answer_form_thinks(&form, "<think>\n\n</think>\n\n", 19));
    ck_assert(!answer_form_thinks(&form, "", 0));
    answer_form_find(&form, HARMONY, NULL);
    ck_assert(answer_form_thinks(&form, "<|start|>assistant<|channel|>analysis<|message|>", 48));
    ck_assert(!answer_form_thinks(&form, "<|start|>assistant", 18));
    answer_form_find(&form, HERMES, NULL);
    ck_assert(!answer_form_thinks(&form, "a<think>\n", 9));
}
END_TEST

Suite *answer_reader_suite(void)
{
    Suite *suite = suite_create("reader");
    TCase *tests = tcase_create("reader");
    tcase_add_loop_test(tests, an_answer_says_what_it_says_however_it_is_cut, 0,
                        sizeof(examples) / sizeof(examples[0]));
    tcase_add_test(tests, what_may_become_a_mark_is_none_where_a_special_token_follows);
    tcase_add_test(tests, drawn_answers_say_the_same_however_they_are_cut);
    tcase_add_test(tests, a_template_says_how_calls_are_written);
    tcase_add_test(tests, a_prompt_may_have_begun_what_is_thought);
    tcase_set_timeout(tests, 120);
    suite_add_tcase(suite, tests);
    return suite;
}
