/* An option file that is accepted is printed as one that reads back to the same options; and what
 * is refused leaves a text with file and line. */
#include <string.h>

#include "daemon/base/model_name.h"
#include "daemon/base/option_table.h"
#include "daemon/base/web_access.h"
#include "tests/fuzz/fuzz.h"

static struct options *make(void)
{
    struct options *options;
    struct error error;
    FUZZ_CHECK(options_defaults(&options, &error) == 0);
    return options;
}

static void check_printed(const struct options *options)
{
    struct error error;
    struct options *again = make();
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    FUZZ_CHECK(file);
    options_print_config(options, file);
    FUZZ_CHECK(fclose(file) == 0);
    FUZZ_CHECK(options_read_text(again, "printed", text, length, &error) == 0);
    for (uint32_t i = 0; i < option_count; i++)
        FUZZ_CHECK(option_table[i].secret || option_equal(options, again, &option_table[i]));
    FUZZ_CHECK(options_reloadable(options, again, &error) == 0);
    free(text);
    options_free(again);
}

/* Lists that are read again for each request: what is right there is found. */
static void check_lists(const struct options *options)
{
    struct error error;
    struct option_word word;
    struct model_names names;
    char text[WEB_ORIGIN_MAX + 1];
    if (model_names_read(&names, options->served_model_name, "own", &error) == 0)
        FUZZ_CHECK(names.count > 0 && model_names_has(&names, names.names[names.count - 1]));
    if (web_access_check(options, &error))
        return;
    for (const char *list = options->cors_origins; option_next(&list, &word);) {
        FUZZ_CHECK(word.length < sizeof(text));
        snprintf(text, sizeof(text), "%.*s", (int)word.length, word.text);
        FUZZ_CHECK(web_access_origin(options, text) && !strchr(text, '*'));
    }
    for (const char *list = options->http_names; option_next(&list, &word);) {
        FUZZ_CHECK(word.length < sizeof(text));
        snprintf(text, sizeof(text), "%.*s", (int)word.length, word.text);
        FUZZ_CHECK(web_access_name(options, text) && !web_access_name(options, ""));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    struct options *options = make();
    int rc = options_read_text(options, "fuzz", (const char *)data, size, &error);
    if (rc) {
        FUZZ_CHECK(rc == -ERR_BAD_CONFIG);
        FUZZ_CHECK(strncmp(error.text, "fuzz:", 5) == 0);
    } else {
        /* Relations between options may not hold; that is an answer, too. */
        rc = options_check(options, &error);
        FUZZ_CHECK(rc == 0 || rc == -ERR_BAD_CONFIG);
        check_lists(options);
        check_printed(options);
    }
    options_free(options);
    return 0;
}
