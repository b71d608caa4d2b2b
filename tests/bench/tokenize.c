/* Times encoding of a file with a tokenizer.json, for tokenize.sh: prints the milliseconds of the
 * quickest of some runs, each with scratch of its own, and the number of ids. */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/text/tokenizer.h"
#include "protocol/base/clock.h"

#define RUNS 7

static char *read_file(const char *path, size_t *ret_length)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    size_t length = (size_t)ftell(file);
    char *text = malloc(length + 1);
    rewind(file);
    if (!text || fread(text, 1, length, file) != length) {
        perror(path);
        exit(1);
    }
    fclose(file);
    *ret_length = length;
    return text;
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer;
    struct error error = {0};
    size_t file_length, text_length, count = 0;
    time_us best = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: %s TOKENIZER.JSON TEXT\n", argv[0]);
        return 2;
    }
    char *file = read_file(argv[1], &file_length), *text = read_file(argv[2], &text_length);
    int32_t *ids = malloc((text_length + 64) * sizeof(*ids));
    if (!ids || tokenizer_load(file, file_length, &tokenizer, &error) < 0) {
        fprintf(stderr, "%s: %s\n", argv[1], error.text);
        return 1;
    }
    for (int run = 0; run < RUNS; run++) {
        struct tokenizer_scratch *scratch = tokenizer_scratch_new();
        time_us begin = clock_now_us();
        if (!scratch || tokenizer_encode(tokenizer, scratch, text, text_length, true, ids,
                                         text_length + 64, &count, &error) < 0) {
            fprintf(stderr, "%s: %s\n", argv[2], error.text);
            return 1;
        }
        time_us took = clock_now_us() - begin;
        best = run == 0 || took < best ? took : best;
        tokenizer_scratch_free(scratch);
    }
    printf("%.3f %zu\n", (double)best / 1000, count);
    tokenizer_free(tokenizer);
    free(ids);
    free(text);
    free(file);
    return 0;
}
