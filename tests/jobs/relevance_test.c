/* relevance: its formulas against plain doubles, its budgets against a plain count, and one
 * checksum for all devices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/jobs/shape.h"
#include "gpu/programs/relevance/relevance_math.h"
#include "tests/jobs/device_rig.h"
#include "tests/jobs/device_suites.h"
#include "tests/runner.h"

#define GRID_MAX RELEVANCE_PATCHES_MAX

/* The header has what bodies define. */
static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    (void)batch;
    (void)streams;
    (void)allocator;
    return 0;
}
static const struct sluice_program said = RELEVANCE;

/* ---- plain doubles -----------------------------------------------------------------------------
 */

static double plain_linear(double c)
{
    return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

static double plain_curve(double t)
{
    return t > pow(6.0 / 29, 3) ? cbrt(t) : t / (3 * pow(6.0 / 29, 2)) + 4.0 / 29;
}

static void plain_lab(const unsigned char *rgb, double lab[3])
{
    static const double matrix[3][3] = {{0.4124564, 0.3575761, 0.1804375},
                                        {0.2126729, 0.7151522, 0.0721750},
                                        {0.0193339, 0.1191920, 0.9503041}};
    static const double white[3] = {0.95047, 1, 1.08883};
    double f[3];
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        for (int j = 0; j < 3; j++)
            sum += matrix[i][j] * plain_linear(rgb[j] / 255.0);
        f[i] = plain_curve(sum / white[i]);
    }
    lab[0] = (116 * f[1] - 16) / 100;
    lab[1] = 500 * (f[0] - f[1]) / 128;
    lab[2] = 200 * (f[1] - f[2]) / 128;
}

struct image {
    uint32_t height, width, rows, columns;
    int64_t total;
    double query[CHANNELS];
    unsigned char *pixels;
    int32_t *budgets;
    float *scores;
};

static double lab_at(const double *lab, const struct image *image, int x, int y, int which)
{
    const int width = (int)image->width, height = (int)image->height;
    x = x < 0 ? 0 : x < width ? x : width - 1;
    y = y < 0 ? 0 : y < height ? y : height - 1;
    return lab[((size_t)y * image->width + (size_t)x) * 3 + (size_t)which];
}

/* Convolution with Sobel's matrix, or with its transpose. */
static double plain_slope(const double *lab, const struct image *image, int x, int y, int which,
                          bool across)
{
    static const double weights[3] = {1, 2, 1};
    double sum = 0;
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++)
            sum += (across ? j * weights[i + 1] : i * weights[j + 1]) *
                   lab_at(lab, image, x + j, y + i, which);
    return sum / 4;
}

static void plain_channels(const double *lab, const struct image *image, int x, int y,
                           double channels[CHANNELS])
{
    const unsigned char *rgb = image->pixels + ((size_t)y * image->width + (size_t)x) * 3;
    double slopes[3][2];
    for (int i = 0; i < 3; i++) {
        channels[CHANNEL_RED + i] = rgb[i] / 255.0;
        channels[CHANNEL_LIGHTNESS + i] = lab_at(lab, image, x, y, i);
        slopes[i][0] = plain_slope(lab, image, x, y, i, true);
        slopes[i][1] = plain_slope(lab, image, x, y, i, false);
    }
    channels[CHANNEL_EDGE_X] = slopes[0][0];
    channels[CHANNEL_EDGE_Y] = slopes[0][1];
    channels[CHANNEL_EDGE] = hypot(slopes[0][0], slopes[0][1]);
    channels[CHANNEL_COLOUR_EDGE] =
        hypot(hypot(slopes[1][0], slopes[1][1]), hypot(slopes[2][0], slopes[2][1]));
    channels[CHANNEL_X] = (x + 0.5) / image->width * 2 - 1;
    channels[CHANNEL_Y] = (y + 0.5) / image->height * 2 - 1;
    channels[CHANNEL_ECCENTRICITY] = hypot(channels[CHANNEL_X], channels[CHANNEL_Y]) / sqrt(2);
}

struct plain_patch {
    double sums[CHANNELS], salience, pixels;
    double histogram[RELEVANCE_BINS];
};

static void plain_scores(const struct plain_patch *patch, const double *query,
                         double scores[SCORES])
{
    double entropy = 0, product = 0, own = 0, asked = 0;
    for (int i = 0; i < RELEVANCE_BINS; i++)
        if (patch->histogram[i] > 0)
            entropy -=
                patch->histogram[i] / patch->pixels * log2(patch->histogram[i] / patch->pixels);
    for (int i = 0; i < CHANNELS; i++) {
        product += patch->sums[i] / patch->pixels * query[i];
        own += pow(patch->sums[i] / patch->pixels, 2);
        asked += query[i] * query[i];
    }
    scores[SCORE_ENTROPY] = entropy / log2(RELEVANCE_BINS);
    scores[SCORE_SALIENCE] = patch->salience / patch->pixels;
    scores[SCORE_SIMILARITY] = own > 0 && asked > 0 ? (1 + product / sqrt(own * asked)) / 2 : 0.5;
}

static struct plain_patch *plain_patch_of(const struct image *image, struct plain_patch *patches,
                                          uint32_t x, uint32_t y)
{
    uint32_t row = 0, column = 0; /* the last that begins at the pixel or before it */
    while (row + 1 < image->rows && (row + 1) * image->height / image->rows <= y)
        row++;
    while (column + 1 < image->columns && (column + 1) * image->width / image->columns <= x)
        column++;
    return &patches[row * image->columns + column];
}

static void check_scores(const struct image *image)
{
    const uint32_t width = image->width, pixels = image->height * image->width;
    double *lab = calloc((size_t)pixels * 3, sizeof(double)), mean[3] = {0}, channels[CHANNELS];
    struct plain_patch *patches = calloc(GRID_MAX, sizeof(*patches));
    ck_assert(lab && patches);
    for (uint32_t i = 0; i < pixels; i++) {
        plain_lab(image->pixels + (size_t)i * 3, lab + (size_t)i * 3);
        for (int j = 0; j < 3; j++)
            mean[j] += lab[(size_t)i * 3 + (size_t)j] / pixels;
    }
    for (uint32_t i = 0; i < pixels; i++) {
        struct plain_patch *patch = plain_patch_of(image, patches, i % width, i / width);
        plain_channels(lab, image, (int)(i % width), (int)(i / width), channels);
        double apart = 0;
        for (int j = 0; j < 3; j++)
            apart += pow(channels[CHANNEL_LIGHTNESS + j] - mean[j], 2);
        for (int j = 0; j < CHANNELS; j++)
            patch->sums[j] += channels[j];
        patch->salience += (sqrt(apart) + channels[CHANNEL_EDGE] + channels[CHANNEL_COLOUR_EDGE]) *
                           (1 - channels[CHANNEL_ECCENTRICITY] / 2);
        patch->histogram[(int)fmin(channels[CHANNEL_LIGHTNESS] * RELEVANCE_BINS,
                                   RELEVANCE_BINS - 1)]++;
        patch->pixels++;
    }
    for (uint32_t i = 0; i < image->rows * image->columns; i++) {
        double scores[SCORES];
        plain_scores(&patches[i], image->query, scores);
        for (uint32_t j = 0; j < SCORES; j++)
            ck_assert_msg(fabs(scores[j] - (double)image->scores[i * SCORES + j]) < 1e-4,
                          "patch %u of %u x %u, score %u: %.6f, it should be %.6f", i,
                          image->height, image->width, j, (double)image->scores[i * SCORES + j],
                          scores[j]);
    }
    free(lab);
    free(patches);
}

/* ---- a plain count -----------------------------------------------------------------------------
 */

struct claim {
    uint32_t patch;
    uint64_t weight, share, rest;
    bool full;
};

static int by_rest(const void *a, const void *b)
{
    const struct claim *one = a, *other = b;
    if (one->rest != other->rest)
        return one->rest > other->rest ? -1 : 1;
    return one->patch < other->patch ? -1 : 1;
}

/* From the scores that were told, which are whole 65,536ths: exact. */
static void weigh(const struct image *image, uint32_t patches, struct claim *claims)
{
    for (uint32_t i = 0; i < patches; i++)
        claims[i] = (struct claim){.patch = i, .weight = 1};
    for (uint32_t j = 0; j < SCORES; j++) {
        int64_t least = INT64_MAX, greatest = 0;
        for (uint32_t i = 0; i < patches; i++) {
            const int64_t score = (int64_t)(image->scores[i * SCORES + j] * 65536);
            least = score < least ? score : least;
            greatest = score > greatest ? score : greatest;
        }
        for (uint32_t i = 0; i < patches && greatest > least; i++)
            claims[i].weight +=
                (uint64_t)(((int64_t)(image->scores[i * SCORES + j] * 65536) - least) * 65536 /
                           (greatest - least));
    }
}

static void check_budgets(const struct image *image)
{
    static struct claim claims[GRID_MAX];
    const uint32_t patches = image->rows * image->columns;
    uint64_t spare = (uint64_t)image->total - 64 * patches, weights = 0, sum = 0;
    bool again = true;
    weigh(image, patches, claims);
    while (again) {
        again = false;
        weights = 0;
        for (uint32_t i = 0; i < patches; i++)
            weights += claims[i].full ? 0 : claims[i].weight;
        const uint64_t turn = spare;
        for (uint32_t i = 0; i < patches; i++)
            if (!claims[i].full && turn * claims[i].weight >= 336 * weights) {
                claims[i].full = again = true;
                claims[i].share = 336;
                spare -= 336;
            }
    }
    uint64_t left = spare;
    for (uint32_t i = 0; i < patches; i++)
        if (!claims[i].full) {
            claims[i].share = spare * claims[i].weight / weights;
            claims[i].rest = spare * claims[i].weight % weights;
            left -= claims[i].share;
        }
    qsort(claims, patches, sizeof(claims[0]), by_rest);
    for (uint32_t i = 0; i < patches; i++) {
        const uint64_t budget = 64 + claims[i].share + (i < left);
        ck_assert_int_eq(image->budgets[claims[i].patch], (int64_t)budget);
        ck_assert(budget >= 64 && budget <= 400);
        sum += budget;
    }
    ck_assert_uint_eq(sum, (uint64_t)image->total);
}

/* ---- images ------------------------------------------------------------------------------------
 */

enum kind { NOISE, SCENE, PLAIN };

static void paint(struct image *image, enum kind kind)
{
    for (uint32_t y = 0; y < image->height; y++)
        for (uint32_t x = 0; x < image->width; x++) {
            unsigned char *rgb = image->pixels + ((size_t)y * image->width + x) * 3;
            const bool inside = x > image->width / 3 && x < image->width / 2 &&
                                y > image->height / 4 && y < image->height / 2;
            for (uint32_t i = 0; i < 3; i++)
                rgb[i] = kind == NOISE   ? (unsigned char)device_rig_draw(256)
                         : kind == PLAIN ? 77
                         : inside        ? (unsigned char)(200 - 90 * i + device_rig_draw(50))
                                         : (unsigned char)(x * (i + 1) / 3 % 97 + y / 5 % 60);
        }
}

static void make_image(struct image *image, struct gpu_piece *piece, enum kind kind)
{
    const size_t patches = image->rows * image->columns;
    image->pixels = malloc((size_t)image->height * image->width * 3);
    image->budgets = calloc(patches, sizeof(int32_t));
    image->scores = calloc(patches * SCORES, sizeof(float));
    ck_assert(image->pixels && image->budgets && image->scores);
    paint(image, kind);
    *piece = (struct gpu_piece){.sizes = {image->height, image->width, image->rows, image->columns},
                                .whole = image->height,
                                .inputs = {image->pixels},
                                .outputs = {image->budgets, image->scores}};
    piece->values[RELEVANCE_ROWS].integer = image->rows;
    piece->values[RELEVANCE_COLUMNS].integer = image->columns;
    piece->values[RELEVANCE_TOTAL].integer = image->total;
    for (int i = 0; i < CHANNELS; i++)
        piece->values[RELEVANCE_QUERY_FIRST + i].number = image->query[i];
}

static void free_image(struct image *image)
{
    free(image->pixels);
    free(image->budgets);
    free(image->scores);
}

static const struct image cases[] = {
    {300, 400, 5, 5, 4096, {0}, NULL, NULL, NULL},
    {481, 643, 4, 7, 4096, {[CHANNEL_RED] = 1, [CHANNEL_A] = 0.5}, NULL, NULL, NULL},
    {97, 1025, 1, 11, 11 * 64, {[CHANNEL_EDGE] = 1}, NULL, NULL, NULL},
    {512, 511, 3, 3, 9 * 400, {[CHANNEL_X] = 1, [CHANNEL_Y] = -1}, NULL, NULL, NULL},
    {640, 480, 8, 8, 64 * 64 + 1, {[CHANNEL_BLUE] = -2}, NULL, NULL, NULL},
    {1500, 32, 32, 1, 12000, {[CHANNEL_LIGHTNESS] = 1e-3}, NULL, NULL, NULL},
    {1024, 1100, 32, 32, 409599, {[CHANNEL_ECCENTRICITY] = 3}, NULL, NULL, NULL},
    {64, 33, 2, 1, 777, {0}, NULL, NULL, NULL},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))
#define ALL (CASES * 3)

static const struct gpu_jobs_options options = {
    .lanes = 2, .ring = 2, .chunk_bytes = 32u << 20, .stream_count = 3, .event_count = 2};

static void make_images(struct image *images, struct gpu_piece *pieces)
{
    for (uint32_t i = 0; i < ALL; i++) {
        images[i] = cases[i % CASES];
        make_image(&images[i], &pieces[i], (enum kind)(i / CASES));
    }
}

static uint64_t sum_of(const struct image *image, uint64_t sum)
{
    const size_t patches = image->rows * image->columns;
    sum = device_rig_sum(sum, image->budgets, patches * sizeof(int32_t));
    return device_rig_sum(sum, image->scores, patches * SCORES * sizeof(float));
}

START_TEST(test_scores_are_those_of_doubles_and_budgets_sum_up)
{
    static struct image images[ALL];
    static struct gpu_piece pieces[ALL];
    struct device_rig rig;
    uint64_t sum = DEVICE_RIG_SUM;
    if (!device_rig_open(&rig, RELEVANCE_FILE, &options))
        RUNNER_SKIP("there is no device");
    make_images(images, pieces);
    struct gpu_chunk chunk = {.program = &rig.program, .count = ALL, .pieces = pieces};
    device_rig_submit(&rig, &chunk);
    ck_assert_ptr_eq(device_rig_wait(&rig), &chunk);
    for (uint32_t i = 0; i < ALL; i++) {
        check_scores(&images[i]);
        check_budgets(&images[i]);
        sum = sum_of(&images[i], sum);
    }
    /* The same on every device: this is what the CPU device gives. */
    ck_assert_uint_eq(sum, 1769583945991016250u);
    /* Each alone, several chunks under way: the bits that it has beside others. */
    for (uint32_t i = 0; i + 3 < ALL; i += 4) {
        struct gpu_chunk alone[4];
        uint64_t together[4];
        for (uint32_t j = 0; j < 4; j++) {
            together[j] = sum_of(&images[i + j], DEVICE_RIG_SUM);
            memset(images[i + j].budgets, 0, images[i + j].rows * sizeof(int32_t));
            alone[j] =
                (struct gpu_chunk){.program = &rig.program, .count = 1, .pieces = &pieces[i + j]};
            device_rig_submit(&rig, &alone[j]);
        }
        for (uint32_t j = 0; j < 4; j++)
            (void)device_rig_wait(&rig);
        for (uint32_t j = 0; j < 4; j++)
            ck_assert_uint_eq(sum_of(&images[i + j], DEVICE_RIG_SUM), together[j]);
    }
    for (uint32_t i = 0; i < ALL; i++)
        free_image(&images[i]);
    (void)device_rig_close(&rig);
}
END_TEST

START_TEST(test_its_arithmetic_is_that_of_the_mathematics_library)
{
    for (uint32_t i = 0; i < 256; i++)
        ck_assert(fabs((double)relevance_linear(i) - plain_linear(i / 255.0)) < 1e-7);
    for (float x = 0.008f; x < 1.2f; x *= 1.01f)
        ck_assert(fabs((double)relevance_cube_root(x) - cbrt((double)x)) < 2e-7);
    for (uint32_t i = 1; i < 1u << 28; i += 1 + i / 50)
        ck_assert(fabs(relevance_log2(i) / 65536.0 - log2(i)) < 2e-5);
    ck_assert_uint_eq(relevance_log2(1u << 28), 28u << 16);
    struct relevance_lab red = relevance_lab(1, 0, 0), white = relevance_lab(1, 1, 1);
    ck_assert(fabsf(red.l - 0.532408f) < 1e-5f && fabsf(red.a - 80.0925f / 128) < 1e-5f &&
              fabsf(red.b - 67.2032f / 128) < 1e-5f);
    ck_assert(fabsf(white.l - 1) < 1e-6f && fabsf(white.a) < 1e-5f && fabsf(white.b) < 1e-5f);
}
END_TEST

START_TEST(test_totals_that_patches_cannot_have_are_refused_by_name)
{
    static const struct {
        int64_t rows, columns, total;
        const char *why;
    } totals[] = {
        {5, 5, 4096, NULL}, {8, 8, 4096, NULL},        {8, 8, 4095, "less than"},
        {2, 5, 4000, NULL}, {2, 5, 4001, "more than"}, {32, 32, 409600, NULL},
        {1, 1, 64, NULL},   {1, 1, 401, "more than"},
    };
    struct program program;
    struct error error;
    struct sluice_item item = {.sizes = {100, 100}};
    ck_assert_msg(!program_read(&said, &program, &error), "%s", error.text);
    item.values[RELEVANCE_ROWS].integer = totals[_i].rows;
    item.values[RELEVANCE_COLUMNS].integer = totals[_i].columns;
    item.values[RELEVANCE_TOTAL].integer = totals[_i].total;
    shape_values(&program, item.values, item.sizes);
    ck_assert_uint_eq(item.sizes[2], (uint64_t)totals[_i].rows);
    ck_assert_uint_eq(item.sizes[3], (uint64_t)totals[_i].columns);
    ck_assert_int_eq(shape_check(&program, &item, &error), totals[_i].why ? -ERR_BAD_VALUE : 0);
    if (totals[_i].why)
        ck_assert(strstr(error.text, totals[_i].why) && strstr(error.text, "program relevance"));
}
END_TEST

Suite *relevance_suite(void)
{
    Suite *suite = suite_create("relevance");
    TCase *tests = tcase_create("relevance");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, test_scores_are_those_of_doubles_and_budgets_sum_up);
    tcase_add_test(tests, test_its_arithmetic_is_that_of_the_mathematics_library);
    tcase_add_loop_test(tests, test_totals_that_patches_cannot_have_are_refused_by_name, 0, 8);
    suite_add_tcase(suite, tests);
    return suite;
}
