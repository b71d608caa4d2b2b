#include "daemon/base/web_access.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "daemon/base/api_key.h"
#include "daemon/base/option.h"

static bool word_is(struct option_word word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.text, text, word.length) == 0;
}

/* ---- names -------------------------------------------------------------------------------------
 */

static size_t name_length(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length && (isalnum((unsigned char)text[at]) || strchr("-._", text[at])))
        at++;
    return at;
}

static int check_name(struct option_word word, struct error *error)
{
    bool name = word.length > 0 && word.length <= WEB_NAME_MAX &&
                name_length(word.text, word.length) == word.length;
    return name ? 0
                : error_set(error, ERR_BAD_CONFIG,
                            "http-names: \"%.*s\" is no name of a host (without a port, and "
                            "without *)",
                            (int)(word.length < 64 ? word.length : 64), word.text);
}

bool web_access_name(const struct options *options, const char *name)
{
    const char *list = options->http_names;
    struct option_word word;
    size_t length = strlen(name);
    while (option_next(&list, &word))
        if (word.length == length && strncasecmp(word.text, name, length) == 0)
            return true;
    return false;
}

/* ---- origins -----------------------------------------------------------------------------------
 */

/* What is wrong with it: it must stand there exactly as browsers send it. NULL: nothing. */
static const char *origin_fault(struct option_word word)
{
    const char *text = word.text;
    bool secure = word.length > 8 && memcmp(text, "https://", 8) == 0;
    size_t at = secure ? 8 : 7;
    if (memchr(text, '*', word.length))
        return "no * : each origin is written out";
    if (!secure && (word.length <= 7 || memcmp(text, "http://", 7) != 0))
        return "http://HOST[:PORT] or https://HOST[:PORT] is expected";
    if (word.length > WEB_ORIGIN_MAX)
        return "too long";
    for (size_t i = 0; i < word.length; i++)
        if (isupper((unsigned char)text[i]))
            return "browsers write it in small letters";
    size_t host = text[at] == '[' ? strspn(text + at + 1, "0123456789abcdef:.") + 2
                                  : name_length(text + at, word.length - at);
    if (host == 0 || at + host > word.length || (text[at] == '[' && text[at + host - 1] != ']'))
        return "a host is expected";
    at += host;
    if (at == word.length)
        return NULL;
    size_t digits = strspn(text + at + 1, "0123456789");
    if (text[at] != ':' || digits == 0 || digits > 5 || at + 1 + digits != word.length)
        return "nothing but a port may follow the host, no path and no /";
    const struct option_word port = {text + at + 1, digits};
    return word_is(port, secure ? "443" : "80") ? "browsers leave this port away" : NULL;
}

static int check_origin(struct option_word word, struct error *error)
{
    const char *fault = origin_fault(word);
    return fault ? error_set(error, ERR_BAD_CONFIG, "cors-origins: \"%.*s\": %s",
                             (int)(word.length < 64 ? word.length : 64), word.text, fault)
                 : 0;
}

bool web_access_origin(const struct options *options, const char *origin)
{
    const char *list = options->cors_origins;
    struct option_word word;
    while (option_next(&list, &word))
        if (word_is(word, origin))
            return true;
    return false;
}

/* ---- keys --------------------------------------------------------------------------------------
 */

static int check_key(struct option_word word, struct error *error)
{
    bool name = word.length > 0 && word.length <= KEY_NAME_MAX;
    return name ? 0
                : error_set(error, ERR_BAD_CONFIG,
                            "trusted-keys: a key's name has 1 to %d bytes, not %zu", KEY_NAME_MAX,
                            word.length);
}

bool web_access_trusts(const struct options *options, const char *key)
{
    const char *list = options->trusted_keys;
    struct option_word word;
    while (option_next(&list, &word))
        if (word_is(word, key))
            return true;
    return false;
}

/* ---- all ---------------------------------------------------------------------------------------
 */

int web_access_check(const struct options *options, struct error *error)
{
    const struct {
        const char *list;
        int (*check)(struct option_word word, struct error *error);
    } lists[] = {{options->http_names, check_name},
                 {options->cors_origins, check_origin},
                 {options->trusted_keys, check_key}};
    struct option_word word;
    int rc = 0;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (const char *list = lists[i].list; !rc && option_next(&list, &word);)
            rc = lists[i].check(word, error);
    if (!rc && options->cors_origins[0] && options->insecure_loopback)
        rc = error_set(error, ERR_BAD_CONFIG,
                       "cors-origins and insecure-loopback exclude each other: without a key "
                       "every page of these origins could call the API");
    if (!rc && options->trusted_keys[0] && !options->api_key_file[0])
        rc = error_set(error, ERR_BAD_CONFIG, "trusted-keys needs an api-key-file");
    return rc;
}
