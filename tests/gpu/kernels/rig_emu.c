#include "gpu/emu/emu.h"
#include "tests/gpu/kernels/rig.h"
#include "tests/gpu/kernels/suites.h"

void rig_device(uint32_t threads)
{
    struct emu_options options = {
        .engine = EMU_THREADS, .team_threads = threads, .memory_bytes = 1u << 30, .poison = true};
    OK(emu_setup(&options));
}

const bool rig_kernels_wait = false;
const uint32_t rig_formats = (1u << FORMATS) - 1;
bool rig_gates_many = false;

cudaStream_t rig_tally_make(void)
{
    cudaStream_t tally = emu_tally_make();
    ck_assert_ptr_nonnull(tally);
    return tally;
}

void rig_tally_free(cudaStream_t tally)
{
    emu_tally_free(tally);
}

void rig_suites(SRunner *runner)
{
    srunner_add_suite(runner, formats_suite());
    srunner_add_suite(runner, number_suite());
    srunner_add_suite(runner, simd_suite());
    srunner_add_suite(runner, tune_line_suite());
}
