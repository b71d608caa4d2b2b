/* The check against transformers can fail: each mistake that an engine could make moves the scores
 * by at least ten times the tolerance. */
#include "tests/gpu/engine/mutation.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/reference.h"

struct engine_client mutated_engine;
static struct engine_client_job jobs[REFERENCE_PROMPTS];
static struct reference reference;

static void model_open(const char *name)
{
    ck_assert(rig_setup());
    ck_assert(reference_read(name, &reference));
    struct gpu_options options = {.model = reference.directory,
                                  .dtype = rig_dtype,
                                  .tokens_max = 512,
                                  .slots_max = 16,
                                  .slab_bytes = 8u << 20};
    ck_assert_int_eq(engine_client_open(&mutated_engine, &options, false), 0);
}

static struct rig_error error_run(void)
{
    rig_score_jobs(jobs, &reference);
    ck_assert_int_eq(engine_client_run(&mutated_engine, jobs, REFERENCE_PROMPTS), 0);
    return rig_compare(jobs, &reference);
}

static struct rig_error mutated(const char *model, void (*before)(void), void (*after)(void))
{
    model_open(model);
    before();
    ck_assert_int_eq(engine_client_start(&mutated_engine), 0);
    after();
    struct rig_error error = error_run();
    engine_client_close(&mutated_engine);
    return error;
}

/* Of all lists, one behind the other. */
static const struct mutation *mutation_at(int number)
{
    return number < mutations_dense.count ? &mutations_dense.list[number]
                                          : &mutations_experts.list[number - mutations_dense.count];
}

START_TEST(a_mutation_is_seen)
{
    const struct mutation *mutation = mutation_at(_i * ENGINE_CLIENT_THIN);
    struct rig_error error = mutated(mutation->model, mutation->before, mutation->after);
    ck_assert_msg(rig_wrong(error, &reference), "%s: mean %g, worst %g only", mutation->what,
                  error.mean, error.max);
    error = mutated(mutation->model, nothing, nothing);
    ck_assert_msg(rig_right(error, &reference), "%s: mean %g, worst %g", mutation->model,
                  error.mean, error.max);
}
END_TEST

Suite *mutation_suite(void)
{
    Suite *suite = suite_create("mutation");
    TCase *tcase = tcase_create("mutation");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_mutation_is_seen, 0,
                        ENGINE_CLIENT_TURNS(mutations_dense.count + mutations_experts.count));
    suite_add_tcase(suite, tcase);
    return suite;
}
