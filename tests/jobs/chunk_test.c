/* Chunks of waiting jobs: every row once, limits held, large ones in pieces that hold nobody up. */
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/chunk.h"
#include "gpu/jobs/shape.h"
#include "tests/jobs/bench.h"
#include "tests/jobs/daemon_suites.h"

#define JOBS 200

static const struct sluice_size sizes[] = {{"n", 1, 1 << 20}};
static const struct sluice_tensor tensors[] = {{"x", SLUICE_F32, 1, {SLUICE_SIZE(0)}}};

static int enqueue(const struct sluice_batch *batch, const struct sluice_streams *streams,
                   struct sluice_allocator *allocator)
{
    (void)batch;
    (void)streams;
    (void)allocator;
    return 0;
}

static struct sluice_program said(const char *name, uint64_t cut, uint32_t items)
{
    return (struct sluice_program){.abi = SLUICE_PROGRAM_ABI,
                                   .name = name,
                                   .size_count = 1,
                                   .input_count = 1,
                                   .output_count = 1,
                                   .sizes = sizes,
                                   .inputs = tensors,
                                   .outputs = tensors,
                                   .cut_rows = cut,
                                   .batch_items_max = items,
                                   .enqueue = enqueue};
}

struct scene {
    struct job_program programs[3];
    struct seq seqs[JOBS];
    struct tensor_job jobs[JOBS];
    unsigned char rows[JOBS][1 << 16]; /* how often each was taken; only where a job is so long */
    float place[1 << 16];
    struct list waiting;
    struct chunk_limits limits;
};

static void make_scene(struct scene *scene, uint64_t *state, uint32_t jobs)
{
    const struct sluice_program all[] = {said("cut", 64, 0), said("whole", 0, 0),
                                         said("few", 64, 3)};
    memset(scene, 0, sizeof(*scene));
    for (int i = 0; i < 3; i++)
        scene->programs[i].program = bench_program(&all[i]);
    list_init(&scene->waiting);
    scene->limits = (struct chunk_limits){.bytes = 16384, .all = UINT64_MAX};
    for (uint32_t i = 0; i < jobs; i++) {
        struct tensor_job *job = &scene->jobs[i];
        job->program = &scene->programs[bench_draw(state, 3)];
        uint32_t most = job->program->program.cut_rows && bench_draw(state, 8) == 0 ? 60000 : 1500;
        job->sizes[0] = 1 + bench_draw(state, most);
        job->inputs[0] = job->outputs[0] = scene->place;
        scene->seqs[i].job = job;
        list_append(&scene->waiting, &scene->seqs[i].run_link);
    }
}

static void check_chunk(struct scene *scene, const struct chunk *chunk)
{
    uint64_t in = 0, out = 0;
    const struct program *program = chunk->base.program;
    ck_assert_uint_le(chunk->base.count, GPU_JOBS_PIECES_MAX);
    ck_assert(program->batch_items_max == 0 || chunk->base.count <= program->batch_items_max);
    for (uint32_t i = 0; i < chunk->base.count; i++) {
        const struct gpu_piece *piece = &chunk->pieces[i];
        const struct seq *seq = chunk->seqs[i];
        ck_assert_ptr_eq(&seq->job->program->program, program);
        ck_assert_uint_eq(piece->whole, seq->job->sizes[0]);
        ck_assert(program->cut_rows == 0 || piece->first % program->cut_rows == 0);
        ck_assert_ptr_eq(piece->inputs[0], scene->place + piece->first);
        ck_assert_ptr_eq(piece->outputs[0], scene->place + piece->first);
        in += shape_align(piece->sizes[0] * sizeof(float));
        out += shape_align(piece->sizes[0] * sizeof(float));
        for (uint64_t row = 0; row < piece->sizes[0]; row++)
            scene->rows[seq - scene->seqs][piece->first + row]++;
    }
    ck_assert_uint_le(in, scene->limits.bytes);
    ck_assert_uint_le(out, scene->limits.bytes);
}

START_TEST(every_row_of_every_job_is_in_one_chunk)
{
    static struct scene scene;
    static struct chunk chunk;
    uint64_t state = (uint64_t)_i + 1;
    uint32_t given_back = 0;
    make_scene(&scene, &state, JOBS);
    while (!list_empty(&scene.waiting)) {
        ck_assert_uint_gt(chunk_fill(&chunk, &scene.waiting, &scene.limits), 0);
        if (bench_draw(&state, 5) == 0) { /* the device had no memory for it */
            chunk_give_back(&chunk, &scene.waiting);
            given_back++;
            continue;
        }
        check_chunk(&scene, &chunk);
        for (uint32_t i = 0; i < chunk.base.count; i++)
            chunk.seqs[i]->job->under_way--;
    }
    ck_assert_uint_gt(given_back, 0);
    for (uint32_t i = 0; i < JOBS; i++) {
        ck_assert(scene.jobs[i].taken && scene.jobs[i].under_way == 0);
        uint64_t wrong = 0; /* an assert for each would take its time */
        for (uint64_t row = 0; row < scene.jobs[i].sizes[0]; row++)
            wrong += scene.rows[i][row] != 1;
        ck_assert_uint_eq(wrong, 0);
    }
}
END_TEST

START_TEST(a_large_job_lets_those_behind_it_go_after_one_piece)
{
    static struct scene scene;
    static struct chunk chunk;
    uint64_t state = 1;
    make_scene(&scene, &state, 2);
    for (int i = 0; i < 2; i++)
        scene.jobs[i].program = &scene.programs[0];
    scene.jobs[0].sizes[0] = 60000;
    scene.jobs[1].sizes[0] = 10;
    ck_assert_uint_eq(chunk_fill(&chunk, &scene.waiting, &scene.limits), 1);
    ck_assert_ptr_eq(chunk.seqs[0], &scene.seqs[0]);
    ck_assert_uint_eq(chunk.pieces[0].sizes[0], 4096);
    ck_assert_uint_ge(chunk_fill(&chunk, &scene.waiting, &scene.limits), 1);
    ck_assert_ptr_eq(chunk.seqs[0], &scene.seqs[1]);
}
END_TEST

START_TEST(what_cannot_fit_a_chunk_is_refused_before_it_waits)
{
    static struct scene scene;
    uint64_t state = 1;
    struct error error;
    make_scene(&scene, &state, 1);
    struct tensor_job *job = &scene.jobs[0];
    job->sizes[0] = 60000;
    job->program = &scene.programs[0];
    ck_assert_int_eq(chunk_check(job, &scene.limits, &error), 0);
    job->program = &scene.programs[1];
    ck_assert_int_eq(chunk_check(job, &scene.limits, &error), -ERR_TOO_LARGE);
    ck_assert_ptr_nonnull(strstr(error.text, "cannot be cut"));
    job->sizes[0] = 4096;
    ck_assert_int_eq(chunk_check(job, &scene.limits, &error), 0);
    scene.limits.all = 16384;
    ck_assert_int_eq(chunk_check(job, &scene.limits, &error), -ERR_TOO_LARGE);
}
END_TEST

Suite *chunk_suite(void)
{
    Suite *suite = suite_create("chunk");
    TCase *tests = tcase_create("chunk");
    tcase_add_loop_test(tests, every_row_of_every_job_is_in_one_chunk, 0, 10);
    tcase_add_test(tests, a_large_job_lets_those_behind_it_go_after_one_piece);
    tcase_add_test(tests, what_cannot_fit_a_chunk_is_refused_before_it_waits);
    suite_add_tcase(suite, tests);
    return suite;
}
