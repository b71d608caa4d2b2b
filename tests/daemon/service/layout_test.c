#include "daemon/worker/layout.h"

#include <string.h>

#include "tests/daemon/daemon_suites.h"

#define GIB ((uint64_t)1 << 30)

static const struct {
    uint64_t dp, tp, pp; /* as asked; 0: left open */
    uint32_t devices;
    bool named;
    uint64_t memory, weights;
    struct layout is; /* dp 0: refused */
    const char *says;
} cases[] = {
    {0, 0, 1, 1, false, 140 * GIB, 16 * GIB, {1, 1, 1}, "fits on one device"},
    {0, 0, 1, 4, false, 140 * GIB, 16 * GIB, {4, 1, 1}, "fits on one device"},
    {0, 0, 1, 4, true, 140 * GIB, 141 * GIB, {2, 2, 1}, "the fewest devices"},
    {0, 0, 1, 4, false, 140 * GIB, 300 * GIB, {1, 4, 1}, "the fewest devices"},
    {0, 0, 1, 3, false, 140 * GIB, 200 * GIB, {1, 2, 1}, "2 of 3 devices"},
    {2, 0, 1, 4, false, 140 * GIB, 16 * GIB, {2, 1, 1}, "2 of 4 devices"},
    {0, 2, 1, 4, false, 140 * GIB, 16 * GIB, {2, 2, 1}, "as many replicas"},
    {1, 4, 1, 4, false, 140 * GIB, 16 * GIB, {1, 4, 1}, "as asked"},
    {0, 0, 2, 4, false, 140 * GIB, 200 * GIB, {2, 1, 2}, "pp 2"},
    /* The loader knows better than the estimate. */
    {0, 0, 1, 1, false, 16 * GIB, 16 * GIB, {1, 1, 1}, "dp 1"},
    {0, 0, 1, 2, false, 16 * GIB, 200 * GIB, {0, 0, 0}, "do not fit"},
    {2, 4, 1, 4, false, 140 * GIB, 16 * GIB, {0, 0, 0}, "is 8 devices"},
    {0, 8, 1, 4, false, 140 * GIB, 16 * GIB, {0, 0, 0}, "is 8 devices"},
    {1, 2, 1, 3, true, 140 * GIB, 16 * GIB, {0, 0, 0}, "is 2 devices"},
};

START_TEST(devices_are_shared_out)
{
    struct options *options;
    struct error error;
    struct layout layout;
    char reason[LAYOUT_REASON_MAX];
    ck_assert_int_eq(options_defaults(&options, &error), 0);
    options->dp = cases[_i].dp;
    options->tp = cases[_i].tp;
    options->pp = cases[_i].pp;
    const struct layout_facts facts = {.devices = cases[_i].devices,
                                       .named = cases[_i].named,
                                       .memory_bytes = cases[_i].memory,
                                       .weight_bytes = cases[_i].weights};
    int rc = layout_choose(options, &facts, &layout, reason, &error);
    if (cases[_i].is.dp) {
        ck_assert_msg(rc == 0, "%s", error.text);
        ck_assert_mem_eq(&layout, &cases[_i].is, sizeof(layout));
        ck_assert_msg(strstr(reason, cases[_i].says) != NULL, "%s", reason);
    } else {
        ck_assert_int_lt(rc, 0);
        ck_assert_msg(strstr(error.text, cases[_i].says) != NULL, "%s", error.text);
    }
    options_free(options);
}
END_TEST

static const struct {
    struct layout layout;
    uint64_t memory, weights, slab;
    const char *says; /* NULL: there is room */
} rooms[] = {
    {{1, 1, 1}, 17 * GIB, 16 * GIB, GIB, NULL},
    {{1, 1, 1}, 17 * GIB - 1, 16 * GIB, GIB, "at least 18253611008 are needed"},
    {{1, 2, 2}, 5 * GIB, 16 * GIB, GIB, NULL},
    {{4, 2, 1}, 5 * GIB, 16 * GIB, GIB, "8589934592 for weights and 1073741824 for a slab"},
    {{1, 1, 1}, 0, 0, 1, "gpu-memory-max and gpu-memory-reserve leave 0 bytes"},
};

START_TEST(a_device_has_room_for_weights_and_a_slab)
{
    struct error error;
    const struct layout_facts facts = {.memory_bytes = rooms[_i].memory,
                                       .weight_bytes = rooms[_i].weights,
                                       .slab_bytes = rooms[_i].slab};
    int rc = layout_check_room(&rooms[_i].layout, &facts, &error);
    ck_assert_int_eq(rc, rooms[_i].says ? -ERR_BAD_CONFIG : 0);
    if (rc)
        ck_assert_msg(strstr(error.text, rooms[_i].says) != NULL, "%s", error.text);
}
END_TEST

Suite *layout_suite(void)
{
    Suite *suite = suite_create("layout");
    TCase *tcase = tcase_create("layout");
    tcase_add_loop_test(tcase, devices_are_shared_out, 0, (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_loop_test(tcase, a_device_has_room_for_weights_and_a_slab, 0,
                        (int)(sizeof(rooms) / sizeof(rooms[0])));
    suite_add_tcase(suite, tcase);
    return suite;
}
