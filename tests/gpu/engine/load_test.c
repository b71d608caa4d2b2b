/* Weights of heads in another order: every row of a fused tensor, of its bias and of the norms of
 * heads comes to where the kernels want it, on each rank, in pieces that end inside a head. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu/emu/emu.h"
#include "gpu/graph/build.h"
#include "gpu/weights/loader.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/model/scratch.h"

#define HEAD 32
#define TURNED 24 /* of a head */
#define Q_ROWS (4 * HEAD)
#define KV_ROWS (2 * HEAD)
#define COLUMNS 10000 /* so wide that a piece of staging ends inside a head */
#define VOCAB 16

static struct op_list list_of(uint32_t ranks, bool adjacent)
{
    struct head_order order = {.head_dim = HEAD, .rotary = TURNED, .adjacent = adjacent};
    struct build_attention attention = {.heads = 4, .kv_heads = 2, .head_dim = HEAD, .scale = 1};
    struct model_rope rope = {.pairs = HEAD / 2, .attention = 1};
    struct op_list list;
    struct error error;
    struct build b;
    build_begin(&b, ranks, 1, COLUMNS, VOCAB);
    weight_id embed = build_embed(&b, "table", 1);
    build_rope_table(&b, &rope);
    build_layer(&b, 0);
    value_id qkv = build_matmul(
        &b, b.list.normed, SPLIT_ROWS, true,
        PARTS({"qkv", Q_ROWS, order}, {"qkv", KV_ROWS, order}, {"qkv", KV_ROWS, {0, 0, false}}));
    value_id q = build_part(&b, qkv, 0), k = build_part(&b, qkv, 1), v = build_part(&b, qkv, 2);
    build_head_norm(&b, q, "q_norm", HEAD, NORM_RMS, 1e-5f);
    build_head_norm(&b, k, "k_norm", HEAD, NORM_RMS, 1e-5f);
    build_rope(&b, q, k, 0, HEAD);
    build_attention(&b, q, k, v, &attention);
    build_head(&b, &(struct build_head){.norm = "norm", .embed = embed, .scale = 1});
    ck_assert_int_eq(build_end(&b, &list, &error), 0);
    return list;
}

/* Every element is the number of its row, which 16 bits hold. */
static void tensors_write(const char *directory, const struct op_list *list, bool narrow)
{
    static char header[4096], file[16u << 20];
    uint32_t size = narrow ? 2 : 4;
    size_t used = 0, at = 0;
    for (uint32_t i = 0; i < list->tensor_count; i++) {
        const struct list_tensor *tensor = &list->tensors[i];
        char shape[64];
        size_t bytes = (size_t)tensor->rows * tensor->columns * size;
        snprintf(shape, sizeof shape, tensor->rank == 2 ? "%u,%u" : "%u", tensor->rows,
                 tensor->columns);
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":"
                                 "[%zu,%zu]}",
                                 i ? "," : "{", tensor->name, narrow ? "BF16" : "F32", shape, at,
                                 at + bytes);
        at += bytes;
    }
    used += (size_t)snprintf(header + used, sizeof header - used, "}");
    uint64_t length = used;
    ck_assert(sizeof length + used + at <= sizeof file);
    memcpy(file, &length, sizeof length);
    memcpy(file + sizeof length, header, used);
    char *to = file + sizeof length + used;
    for (uint32_t i = 0; i < list->tensor_count; i++) {
        const struct list_tensor *tensor = &list->tensors[i];
        for (size_t j = 0; j < (size_t)tensor->rows * tensor->columns; j++, to += size) {
            float value = (float)(j / tensor->columns);
            memcpy(to, (char *)&value + 4 - size, size);
        }
    }
    scratch_write(directory, "model.safetensors", file, (size_t)(to - file));
}

static struct checkpoint *checkpoint_of(const char *directory, const struct op_list *list)
{
    struct checkpoint_wanted wanted[16];
    struct checkpoint *checkpoint = NULL;
    struct error error = {0};
    for (uint32_t i = 0; i < list->tensor_count; i++)
        wanted[i] = (struct checkpoint_wanted){.name = list->tensors[i].name,
                                               .shape = {.rank = list->tensors[i].rank,
                                                         .rows = list->tensors[i].rows,
                                                         .columns = list->tensors[i].columns}};
    ck_assert_msg(!checkpoint_open(directory, &checkpoint, &error), "%s", error.text);
    ck_assert_msg(!checkpoint_match(checkpoint, wanted, list->tensor_count, NULL, &error), "%s",
                  error.text);
    return checkpoint;
}

/* Where the model has what the kernels want at element `at` of a head. */
static uint32_t from_of(uint32_t at, bool adjacent)
{
    uint32_t pair = at % (HEAD / 2), second = at / (HEAD / 2);
    if (pair < TURNED / 2)
        return adjacent ? 2 * pair + second : pair + second * (TURNED / 2);
    return TURNED + second * (HEAD / 2 - TURNED / 2) + pair - TURNED / 2;
}

static float read_one(const struct weight *weight, size_t element)
{
    uint32_t size = (uint32_t)dtype_bytes(format_info(weight->format).dtype);
    char bytes[4] = {0};
    float value;
    const char *from = (const char *)weight->data + element * size;
    cudaStream_t own = cudaStreamPerThread; /* that host memory of any kind may be copied on */
    ck_assert_int_eq(cudaMemcpyAsync(bytes + 4 - size, from, size, cudaMemcpyDeviceToHost, own),
                     cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(own), cudaSuccess);
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Rows of a part that begins at row `to` of the weight, `first` of the tensor. */
static void part_check(const struct weight *weight, uint32_t to, uint32_t first, uint32_t rows,
                       int order)
{
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t from = order < 0 ? row : row / HEAD * HEAD + from_of(row % HEAD, order);
        float value = read_one(weight, (size_t)(to + row) * weight->k);
        float last = read_one(weight, (size_t)(to + row + 1) * weight->k - 1);
        ck_assert_msg(value == (float)(first + from) && last == value,
                      "row %u of the part at %u is %g, %g, not %u", row, to, (double)value,
                      (double)last, first + from);
    }
}

static void rank_check(const struct weights *weights, const struct op_list *list, uint32_t rank,
                       bool adjacent)
{
    static const char *const names[] = {"model.layers.0.qkv.weight", "model.layers.0.qkv.bias"};
    uint32_t q = Q_ROWS / list->ranks, kv = KV_ROWS / list->ranks;
    for (int i = 0; i < 2; i++) {
        const struct weight *weight = &weights->at[op_list_weight(list, names[i])];
        part_check(weight, 0, rank * q, q, adjacent);
        part_check(weight, q, Q_ROWS + rank * kv, kv, adjacent);
        part_check(weight, q + kv, Q_ROWS + KV_ROWS + rank * kv, kv, -1);
    }
    part_check(&weights->at[op_list_weight(list, "model.layers.0.q_norm.weight")], 0, 0, HEAD,
               adjacent);
    part_check(&weights->at[op_list_weight(list, "model.layers.0.k_norm.weight")], 0, 0, HEAD,
               adjacent);
}

static void rank_load(const struct weights_source *source, bool adjacent)
{
    struct mem_limits limits = {0};
    struct streams lane;
    struct mem mem;
    struct weights weights;
    struct error error = {0};
    _Atomic uint32_t progress = 0;
    int fd = eventfd(0, EFD_CLOEXEC);
    ck_assert_int_eq(streams_open(&lane, fd, 0, &error), 0);
    ck_assert_int_eq(mem_open(&mem, 0, lane.compute, &limits, &error), 0);
    ck_assert_int_eq(weights_open(&weights, &mem, source, &error), 0);
    struct loader loader = {
        .lane = &lane, .mem = &mem, .source = source, .weights = &weights, .progress = &progress};
    ck_assert_msg(!loader_run(&loader, &error), "%s", error.text);
    ck_assert_int_eq(streams_synchronize(&lane, &error), 0);
    rank_check(&weights, source->list, source->rank, adjacent);
    weights_close(&weights);
    ck_assert_int_eq(mem_close(&mem, NULL), 0);
    streams_close(&lane);
    close(fd);
}

START_TEST(heads_stand_in_the_order_that_kernels_rotate_in)
{
    struct emu_options setup = {.engine = EMU_THREADS,
                                .memory_bytes = 256u << 20,
                                .team_threads = 2,
                                .poison = true,
                                .strict = true};
    ck_assert_int_eq(emu_setup(&setup), cudaSuccess);
    bool adjacent = _i % 2, narrow = _i / 2 % 2;
    struct op_list list = list_of((uint32_t)_i / 4 + 1, adjacent);
    char directory[SCRATCH_PATH_MAX];
    scratch_make(directory);
    tensors_write(directory, &list, narrow);
    for (uint32_t rank = 0; rank < list.ranks; rank++) {
        struct weights_source source = {.list = &list,
                                        .ops = list.ops,
                                        .op_count = list.op_count,
                                        .checkpoint = checkpoint_of(directory, &list),
                                        .dtype = DTYPE_F32,
                                        .rank = rank};
        rank_load(&source, adjacent);
        checkpoint_close((struct checkpoint *)source.checkpoint);
    }
    scratch_remove(directory);
    op_list_free(&list);
}
END_TEST

Suite *load_suite(void)
{
    Suite *suite = suite_create("load");
    TCase *tcase = tcase_create("load");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, heads_stand_in_the_order_that_kernels_rotate_in, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}
