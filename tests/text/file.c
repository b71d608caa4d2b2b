#include "tests/text/file.h"

#include <stdio.h>
#include <stdlib.h>

char *file_read(const char *name, size_t *ret_length)
{
    char path[256];
    snprintf(path, sizeof(path), "tests/text/data/%s", name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    long length = ftell(file);
    char *bytes = malloc((size_t)length + 1);
    rewind(file);
    if (!bytes || fread(bytes, 1, (size_t)length, file) != (size_t)length) {
        perror(path);
        exit(1);
    }
    fclose(file);
    bytes[length] = 0;
    *ret_length = (size_t)length;
    return bytes;
}

struct tokenizer *file_tokenizer(const char *name)
{
    struct tokenizer *tokenizer;
    struct error error = {0};
    size_t length;
    char *text = file_read(name, &length);
    if (tokenizer_load(text, length, &tokenizer, &error) < 0) {
        fprintf(stderr, "%s: %s\n", name, error.text);
        exit(1);
    }
    free(text);
    return tokenizer;
}
