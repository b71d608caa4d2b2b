#include "client/job/token_names.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_MS 5000
#define REPLACEMENT "\xef\xbf\xbd" /* what stands for bytes that are no text */

static const struct token_name unknown;

/* A copy of the text of tokens; NULL: there is none. */
static char *text_of(sluice_client *client, const int32_t *tokens, size_t count, bool special,
                     size_t *ret_length)
{
    const char *text;
    if (sluice_detokenize(client, tokens, count, special, WAIT_MS, &text, ret_length))
        return NULL;
    char *copy = malloc(*ret_length + 1);
    if (copy)
        memcpy(copy, text, *ret_length + 1);
    return copy;
}

/* Behind another token: at the beginning of a text some decoders leave a space out. */
static void ask(struct token_name *name, sluice_client *client, int32_t token)
{
    const int32_t twice[] = {token, token};
    size_t alone_length, both_length, shown_length;
    char *alone = text_of(client, twice, 1, true, &alone_length);
    char *both = text_of(client, twice, 2, true, &both_length);
    char *shown = text_of(client, twice, 2, false, &shown_length);
    bool whole = alone && both && shown && !strstr(alone, REPLACEMENT) &&
                 both_length >= alone_length && memcmp(both, alone, alone_length) == 0;
    if (whole) {
        name->length = both_length - alone_length;
        name->text = malloc(name->length + 1);
        if (name->text)
            memcpy(name->text, both + alone_length, name->length + 1);
        name->special = shown_length == 0 && both_length > 0;
    }
    name->asked = true;
    free(alone);
    free(both);
    free(shown);
}

static bool make_room(struct token_names *names, size_t count)
{
    struct token_name *list = realloc(names->list, count * sizeof(*list));
    if (!list)
        return false;
    memset(list + names->count, 0, (count - names->count) * sizeof(*list));
    names->list = list;
    names->count = count;
    return true;
}

void token_names_ask(struct token_names *names, sluice_client *client, const int32_t *tokens,
                     size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)tokens[i];
        if (tokens[i] < 0 || (at >= names->count && !make_room(names, at + at / 2 + 1)))
            continue;
        if (!names->list[at].asked)
            ask(&names->list[at], client, tokens[i]);
    }
}

const struct token_name *token_names_at(const struct token_names *names, int32_t token)
{
    return token >= 0 && (size_t)token < names->count ? &names->list[token] : &unknown;
}

void token_names_free(struct token_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i].text);
    free(names->list);
    *names = (struct token_names){0};
}
