/* The bits of all reference checkpoints on the CPU device, in every layout, are those that
 * bits.digests has: scores, sampled tokens with their log-probabilities, embeddings; the same with
 * nothing fused that can run alone, and packed as another family has it; and the bytes of a
 * synthetic model's weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/engine/digest.h"
#include "tests/gpu/packed.h"
#include "tests/gpu/rig/rig.h"
#include "tests/gpu/rig/rig_emu.h"

#define BITS "tests/gpu/bits.digests"
#define OUTPUT 12
#define JOBS (3 * REFERENCE_PROMPTS)

static struct engine_client talk;
static struct engine_client_job jobs[JOBS];
static struct reference reference;
static uint32_t again_count; /* digests that were compared once more */

static const struct way {
    uint32_t tp, pp, chunk;
    bool plain; /* nothing is fused that can run alone: the bits are the same */
} ways[] = {{1, 1, 0, false}, {1, 1, 7, false}, {2, 1, 0, false},
            {2, 1, 7, false}, {1, 2, 0, false}, {2, 2, 0, false},
            {1, 1, 0, true},  {2, 1, 0, true},  {1, 2, 0, true}};

/* Of each prompt: one that scores it, one that goes on, one that embeds. */
static void jobs_make(void)
{
    for (uint32_t i = 0; i < REFERENCE_PROMPTS; i++) {
        const struct reference_prompt *prompt = &reference.prompts[i];
        struct engine_client_job job = {.prompt = prompt->tokens, .prompt_len = prompt->count};
        jobs[3 * i] = jobs[3 * i + 1] = jobs[3 * i + 2] = job;
        jobs[3 * i].score = true;
        jobs[3 * i + 1].generate = OUTPUT;
        jobs[3 * i + 1].open = (struct gpu_open){.seed = i,
                                                 .sampler.temperature = i % 2 ? 0.8f : 0,
                                                 .sampler.top_p = i % 3 ? 0.9f : 1,
                                                 .sampler.repetition_penalty = i % 4 ? 1 : 1.2f,
                                                 .flags = i % 4 ? 0 : GPU_SLOT_PENALTIES,
                                                 .eos_from = UINT32_MAX,
                                                 .logprobs = i % 3};
        jobs[3 * i + 2].embed = i % 2 ? GPU_POOL_OUT | GPU_NORMALIZE : GPU_EMBED_LAST;
        jobs[3 * i + 2].open.flags = i % 2 ? GPU_SLOT_POOL : 0;
    }
}

static uint64_t jobs_digest(void)
{
    uint64_t digest = DIGEST_START;
    for (uint32_t i = 0; i < JOBS; i++) {
        const struct engine_client_job *job = &jobs[i];
        if (job->score)
            digest = digest_add(digest, job->scores, (job->prompt_len - 1) * sizeof *job->scores);
        digest = digest_add(digest, job->samples, job->sampled * sizeof *job->samples);
        for (uint32_t j = 0; j < job->sampled; j++)
            digest =
                digest_add(digest, job->tops[j], job->samples[j].top_count * sizeof *job->tops[j]);
        if (job->embed)
            digest = digest_add(digest, job->embedding, talk.model.hidden * sizeof(float));
    }
    return digest;
}

static void programs_plain(struct rank *rank)
{
    rank->program.plain = true;
    (void)program_fuse(&rank->program, NULL);
}

/* False: the layout does not suit the model. */
static bool way_run(const struct way *way, uint64_t *ret)
{
    struct gpu_options options = {.model = reference.directory,
                                  .tp = way->tp,
                                  .pp = way->pp,
                                  .tokens_max = 512,
                                  .slots_max = 32};
    *ret = 0;
    if (!rig_emu(EMU_THREADS, RIG_DEVICES, 0))
        return true;
    int status = engine_client_open(&talk, &options, false);
    if (status)
        return status != -ERR_BAD_CONFIG;
    if (engine_client_start(&talk))
        return true;
    talk.chunk = way->chunk;
    for (uint32_t i = 0; i < talk.ranks && way->plain; i++)
        programs_plain(engine_rank(talk.engine, i));
    jobs_make();
    if (!engine_client_run(&talk, jobs, JOBS))
        *ret = jobs_digest();
    engine_client_close(&talk);
    return true;
}

/* `again`: what the file has of another run of the same bits. */
static void ways_run(struct digest_book *book, const char *name, bool again)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char line[128];
        uint64_t digest;
        snprintf(line, sizeof line, "%.63s/tp%u/pp%u/chunk%u", name, ways[i].tp, ways[i].pp,
                 ways[i].chunk);
        bool second = again || ways[i].plain;
        if ((second && book->out) || !way_run(&ways[i], &digest))
            continue;
        digest_note(book, line, digest);
        again_count += second;
    }
}

static void checkpoint_run(struct digest_book *book, const char *name)
{
    if (digest_turn(book, name) && reference_read(name, &reference))
        ways_run(book, name, false);
}

/* The same model as another family has it. */
static void again_run(struct digest_book *book, const char *name, const char *type,
                      bool (*make)(const char *from, const char *type, const char *directory))
{
    char from[256], file[300], directory[] = "/tmp/packed.XXXXXX";
    if (!digest_turn(book, "") || !reference_read(name, &reference) || !mkdtemp(directory))
        return;
    memcpy(from, reference.directory, sizeof from);
    snprintf(reference.directory, sizeof reference.directory, "%s", directory);
    if (make(from, type, directory))
        ways_run(book, name, true);
    else
        book->different++;
    snprintf(file, sizeof file, "%s/config.json", directory);
    (void)unlink(file);
    snprintf(file, sizeof file, "%s/model.safetensors", directory);
    (void)unlink(file);
    (void)rmdir(directory);
}

/* All fixed memory of the rank after its start begins with the weights. */
static void weights_run(struct digest_book *book, uint32_t tp, uint32_t pp)
{
    struct gpu_options options = {
        .model = "synthetic:tiny-wide", .tp = tp, .pp = pp, .seed = 5, .slots_max = 8};
    static char bytes[4 << 20];
    char way[32];
    snprintf(way, sizeof way, "weights/tp%u/pp%u", tp, pp);
    if (!digest_turn(book, way))
        return;
    if (!rig_emu(EMU_THREADS, RIG_DEVICES, 0) || engine_client_open(&talk, &options, false) ||
        engine_client_start(&talk)) {
        printf("%s: %s\n", way, talk.error.text);
        book->different++;
        return;
    }
    for (uint32_t i = 0; i < talk.ranks; i++) {
        const struct mem *mem = &engine_rank(talk.engine, i)->mem;
        const void *memory = engine_rank(talk.engine, i)->weights.memory;
        uint64_t size = 0;
        char line[128];
        for (uint32_t j = 0; j < mem->fixed_count; j++)
            size = mem->fixed[j].base == memory ? mem->fixed[j].bytes : size;
        snprintf(line, sizeof line, "%s/rank%u", way, i);
        if (!size || size > sizeof bytes)
            continue;
        rig_fetch(bytes, memory, size);
        digest_note(book, line, digest_add(DIGEST_START, bytes, size));
    }
    engine_client_close(&talk);
}

int main(int argc, char **argv)
{
    static char names[REFERENCES_MAX][REFERENCE_NAME];
    struct digest_book book;
    if (!digest_open(&book, BITS, argc, argv)) {
        fprintf(stderr, "usage: %s [--write FILE]\n", argv[0]);
        return 2;
    }
    uint32_t count = reference_names(names);
    for (uint32_t i = 0; i < count; i++)
        checkpoint_run(&book, names[i]);
    again_run(&book, "llama-default-bf16", "llama", packed_make);
    again_run(&book, "mistral-window-bf16", "mistral", packed_make);
    again_run(&book, "mistral-full-f16", "mistral", packed_make);
    again_run(&book, "llama-default-bf16", "llama", scaled_make);
    again_run(&book, "llama-bias-bf16", "llama", scaled_make);
    again_run(&book, "llama-linear-f16", "llama", rotated_make);
    weights_run(&book, 1, 1);
    weights_run(&book, 2, 1);
    weights_run(&book, 1, 2);
    book.seen -= again_count;
    return digest_close(&book, ENGINE_CLIENT_THIN == 1);
}
