#include "tests/gpu/engine/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (1u << 20)

static char *text_read(const char *file)
{
    FILE *in = fopen(file, "r");
    char *text = calloc(1, FILE_MAX + 1);
    if (in && text && fread(text, 1, FILE_MAX, in) > 0) {
        fclose(in);
        return text;
    }
    if (in)
        fclose(in);
    free(text);
    return NULL;
}

bool digest_open(struct digest_book *book, const char *file, int argc, char **argv)
{
    *book = (struct digest_book){.parts = parts_read()};
    if (argc == 3 && !strcmp(argv[1], "--write")) {
        book->out = fopen(argv[2], "w");
        return book->out != NULL;
    }
    book->known = argc == 1 ? text_read(file) : NULL;
    return book->known != NULL;
}

/* Lines of the file whose names begin with `name` and a slash. */
static uint32_t lines_of(const struct digest_book *book, const char *name)
{
    size_t length = strlen(name);
    uint32_t count = 0;
    for (const char *line = book->known; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        count += !strncmp(line, name, length) && line[length] == '/';
    }
    return count;
}

bool digest_turn(struct digest_book *book, const char *name)
{
    if (book->out || parts_turn(&book->parts))
        return true;
    book->elsewhere += lines_of(book, name);
    return false;
}

uint64_t digest_add(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* Behind the name's line start and a blank. */
static const char *known_of(const struct digest_book *book, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = book->known; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length) && line[length] == ' ')
            return line + length + 1;
    }
    return NULL;
}

void digest_note(struct digest_book *book, const char *name, uint64_t digest)
{
    char text[32];
    snprintf(text, sizeof text, "%016" PRIx64, digest);
    book->seen++;
    if (book->out) {
        fprintf(book->out, "%s %s\n", name, text);
        return;
    }
    const char *known = known_of(book, name);
    if (known && !strncmp(known, text, 16))
        return;
    book->different++;
    printf("%s: %s, and was %.16s\n", name, text, known ? known : "not there");
}

int digest_close(struct digest_book *book, bool all)
{
    uint32_t lines = 0;
    for (const char *at = book->known; at && *at; at++)
        lines += *at == '\n';
    if (book->out)
        return fclose(book->out) ? EXIT_FAILURE : EXIT_SUCCESS;
    free(book->known);
    printf("%u digests, %u differ\n", book->seen, book->different);
    if (all && book->seen + book->elsewhere != lines) {
        printf("%u are in the file, %u of them other parts'\n", lines, book->elsewhere);
        return EXIT_FAILURE;
    }
    return book->different || !book->seen ? EXIT_FAILURE : EXIT_SUCCESS;
}
