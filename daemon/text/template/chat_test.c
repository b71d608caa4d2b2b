#include <string.h>

#include "daemon/text/template/chat_words.h"

static int64_t whole(struct chat_render *render, struct chat_value value)
{
    if (value.kind == CHAT_INT || value.kind == CHAT_BOOL)
        return chat_as_int(value);
    chat_fail(render, ERR_BAD_VALUE, "an integer is needed, not %s", chat_kind_name(value));
    return 1;
}

static bool divides(struct chat_render *render, struct chat_value value, struct chat_value by)
{
    int64_t divisor = whole(render, by);
    if (divisor == 0)
        chat_fail(render, ERR_BAD_VALUE, "division by zero");
    return !render->code && (divisor == -1 || whole(render, value) % divisor == 0);
}

static bool in_case(struct chat_render *render, struct chat_value value, enum chat_case which)
{
    if (value.kind != CHAT_STRING)
        return false;
    struct chat_value same = chat_to_case(render, value, which);
    struct chat_value other =
        chat_to_case(render, value, which == CASE_UPPER ? CASE_LOWER : CASE_UPPER);
    return chat_equal(render, same, value) && !chat_equal(render, other, value);
}

bool chat_call_test(struct chat_render *render, enum chat_test test, struct chat_value value,
                    const struct chat_arguments *arguments)
{
    struct chat_value other = chat_argument(arguments, 0, "other");
    enum chat_kind kind = value.kind;
    if (!chat_step(render, 0))
        return false;
    switch (test) {
    case CHAT_TEST_boolean:
        return kind == CHAT_BOOL;
    case CHAT_TEST_defined:
        return kind != CHAT_UNDEFINED;
    case CHAT_TEST_undefined:
        return kind == CHAT_UNDEFINED;
    case CHAT_TEST_none:
        return kind == CHAT_NONE;
    case CHAT_TEST_true:
        return kind == CHAT_BOOL && value.truth;
    case CHAT_TEST_false:
        return kind == CHAT_BOOL && !value.truth;
    case CHAT_TEST_integer:
        return kind == CHAT_INT;
    case CHAT_TEST_float:
        return kind == CHAT_FLOAT;
    case CHAT_TEST_number:
        return chat_is_number(value);
    case CHAT_TEST_string:
        return kind == CHAT_STRING;
    case CHAT_TEST_mapping:
        return kind == CHAT_DICT;
    case CHAT_TEST_sequence:
    case CHAT_TEST_iterable:
        /* To Jinja an undefined value is both, and empty. */
        return kind == CHAT_STRING || chat_is_listed(value) || kind == CHAT_DICT ||
               kind == CHAT_UNDEFINED || (kind == CHAT_LOOP && test == CHAT_TEST_iterable);
    case CHAT_TEST_eq:
    case CHAT_TEST_equalto:
        return chat_equal(render, value, other);
    case CHAT_TEST_ne:
        return !chat_equal(render, value, other);
    case CHAT_TEST_lt:
    case CHAT_TEST_lessthan:
        return chat_order(render, value, other) < 0;
    case CHAT_TEST_le:
        return chat_order(render, value, other) <= 0;
    case CHAT_TEST_gt:
    case CHAT_TEST_greaterthan:
        return chat_order(render, value, other) > 0;
    case CHAT_TEST_ge:
        return chat_order(render, value, other) >= 0;
    case CHAT_TEST_in:
        return chat_contains(render, chat_argument(arguments, 0, "seq"), value);
    case CHAT_TEST_sameas:
        return kind == other.kind && chat_equal(render, value, other);
    case CHAT_TEST_divisibleby:
        return divides(render, value, chat_argument(arguments, 0, "num"));
    case CHAT_TEST_even:
        return whole(render, value) % 2 == 0;
    case CHAT_TEST_odd:
        return whole(render, value) % 2 != 0;
    case CHAT_TEST_lower:
        return in_case(render, value, CASE_LOWER);
    case CHAT_TEST_upper:
        return in_case(render, value, CASE_UPPER);
    case CHAT_TESTS:
        break;
    }
    return false;
}
