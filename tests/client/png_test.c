/* PNG files: what is read, and that what is hostile is refused by name before it costs anything. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include "client/tensor/array_file.h"
#include "client/tensor/png.h"
#include "protocol/base/tensor.h"
#include "tests/client/command_suites.h"
#include "tests/runner.h"

struct file {
    unsigned char bytes[4096];
    size_t length;
};

static void put_u32(struct file *file, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        file->bytes[file->length++] = (unsigned char)(value >> shift);
}

static void put_chunk(struct file *file, const char *type, const void *data, size_t length)
{
    put_u32(file, (uint32_t)length);
    const size_t from = file->length;
    memcpy(file->bytes + from, type, 4);
    if (length > 0)
        memcpy(file->bytes + from + 4, data, length);
    file->length += 4 + length;
    put_u32(file, (uint32_t)crc32(0, file->bytes + from, (uInt)length + 4));
}

static void begin(struct file *file, uint32_t width, uint32_t height, int depth, int colour,
                  int interlace)
{
    struct file header = {.length = 0};
    put_u32(&header, width);
    put_u32(&header, height);
    const unsigned char rest[] = {(unsigned char)depth, (unsigned char)colour, 0, 0,
                                  (unsigned char)interlace};
    memcpy(header.bytes + header.length, rest, sizeof(rest));
    memcpy(file->bytes, "\x89PNG\r\n\x1a\n", 8);
    file->length = 8;
    put_chunk(file, "IHDR", header.bytes, 13);
}

/* In so many chunks. */
static void put_pixels(struct file *file, const void *rows, size_t length, int chunks)
{
    unsigned char packed[1024];
    uLongf size = sizeof(packed);
    ck_assert_int_eq(compress2(packed, &size, rows, length, 9), Z_OK);
    for (int i = 0; i < chunks; i++) {
        const size_t at = size * (size_t)i / (size_t)chunks;
        put_chunk(file, "IDAT", packed + at, size * (size_t)(i + 1) / (size_t)chunks - at);
    }
}

static void put_end(struct file *file)
{
    put_chunk(file, "IEND", NULL, 0);
}

/* ---- what is read ------------------------------------------------------------------------------
 */

static const struct {
    int depth, colour;
    size_t length;
    const char *rows; /* 2 x 2, each row with its filter */
    unsigned char pixels[12];
} kinds[] = {
    {1, 0, 4, "\0\x40\0\x80", {0, 0, 0, 255, 255, 255, 255, 255, 255, 0, 0, 0}},
    {2, 0, 4, "\0\x60\0\xb0", {85, 85, 85, 170, 170, 170, 170, 170, 170, 255, 255, 255}},
    {4, 0, 4, "\0\x1f\0\x0e", {17, 17, 17, 255, 255, 255, 0, 0, 0, 238, 238, 238}},
    {8, 0, 6, "\0\1\2\2\3\4", {1, 1, 1, 2, 2, 2, 4, 4, 4, 6, 6, 6}},                 /* up */
    {16, 0, 10, "\0\1\xff\2\xff\1\3\xff\4\0", {1, 1, 1, 2, 2, 2, 3, 3, 3, 7, 7, 7}}, /* left */
    {8, 2, 14, "\1\1\2\3\4\5\6\3\7\7\7\7\7\7", {1, 2, 3, 5, 7, 9, 7, 8, 8, 13, 14, 15}},
    {16,
     2,
     26,
     "\0\1\0\2\0\3\0\4\0\5\0\6\0\4\1\0\1\0\1\0\1\0\1\0\1\0",
     {1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 7}}, /* Paeth's */
    {1, 3, 4, "\0\x40\0\x80", {9, 8, 7, 6, 5, 4, 6, 5, 4, 9, 8, 7}},
    {8, 3, 6, "\0\0\1\0\1\0", {9, 8, 7, 6, 5, 4, 6, 5, 4, 9, 8, 7}},
    {8, 4, 10, "\0\1\xff\2\xff\0\3\0\4\0", {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}},
    {16, 4, 18, "\0\1\0\xff\0\2\0\xff\0\0\3\0\0\0\4\0\0\0", {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}},
    {8, 6, 18, "\0\1\2\3\xff\4\5\6\xff\0\7\7\7\0\x8\x8\x8\0", {1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 8, 8}},
};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

START_TEST(every_colour_type_and_depth_becomes_rgb)
{
    struct file file;
    sluice_array array;
    struct error error;
    void *data;
    begin(&file, 2, 2, kinds[_i].depth, kinds[_i].colour, 0);
    put_chunk(&file, "tEXt", "a\0b", 3);
    if (kinds[_i].colour == 3)
        put_chunk(&file, "PLTE", "\x9\x8\x7\x6\x5\x4", 6);
    put_pixels(&file, kinds[_i].rows, kinds[_i].length, 1 + _i % 3);
    put_end(&file);
    ck_assert_msg(!png_decode(file.bytes, file.length, &array, &data, &error), "%s", error.text);
    ck_assert(array.dtype == TENSOR_U8 && array.rank == 3 && array.data == data);
    ck_assert(array.shape[0] == 2 && array.shape[1] == 2 && array.shape[2] == 3);
    for (int i = 0; i < 12; i++)
        ck_assert_int_eq(((unsigned char *)data)[i], kinds[_i].pixels[i]);
    free(data);
}
END_TEST

START_TEST(what_is_written_is_read_again)
{
    enum { WIDTH = 301, HEIGHT = 200 }; /* more rows than there is room for at first */
    static unsigned char pixels[WIDTH * HEIGHT * 3];
    unsigned char *written;
    size_t length;
    sluice_array array;
    struct error error;
    void *data;
    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (unsigned char)(i * i / 7);
    ck_assert(!png_encode(WIDTH, HEIGHT, pixels, &written, &length, &error));
    ck_assert(png_begins(written, length));
    ck_assert_msg(!png_decode(written, length, &array, &data, &error), "%s", error.text);
    ck_assert(array.shape[0] == HEIGHT && array.shape[1] == WIDTH);
    ck_assert(memcmp(data, pixels, sizeof(pixels)) == 0);
    free(data);
    for (size_t cut = 0; cut < length; cut += 1 + length / 500) {
        unsigned char *part = malloc(cut + 1);
        ck_assert_ptr_nonnull(part);
        memcpy(part, written, cut);
        ck_assert_int_eq(png_decode(part, cut, &array, &data, &error), -ERR_BAD_VALUE);
        free(part);
    }
    free(written);
}
END_TEST

/* ---- what is refused ---------------------------------------------------------------------------
 */

#define ROWS "\0\1\2\3\4\5\6\0\1\2\3\4\5\6" /* 2 x 2 of RGB */
#define ROWS_LENGTH 14

static const char *const refused[] = {
    "it is cut short",
    "it has no header",
    "it has no pixels",
    "16385 x 2 pixels, at most 16384",
    "2 x 4294967295 pixels",
    "colour type and depth that there are not",
    "colour type and depth that there are not",
    "interlaced",
    "checksum is wrong",
    "longer than the file",
    "cannot be left out",
    "no palette",
    "a colour that its palette has not",
    "not 1 to 256 colours",
    "comes twice",
    "filter is not known",
    "not compressed as they must be",
    "fewer pixels",
    "fewer pixels",
    "more pixels",
    "more data than its pixels",
    "something follows its end",
    "something stands between",
    "fewer pixels", /* and gigabytes announced */
};
#define REFUSED ((int)(sizeof(refused) / sizeof(refused[0])))

static void spoil(struct file *file, int number)
{
    static unsigned char many[769];
    begin(file, number == 3 ? 16385 : 2,
          number == 2   ? 0
          : number == 4 ? UINT32_MAX
                        : 2,
          number == 5   ? 3
          : number == 6 ? 16
                        : 8,
          number == 6 || (number >= 11 && number <= 14) ? 3 : 2, number == 7);
    switch (number) {
    case 0:
        file->length += 11;
        return;
    case 1:
        file->length = 8;
        put_chunk(file, "IDAT", "x", 1);
        break;
    case 8:
        file->bytes[8 + 25 - 1] ^= 1;
        break;
    case 9:
        put_u32(file, UINT32_MAX);
        put_u32(file, 0x49444154);
        put_u32(file, 0);
        return;
    case 10:
        put_chunk(file, "ABCD", NULL, 0);
        break;
    case 12:
        put_chunk(file, "PLTE", "abc", 3);
        put_pixels(file, "\0\0\1\0\0\0", 6, 1);
        break;
    case 13:
        put_chunk(file, "PLTE", many, sizeof(many));
        break;
    case 14:
        put_chunk(file, "PLTE", "abc", 3);
        put_chunk(file, "PLTE", "abc", 3);
        break;
    case 15:
        put_pixels(file, "\5\1\2\3\4\5\6\0\1\2\3\4\5\6", ROWS_LENGTH, 1);
        break;
    case 16:
        put_chunk(file, "IDAT", "\x78\x9cnonsense", 10);
        break;
    case 17:
        put_pixels(file, ROWS, 7, 1);
        break;
    case 18:
        break;
    case 19:
        put_pixels(file, ROWS ROWS, 2 * ROWS_LENGTH, 1);
        break;
    case 20:
        put_pixels(file, ROWS, ROWS_LENGTH, 1);
        put_chunk(file, "IDAT", "x", 1);
        break;
    case 21:
        put_pixels(file, ROWS, ROWS_LENGTH, 1);
        put_end(file);
        break;
    case 22:
        put_pixels(file, ROWS, 7, 1);
        put_chunk(file, "tEXt", NULL, 0);
        put_pixels(file, ROWS, 7, 1);
        break;
    case 23:
        begin(file, 16384, 16384, 16, 6, 0);
        put_pixels(file, many, 769, 1);
        break;
    default:
        put_pixels(file, ROWS, ROWS_LENGTH, 1);
        break;
    }
    put_end(file);
}

START_TEST(hostile_files_are_refused_by_name)
{
    struct file file = {.length = 0};
    sluice_array array;
    struct error error = {.text = ""};
    void *data = NULL;
    spoil(&file, _i);
    int rc = png_decode(file.bytes, file.length, &array, &data, &error);
    ck_assert_msg(rc == -ERR_BAD_VALUE || rc == -ERR_TOO_LARGE, "%d", rc);
    ck_assert_msg(strstr(error.text, refused[_i]), "%s, it should be: %s", error.text, refused[_i]);
    ck_assert_ptr_null(data);
}
END_TEST

START_TEST(memory_grows_with_the_pixels_that_come)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    RUNNER_SKIP("sanitizers need more memory than the test allows");
#endif
    const struct rlimit little = {.rlim_cur = 256u << 20, .rlim_max = RLIM_INFINITY};
    struct file file;
    sluice_array array;
    struct error error;
    void *data;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &little), 0); /* of the test's own process */
    spoil(&file, REFUSED - 1);                          /* announces 805 MB */
    ck_assert_int_eq(png_decode(file.bytes, file.length, &array, &data, &error), -ERR_BAD_VALUE);
}
END_TEST

START_TEST(a_file_that_is_too_large_is_refused_before_it_is_read)
{
    char path[] = "/tmp/png_test.XXXXXX";
    sluice_array array;
    struct error error = {.text = ""};
    void *data;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "\x89PNG\r\n\x1a\n", 8), 8);
    int rc = ftruncate(fd, (off_t)3 << 30); /* without blocks of its own */
    close(fd);
    if (rc == 0)
        rc = array_read(path, &array, &data, &error);
    unlink(path);
    ck_assert_int_eq(rc, -ERR_TOO_LARGE);
    ck_assert_uint_eq(error.limit, PNG_FILE_MAX);
    ck_assert_msg(strstr(error.text, path) && strstr(error.text, "at most 1 GiB"), "%s",
                  error.text);
}
END_TEST

Suite *png_suite(void)
{
    Suite *suite = suite_create("png");
    TCase *tests = tcase_create("png");
    tcase_add_loop_test(tests, every_colour_type_and_depth_becomes_rgb, 0, KINDS);
    tcase_add_test(tests, what_is_written_is_read_again);
    tcase_add_loop_test(tests, hostile_files_are_refused_by_name, 0, REFUSED);
    tcase_add_test(tests, memory_grows_with_the_pixels_that_come);
    tcase_add_test(tests, a_file_that_is_too_large_is_refused_before_it_is_read);
    suite_add_tcase(suite, tests);
    return suite;
}
