#include "tests/model/model_suites.h"

#include "tests/runner.h"

int main(void)
{
    SRunner *runner = srunner_create(config_suite());
    srunner_add_suite(runner, config_refusal_suite());
    srunner_add_suite(runner, rope_suite());
    srunner_add_suite(runner, generation_suite());
    srunner_add_suite(runner, safetensors_suite());
    srunner_add_suite(runner, checkpoint_suite());
    srunner_add_suite(runner, directory_suite());
    srunner_add_suite(runner, quantization_suite());
    srunner_add_suite(runner, quantized_files_suite());
    srunner_add_suite(runner, reference_suite());
    srunner_add_suite(runner, synthetic_suite());
    srunner_add_suite(runner, unused_suite());
    srunner_add_suite(runner, words_suite());
    return runner_run(runner);
}
