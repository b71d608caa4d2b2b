/* Arithmetic, as far as templates go. */
#include <math.h>
#include <string.h>

#include "daemon/text/template/chat_value.h"

#define REPEAT_MAX 1000000
#define REST_BYTES 512 /* of going through text, is what fmod() takes with far exponents */

struct chat_value chat_concat(struct chat_render *render, struct chat_value a, struct chat_value b)
{
    if (render->code || !chat_step(render, b.length))
        return chat_undefined(NULL);
    if (b.length == 0)
        return a;
    if ((uint64_t)a.length + b.length > render->limits.output_max)
        return chat_fail(render, ERR_TOO_LARGE, "a text of more than %zu bytes",
                         render->limits.output_max);
    /* What was made last grows in place, so that a text put together in a loop is not copied each
     * time. */
    if (a.length > 0 && chat_arena_extend(&render->arena, a.text, a.length, b.length)) {
        memcpy((char *)a.text + a.length, b.text, b.length);
        return chat_text(a.text, a.length + b.length);
    }
    char *text = chat_arena_text(&render->arena, a.length + b.length);
    if (!text || !chat_step(render, a.length))
        return chat_fail(render, ERR_TOO_LARGE, "more than %zu bytes of memory",
                         render->limits.memory_max);
    if (a.length > 0)
        memcpy(text, a.text, a.length);
    memcpy(text + a.length, b.text, b.length);
    return chat_text(text, a.length + b.length);
}

static struct chat_value wrong(struct chat_render *render, char op, struct chat_value a,
                               struct chat_value b)
{
    const struct chat_value *undefined = a.kind == CHAT_UNDEFINED   ? &a
                                         : b.kind == CHAT_UNDEFINED ? &b
                                                                    : NULL;
    if (undefined)
        return chat_fail(render, ERR_BAD_VALUE, "%s is undefined",
                         undefined->name ? undefined->name : "a value");
    return chat_fail(render, ERR_BAD_VALUE, "'%s' does not go with %s and %s",
                     op == 'd'   ? "//"
                     : op == 'p' ? "**"
                                 : (char[]){op, 0},
                     chat_kind_name(a), chat_kind_name(b));
}

static struct chat_value join_lists(struct chat_render *render, struct chat_value a,
                                    struct chat_value b)
{
    size_t count = (size_t)a.length + b.length;
    struct chat_value *items = chat_items(render, count);
    if (!items)
        return chat_undefined(NULL);
    for (uint32_t i = 0; i < a.length; i++)
        items[i] = a.items[i];
    for (uint32_t i = 0; i < b.length; i++)
        items[a.length + i] = b.items[i];
    struct chat_value result = chat_list(items, count);
    result.kind = a.kind;
    return result;
}

static struct chat_value repeat(struct chat_render *render, struct chat_value value, int64_t times)
{
    struct buffer joined = {0};
    if (value.kind != CHAT_STRING || times > REPEAT_MAX)
        return chat_fail(render, ERR_UNSUPPORTED, "repeating this is not supported");
    for (int64_t i = 0; i < times && !render->code; i++)
        chat_put(render, &joined, value.text, value.length);
    return chat_take(render, &joined);
}

static struct chat_value of_floats(struct chat_render *render, char op, double a, double b)
{
    if (b == 0 && (op == '/' || op == 'd' || op == '%'))
        return chat_fail(render, ERR_BAD_VALUE, "division by zero");
    switch (op) {
    case '+':
        return chat_float(a + b);
    case '-':
        return chat_float(a - b);
    case '*':
        return chat_float(a * b);
    case '/':
        return chat_float(a / b);
    case 'd':
        return chat_float(floor(a / b));
    case '%': {
        if (!chat_step(render, REST_BYTES))
            return chat_undefined(NULL);
        double rest = fmod(a, b);
        return chat_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default:
        return chat_float(pow(a, b));
    }
}

static struct chat_value power(struct chat_render *render, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0)
        return chat_float(pow((double)base, (double)exponent));
    if (base == 0 || base == 1)
        return chat_int(exponent == 0 ? 1 : base);
    for (; exponent > 0; exponent--)
        if (!chat_step(render, 0) || __builtin_mul_overflow(result, base, &result))
            return chat_fail(render, ERR_UNSUPPORTED, "an integer beyond 64 bits");
    return chat_int(result);
}

static struct chat_value of_ints(struct chat_render *render, char op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool overflow = false;
    if (b == 0 && (op == 'd' || op == '%'))
        return chat_fail(render, ERR_BAD_VALUE, "division by zero");
    switch (op) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case 'd':
        overflow = a == INT64_MIN && b == -1;
        result = overflow ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case '%':
        result = b == -1 ? 0 : a % b;
        result += result != 0 && (result < 0) != (b < 0) ? b : 0;
        break;
    default:
        return power(render, a, b);
    }
    return overflow ? chat_fail(render, ERR_UNSUPPORTED, "an integer beyond 64 bits")
                    : chat_int(result);
}

struct chat_value chat_binary(struct chat_render *render, char op, struct chat_value a,
                              struct chat_value b)
{
    if (op == '+' && a.kind == CHAT_STRING && b.kind == CHAT_STRING)
        return chat_concat(render, a, b);
    if (op == '+' && chat_is_listed(a) && a.kind == b.kind)
        return join_lists(render, a, b);
    if (op == '*' && a.kind == CHAT_STRING && b.kind == CHAT_INT)
        return repeat(render, a, b.integer);
    if (op == '*' && a.kind == CHAT_INT && b.kind == CHAT_STRING)
        return repeat(render, b, a.integer);
    if (!chat_is_number(a) || !chat_is_number(b))
        return wrong(render, op, a, b);
    if (a.kind == CHAT_FLOAT || b.kind == CHAT_FLOAT || op == '/')
        return of_floats(render, op, chat_as_float(a), chat_as_float(b));
    return of_ints(render, op, chat_as_int(a), chat_as_int(b));
}
