/* The demo model's tasks without Python: what deploy/demo-model/tasks.py does, in the part that
 * tests need. demo_tasks print SEED COUNT    COUNT distinct prompts a task, none of which was
 * trained on: task, prompt and answer, tab separated demo_tasks check               such lines from
 * stdin: each held out, and with the right answer
 *
 * The split is the same, a hash of the prompt; the numbers drawn from a seed are our own.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPLIT_CLASSES 20 /* class 0 is the test set */
#define PROMPT_SIZE 64
#define COUNT_MAX 10000
#define TRIES_MAX 10000000

enum task { ADD, REVERSE, SORT, MAXIMUM, TASKS };
static const char *const names[TASKS] = {"add", "reverse", "sort", "max"};

static uint64_t random_state;

static uint32_t below(uint32_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % bound;
}

static bool held_out(const char *prompt)
{
    uint32_t hash = 0x811c9dc5;
    for (; *prompt; prompt++)
        hash = (hash ^ (unsigned char)*prompt) * 0x01000193;
    return hash % SPLIT_CLASSES == 0;
}

/* Up to three digits. */
static unsigned number(void)
{
    static const unsigned first[] = {0, 10, 100, 100}, end[] = {10, 100, 1000, 1000};
    uint32_t digits = below(4);
    return first[digits] + below(end[digits] - first[digits]);
}

static void letters(char word[9], char first, uint32_t kinds)
{
    uint32_t length = 3 + below(6);
    for (uint32_t i = 0; i < length; i++)
        word[i] = (char)(first + (char)below(kinds));
    word[length] = 0;
}

static void ask(enum task task, char prompt[PROMPT_SIZE])
{
    char word[9];
    unsigned a = number(), b = number(), c = number();
    switch (task) {
    case ADD:
        snprintf(prompt, PROMPT_SIZE, "%u+%u=", a, b);
        break;
    case REVERSE:
        letters(word, 'a', 26);
        snprintf(prompt, PROMPT_SIZE, "reverse %s=", word);
        break;
    case SORT:
        letters(word, '0', 10);
        snprintf(prompt, PROMPT_SIZE, "sort %s=", word);
        break;
    default:
        snprintf(prompt, PROMPT_SIZE, "max %u,%u,%u=", a, b, c);
    }
}

static int byte_order(const void *a, const void *b)
{
    return *(const char *)a - *(const char *)b;
}

/* The answer, from the prompt alone; false when it is no prompt of this task. */
static bool solve(enum task task, const char *prompt, char answer[PROMPT_SIZE])
{
    unsigned a, b, c;
    char word[PROMPT_SIZE];
    switch (task) {
    case ADD:
        if (sscanf(prompt, "%u+%u=", &a, &b) != 2)
            return false;
        snprintf(answer, PROMPT_SIZE, "%u", a + b);
        return true;
    case REVERSE:
        if (sscanf(prompt, "reverse %60[a-z]=", word) != 1)
            return false;
        for (size_t i = 0, length = strlen(word); i <= length; i++)
            answer[i] = i < length ? word[length - 1 - i] : 0;
        return true;
    case SORT:
        if (sscanf(prompt, "sort %60[0-9]=", answer) != 1)
            return false;
        qsort(answer, strlen(answer), 1, byte_order);
        return true;
    default:
        if (sscanf(prompt, "max %u,%u,%u=", &a, &b, &c) != 3)
            return false;
        a = a > b ? a : b;
        snprintf(answer, PROMPT_SIZE, "%u", a > c ? a : c);
        return true;
    }
}

static bool among(const char (*prompts)[PROMPT_SIZE], uint32_t count, const char *prompt)
{
    for (uint32_t i = 0; i < count; i++)
        if (!strcmp(prompts[i], prompt))
            return true;
    return false;
}

static int print(uint64_t seed, uint32_t count)
{
    static char prompts[COUNT_MAX][PROMPT_SIZE];
    char prompt[PROMPT_SIZE], answer[PROMPT_SIZE];
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int task = 0; task < TASKS; task++) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < TRIES_MAX && found < count; i++) {
            ask((enum task)task, prompt);
            if (!held_out(prompt) || among(prompts, found, prompt))
                continue;
            if (!solve((enum task)task, prompt, answer))
                return EXIT_FAILURE;
            strcpy(prompts[found++], prompt);
            printf("%s\t%s\t%s\n", names[task], prompt, answer);
        }
        if (found < count) {
            fprintf(stderr, "demo_tasks: only %u prompts of %s\n", found, names[task]);
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}

static int check(void)
{
    char line[4 * PROMPT_SIZE], name[PROMPT_SIZE], prompt[PROMPT_SIZE], answer[PROMPT_SIZE],
        ours[PROMPT_SIZE];
    uint32_t lines = 0, bad = 0;
    for (; fgets(line, sizeof line, stdin); lines++) {
        int task = 0;
        bool right = sscanf(line, "%63[^\t]\t%63[^\t]\t%63[^\t\n]", name, prompt, answer) == 3;
        while (task < TASKS && strcmp(name, names[task]))
            task++;
        right = right && task < TASKS && solve((enum task)task, prompt, ours) &&
                !strcmp(ours, answer) && held_out(prompt);
        if (!right) {
            fprintf(stderr, "demo_tasks: not so: %s", line);
            bad++;
        }
    }
    printf("%u lines, %u wrong\n", lines, bad);
    return lines && !bad ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "print") && atoi(argv[3]) <= COUNT_MAX)
        return print(strtoull(argv[2], NULL, 10), (uint32_t)atoi(argv[3]));
    if (argc == 2 && !strcmp(argv[1], "check"))
        return check();
    fprintf(stderr, "demo_tasks print SEED COUNT | check\n");
    return 2;
}
