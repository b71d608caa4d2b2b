/* Weights that a model leaves in host memory when it sleeps (gpu_api.keep): what comes back is what
 * was there, bit for bit and from no file, in every layout; what is refused or fails leaves the files,
 * and nothing behind. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/memory/host_pages.h"
#include "protocol/base/mix.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/rig/engine_client.h"
#include "tests/gpu/rig/reference.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"
#include "tests/runner.h"

#define LLAMA "llama-default-bf16"
#define CHUNK 40960u /* so that each of these models has several */
/* Sanitizers see the paths, not every story. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHARES 1
#define EACH 15 /* seeds, in which all that can happen does */
#else
#define SHARES 4
#define EACH 30
#endif
#define TURNS 4 /* at most */

static const struct {
    const char *model;
    uint32_t tp, pp;
    enum gpu_quantize quantize;
    const char *draft; /* another model, which is kept with it */
} cases[] = {{LLAMA, 1, 1, GPU_QUANTIZE_NONE, NULL},
             {LLAMA, 2, 1, GPU_QUANTIZE_NONE, NULL},
             {LLAMA, 2, 2, GPU_QUANTIZE_NONE, NULL},
             {LLAMA, 1, 1, GPU_QUANTIZE_NONE, "mistral-window-bf16"},
             {LLAMA, 1, 1, GPU_QUANTIZE_FP8, NULL},
             {"phi3-window-bf16", 1, 1, GPU_QUANTIZE_NONE, NULL},
             {"gpt-oss-yarn-bf16", 1, 1, GPU_QUANTIZE_NONE, NULL},
             {"mixtral-default-bf16", 1, 1, GPU_QUANTIZE_FP8, NULL}};
#define CASES (int)(sizeof cases / sizeof *cases)
#define LAYOUTS 4 /* the first of them */

static struct engine_client talk;
static struct engine_client_job jobs[ENGINE_CLIENT_JOBS];
static struct gpu_score scores[REFERENCE_PROMPTS][ENGINE_CLIENT_TOKENS];
static struct reference base, draft;
static struct gpu_kept *kept;
static struct gpu_options options;

static void setup(int number, uint64_t limit)
{
    struct error error;
    ck_assert(rig_emu(EMU_THREADS, RIG_DEVICES, 0));
    ck_assert(reference_read(cases[number].model, &base));
    ck_assert_int_eq(gpu_module.kept_make(limit, &kept, &error), 0);
    kept->chunk_bytes = CHUNK;
    if (cases[number].draft)
        ck_assert(reference_read(cases[number].draft, &draft));
    options = (struct gpu_options){.model = base.directory,
                                   .tp = cases[number].tp,
                                   .pp = cases[number].pp,
                                   .quantize = cases[number].quantize,
                                   .tokens_max = 512,
                                   .slots_max = ENGINE_CLIENT_JOBS,
                                   .host_limit = limit,
                                   .draft_model = cases[number].draft ? draft.directory : NULL,
                                   .kept = kept};
}

static void end(void)
{
    gpu_module.kept_free(kept);
    struct emu_live live = emu_live();
    ck_assert_uint_eq(live.host_ranges, 0);
    ck_assert_uint_eq(live.device_bytes, 0);
    ck_assert_uint_eq(live.streams + live.events, 0);
}

static int start(void)
{
    int status = engine_client_open(&talk, &options, false);
    return status ? status : engine_client_start(&talk);
}

static void wake(void)
{
    ck_assert_msg(start() == 0, "%s", talk.error.text);
}

static void sleep_now(void)
{
    engine_client_close(&talk);
}

static void keep(void)
{
    struct error error;
    ck_assert_msg(gpu_module.keep(talk.engine, &error) == 0, "%s", error.text);
    ck_assert(kept->whole);
}

static void kept_are(uint64_t pinned, uint64_t mapped)
{
    uint64_t is_pinned, is_mapped;
    gpu_module.kept_memory(kept, &is_pinned, &is_mapped);
    ck_assert_uint_eq(is_pinned, pinned);
    ck_assert_uint_eq(is_mapped, mapped);
}

/* A part for each rank, and one for the draft model. */
static uint32_t parts(void)
{
    return talk.ranks + drafter_exists(&engine_rank(talk.engine, 0)->drafter);
}

static const struct weights *weights_of(uint32_t part)
{
    return part < talk.ranks ? &engine_rank(talk.engine, part)->weights
                             : &engine_rank(talk.engine, 0)->drafter.weights;
}

static uint64_t all_bytes(void)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < parts(); i++)
        bytes += weights_of(i)->bytes;
    return bytes;
}

static void answer(void)
{
    rig_score_jobs(jobs, &base);
    ck_assert_msg(engine_client_run(&talk, jobs, REFERENCE_PROMPTS) == 0, "%s", talk.error.text);
}

static void remember(void)
{
    answer();
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        memcpy(scores[i], jobs[i].scores, sizeof scores[i]);
}

/* The answers that were given before, to the bit. */
static void same(uint64_t seed)
{
    answer();
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++)
        for (uint32_t j = 0; j + 1 < jobs[i].prompt_len; j++)
            ck_assert_msg(jobs[i].scores[j].logprob == scores[i][j].logprob,
                          "seed %lu: prompt %u, token %u", (unsigned long)seed, i, j);
}

/* ---- bits --------------------------------------------------------------------------------------
 */

/* Those that come beside steps, too. */
static void all_are_there(void)
{
    for (uint32_t i = 0; i < talk.ranks; i++)
        ck_assert_int_eq(cudaStreamSynchronize(engine_rank(talk.engine, i)->lane.bulk_in), 0);
    ck_assert_uint_eq(gpu_module.progress(talk.engine), 1000);
}

static void *fetch_weights(void)
{
    all_are_there();
    char *all = malloc(all_bytes());
    uint64_t at = 0;
    for (uint32_t i = 0; i < parts(); i++) {
        const struct weights *weights = weights_of(i);
        rig_fetch(all + at, weights->memory, weights->bytes);
        at += weights->bytes;
    }
    return all;
}

START_TEST(what_slept_in_host_memory_wakes_with_its_bits)
{
    setup(_i, 0);
    wake();
    uint64_t bytes = all_bytes();
    void *before = fetch_weights();
    remember();
    kept_are(0, 0);
    keep();
    kept_are(bytes, 0);
    ck_assert_int_eq(parts() > talk.ranks, cases[_i].draft != NULL);
    ck_assert_uint_gt(kept->parts[0].count, 1);
    ck_assert(!cases[_i].draft || kept->parts[1].count > 1);
    keep(); /* there is nothing to do */
    same(0);
    sleep_now();
    ck_assert_uint_eq(emu_live().device_bytes, 0);
    kept_are(bytes, 0);
    for (int turn = 0; turn < 2; turn++) {
        wake();
        void *after = fetch_weights();
        ck_assert(!memcmp(before, after, bytes));
        free(after);
        same(0);
        sleep_now();
    }
    free(before);
    end();
}
END_TEST

/* Or the test above would show nothing: what host memory has is what the device gets. */
START_TEST(they_come_from_host_memory_and_from_no_file)
{
    setup(_i, 0);
    wake();
    keep();
    const uint32_t count = parts();
    sleep_now();
    for (uint32_t r = 0; r < count; r++) {
        struct kept_part *part = &kept->parts[r];
        ((char *)part->chunks[part->count - 1].base)[1] ^= 1;
        ((char *)part->chunks[0].base)[0] ^= 1;
    }
    wake();
    all_are_there();
    for (uint32_t r = 0; r < count; r++) {
        const struct kept_part *part = &kept->parts[r];
        const struct weights *weights = weights_of(r);
        char *is = malloc(weights->bytes);
        rig_fetch(is, weights->memory, weights->bytes);
        for (uint32_t i = 0; i < part->count; i++) {
            uint64_t at = i * (uint64_t)CHUNK, left = weights->bytes - at;
            ck_assert(!memcmp(is + at, part->chunks[i].base, left < CHUNK ? left : CHUNK));
        }
        free(is);
    }
    sleep_now();
    end();
}
END_TEST

/* ---- the device given back ---------------------------------------------------------------------
 */

START_TEST(with_the_device_given_back_they_are_mapped_and_come_back)
{
    struct error error;
    setup(_i, 0);
    wake();
    uint64_t bytes = all_bytes();
    remember();
    keep();
    ck_assert_int_eq(gpu_module.device_give(0, &error), -ERR_DEVICE); /* it is in use */
    ck_assert_ptr_nonnull(strstr(error.text, "still taken"));
    sleep_now();
    for (int turn = 0; turn < 2; turn++) {
        gpu_module.kept_unpin(kept);
        kept_are(0, bytes);
        ck_assert_uint_eq(emu_live().host_ranges, 0);
        ck_assert_int_eq(gpu_module.device_give(0, &error), 0);
        wake();
        kept_are(bytes, 0);
        same(0);
        sleep_now();
    }
    end();
}
END_TEST

/* Of a start. */
static uint64_t launches(void)
{
    uint64_t before = emu_calls(EMU_launch);
    wake();
    uint64_t count = emu_calls(EMU_launch) - before;
    sleep_now();
    return count;
}

START_TEST(steps_that_load_kernels_run_once_for_all_engines_of_a_context)
{
    setup(0, 0);
    uint64_t cold = launches(), warm = launches();
    ck_assert_uint_lt(warm, cold);
    ck_assert_uint_eq(launches(), warm);
    gpu_module.kept_unpin(kept); /* the device would be given back */
    ck_assert_uint_eq(launches(), cold);
    ck_assert_uint_eq(launches(), warm);
    end();
}
END_TEST

START_TEST(pages_that_are_not_registered_again_leave_the_files)
{
    struct error error;
    setup(0, 0);
    wake();
    remember();
    keep();
    sleep_now();
    gpu_module.kept_unpin(kept);
    emu_fault_set(EMU_cudaHostRegister, 2, cudaErrorMemoryAllocation);
    wake();
    same(0);
    ck_assert_int_eq(gpu_module.keep(talk.engine, &error), -ERR_NO_MEMORY);
    ck_assert_str_eq(error.text, "its pages were not registered again");
    kept_are(0, 0);
    keep(); /* asked again, and this time there is room */
    sleep_now();
    end();
}
END_TEST

/* Of what is dropped, a chunk that the driver does not let go of. */
START_TEST(pages_that_the_driver_keeps_stay_counted)
{
    const uint64_t before = host_pages_reserved();
    setup(0, 0);
    wake();
    keep();
    const struct kept_chunk first = kept->parts[0].chunks[0];
    sleep_now();
    emu_fault_set(EMU_cudaHostUnregister, 1, cudaErrorInvalidValue);
    kept_weights_drop(kept);
    kept_are(CHUNK, 0);
    ck_assert_uint_eq(host_pages_reserved(), before + CHUNK);
    wake();
    keep(); /* and it is filled anew beside that */
    kept_are(all_bytes() + CHUNK, 0);
    sleep_now();
    ck_assert(host_pages_drop(first.base, CHUNK, true));
    host_pages_return(CHUNK);
    end();
}
END_TEST

/* ---- the limit ---------------------------------------------------------------------------------
 */

START_TEST(one_limit_holds_for_weights_and_for_blocks)
{
    struct error error;
    setup(0, 0);
    wake();
    uint64_t bytes = all_bytes();
    sleep_now();
    gpu_module.kept_free(kept);
    setup(0, bytes + 100000);
    options.host_max = 1u << 20;
    options.host_chunk_bytes = 90000;
    wake();
    ck_assert_uint_ge(talk.limits.chunks_max, 2);
    keep();
    ck_assert_int_eq(gpu_module.chunk_make(talk.engine, 0, 0, &error), 0);
    ck_assert_int_eq(gpu_module.chunk_make(talk.engine, 0, 1, &error), -ERR_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(error.text, "host-memory of"));
    ck_assert_uint_eq(error.limit, bytes + 100000);
    gpu_module.chunk_drop(talk.engine, 0);
    kept_weights_drop(kept);
    ck_assert_int_eq(gpu_module.chunk_make(talk.engine, 0, 0, &error), 0);
    ck_assert_int_eq(gpu_module.chunk_make(talk.engine, 0, 1, &error), 0);
    uint64_t calls = emu_calls(EMU_cudaHostRegister);
    ck_assert_int_eq(gpu_module.keep(talk.engine, &error), -ERR_NO_MEMORY);
    ck_assert_uint_eq(emu_calls(EMU_cudaHostRegister), calls); /* not half of it first */
    kept_are(0, 0);
    sleep_now();
    end();
}
END_TEST

/* Each of two fills itself page by page: half and half would be of use to none. */
static void *keep_other(void *engine)
{
    struct error error;
    return gpu_module.keep(engine, &error) ? NULL : engine;
}

START_TEST(of_two_that_fill_at_once_one_has_the_room)
{
    struct engine_client other;
    struct gpu_kept *others;
    struct error error;
    pthread_t thread;
    void *is_kept;
    setup(0, 0);
    wake();
    uint64_t bytes = all_bytes();
    sleep_now();
    gpu_module.kept_free(kept);
    setup(0, bytes + bytes / 2);
    wake();
    struct gpu_options others_options = options;
    ck_assert_int_eq(gpu_module.kept_make(options.host_limit, &others, &error), 0);
    others->chunk_bytes = CHUNK;
    others_options.kept = others;
    ck_assert_int_eq(engine_client_open(&other, &others_options, false), 0);
    ck_assert_int_eq(engine_client_start(&other), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, keep_other, other.engine), 0);
    bool first = gpu_module.keep(talk.engine, &error) == 0;
    pthread_join(thread, &is_kept);
    ck_assert_int_eq(first + (is_kept != NULL), 1);
    kept_are(first ? bytes : 0, 0);
    /* And what the one gives back the other may have. */
    kept_weights_drop(first ? kept : others);
    ck_assert_int_eq(gpu_module.keep(first ? other.engine : talk.engine, &error), 0);
    engine_client_close(&other);
    gpu_module.kept_free(others);
    sleep_now();
    end();
}
END_TEST

/* ---- what fails --------------------------------------------------------------------------------
 */

static void *keep_aside(void *ret)
{
    struct error error;
    *(int *)ret = gpu_module.keep(talk.engine, &error);
    return NULL;
}

START_TEST(an_engine_that_ends_meanwhile_ends_it)
{
    pthread_t thread;
    int status;
    setup(_i % 2, 0);
    wake();
    remember();
    ck_assert_int_eq(pthread_create(&thread, NULL, keep_aside, &status), 0);
    for (int i = 0; i < _i % 4; i++)
        same(0);
    for (uint32_t rank = 0; rank < talk.ranks; rank++)
        (void)gpu_module.stop(talk.engine, rank, NULL);
    pthread_join(thread, NULL);
    ck_assert(status == 0 || status == -ERR_DRAINING);
    ck_assert(kept->whole == (status == 0));
    sleep_now();
    wake();
    same(0);
    sleep_now();
    end();
}
END_TEST

/* As chance has it, calls fail while weights are kept, given up and brought back. An engine that
 * does not start says why, and the next one has the same answers, from wherever. */
static const enum emu_call breakable[] = {
    EMU_cudaHostRegister, EMU_cudaMemcpyAsync,      EMU_cudaStreamCreateWithPriority,
    EMU_cudaEventRecord,  EMU_cudaEventCreateWithFlags, EMU_cudaMalloc};
#define BREAKABLE (sizeof breakable / sizeof *breakable)

static struct {
    uint32_t kept, refused, failed, returned, anew;
} seen;

static uint64_t draw(uint64_t *random, uint64_t below)
{
    return mix64(*random += 0x9e3779b97f4a7c15u) % below;
}

static void break_one(uint64_t *random, uint64_t most)
{
    enum emu_call call = breakable[draw(random, BREAKABLE)];
    emu_fault_set(call, 1 + draw(random, most), cudaErrorMemoryAllocation);
}

static void mend(void)
{
    for (size_t i = 0; i < BREAKABLE; i++)
        emu_fault_set(breakable[i], 0, cudaSuccess);
}

static void try_keep(uint64_t *random)
{
    struct error error;
    if (draw(random, 2))
        break_one(random, 8);
    int status = gpu_module.keep(talk.engine, &error);
    mend();
    ck_assert(status == 0 ? kept->whole : !kept->whole && error.text[0]);
    seen.kept += status == 0;
    seen.refused += status != 0;
    if (status)
        kept_are(0, 0);
}

static void try_wake(uint64_t *random)
{
    bool whole = kept->whole;
    for (int turn = 0; turn < 2; turn++) {
        if (turn == 0 && draw(random, 2))
            break_one(random, 12);
        int status = start();
        mend();
        if (!status) {
            seen.returned += whole;
            seen.anew += !whole;
            return;
        }
        ck_assert_str_ne(talk.error.text, "");
        seen.failed++;
        engine_client_close(&talk);
        ck_assert_uint_eq(emu_live().device_bytes, 0);
    }
    ck_abort_msg("it does not start: %s", talk.error.text);
}

START_TEST(whatever_fails_the_answers_stay)
{
    for (uint64_t seed = 1 + (uint64_t)_i * EACH; seed <= ((uint64_t)_i + 1) * EACH; seed++) {
        uint64_t random = seed;
        struct error error;
        setup((int)(seed % LAYOUTS), 0);
        wake();
        remember();
        for (uint64_t turns = 1 + draw(&random, TURNS); turns > 0; turns--) {
            if (draw(&random, 4))
                try_keep(&random);
            sleep_now();
            if (draw(&random, 2)) {
                gpu_module.kept_unpin(kept);
                ck_assert_int_eq(gpu_module.device_give(0, &error), 0);
            }
            try_wake(&random);
            same(seed);
        }
        sleep_now();
        end();
    }
    ck_assert_msg(seen.kept && seen.refused && seen.failed && seen.returned && seen.anew,
                  "these seeds test nothing of it");
}
END_TEST

Suite *keep_suite(void)
{
    Suite *suite = suite_create("keep");
    TCase *tcase = tcase_create("keep");
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, what_slept_in_host_memory_wakes_with_its_bits, 0, CASES);
    tcase_add_loop_test(tcase, they_come_from_host_memory_and_from_no_file, 0, LAYOUTS);
    tcase_add_loop_test(tcase, with_the_device_given_back_they_are_mapped_and_come_back, 0,
                        LAYOUTS);
    tcase_add_test(tcase, steps_that_load_kernels_run_once_for_all_engines_of_a_context);
    tcase_add_test(tcase, pages_that_are_not_registered_again_leave_the_files);
    tcase_add_test(tcase, pages_that_the_driver_keeps_stay_counted);
    tcase_add_test(tcase, one_limit_holds_for_weights_and_for_blocks);
    tcase_add_loop_test(tcase, of_two_that_fill_at_once_one_has_the_room, 0, 8);
    tcase_add_loop_test(tcase, an_engine_that_ends_meanwhile_ends_it, 0, 8);
    tcase_add_loop_test(tcase, whatever_fails_the_answers_stay, 0, SHARES);
    suite_add_tcase(suite, tcase);
    return suite;
}
