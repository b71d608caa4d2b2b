#include "tests/protocol/wire_page.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct wire_example examples[WIRE_EXAMPLES_MAX];
static size_t count;

static void read_bytes(struct wire_example *example, char *line)
{
    char *comment = strchr(line, '#');
    if (comment)
        *comment = 0;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        char *end;
        unsigned long byte = strtoul(word, &end, 16);
        ck_assert_msg(strlen(word) == 2 && !*end, "%s: \"%s\"", example->name, word);
        ck_assert_uint_lt(example->length, WIRE_EXAMPLE_SIZE_MAX);
        example->bytes[example->length++] = (unsigned char)byte;
    }
}

static void read_page(void)
{
    char line[512];
    bool inside = false;
    FILE *page = fopen("protocol/wire.md", "r");
    ck_assert_msg(page != NULL, "protocol/wire.md cannot be read from the working directory");
    while (fgets(line, sizeof(line), page)) {
        if (inside && strncmp(line, "```", 3) == 0) {
            inside = false;
            count++;
        } else if (inside) {
            read_bytes(&examples[count], line);
        } else if (strncmp(line, "```hex ", 7) == 0) {
            ck_assert_uint_lt(count, WIRE_EXAMPLES_MAX);
            ck_assert_int_eq(sscanf(line, "```hex %31s", examples[count].name), 1);
            inside = true;
        }
    }
    fclose(page);
    ck_assert(!inside);
}

size_t wire_count(void)
{
    if (count == 0)
        read_page();
    return count;
}

const struct wire_example *wire_at(size_t index)
{
    ck_assert_uint_lt(index, wire_count());
    return &examples[index];
}

const struct wire_example *wire_named(const char *name)
{
    for (size_t i = 0; i < wire_count(); i++)
        if (strcmp(examples[i].name, name) == 0)
            return &examples[i];
    ck_abort_msg("wire.md has no example %s", name);
    return NULL;
}
