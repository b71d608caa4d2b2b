/* Each of a step's three waits is necessary: without it, some order of execution that CUDA allows
 * gives wrong answers. The stepper goes through orders, one per seed. */
#include "gpu/emu/emu.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/drive.h"
#include "tests/gpu/rig/rig.h"

#define WAITS                                                                                      \
    3 /* of a step: compute for the plan, copy_out for the results, notify for the copy            \
       */
#define SEEDS 60

static struct drive drive;

static void stepper(uint64_t seed)
{
    struct emu_options options = {.engine = EMU_STEPPER,
                                  .memory_bytes = 64u << 20,
                                  .team_threads = 1,
                                  .seed = seed,
                                  .poison = true,
                                  .strict = true};
    ck_assert_int_eq(emu_setup(&options), cudaSuccess);
}

static void setup(uint64_t seed, bool graphs)
{
    stepper(seed);
    struct drive_options options_drive = {.seed = 3, .stepping = true, .graphs = graphs};
    ck_assert_int_eq(drive_open(&drive, &options_drive), 0);
    ck_assert_int_eq(drive_steps(&drive, 20), 0);
    ck_assert_int_eq(drive_finish(&drive), 0);
    ck_assert_uint_eq(drive.wrong, 0);
}

START_TEST(a_step_waits_three_times)
{
    setup(1, _i);
    uint64_t before = emu_calls(EMU_cudaStreamWaitEvent);
    ck_assert_int_eq(drive_steps(&drive, 10), 0);
    ck_assert_uint_eq(emu_calls(EMU_cudaStreamWaitEvent) - before, 10 * WAITS);
    drive_close(&drive);
}
END_TEST

START_TEST(a_wait_left_out_is_seen)
{
    uint32_t seen = 0;
    for (uint64_t seed = 1; seed <= SEEDS && !seen; seed++) {
        setup(seed, _i >= WAITS);
        emu_fault_skip_wait((uint64_t)_i % WAITS + 1);
        (void)drive_steps(&drive, 3);
        (void)drive_finish(&drive);
        seen += drive.wrong > 0;
        drive_close(&drive);
    }
    ck_assert_uint_gt(seen, 0);
}
END_TEST

/* The same of a real model, by its scores. */
START_TEST(a_wait_left_out_is_seen_in_the_scores)
{
    static struct engine_client talk;
    static struct engine_client_job jobs[REFERENCE_PROMPTS];
    static struct reference reference;
    bool seen = false;
    ck_assert(reference_read("llama-mha-bf16", &reference));
    struct gpu_options options = {
        .model = reference.directory, .tokens_max = 512, .slots_max = 16, .slab_bytes = 8u << 20};
    for (uint64_t seed = 1; seed <= SEEDS && !seen; seed++) {
        stepper(seed);
        ck_assert_int_eq(engine_client_open(&talk, &options, true), 0);
        talk.chunk = 50;
        ck_assert_int_eq(engine_client_start(&talk), 0);
        /* Of the fourth step: the first slab is known by then, so that nothing reads where no
         * memory is. */
        emu_fault_skip_wait(3 * WAITS + (uint64_t)_i + 1);
        rig_score_jobs(jobs, &reference);
        seen = engine_client_run(&talk, jobs, REFERENCE_PROMPTS) != 0 ||
               rig_wrong(rig_compare(jobs, &reference), &reference);
        engine_client_close(&talk);
    }
    ck_assert(seen);
}
END_TEST

Suite *wait_suite(void)
{
    Suite *suite = suite_create("wait");
    TCase *tcase = tcase_create("wait");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_step_waits_three_times, 0, 2);
    tcase_add_loop_test(tcase, a_wait_left_out_is_seen, 0, 2 * WAITS);
    tcase_add_loop_test(tcase, a_wait_left_out_is_seen_in_the_scores, 0, WAITS);
    suite_add_tcase(suite, tcase);
    return suite;
}
