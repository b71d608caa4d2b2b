/* What a rendering counts bounds what it does, whatever the template: programs are drawn from
 * seeds, rendered under small limits, and stopped in the middle of their work.
 *
 *     test_template_work [--seeds 1..10000] [--show SEED] [FILE...]
 *
 * A failure prints its program and its seed. Files are programs, too: those of the corpus of chat's
 * fuzz target, where what was found once is kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/text/template/chat_value.h"
#include "tests/sim/chance.h"
#include "tests/text/program.h"
#include "tests/text/work.h"

#define SEEDS 1000
#define FILE_MAX (64 << 10)
#define LAST_RESORT_S 240 /* should the counting itself fail */
#define MEMORY_MAX ((size_t)3 << 19)
#define OUTPUT_MAX ((size_t)128 << 10)
#define STEPS_MAX 150000

static struct {
    uint64_t seed;
    const char *file; /* NULL: of a seed */
    char program[FILE_MAX];
    uint64_t rendered, refused, limited, halted, work;
} suite;

static uint64_t reached[4][64]; /* calls of filters, tests, methods and functions */

static void fail(const char *what, uint64_t found, uint64_t allowed)
{
    unsigned long long seed = suite.seed;
    printf("%.*s\n%s: %llu, %llu allowed\nreplay: test_template_work ", PROGRAM_MAX, suite.program,
           what, (unsigned long long)found, (unsigned long long)allowed);
    if (suite.file)
        printf("%s\n", suite.file);
    else
        printf("--seeds %llu..%llu\n", seed, seed);
    fflush(stdout);
    _exit(EXIT_FAILURE);
}

static const struct work_bounds bounds = {
    .spare = 100000,
    .per_step = 80,
    .held_max = MEMORY_MAX + MEMORY_MAX / 8 + 3 * OUTPUT_MAX,
    .halt_max = 3000000,
    .over = fail,
};

/* ---- what is seen of the calls inside ----------------------------------------------------------
 */

struct chat_value __real_chat_from_json(struct chat_render *render, const json *value);
struct chat_value __wrap_chat_from_json(struct chat_render *render, const json *value);
struct chat_value __wrap_chat_from_json(struct chat_render *render, const json *value)
{
    work_steps(&render->steps);
    return __real_chat_from_json(render, value);
}

#define CALL(result, name, place, id, ...)                                                         \
    result __real_##name(struct chat_render *render, enum id which, __VA_ARGS__);                  \
    result __wrap_##name(struct chat_render *render, enum id which, __VA_ARGS__);                  \
    result __wrap_##name(struct chat_render *render, enum id which, __VA_ARGS__)                   \
    {                                                                                              \
        reached[place][which]++;                                                                   \
        return __real_##name(CALL_##place);                                                        \
    }
#define CALL_0 render, which, value, arguments
#define CALL_1 render, which, value, arguments
#define CALL_2 render, which, value, arguments
#define CALL_3 render, which, arguments
CALL(struct chat_value, chat_call_filter, 0, chat_filter, struct chat_value value,
     const struct chat_arguments *arguments)
CALL(bool, chat_call_test, 1, chat_test, struct chat_value value,
     const struct chat_arguments *arguments)
CALL(struct chat_value, chat_call_method, 2, chat_method, struct chat_value value,
     const struct chat_arguments *arguments)
CALL(struct chat_value, chat_call_function, 3, chat_function,
     const struct chat_arguments *arguments)

/* Each of the language's names was called: a name that is added is drawn, too. */
static bool all_reached(void)
{
    static const struct {
        const char *name;
        int kind;
    } names[] = {
#define FILTER(name) {#name, 0},
#include "daemon/text/template/chat_names.def"
#define TEST(name) {#name, 1},
#include "daemon/text/template/chat_names.def"
#define METHOD(name) {#name, 2},
#include "daemon/text/template/chat_names.def"
#define FUNCTION(name) {#name, 3},
#include "daemon/text/template/chat_names.def"
    };
    size_t first[4] = {0, CHAT_FILTERS, CHAT_FILTERS + CHAT_TESTS,
                       CHAT_FILTERS + CHAT_TESTS + CHAT_METHODS};
    bool all = true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (reached[names[i].kind][i - first[names[i].kind]] > 0)
            continue;
        printf("never called: %s\n", names[i].name);
        all = false;
    }
    return all;
}

/* ---- one program -------------------------------------------------------------------------------
 */

static int render(const struct chat_template *template, const json *given, uint64_t halt_at,
                  uint64_t *ret_work)
{
    struct halt halt = {0};
    const struct chat_limits limits = {
        .steps_max = STEPS_MAX, .memory_max = MEMORY_MAX, .output_max = OUTPUT_MAX, .halt = &halt};
    const struct chat_input input = {.messages = json_get(given, "messages"),
                                     .extra = json_get(given, "extra"),
                                     .bos_token = "<s>",
                                     .now = 1722000000};
    struct error error = {0};
    char *text = NULL;
    size_t length;
    work_begin(&bounds, &halt, halt_at);
    int code = chat_template_render(template, &input, &limits, &text, &length, &error);
    *ret_work = work_end();
    free(text);
    return code;
}

static void check(const json *given)
{
    struct chat_template *template;
    struct error error;
    uint64_t all, part, chance = suite.seed ^ 0x5eed;
    if (chat_template_load(suite.program, strlen(suite.program), &template, &error)) {
        suite.refused++;
        return;
    }
    int code = render(template, given, UINT64_MAX, &all);
    suite.rendered += code == 0;
    suite.limited += code == -ERR_TOO_LARGE;
    suite.work += all;
    for (int i = 0; i < 2 && all > 0; i++) {
        uint64_t at = chance_draw(&chance) % all;
        int halted = render(template, given, at, &part);
        suite.halted += halted == -ERR_CANCELLED;
        if (halted != -ERR_CANCELLED && halted != code)
            fail("a code after the halt", (uint64_t)-halted, (uint64_t)-code);
    }
    chat_template_free(template);
}

static int check_file(const json *given, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t length = file ? fread(suite.program, 1, FILE_MAX - 1, file) : 0;
    suite.file = path;
    suite.program[length] = 0;
    if (file)
        fclose(file);
    if (length > 0)
        check(given);
    else
        fprintf(stderr, "%s: not read\n", path);
    return length > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int check_seeds(const json *given, unsigned long long first, unsigned long long last)
{
    for (suite.seed = first; suite.seed <= last; suite.seed++) {
        program_draw(suite.seed, suite.program);
        check(given);
    }
    printf("%llu programs: %llu rendered, %llu over a limit, %llu refused; %llu halts; %llu work\n",
           last - first + 1, (unsigned long long)suite.rendered, (unsigned long long)suite.limited,
           (unsigned long long)suite.refused, (unsigned long long)suite.halted,
           (unsigned long long)suite.work);
    return last - first + 1 < SEEDS || all_reached() ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int count, char **words)
{
    int result = EXIT_SUCCESS;
    const struct json_bounds json_limits = {.bytes_max = 1 << 20, .depth_max = 32};
    unsigned long long first = 1, last = SEEDS;
    struct error error;
    json *given;
    if (count == 3 && strcmp(words[1], "--show") == 0) {
        program_draw(strtoull(words[2], NULL, 10), suite.program);
        printf("%s\n", suite.program);
        return EXIT_SUCCESS;
    }
    bool seeds = count == 3 && strcmp(words[1], "--seeds") == 0;
    if (seeds && sscanf(words[2], "%llu..%llu", &first, &last) != 2) {
        fprintf(stderr, "usage: %s [--seeds FIRST..LAST] [--show SEED] [FILE...]\n", words[0]);
        return EXIT_FAILURE;
    }
    if (json_parse(program_given, strlen(program_given), json_limits, &given, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return EXIT_FAILURE;
    }
    alarm(LAST_RESORT_S);
    if (seeds || count == 1)
        result = check_seeds(given, first, last);
    for (int i = 1; !seeds && i < count; i++)
        result |= check_file(given, words[i]);
    json_free(given);
    return result;
}
