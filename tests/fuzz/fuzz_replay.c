/* Runs a fuzz target without libFuzzer over the files of a folder: each whole, and each cut short
 * at every length, in memory of its very size, so that the address sanitizer sees a byte too many.
 */
#include <dirent.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_MAX ((size_t)1 << 20)
#define CUT_MAX 4096 /* longer files are run whole and at as many cuts */

static void run_copy(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    FUZZ_CHECK(exact);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int run_file(const char *folder, const char *name)
{
    static uint8_t data[INPUT_MAX];
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    size_t size = fread(data, 1, sizeof(data), file);
    int bad = ferror(file);
    fclose(file);
    if (bad) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return -1;
    }
    run_copy(data, size);
    for (size_t cut = 0; cut < size && cut < CUT_MAX; cut++)
        run_copy(data, cut);
    return 0;
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    int count = scandir(argv[1], &entries, not_hidden, alphasort);
    if (count <= 0) {
        fprintf(stderr, "%s: no inputs\n", argv[1]);
        return 1;
    }
    int failed = 0;
    for (int i = 0; i < count; i++) {
        failed |= run_file(argv[1], entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    printf("%d inputs\n", count);
    return failed ? 1 : 0;
}
