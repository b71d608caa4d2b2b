/* Starting: whatever call fails, the engine says so and leaves nothing behind. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/emu/emu.h"
#include "gpu/gpu.h"
#include "tests/gpu/gpu_suites.h"

static const char *const models[] = {"synthetic:null", "synthetic:tiny",
                                     "tests/model/data/llama-llama3-bf16"};

static void setup(void)
{
    struct emu_options setup = {.engine = EMU_THREADS,
                                .memory_bytes = 256u << 20,
                                .team_threads = 1,
                                .poison = true,
                                .strict = true};
    ck_assert_int_eq(emu_setup(&setup), cudaSuccess);
}

static uint64_t start_calls[EMU_CALLS]; /* made until the engine stood */

static int start(const char *model, const struct gpu_options *more, struct error *error)
{
    struct gpu_options options = *more;
    options.model = model;
    struct gpu_engine *engine = NULL;
    struct gpu_model facts;
    struct gpu_limits limits;
    *error = (struct error){0};
    int status = gpu_module.open(&options, &engine, &facts, &limits, error);
    if (status)
        return status;
    int fd = eventfd(0, EFD_CLOEXEC);
    ck_assert_uint_eq(gpu_module.progress(engine), 0);
    status = gpu_module.start(engine, 0, fd, error);
    if (!status) {
        ck_assert_uint_eq(gpu_module.progress(engine), 1000);
        struct gpu_memory memory; /* the steps without rows have left nothing */
        gpu_module.memory(engine, 0, &memory);
        ck_assert_uint_eq(memory.scratch_used + memory.scratch_held, 0);
    }
    for (int call = 0; call < EMU_CALLS; call++)
        start_calls[call] = emu_calls((enum emu_call)call);
    (void)gpu_module.stop(engine, 0, NULL);
    gpu_module.close(engine);
    close(fd);
    return status;
}

static void clean_check(const char *after, int call, uint64_t nth)
{
    struct emu_live live = emu_live();
    bool clean =
        !live.streams && !live.events && !live.pools && !live.host_ranges && !live.device_bytes;
    ck_assert_msg(clean, "%s: call %s, number %lu: %u streams, %u events, %u pools, %u ranges, %lu",
                  after, emu_call_name((enum emu_call)call), (unsigned long)nth, live.streams,
                  live.events, live.pools, live.host_ranges, (unsigned long)live.device_bytes);
}

START_TEST(any_call_may_fail_while_starting)
{
    const char *model = models[_i];
    struct error error;
    setup();
    ck_assert_msg(start(model, &(struct gpu_options){.slots_max = 8}, &error) == 0, "%s",
                  error.text);
    clean_check(model, 0, 0);
    static uint64_t calls[EMU_CALLS];
    memcpy(calls, start_calls, sizeof calls);
    uint32_t failed = 0;
    for (int call = 0; call < EMU_CALLS; call++) {
        /* An event that is not destroyed is lost with the process. */
        if (call == EMU_cudaEventDestroy)
            continue;
        for (uint64_t nth = 1; nth <= calls[call]; nth += 1 + calls[call] / 8) {
            setup();
            emu_fault_set((enum emu_call)call, nth,
                          nth % 2 ? cudaErrorMemoryAllocation : cudaErrorInvalidValue);
            int status = start(model, &(struct gpu_options){.slots_max = 8}, &error);
            if (status)
                ck_assert_str_ne(error.text, "");
            failed += status != 0;
            clean_check(model, call, nth);
        }
    }
    ck_assert_uint_gt(failed, 20);
}
END_TEST

START_TEST(weights_that_do_not_fit_are_refused_with_both_numbers)
{
    setup();
    struct error error;
    int status = start("synthetic:llama-3.2-1b", &(struct gpu_options){0}, &error);
    ck_assert_int_eq(status, -ERR_DEVICE_MEMORY);
    ck_assert_uint_eq(error.limit, 256u << 20);
    ck_assert_uint_gt(error.value, 2000000000u);
    char number[32];
    snprintf(number, sizeof number, "%lu", (unsigned long)error.value);
    ck_assert_ptr_nonnull(strstr(error.text, number));
    clean_check("synthetic:llama-3.2-1b", 0, 0);
}
END_TEST

/* 30 billion parameters, of which a token is multiplied by 3. */
START_TEST(what_is_said_of_a_mixture_is_what_a_token_goes_through)
{
    struct gpu_model model;
    struct error error;
    struct gpu_options options = {.model = "synthetic:qwen3-30b-a3b"};
    ck_assert_int_eq(gpu_module.check(&options, &model, &error), 0);
    ck_assert_uint_eq(model.experts, 128);
    ck_assert_uint_eq(model.experts_per_token, 8);
    uint64_t attention = 2048ull * (4096 + 2 * 512) + 4096ull * 2048;
    uint64_t experts = 2048ull * 128 + 8 * 3 * 768ull * 2048;
    ck_assert_uint_eq(model.step_parameters, 48 * (attention + experts) + 151936ull * 2048);
    options.model = "synthetic:llama-3.1-8b";
    ck_assert_int_eq(gpu_module.check(&options, &model, &error), 0);
    ck_assert_uint_eq(model.experts, 0);
    ck_assert_uint_eq(model.experts_per_token, 0);
}
END_TEST

START_TEST(what_is_said_of_a_model_is_what_its_files_say)
{
    struct gpu_model model;
    struct error error;
    struct gpu_options options = {.model = "tests/model/data/qwen2-window-bf16/"};
    ck_assert_int_eq(gpu_module.check(&options, &model, &error), 0);
    ck_assert_str_eq(model.id, "qwen2-window-bf16");
    ck_assert_str_eq(model.arch, "qwen2");
    ck_assert_uint_eq(model.vocab, 256);
    ck_assert_uint_eq(model.layers, 3);
    ck_assert_uint_eq(model.group_count, 2);
    ck_assert_uint_eq(model.groups[0].layers + model.groups[1].layers, 3);
    ck_assert_uint_eq(model.groups[0].window + model.groups[1].window, 16);
    ck_assert_uint_ge(model.weight_bytes, 2 * model.parameters);
    options.model = "synthetic:llama-3.1-8b";
    ck_assert_int_eq(gpu_module.check(&options, &model, &error), 0);
    ck_assert_str_eq(model.id, "synthetic:llama-3.1-8b");
    ck_assert_uint_eq(model.parameters, 8030261248u);
    ck_assert_str_eq(model.dtype, "f32");
    /* Of a layer qkv, o, gate, up and down; the head; the table of tokens is only looked up. */
    uint64_t layer = 4096ull * (6144 + 4096 + 3 * 14336);
    ck_assert_uint_eq(model.step_parameters, 32 * layer + 128256ull * 4096);
    ck_assert_uint_eq(model.kv_token_bytes, 32 * 2 * 8 * 128 * sizeof(float));
    options.tp = options.pp = 2; /* all ranks together */
    struct gpu_model parts;
    ck_assert_int_eq(gpu_module.check(&options, &parts, &error), 0);
    ck_assert_uint_eq(parts.step_parameters, model.step_parameters);
    ck_assert_uint_eq(parts.kv_token_bytes, model.kv_token_bytes);
    /* In eight bits with a scale for each token and head, which slabs and limits are made of, too. */
    options.kv_dtype = GPU_KV_FP8;
    ck_assert_str_eq(model.kv_dtype, "f32");
    uint64_t block_bytes = model.groups[0].block_bytes, tokens = model.block_tokens;
    ck_assert_int_eq(gpu_module.check(&options, &parts, &error), 0);
    ck_assert_str_eq(parts.kv_dtype, "fp8");
    ck_assert_uint_eq(parts.kv_token_bytes, 32 * 2 * 8 * (128 + sizeof(float)));
    options.tp = options.pp = 1;
    ck_assert_int_eq(gpu_module.check(&options, &parts, &error), 0);
    ck_assert_uint_eq(parts.groups[0].block_bytes, parts.kv_token_bytes * tokens);
    ck_assert_uint_eq(block_bytes, model.kv_token_bytes * tokens);
    options.slab_bytes = 8 * block_bytes;
    ck_assert_int_eq(gpu_module.check(&options, &parts, &error), 0);
    ck_assert_uint_eq(parts.groups[0].slab_blocks,
                      8 * block_bytes / parts.groups[0].block_bytes);
    options.model = "synthetic:llama-3.1-8b:fp8";
    uint64_t scales = 32 * (6144 + 4096 + 2 * 14336 + 4096) * sizeof(float), sum = 0;
    ck_assert_int_eq(gpu_module.check(&options, &parts, &error), 0);
    ck_assert_uint_eq(parts.format_count, 3);
    ck_assert_str_eq(parts.formats[0].name, "e4m3");
    ck_assert_uint_eq(parts.formats[0].bytes, 32 * layer + scales);
    ck_assert_str_eq(parts.formats[1].name, "bf16"); /* the head and the table of tokens */
    ck_assert_uint_eq(parts.formats[1].bytes, 2 * 128256ull * 4096 * 2);
    ck_assert_str_eq(parts.formats[2].name, "f32");
    for (uint32_t i = 0; i < parts.format_count; i++)
        sum += parts.formats[i].bytes;
    ck_assert_uint_eq(sum + 256, parts.weight_bytes); /* a table of angles */
    options.model = "synthetic:null";
    ck_assert_int_eq(gpu_module.check(&options, &parts, &error), -ERR_BAD_CONFIG);
    ck_assert_uint_eq(parts.format_count, 3); /* untouched */
    ck_assert_str_eq(error.text, "kv-dtype is fp8: the model has no keys and values");
    options.kv_dtype = GPU_KV_AUTO;
    options.model = "synthetic:llama-3.1-8b";
    for (options.dtype = GPU_DTYPE_BF16; options.dtype <= GPU_DTYPE_F16; options.dtype++) {
        ck_assert_int_eq(gpu_module.check(&options, &model, &error), -ERR_BAD_CONFIG);
        ck_assert_ptr_nonnull(strstr(error.text, "float32"));
    }
    options.dtype = GPU_DTYPE_AUTO;
    options.model = "tests/model/data/none-such";
    ck_assert_int_eq(gpu_module.check(&options, &model, &error), -ERR_BAD_MODEL);
}
END_TEST

static char told[512];

static void tell(enum gpu_log_level level, const char *line)
{
    if (level == GPU_LOG_NOTICE && strstr(line, "longrope"))
        snprintf(told, sizeof told, "%s", line);
}

/* Of one checkpoint, by --context-max. */
START_TEST(the_log_says_which_factors_longrope_takes)
{
    static const char *const lines[] = {
        "longrope: the long factors, for a context of 512 tokens (up to 64: the short ones)",
        "longrope: the short factors, for a context of 64 tokens (up to 64: the short ones)", ""};
    struct gpu_options options = {.model = _i < 2 ? "tests/model/data/phi3-long-bf16" : models[2],
                                  .context_max = _i == 1 ? 64 : 0,
                                  .log = tell};
    struct gpu_engine *engine = NULL;
    struct gpu_model facts;
    struct gpu_limits limits;
    struct error error = {0};
    setup();
    ck_assert_msg(!gpu_module.open(&options, &engine, &facts, &limits, &error), "%s", error.text);
    ck_assert_str_eq(told, lines[_i]);
    gpu_module.close(engine);
}
END_TEST

Suite *start_suite(void)
{
    Suite *suite = suite_create("start");
    TCase *tcase = tcase_create("start");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, any_call_may_fail_while_starting, 0, 3);
    tcase_add_test(tcase, weights_that_do_not_fit_are_refused_with_both_numbers);
    tcase_add_test(tcase, what_is_said_of_a_model_is_what_its_files_say);
    tcase_add_test(tcase, what_is_said_of_a_mixture_is_what_a_token_goes_through);
    tcase_add_loop_test(tcase, the_log_says_which_factors_longrope_takes, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
