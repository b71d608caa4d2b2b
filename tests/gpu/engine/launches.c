#include "tests/gpu/engine/launches.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "gpu/comm/comm.h"
#include "gpu/emu/emu.h"
#include "gpu/kernels/attention/attention.h"
#include "gpu/kernels/adapt/adapt.h"
#include "gpu/kernels/collective/all_gather.h"
#include "gpu/kernels/load/convert.h"
#include "gpu/kernels/sampling/count.h"
#include "gpu/kernels/step/embed.h"
#include "gpu/kernels/load/fill.h"
#include "gpu/kernels/load/narrow.h"
#include "gpu/kernels/load/repack.h"
#include "gpu/kernels/sampling/gather.h"
#include "gpu/kernels/step/copy_blocks.h"
#include "gpu/kernels/step/null.h"
#include "gpu/kernels/sampling/mean_pool.h"
#include "gpu/kernels/matmul/matmul.h"
#include "gpu/kernels/step/step_end.h"
#include "gpu/kernels/collective/allreduce_norm.h"
#include "gpu/kernels/collective/allreduce_wide_norm.h"
#include "gpu/kernels/attention/rope_attention.h"
#include "gpu/kernels/sampling/sample.h"
#include "gpu/kernels/sampling/score.h"
#include "gpu/kernels/sampling/softcap.h"
#include "gpu/kernels/experts/combine.h"
#include "gpu/kernels/experts/experts.h"
#include "gpu/kernels/activation/activation.h"
#include "gpu/kernels/matmul/cublaslt_tune.h"
#include "tests/gpu/engine/digest.h"

#define PIECES_MAX 8192
#define PROCESSORS 132
#define UNIT 8 /* outputs of a unit, as in gemv.cu */

static struct {
    uint64_t digest;
    uint32_t fixed, pinned;
} devices[LAUNCHES_DEVICES];

struct piece {
    const char *base;
    uint64_t bytes;
    char name[40];
};

static struct piece pieces[PIECES_MAX];
static uint32_t piece_count;
static FILE *shown;

void launches_reset(FILE *show)
{
    memset(devices, 0, sizeof devices);
    for (int i = 0; i < LAUNCHES_DEVICES; i++)
        devices[i].digest = DIGEST_START;
    piece_count = 0;
    shown = show;
}

static int device_now(void)
{
    int device = 0;
    (void)cudaGetDevice(&device);
    return device;
}

uint64_t launches_add(uint64_t digest, int device)
{
    return digest_add(digest, &devices[device].digest, sizeof devices[device].digest);
}

#define note launches_note

void launches_note(const char *format, ...)
{
    char text[2048];
    int device = device_now();
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    size_t kept = length < (int)sizeof text ? (size_t)length : sizeof text - 1;
    devices[device].digest = digest_add(devices[device].digest, text, kept);
    if (shown)
        fprintf(shown, "%d %s\n", device, text);
}

/* ---- memory: what an address is called ---- */

static void piece_add(const void *base, uint64_t bytes, const char *what, uint64_t number)
{
    struct piece *piece = &pieces[piece_count++ % PIECES_MAX];
    *piece = (struct piece){.base = base, .bytes = bytes};
    snprintf(piece->name, sizeof piece->name, "%d.%s%" PRIu64, device_now(), what, number);
}

#define NAMES 64

/* The newest piece that holds the address. Texts stand until as many others were asked for. */
static const char *name(const void *address)
{
    static char names[NAMES][64];
    static uint32_t turn;
    char *text = names[turn++ % NAMES];
    const char *at = address;
    for (uint32_t i = piece_count; at && i-- > 0;) {
        const struct piece *piece = &pieces[i % PIECES_MAX];
        if (at < piece->base || at >= piece->base + piece->bytes)
            continue;
        snprintf(text, sizeof names[0], "%s+%td", piece->name, at - piece->base);
        return text;
    }
    snprintf(text, sizeof names[0], "%s", at ? "elsewhere" : "-");
    return text;
}

int __real_mem_fixed(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __real_mem_pinned(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __real_mem_scratch(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __real_mem_arena(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __wrap_mem_fixed(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __wrap_mem_pinned(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __wrap_mem_scratch(struct mem *mem, uint64_t bytes, void **ret, struct error *error);
int __wrap_mem_arena(struct mem *mem, uint64_t bytes, void **ret, struct error *error);

int __wrap_mem_fixed(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    int status = __real_mem_fixed(mem, bytes, ret, error);
    if (!status)
        piece_add(*ret, bytes, "fixed", devices[device_now()].fixed++);
    return status;
}

int __wrap_mem_pinned(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    int status = __real_mem_pinned(mem, bytes, ret, error);
    if (!status)
        piece_add(*ret, bytes, "pinned", devices[device_now()].pinned++);
    return status;
}

int __wrap_mem_scratch(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    int status = __real_mem_scratch(mem, bytes, ret, error);
    if (!status)
        piece_add(*ret, bytes, "scratch", bytes);
    return status;
}

int __wrap_mem_arena(struct mem *mem, uint64_t bytes, void **ret, struct error *error)
{
    int status = __real_mem_arena(mem, bytes, ret, error);
    if (!status)
        piece_add(*ret, bytes, "arena", bytes);
    return status;
}

cudaError_t __wrap_cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream);

/* Clears nothing: the memory of large models is never touched. */
cudaError_t __wrap_cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    note("memset %s %d %zu", name(at), value, bytes);
    return cudaSuccess;
}

/* No time passes: all shapes are tuned, however slow the machine is. */
uint64_t __wrap_profile_now_ns(void);

uint64_t __wrap_profile_now_ns(void)
{
    return 0;
}

/* ---- parts of arguments ---- */

#define TEXTS 16
#define TEXT_BYTES 512

static char *text_next(void)
{
    static char texts[TEXTS][TEXT_BYTES];
    static uint32_t turn;
    return texts[turn++ % TEXTS];
}

static const char *rows_text(struct row_range rows)
{
    char *text = text_next();
    snprintf(text, TEXT_BYTES, "[%s %u %u]", name(rows.count), rows.first, rows.max);
    return text;
}

static const char *weight_text(const struct weight *weight)
{
    char *text = text_next();
    snprintf(text, TEXT_BYTES, "(%s %d %ux%u)", name(weight->data), (int)weight->format, weight->n,
             weight->k);
    return text;
}

static const char *batch_text(const struct batch *b)
{
    char *text = text_next();
    int used = snprintf(text, TEXT_BYTES, "{%s seen=%s %u %u %u %u %u %u q=%u,%u to=%u of %u",
                        name(b->counts), name(b->seen), b->rows_max, b->tokens_max, b->samples_max,
                        b->scores_max, b->embeds_max, b->moves_max, b->q_len_max, b->decode_len_max,
                        b->context_max, b->block_tokens);
    for (uint32_t i = 0; i < GPU_GROUPS_MAX; i++)
        used += snprintf(text + used, TEXT_BYTES - (size_t)used, " %s/%" PRIu64 "/%u",
                         name(b->groups[i].tables), b->groups[i].block_bytes, b->groups[i].window);
    snprintf(text + used, TEXT_BYTES - (size_t)used, "}");
    return text;
}

static const char *kv_text(const struct kv_layer *kv)
{
    char *text = text_next();
    snprintf(text, TEXT_BYTES, "kv(%" PRIu64 " %" PRIu64 " %u %d)", kv->k, kv->v, kv->group,
             (int)kv->format);
    return text;
}

static const char *place_text(const struct tensor_slice *p)
{
    char *text = text_next();
    int used =
        snprintf(text, TEXT_BYTES, "place(%" PRIu64 " %u %u %u %u %u %u %u %u)", p->row, p->rows,
                 p->column, p->columns, p->width, p->to, p->run, p->step, p->to_stride);
    if (p->order.head_dim)
        snprintf(text + used, TEXT_BYTES - (size_t)used, " order(%u %u %d %u)", p->order.head_dim,
                 p->order.rotary, p->order.adjacent, p->order.first);
    return text;
}

static const char *norm_text(const struct norm_args *a)
{
    static char text[2 * TEXT_BYTES];
    int used =
        snprintf(text, sizeof text, "%s %s %s %s %s %u %u %u %u %d%d%d%d %a", rows_text(a->rows),
                 name(a->residual), name(a->delta), name(a->weight), name(a->out), a->size,
                 a->residual_stride, a->delta_stride, a->out_stride, (int)a->residual_dtype,
                 (int)a->delta_dtype, (int)a->weight_dtype, (int)a->out_dtype, (double)a->eps);
    if (a->form != NORM_SCALED || a->offset != 0 || a->bias)
        used += snprintf(text + used, sizeof text - (size_t)used, " form %d %a %s", (int)a->form,
                         (double)a->offset, name(a->bias));
    if (a->delta_normed)
        snprintf(text + used, sizeof text - (size_t)used, " behind %s %a %a", name(a->delta_weight),
                 (double)a->delta_eps, (double)a->delta_offset);
    return text;
}

static const char *wide_norm_text(const struct wide_norm_args *a)
{
    static char text[2 * TEXT_BYTES];
    snprintf(text, sizeof text, "%s %s %u %d%d %u+%u %s %u+%u %s %u %s %a %a", rows_text(a->rows),
             name(a->at), a->stride, (int)a->dtype, (int)a->weight_dtype, a->value[0].first,
             a->value[0].size, name(a->value[0].weight), a->value[1].first, a->value[1].size,
             name(a->value[1].weight), a->ranks, name(a->squares), (double)a->eps,
             (double)a->offset);
    return text;
}

static const char *inboxes_text(const struct inboxes *inboxes)
{
    char *text = text_next();
    int used = snprintf(text, TEXT_BYTES, "%u of %u, %" PRIu64 " %s", inboxes->rank, inboxes->ranks,
                        inboxes->part_bytes, name(inboxes->let_go));
    for (uint32_t i = 0; i < inboxes->ranks; i++)
        used += snprintf(text + used, TEXT_BYTES - (size_t)used, " %s", name(inboxes->at[i]));
    return text;
}

static const char *activation_text(enum activation kind, bool gated)
{
    bool silu = kind == ACTIVATE_SILU;
    return gated ? (silu ? "swiglu" : "geglu") : (silu ? "silu" : "gelu");
}

/* ---- the ops ---- */

/* What a launcher of an op does that only notes. The texts are those that the digests were made of,
 * with the words of that tree. */
#define OP(noun, ...)                                                                              \
    cudaError_t op_##noun(const struct noun##_args *a, cudaStream_t stream)                        \
    {                                                                                              \
        (void)stream;                                                                              \
        note(__VA_ARGS__);                                                                         \
        return cudaSuccess;                                                                        \
    }

OP(embed, "embed %s %s %s %u %d", batch_text(&a->batch), weight_text(&a->table), name(a->out), a->stride,
   (int)a->out_dtype)
OP(adapt, "adapt %s %s %s %u", rows_text(a->rows), name(a->x), name(a->y), a->k)
OP(norm, "norm %s", norm_text(a))
OP(wide_norm, "wide norm %s", wide_norm_text(a))
OP(activation, "%s %s %s %s %u %u %u %d", activation_text(a->kind, a->gated), rows_text(a->rows), name(a->in),
   name(a->out), a->size, a->in_stride, a->out_stride, (int)a->dtype)
OP(gather, "gather %s %s %s %s %u %u %u %d", rows_text(a->rows), name(a->index), name(a->in), name(a->out),
   a->size, a->in_stride, a->out_stride, (int)a->dtype)
OP(count, "count %s %u", batch_text(&a->batch), a->vocab)
OP(score, "score %s %s %u %u %s %s", rows_text(a->rows), name(a->logits), a->stride, a->vocab,
   name(a->targets), name(a->scores))
OP(softcap, "softcap %s %s %u %u %a", rows_text(a->rows), name(a->x), a->size, a->stride, (double)a->cap)
OP(route, "route %s %s %s %s %s %u %d %u %u %u %d %d %d %a", rows_text(a->rows), name(a->w.data), name(a->bias), name(a->x),
   name(a->routes), a->x_stride, (int)a->x_dtype, a->w.n, a->count, a->top, (int)a->scores, a->normalised, a->shared,
   (double)a->scale)
OP(segments, "segments %s %s %s %u %u %u %u", rows_text(a->rows), name(a->routes), name(a->segments), a->stride,
   a->own.first, a->own.count, a->top)
OP(experts, "experts %s %s %u %u %s %s %u %u %u %u %s %s %u %u %d %d %d %d", rows_text(a->rows), name(a->w.data), a->w.n,
   a->w.k, name(a->segments), name(a->routes), a->route_stride, a->own.first, a->own.count, a->top, name(a->x), name(a->y),
   a->x_stride, a->y_stride, (int)a->dtype, a->spread, a->gated, (int)a->activation)
OP(combine, "combine %s %s %s %s %s %u %u %u %u %d %d", rows_text(a->rows), name(a->routes), name(a->x),
   name(a->shared), name(a->out), a->own.first, a->own.count, a->size, a->top, (int)a->dtype, (int)a->out_dtype)
OP(copy_blocks, "move %s", batch_text(&a->batch))
OP(step_end, "publish %s %s %s %s %s %u %u", name(a->control), name(a->counts), name(a->samples),
   name(a->tops), name(a->slots), a->samples_max, a->slots_max)
OP(allreduce_norm, "reduce %s %s", norm_text(&a->norm), inboxes_text(&a->inboxes))
OP(allreduce_wide_norm, "reduce wide %s %s", wide_norm_text(&a->norm), inboxes_text(&a->inboxes))
OP(all_gather, "collect %s %s %u %u %s", rows_text(a->rows), name(a->x), a->width, a->share,
   inboxes_text(&a->inboxes))
OP(convert, "convert %s %s %s %d %d", place_text(&a->place), name(a->from), name(a->to), (int)a->from_dtype,
   (int)a->to_dtype)
OP(fill, "fill %s %s %d %u %" PRIu64 " %a %a", place_text(&a->place), name(a->to), (int)a->to_dtype,
   a->tensor, a->seed, (double)a->mean, (double)a->deviation)
OP(narrow, "narrow %s %s %s %d %s", place_text(&a->place), name(a->from), name(a->to), (int)a->from_dtype,
   name(a->scales))
OP(null, "null %s %s", batch_text(&a->batch), name(a->states))
OP(null_masked, "null_masked %s %s %s", batch_text(&a->batch), name(a->control), name(a->masks))

cudaError_t op_squares(const struct wide_norm_args *a, cudaStream_t stream)
{
    (void)stream;
    note("squares %s", wide_norm_text(a));
    return cudaSuccess;
}

cudaError_t op_null_results(const struct null_args *a, cudaStream_t stream)
{
    (void)stream;
    note("null_results %s %s %s", name(a->samples), name(a->scores), name(a->embeds));
    return cudaSuccess;
}

cudaError_t op_angle(const struct angle_args *a, cudaStream_t stream)
{
    (void)stream;
    note("angle %s %s %a %u %s", batch_text(&a->batch), name(a->inverse_frequency),
         (double)a->attention, a->pairs, name(a->angles));
    return cudaSuccess;
}

static void pool_note(const char *what, const struct mean_pool_args *a)
{
    note("%s %s %s %u %u %d %s", what, batch_text(&a->batch), name(a->hidden), a->size, a->stride,
         (int)a->dtype, name(a->out));
}

cudaError_t op_mean_pool_add(const struct mean_pool_args *a, cudaStream_t stream)
{
    (void)stream;
    pool_note("pool_add", a);
    return cudaSuccess;
}

cudaError_t op_mean_pool_out(const struct mean_pool_args *a, cudaStream_t stream)
{
    (void)stream;
    pool_note("pool_out", a);
    return cudaSuccess;
}

static void attend_note(const struct attention_args *a)
{
    note("attend %s %s %s %s %u %u %d %u %u %u %a %s %zu", batch_text(&a->batch), kv_text(&a->kv),
         name(a->q), name(a->out), a->q_stride, a->out_stride, (int)a->dtype, a->heads, a->kv_heads,
         a->head_dim, (double)a->scale, name(a->scratch), a->scratch_bytes);
    if (a->softcap != 0)
        note("attend_softcap %a", (double)a->softcap);
}

OP(head_norm, "head_norm %s %s %u %u %u %d %s %d %a", rows_text(a->rows), name(a->x), a->stride, a->heads,
   a->head_dim, (int)a->dtype, name(a->weight), (int)a->weight_dtype, (double)a->eps)
OP(rotate, "rotate %s %s %s %u %u %u %u %u %d %s", rows_text(a->rows), name(a->q), name(a->k), a->q_stride,
   a->k_stride, a->heads, a->kv_heads, a->head_dim, (int)a->dtype, name(a->angles))
OP(kv_write, "kv_write %s %s %s %s %u %u %u %u %d", batch_text(&a->batch), kv_text(&a->kv), name(a->k),
   name(a->v), a->k_stride, a->v_stride, a->kv_heads, a->head_dim, (int)a->dtype)

cudaError_t op_attention(const struct attention_args *a, cudaStream_t stream)
{
    (void)stream;
    attend_note(a);
    return cudaSuccess;
}

cudaError_t op_rope_attention(const struct rope_args *r, const struct attention_args *a,
                           cudaStream_t stream)
{
    (void)stream;
    note("rope %s %s %s %u %d %u %u %u %s %s %s %d %a", batch_text(&r->batch), kv_text(&r->kv),
         name(r->qkv), r->stride, (int)r->dtype, r->heads, r->kv_heads, r->head_dim,
         name(r->angles), name(r->q_norm), name(r->k_norm), (int)r->norm_dtype, (double)r->eps);
    if (r->norm_offset != 0)
        note("the heads' norms with %a", (double)r->norm_offset);
    attend_note(a);
    return cudaSuccess;
}

size_t attention_scratch_bytes(const struct batch *bounds, uint32_t heads, uint32_t head_dim)
{
    uint32_t splits = (bounds->context_max + ATTENTION_SPLIT - 1) / ATTENTION_SPLIT;
    return splits > 1 ? (size_t)bounds->rows_max * splits * heads * (head_dim + 2) * 4 : 0;
}

size_t sample_scratch_bytes(uint32_t samples_max, uint32_t vocab)
{
    return (size_t)samples_max * (vocab / 64 + 1000);
}

cudaError_t op_sample(const struct sample_args *a, cudaStream_t stream)
{
    (void)stream;
    note("sample %s %s %u %u %u:%d %s %s %s %u %s %zu", batch_text(&a->batch), name(a->logits),
         a->stride, a->vocab, a->eos_count, a->eos_count ? a->eos[a->eos_count - 1] : 0,
         name(a->samples), name(a->tops), name(a->control), a->slots_max, name(a->scratch),
         a->scratch_bytes);
    return cudaSuccess;
}

/* ---- begin ---- */

bool expand_begins(const struct step_begin_args *args)
{
    return args->first.table.data && args->batch.q_len_max == 1 &&
           args->first.table.k <= 1024 * 8 && args->first.table.k % 8 == 0;
}

static void expand_note(const char *what, const struct step_begin_args *a)
{
    const struct step_begin_first *f = &a->first;
    note("%s %s %s %s: %s %s %s %s %s %s %u %a %a %d%d", what, name(a->wire), batch_text(&a->batch),
         name(a->control), weight_text(&f->table), name(f->residual), name(f->norm), name(f->x),
         name(f->inverse_frequency), name(f->angles), f->pairs, (double)f->attention,
         (double)f->eps, (int)f->norm_dtype, (int)f->x_dtype);
    if (f->offset != 0)
        note("the norm with %a", (double)f->offset);
}

static void nothing(const void *args, uint32_t index)
{
    (void)args, (void)index;
}

/* A kernel, so that a captured step has the node that is looked for. */
cudaError_t op_step_begin(const struct step_begin_args *args, cudaStream_t stream)
{
    expand_note("expand", args);
    return emu_launch(stream, "expand", nothing, args, sizeof *args, 1);
}

bool expand_is(cudaGraphNode_t node)
{
    const char *known = emu_graph_node_name(node);
    return known && !strcmp(known, "expand");
}

cudaError_t expand_retarget(cudaGraphExec_t exec, cudaGraphNode_t node,
                            const struct step_begin_args *args)
{
    expand_note("retarget", args);
    return emu_graph_set_args(exec, node, args, sizeof *args);
}

/* ---- products: what matmul.cu says on a device of 132 processors of sm_90 ---- */

static bool aligned(const struct matmul_args *a)
{
    bool narrow =
        format_info(a->w.format).dtype != DTYPE_F32 && format_info(a->w.format).dtype == a->x_dtype;
    return narrow && a->w.k > 0 && a->w.k % 8 == 0 && a->x_stride % 8 == 0 &&
           (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->w.data % 16 == 0;
}

static bool small_can(const struct matmul_args *a)
{
    bool norm_out = !a->norm_out.weight || (a->adds && !a->gated && !a->activates);
    bool norms =
        (!a->norm_out.weight && !a->norm_in.squares) ||
        (norm_out && format_info(a->w.format).dtype == DTYPE_BF16 && PROCESSORS <= MATMUL_PARTS);
    bool gated = !a->gated || a->w.n % (2 * UNIT) == 0;
    bool alone = !a->activates || (!a->gated && !a->adds && a->activation != ACTIVATE_SILU);
    return aligned(a) && gated && alone && a->rows.max <= GEMV_ROWS_MAX &&
           (!a->adds || a->y_dtype == DTYPE_F32) && norms;
}

static bool gated_can(const struct matmul_args *a)
{
    bool plain = !a->adds && !a->bias && !a->norm_out.weight && !a->norm_in.squares;
    bool some = a->rows.max > GEMV_ROWS_MAX && a->rows.max <= MATMUL_GATED_MAX &&
                a->w.n % 4 == 0 && a->y_stride % 2 == 0;
    bool many = a->rows.max > MATMUL_APART_MAX && a->w.n % 16 == 0 && a->y_stride % 8 == 0 &&
                (uintptr_t)a->y % 16 == 0;
    return a->gated && !a->activates && plain && (some || many) && aligned(a) &&
           a->y_dtype == format_info(a->w.format).dtype;
}

/* Of whole numbers with regular scales: few rows, and more without what only the former do
 * (gemv_whole.cu, matmul_whole.cu). */
static bool whole_can(const struct matmul_args *a)
{
    const struct weight *w = &a->w;
    bool regular = (w->format == FORMAT_U4 || w->format == FORMAT_U8) && w->k > 0 &&
                   w->k % 32 == 0 && !w->order && w->scales.n <= 1 && w->scales.k % 32 == 0;
    bool few = a->rows.max <= GEMV_ROWS_MAX, norms = a->norm_out.weight || a->norm_in.squares;
    bool handed = !a->norm_out.weight || (a->adds && !a->gated && !a->activates);
    bool small = (!a->activates || (!a->gated && !a->adds)) &&
                 (!norms || (handed && a->x_dtype == DTYPE_BF16));
    bool wide = a->rows.max <= MATMUL_WHOLE_MAX && !a->activates && !norms &&
                !(a->adds && a->gated);
    return regular && a->x_dtype != DTYPE_F32 && a->x_stride % 8 == 0 && (few ? small : wide) &&
           (!a->gated || w->n % 2 == 0) && (!a->adds || a->y_dtype == DTYPE_F32);
}

/* Of e4m3 that rounds its inputs itself, with scales of whole rows (gemv_rounded.cu). */
static bool rounding_can(const struct matmul_args *a)
{
    struct matmul_args plain = *a;
    plain.norm_out.weight = plain.norm_in.squares = NULL;
    bool norms = a->norm_out.weight || a->norm_in.squares;
    bool handed = !a->norm_out.weight || (a->adds && !a->gated && !a->activates);
    return a->rows.max <= MATMUL_ROUNDS_MAX && launches_scaled_can(&plain) && handed &&
           a->w.n % (a->gated ? 64 : 16) == 0 && (!norms || a->x_dtype == DTYPE_BF16);
}

/* The scales and zeros too: at them a product would read beside what was loaded. */
cudaError_t op_repack(const struct weight *w, cudaStream_t stream)
{
    (void)stream;
    if (w->format == FORMAT_U4 || w->format == FORMAT_U8)
        note("repack %s scales %s %u %u zeros %s order %s", weight_text(w), name(w->scales.data),
             w->scales.n, w->scales.k, name(w->zeros), name(w->order));
    return cudaSuccess;
}

bool experts_takes(const struct weight *w)
{
    (void)w;
    return true;
}

size_t experts_scratch_bytes(const struct weight *w, uint32_t own, uint32_t rows, uint32_t top,
                             bool spread, enum dtype dtype)
{
    (void)w, (void)own, (void)rows, (void)top, (void)spread, (void)dtype;
    return 0;
}

size_t matmul_scratch_bytes(const struct weight *w, uint32_t rows)
{
    (void)w, (void)rows;
    return 0;
}

bool matmul_fuses(const struct matmul_args *args)
{
    bool plain = !args->gated && !args->activates && !args->norm_out.weight &&
                 !args->norm_in.squares;
    if (args->x_rounded || args->hands.rounding != ROUNDING_NONE)
        return launches_scaled_can(args);
    return (plain && (!args->adds || args->y_dtype == DTYPE_F32)) || small_can(args) ||
           gated_can(args) || whole_can(args) || rounding_can(args);
}

cudaError_t op_matmul(const struct matmul_args *a, cudaStream_t stream)
{
    (void)stream;
    if (!matmul_fuses(a))
        note("NOT SUPPORTED");
    bool silu = a->activation == ACTIVATE_SILU; /* as all were, once */
    if (a->activates || (a->gated && !silu))
        note("with %s", activation_text(a->activation, a->gated));
    note("product %s %s %s %s %s %u %u %d%d%d %s %zu %d%d hands %s %s %s %u %d owed %s %a",
         rows_text(a->rows), weight_text(&a->w), name(a->bias), name(a->x), name(a->y), a->x_stride,
         a->y_stride, (int)a->x_dtype, (int)a->y_dtype, (int)a->bias_dtype, name(a->workspace),
         a->workspace_bytes, a->gated, a->adds, name(a->norm_out.weight), name(a->norm_out.out),
         name(a->norm_out.squares), a->norm_out.out_stride, (int)a->norm_out.weight_dtype,
         name(a->norm_in.squares), (double)a->norm_in.eps);
    if (a->x_rounded || a->hands.rounding != ROUNDING_NONE)
        note("comes rounded %d, is handed on %d %a", a->x_rounded, (int)a->hands.rounding,
             (double)a->norm_out.eps);
    if (a->norm_out.offset != 0)
        note("handed with %a", (double)a->norm_out.offset);
    return cudaSuccess;
}

bool tune_known(const struct matmul_args *a)
{
    note("known %u %u %u %d%d%d %d %d", a->rows.max, a->w.n, a->w.k,
         (int)format_info(a->w.format).dtype, (int)a->x_dtype, (int)a->y_dtype, a->bias != NULL,
         a->gated);
    return false;
}

cudaError_t tune_matmul(const struct matmul_args *args, const void *const *weights,
                         uint32_t weight_count, cudaStream_t stream)
{
    (void)stream;
    note("tune %s %s %u: %s .. %s", rows_text(args->rows), weight_text(&args->w), weight_count,
         name(weights[0]), name(weights[weight_count - 1]));
    return cudaSuccess;
}

int tune_load(const char *dir)
{
    (void)dir;
    return 0;
}

int tune_save(const char *dir)
{
    (void)dir;
    return 0;
}

/* ---- sums over ranks ---- */

bool p2p_tally_make(cudaStream_t *ret_tally)
{
    *ret_tally = NULL;
    return true;
}

void p2p_tally_free(cudaStream_t tally)
{
    (void)tally;
}

int comm_body_make(struct comm_group *group, struct error *error)
{
    (void)group, (void)error;
    return 0;
}

void comm_body_free(struct comm_group *group)
{
    (void)group;
}

void comm_body_abort(struct comm_group *group)
{
    (void)group;
}

int comm_body_open(struct comm *comm, struct mem *mem, struct error *error)
{
    (void)comm, (void)mem, (void)error;
    return 0;
}

int comm_body_begin(struct comm *comm, struct error *error)
{
    (void)comm, (void)error;
    note("sums begin");
    return 0;
}

int comm_body_sum(struct comm *comm, void *x, uint64_t count, enum dtype dtype, struct error *error)
{
    (void)comm, (void)error;
    note("sum %s %" PRIu64 " %d", name(x), count, (int)dtype);
    return 0;
}

int __real_comm_join(struct comm *comm, cudaStream_t compute, struct error *error);
int __wrap_comm_join(struct comm *comm, cudaStream_t compute, struct error *error);

int __wrap_comm_join(struct comm *comm, cudaStream_t compute, struct error *error)
{
    note("join");
    return __real_comm_join(comm, compute, error);
}
