#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"
#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(matmul_suite());
    srunner_add_suite(runner, adapt_suite());
    srunner_add_suite(runner, norm_suite());
    srunner_add_suite(runner, rows_suite());
    srunner_add_suite(runner, hand_suite());
    srunner_add_suite(runner, experts_suite());
    srunner_add_suite(runner, experts_packed_suite());
    srunner_add_suite(runner, place_suite());
    srunner_add_suite(runner, attention_suite());
    srunner_add_suite(runner, attention_bits_suite());
    srunner_add_suite(runner, invariant_suite());
    srunner_add_suite(runner, sample_suite());
    srunner_add_suite(runner, draft_suite());
    srunner_add_suite(runner, draw_suite());
    srunner_add_suite(runner, pool_suite());
    srunner_add_suite(runner, exchange_suite());
    srunner_add_suite(runner, whole_suite());
    rig_suites(runner);
    srunner_set_fork_status(runner, CK_NOFORK);
    return runner_run(runner);
}
