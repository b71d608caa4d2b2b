/* The line between the daemon and a device: no CUDA type is in sight here.
 *
 * One engine serves one replica: tp x pp GPUs ("ranks") that hold one copy of the model. A step is
 * described by a plan, which is data: the scheduler builds it, and each rank's worker thread
 * submits it. With pp above 1 the layers are shared out over so many stages, which hand a step on
 * from one to the next and each work at another step. Up to `depth` steps are in flight; a decode
 * row reads the token that the device sampled in the step before, so the host need not know it yet.
 * When a step has ended, the device's callback stores its number and writes to the worker's
 * eventfd; nothing polls.
 *
 * Threads: functions tagged "leader" are called by the worker thread of rank 0, "rank" by the
 * rank's own worker thread, "any" by any. None of them blocks, except those tagged "blocks".
 *
 * Ownership: plans and results are borrowed for the time that each function says. KV blocks are
 * numbers: which sequence owns which is known to daemon/sched/kv.c alone; the engine maps a block's
 * number to an address.
 *
 * A module (sluice-cpu.so, sluice-cuda.so) exports one symbol, gpu_module, of type struct gpu_api.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"
#include "protocol/base/sampler.h"

#define GPU_ABI 16u

#define GPU_DEVICES_MAX 16
#define GPU_STAGES_MAX 8                   /* of a pipeline */
#define GPU_DEPTH_MAX (GPU_STAGES_MAX + 1) /* steps in flight */
#define GPU_GROUPS_MAX 2
#define GPU_EOS_MAX 16
#define GPU_LOGPROBS_MAX 20
#define GPU_BIAS_MAX 1024
#define GPU_STOP_IDS_MAX 64
#define GPU_SAMPLING_ROWS_MAX 64
#define GPU_ADAPTERS_MAX 64
#define GPU_SAMPLINGS_MAX 4 /* in flight */
#define GPU_DRAFTS_MAX 15   /* of a row */
#define GPU_COPIES_MAX 4    /* in flight, each way */
#define GPU_HOST_AUTO UINT64_MAX /* gpu_options.host_max: the device's choice */

struct gpu_engine; /* opaque */
struct gpu_kept;   /* opaque: see keep() */

struct gpu_device {
    char name[64];
    char uuid[48]; /* "GPU-..." */
    char pci[20];
    uint64_t memory_total, memory_free; /* bytes */
};

/* KV of the layers that share a kind of attention. A block holds `block_tokens` positions of all of
 * the group's layers; a slab is `slab_blocks` blocks in one allocation. */
struct gpu_group {
    uint32_t window;      /* a token sees the window - 1 tokens before it; 0 = all */
    uint32_t layers;
    uint64_t block_bytes; /* per rank; of a pipeline, of the rank with the most of its layers */
    uint32_t slab_blocks;
    uint32_t slabs_max;   /* block numbers are below slabs_max * slab_blocks */
    uint32_t chunk_blocks; /* that a chunk of host memory holds; 0 = there is none */
};

#define GPU_FORMATS_MAX 8

/* What the weights of one format take, scales, zeros and orders of columns included. */
struct gpu_format {
    char name[8];
    uint64_t bytes; /* of all ranks together */
};

struct gpu_model {
    char id[128]; /* the directory's name (gpu/checkpoint/snapshot.h), or "synthetic:NAME" */
    char arch[32];
    char dtype[8]; /* compute dtype */
    char kv_dtype[8]; /* of keys and values: as above, or "fp8" */
    bool invariant; /* bits of a sequence depend on itself alone, see gpu_options */
    uint32_t vocab;
    uint32_t context_max; /* positions that the model supports; gpu_options may lower it */
    uint32_t hidden, layers;
    uint32_t ranks; /* devices of the engine */
    uint64_t parameters, weight_bytes; /* of all ranks together */
    uint32_t format_count;
    struct gpu_format formats[GPU_FORMATS_MAX]; /* of the weights, the largest first */
    /* Of the matrices that a row is multiplied by, the head's too: of a mixture those of the experts
     * that it goes through. */
    uint64_t step_parameters;
    uint64_t draft_parameters;           /* likewise, of the draft model; 0: there is none */
    bool draft_rereads; /* what it guessed and stands it has not read: a head, which reads states of
                           the model, not its own */
    uint32_t experts, experts_per_token; /* of a mixture's layers; 0: it is none */
    uint64_t kv_token_bytes;  /* K and V of one token in all layers, of all ranks together, their
                                 scales included */
    uint32_t block_tokens;
    uint32_t group_count;
    struct gpu_group groups[GPU_GROUPS_MAX];
    uint64_t host_bytes; /* of host memory that chunks take at most */
    uint32_t eos_count;
    int32_t eos[GPU_EOS_MAX];
    int32_t bos; /* -1 = none */
    /* Defaults of generation_config.json. */
    struct sampler sampler;
    uint32_t max_tokens; /* 0 = not said */
};

enum gpu_log_level { GPU_LOG_WARNING = 4, GPU_LOG_NOTICE = 5, GPU_LOG_INFO = 6, GPU_LOG_DEBUG = 7 };

/* What a model is computed in. AUTO: float32 on the CPU device, which has no other; on CUDA the
 * 16-bit dtype that the model's matrices come in, BF16 for float32, whose range it has. */
enum gpu_dtype { GPU_DTYPE_AUTO, GPU_DTYPE_BF16, GPU_DTYPE_F16 };

/* What matrices become while they load. FP8: e4m3 with a scale for each channel, inputs rounded by
 * token; the embedding and the head stay. */
enum gpu_quantize { GPU_QUANTIZE_NONE, GPU_QUANTIZE_FP8 };

/* What keys and values are kept in. AUTO: what the model is computed in, whatever the checkpoint
 * has scales for: eight bits change results, so somebody has to ask for them. */
enum gpu_kv_dtype { GPU_KV_AUTO, GPU_KV_FP8 };

/* An adapter (LoRA) in PEFT's layout; it is called by its number, from 1 on. */
struct gpu_adapter {
    const char *name; /* for messages */
    const char *directory;
};

struct gpu_options {
    const char *model; /* directory, or "synthetic:NAME[:FORMAT]" */
    const char *draft_model; /* likewise, of the same vocabulary: it guesses tokens for the model,
                                see gpu_row.drafts; NULL: there is none. On one device alone */
    const int *devices; /* tp * pp device numbers, PCI order; rank = stage * tp + shard */
    enum gpu_dtype dtype;
    enum gpu_quantize quantize;
    enum gpu_kv_dtype kv_dtype;
    bool invariant; /* what a sequence gets depends, to the bit, on itself alone: not on other rows of
                       its steps, how its prompt was cut, cached blocks, preemption or drafts. The CPU
                       device is so in any case; CUDA takes kernels of one order, and refuses what it
                       has none for */
    const struct gpu_adapter *adapters;
    uint32_t adapter_count;
    uint32_t adapters_max;     /* places for those and for others, which adapter_load fills; 0: none more */
    uint32_t adapter_rank_max; /* what a place holds, where there are more */
    uint32_t tp, pp;
    bool ep;             /* of a mixture the tp ranks share out whole experts, not columns of each */
    uint32_t depth;      /* steps in flight on one stage, 1 or 2 */
    uint32_t slots_max;  /* sequences on the device at a time */
    uint32_t tokens_max; /* tokens of a step */
    uint32_t context_max; /* 0 = the model's */
    uint32_t block_tokens; /* 0 = the device's choice */
    uint64_t slab_bytes;   /* 0 = the device's choice */
    uint64_t memory_max;     /* of this process per device; 0 = no limit */
    uint64_t memory_reserve; /* left to other processes, per device */
    uint64_t kv_max;         /* 0 = no limit */
    uint64_t host_max;       /* host memory for blocks, of all ranks together; 0 = none */
    uint64_t host_chunk_bytes; /* 0 = the device's choice */
    uint64_t host_limit; /* of all chunks and kept weights of the process; 0 = none but host_max */
    struct gpu_kept *kept; /* where weights are kept and come from; NULL: from files alone. Borrowed
                              while the engine is open */
    uint64_t seed;           /* of synthetic weights */
    uint32_t cpu_threads;    /* CPU device: threads of the compute stream; 0 = cores */
    uint32_t cpu_devices; /* CPU device: how many there are; 0 = 1. The first options count */
    uint32_t profile_steps;  /* of the first so many steps the lanes' times are kept, see profile() */
    const char *cache_dir;   /* timed product algorithms; NULL = none kept */
    void (*log)(enum gpu_log_level level, const char *line); /* any thread; may be NULL */
};

/* ---- plan ------------------------------------------------------------------------------------ */

#define GPU_SLOT_PENALTIES 0x1u /* a penalty is on: counts are kept */
#define GPU_SLOT_POOL 0x2u      /* embed with mean pooling: a running sum is kept */
#define GPU_SLOT_MASKED 0x4u    /* its samples are masked: rows with GPU_SAMPLE have GPU_KEEP, too */

/* A sequence enters the device. It stays until its slot is closed; preemption closes it, a later
 * open with the same seed and a prompt longer by what was generated continues it. */
struct gpu_open {
    uint32_t slot;
    uint32_t flags;
    uint64_t seed;       /* random numbers are a function of (seed, position of the sampled token) */
    struct sampler sampler;
    uint32_t first;      /* position of its first row: those before are in blocks that it is given,
                            whole ones, which other slots' rows have written and nobody writes */
    uint32_t seen_first; /* GPU_SLOT_PENALTIES: the `first` ids before that row, in plan->ids */
    uint32_t prompt_len; /* tokens at positions from here on count as output (penalties) */
    uint32_t eos_from;   /* the end tokens are masked for sampled positions below this one;
                            UINT32_MAX = always (ignore_eos) */
    uint32_t stop_ids_first, stop_ids_count; /* in plan->ids: further end tokens of this sequence */
    uint32_t bias_first, bias_count;         /* in plan->bias */
    uint32_t logprobs;   /* 0: of the chosen token; n: of the n likeliest too */
    uint32_t adapter;    /* number; 0: the model as it is */
};

struct gpu_append {
    uint32_t slot, group;
    uint32_t index; /* logical block: positions index * block_tokens and on */
    uint32_t block; /* number within the group */
};

struct gpu_move {
    uint32_t group, from, to; /* the block's content is copied before the rows run */
};

struct gpu_slab {
    uint32_t group, slab; /* became valid since the last plan (kv_grow) */
};

struct gpu_bias {
    int32_t token;
    float value;
};

enum gpu_input { GPU_IDS, GPU_LAST }; /* ids of the plan, or the slot's last sampled token */

#define GPU_SAMPLE 0x01u   /* sample the token after the row's last one */
#define GPU_LOGPROBS 0x02u /* with its log-probability, and the likeliest as the slot asks */
#define GPU_SCORE 0x04u    /* log-probability of targets, see score_count; with GPU_LOGPROBS the
                              likeliest at each, as the slot asks */
#define GPU_POOL_ADD 0x08u /* add every position's final hidden state to the slot's sum */
#define GPU_POOL_OUT 0x10u /* give the slot's sum divided by its count */
#define GPU_EMBED_LAST 0x20u /* give the last position's final hidden state */
#define GPU_EMBED_ALL 0x40u  /* give every position's */
#define GPU_NORMALIZE 0x80u  /* embeddings are divided by their length */
#define GPU_KEEP 0x100u /* with GPU_SAMPLE, of a slot with GPU_SLOT_MASKED: no token is sampled (its
                           result has token -1), the logits stay in the slot for a sampling */
#define GPU_DRAFT 0x200u /* with drafts: the draft model makes them; else it reads the row, too */

struct gpu_row {
    uint32_t slot;
    uint32_t position; /* of the row's first token */
    uint32_t q_len;    /* tokens; 1 for GPU_LAST */
    uint16_t input;    /* enum gpu_input */
    uint16_t want;
    uint32_t ids;         /* GPU_IDS: offset of q_len ids in plan->ids */
    /* GPU_SCORE: target i of score_count is ids[ids + score_from + 1 + i], of the row's token
     * score_from + i; those beyond its last token are further targets of that. plan->ids holds
     * score_from + 1 + score_count ids, where that is more than q_len. */
    uint32_t score_from, score_count;
    /* GPU_IDS and GPU_SAMPLE, not GPU_KEEP: the last so many of its ids, fewer than q_len, are
     * guesses. It has 1 + drafts samples, after the last id that is none and after each guess; each
     * is what it would be if the ids before it were no guesses. The slot's next row has GPU_IDS.
     * With GPU_DRAFT only the first id is the plan's, the drafts are all others: what the draft
     * model draws by the same numbers. They are in the results. */
    uint32_t drafts;
    /* GPU_DRAFT and drafts: the tokens before `position`, in plan->ids before `ids`, that the draft
     * model reads first, since no row has had it read them. */
    uint32_t unread;
    /* GPU_SLOT_PENALTIES: the tokens before `position`, in plan->ids before `ids`, that were
     * guesses of the slot's last row and stand: penalties heed guesses once they are named here. */
    uint32_t uncounted;
};

/* One step, of at most rows_max samples. A slot stands in at most one row. Arrays are borrowed
 * until submit() returns. Order of effect: closes, moves, slabs, opens, appends, rows. */
struct gpu_plan {
    uint64_t step; /* 1, 2, 3, ... without gaps */
    uint32_t close_count, move_count, slab_count, open_count, append_count, row_count;
    uint32_t id_count, bias_count;
    uint32_t token_count; /* sum of q_len */
    const uint32_t *closes;
    const struct gpu_move *moves;
    const struct gpu_slab *slabs;
    const struct gpu_open *opens;
    const struct gpu_append *appends;
    const struct gpu_row *rows; /* decode rows first */
    const int32_t *ids;
    const struct gpu_bias *bias;
};

/* ---- sampling -------------------------------------------------------------------------------- */

/* The token after a row with GPU_KEEP, which the last row of its slot is. */
struct gpu_masked {
    uint32_t slot;
    uint32_t position;    /* of the sampled token: row.position + q_len */
    const uint32_t *mask; /* bit t % 32 of word t / 32: token t may be sampled; at least one may */
};

/* Samples tokens by masks that were not known when their steps were planned, behind the steps that
 * were submitted so far. A row with GPU_LAST of a later step reads them. Borrowed until sample()
 * returns. */
struct gpu_sampling {
    uint64_t number; /* 1, 2, 3, ... without gaps; a count of its own beside that of steps */
    uint32_t count;  /* 1 to sampling_rows_max, each of another slot */
    const struct gpu_masked *rows;
};

/* ---- host memory ------------------------------------------------------------------------------
 *
 * Blocks that leave the device and come back (daemon/sched/README.md). Host memory is made in
 * chunks, each for blocks of one group; a place is chunk * chunk_blocks + a number within it. */

enum gpu_way { GPU_TO_HOST, GPU_FROM_HOST, GPU_WAYS };

struct gpu_copy {
    uint32_t group, block, place;
};

/* Whole blocks, on a stream of their own beside the steps. To the host: what steps that were
 * submitted before have left in them; a block stays as it is, and its number taken, until the copy
 * has ended. From it: into blocks that no step in flight touches, of slabs that exist; no plan
 * names one before the copy has ended. Borrowed until copy() returns. */
struct gpu_copies {
    uint64_t number; /* 1, 2, 3, ... without gaps; each way has a count of its own */
    enum gpu_way way;
    uint32_t count; /* > 0 */
    const struct gpu_copy *copies;
};

/* ---- results --------------------------------------------------------------------------------- */

struct gpu_sample {
    int32_t token;
    uint32_t finished; /* the token is one of the sequence's end tokens */
    float logprob;     /* of the model's own distribution, before temperature, penalties and bias */
    uint32_t top_count;
};

struct gpu_top {
    int32_t token;
    float logprob;
};

struct gpu_score {
    float logprob;
    int32_t top_token;
    float top_logprob;
    uint32_t reserved;
};

/* Of one step; valid until `depth` further steps were submitted. Arrays run in the order of rows:
 * samples of the rows with GPU_SAMPLE (of one with drafts in the order of its positions), scores of
 * those with GPU_SCORE, embeddings likewise. */
struct gpu_results {
    uint64_t step;
    uint32_t sample_count, score_count, embed_count;
    const struct gpu_sample *samples;
    const struct gpu_top *tops; /* [sample_count][GPU_LOGPROBS_MAX], most likely first */
    const struct gpu_score *scores;
    const struct gpu_top *score_tops; /* [score_count][GPU_LOGPROBS_MAX] where the row asks, then
                                         token -1; NULL where no row does */
    const float *embeddings; /* [embed_count][hidden] */
    /* What the draft model drew: the j-th guess of each row with GPU_DRAFT that has more than j, in
     * the order of rows. NULL: no row has so many. And the time that it took, before start_ns. */
    const struct gpu_sample *guesses[GPU_DRAFTS_MAX];
    uint64_t guesses_ns;
    uint64_t start_ns, end_ns; /* the device's clock in the step's first and last kernel */
    uint64_t in_ns, out_ns;    /* time of the copies, 0 unless profiling */
    bool waited; /* for weights that were still coming: its times say nothing of its work */
};

/* ---- profile --------------------------------------------------------------------------------- */

/* The streams of a rank. What notify does is seen by the host alone. */
enum gpu_lane {
    GPU_COMPUTE,
    GPU_COPY_IN,
    GPU_COPY_OUT,
    GPU_BULK_IN,
    GPU_BULK_OUT,
    GPU_PEER, /* from a stage to the next */
    GPU_NOTIFY,
    GPU_LANES
};

struct gpu_span {
    uint64_t begin_ns, end_ns; /* both 0: nothing passed */
};

/* A step as one rank's lanes had it. Two clocks: each device has its own, and the host's is
 * CLOCK_MONOTONIC. */
struct gpu_profile {
    struct gpu_span lanes[GPU_NOTIFY]; /* device */
    struct gpu_span enqueue;           /* host: the call of submit */
    uint64_t told_ns;                  /* host: the end of the step was told */
    uint32_t rows, tokens, slabs;      /* of the plan; slabs: those that are new with it */
};

/* What a plan may hold, fixed at open. */
struct gpu_limits {
    uint32_t slots_max, rows_max, tokens_max, opens_max, appends_max, moves_max, slabs_max;
    uint32_t ids_max, bias_max;
    uint32_t scores_max; /* targets, of all rows */
    uint32_t embeds_max; /* embedding rows */
    uint32_t context_max;
    uint32_t depth;
    uint32_t samplings_max;     /* whose results were not taken */
    uint32_t sampling_rows_max; /* of one of them */
    uint32_t chunks_max;        /* of host memory; numbers are below */
    uint32_t drafts_max;        /* guesses of the draft model in a row; 0: there is none */
    uint32_t unread_max;        /* sum of gpu_row.unread */
    uint32_t stages; /* a row with GPU_LAST waits for nobody when its slot's last row is so many
                        steps back */
};

struct gpu_memory {
    uint64_t weights; /* bytes of weights, and what else lives as long as the engine */
    uint64_t kv_used;    /* in slabs that exist */
    uint64_t kv_held;    /* of the pool, given back or not */
    uint64_t scratch_used, scratch_held;
    uint64_t graphs;     /* arenas of captured steps */
    uint64_t pinned;     /* host memory */
    uint64_t host_blocks; /* and in chunks for blocks, of all ranks together: told of rank 0 */
    uint64_t kept_pinned, kept_mapped; /* weights in host memory, likewise: the caller's to fill in,
                                          whose they are */
    uint64_t device_free, device_total; /* as the device tells */
};

struct gpu_counters {
    uint64_t steps, graph_steps, captures;
    uint64_t allocations; /* outside the pools, since the first step */
    uint64_t synchronizes, pageable_copies; /* since the first step; both stay 0 */
    uint64_t samplings;
    uint64_t blocks_out, blocks_in; /* copied to host memory, and back */
    uint64_t steps_ahead;           /* steps enqueued before the one before them had ended */
};

enum gpu_progress { GPU_IDLE, GPU_BUSY, GPU_FAILED };

struct gpu_api {
    uint32_t abi; /* GPU_ABI */
    const char *name; /* "cpu", "cuda" */

    /* any, blocks. The devices in PCI order; *ret_count is set to how many exist. */
    int (*devices)(struct gpu_device *devices, uint32_t max, uint32_t *ret_count,
                   struct error *error);

    /* any, blocks. Reads configuration and headers, loads nothing: what --check says. */
    int (*check)(const struct gpu_options *options, struct gpu_model *ret_model,
                 struct error *error);

    /* any, blocks. Reads the configuration and makes the engine; no device is touched. */
    int (*open)(const struct gpu_options *options, struct gpu_engine **ret_engine,
                struct gpu_model *ret_model, struct gpu_limits *ret_limits, struct error *error);

    /* rank, blocks. Streams, pools, weights. Ranks start at the same time, each in its own thread.
     * wake_fd: an eventfd of the caller, written after every step; it outlives the engine. Of one
     * that failed a host function may write to it still: then it stays open for good. Weights from
     * `kept` may still be on their way, in the order in which a step takes them, when it returns:
     * progress tells, steps wait for what they take, stop for all. Not on several ranks, nor with a
     * draft model; weights from files are there. */
    int (*start)(struct gpu_engine *engine, uint32_t rank, int wake_fd, struct error *error);

    /* any. Thousandths of the loading that are done; 1000: all weights are there. */
    uint32_t (*progress)(const struct gpu_engine *engine);

    /* rank. Enqueues a step. At most `depth` steps may be unfinished. A later stage's rank waits
     * shortly until the stage before it has enqueued the step: one thread that stands for several
     * ranks goes through them in their order. Fails with ERR_DEVICE (then
     * the engine is dead) or ERR_DEVICE_MEMORY (scratch could not grow: nothing was enqueued and
     * the same step number may be submitted again with less). */
    int (*submit)(struct gpu_engine *engine, uint32_t rank, const struct gpu_plan *plan,
                  struct error *error);

    /* leader, for any rank whose thread is at rest. Takes the memory of a step ahead of submit, so
     * that all ranks of a group have it before one of them enqueues. As submit fails; nothing is
     * held then. submit of the same step uses it, release gives it back. */
    int (*reserve)(struct gpu_engine *engine, uint32_t rank, const struct gpu_plan *plan,
                   struct error *error);
    void (*release)(struct gpu_engine *engine, uint32_t rank);

    /* rank. Enqueues a sampling behind what was submitted; takes no memory. At most samplings_max may
     * be unfinished. On a pipeline its tokens do not go back to the first stage: rows that follow
     * have GPU_IDS. Fails with ERR_DEVICE. The end is told as a step's is. */
    int (*sample)(struct gpu_engine *engine, uint32_t rank, const struct gpu_sampling *sampling,
                  struct error *error);
    /* any. Number of the last sampling that has ended on this rank; UINT64_MAX on one that samples
     * nothing. */
    uint64_t (*sampled)(const struct gpu_engine *engine, uint32_t rank);
    /* leader. Samples of one that has ended, in the order of its rows, valid until samplings_max
     * further ones were enqueued; `tops` where a slot asks for the likeliest, else NULL. */
    void (*sampling_results)(struct gpu_engine *engine, uint64_t number,
                             struct gpu_results *ret_results);

    /* any. Number of the last step that has ended on this rank. */
    uint64_t (*completed)(const struct gpu_engine *engine, uint32_t rank);

    /* leader. Results of a completed step. */
    void (*results)(struct gpu_engine *engine, uint64_t step, struct gpu_results *ret_results);

    /* leader. Of any rank, for a completed step whose results are still valid and which
     * profile_steps covers. */
    void (*profile)(struct gpu_engine *engine, uint32_t rank, uint64_t step,
                    struct gpu_profile *ret_profile);

    /* rank. The one query of the timed wait: asks the device whether it still works. */
    enum gpu_progress (*query)(struct gpu_engine *engine, uint32_t rank, struct error *error);

    /* leader. One more slab on every rank. ERR_DEVICE_MEMORY when the device or a limit refuses;
     * nothing has changed then. The next plan must name the slab in plan->slabs. */
    int (*kv_grow)(struct gpu_engine *engine, uint32_t group, uint32_t *ret_slab,
                   struct error *error);

    /* leader. Gives a slab back. No plan submitted from now on names a block of it; steps in flight
     * may still use it. */
    int (*kv_shrink)(struct gpu_engine *engine, uint32_t group, uint32_t slab, struct error *error);

    /* any, blocks; stop waits for it. Reads an adapter into place `number` on every
     * rank, beside steps. No open slot has it from before the call until it returns; steps in flight
     * may. ERR_BAD_MODEL and ERR_IO of its files; ERR_BAD_CONFIG where adapters_max leaves no such
     * place, ERR_TOO_LARGE where its rank is above adapter_rank_max. On failure nothing may have it. */
    int (*adapter_load)(struct gpu_engine *engine, uint32_t number, const struct gpu_adapter *adapter,
                        struct error *error);

    /* any, blocks. Host memory for the weights of one engine, which outlives it: what was kept of
     * one is copied to the next that is opened with it, of the same options. `limit`: as
     * gpu_options.host_limit. kept_free with no such engine open. */
    int (*kept_make)(uint64_t limit, struct gpu_kept **ret_kept, struct error *error);
    void (*kept_free)(struct gpu_kept *kept);
    /* any one thread, blocks for as long as it takes, after every rank has started: registers host
     * memory and copies the engine's weights there, beside steps, unless that was done. stop() waits
     * for a part of it and ends it (ERR_DRAINING). ERR_NO_MEMORY where the limit, the system or the
     * driver refuses, ERR_DEVICE of a copy; nothing is kept then, and files are read as before. */
    int (*keep)(struct gpu_engine *engine, struct error *error);
    /* any, blocks, with no engine open that has it. What is kept stays, but no device has it: before
     * device_give(). It is registered again when an engine starts. */
    void (*kept_unpin)(struct gpu_kept *kept);
    /* any. Bytes that the driver has registered, and others. */
    void (*kept_memory)(const struct gpu_kept *kept, uint64_t *ret_pinned, uint64_t *ret_mapped);
    /* any, blocks, with no engine open and no other call on the device until it returns: the process
     * gives up all that it has of a device, its context too. The next call takes it anew. */
    int (*device_give)(int device, struct error *error);

    /* any one thread at a time, blocks for as long as the driver takes: maps and registers a chunk
     * of host memory for blocks of a group. ERR_NO_MEMORY when the system or the driver refuses;
     * nothing has changed then. */
    int (*chunk_make)(struct gpu_engine *engine, uint32_t group, uint32_t chunk,
                      struct error *error);
    /* The same thread, blocks likewise. No copy in flight or to come names a place in it. */
    void (*chunk_drop)(struct gpu_engine *engine, uint32_t chunk);
    /* rank. Enqueues copies; takes no memory. At most GPU_COPIES_MAX each way may be unfinished.
     * The chunks were made before, in the order of what the caller knows. Fails with ERR_DEVICE.
     * The end is told as a step's is. */
    int (*copy)(struct gpu_engine *engine, uint32_t rank, const struct gpu_copies *copies,
                struct error *error);
    /* any. Number of the last copies of this way that have ended on this rank. */
    uint64_t (*copied)(const struct gpu_engine *engine, uint32_t rank, enum gpu_way way);

    /* leader, blocks shortly; only with no step, sampling or copy in flight. Returns memory that
     * pools hold back to the device, and drops the arenas of captured steps, and what slots keep
     * beside their KV: those that are open the next plan closes. */
    int (*trim)(struct gpu_engine *engine, struct error *error);

    /* any */
    void (*memory)(const struct gpu_engine *engine, uint32_t rank, struct gpu_memory *ret_memory);
    void (*counters)(const struct gpu_engine *engine, uint32_t rank,
                     struct gpu_counters *ret_counters);

    /* rank, blocks: waits for steps in flight, unless the device failed. Then streams and memory.
     * ERR_DEVICE: it had failed, or does now; it has stopped, and may hold memory until the process
     * ends. */
    int (*stop)(struct gpu_engine *engine, uint32_t rank, struct error *error);

    /* any, blocks, after every rank stopped. */
    void (*close)(struct gpu_engine *engine);
};

/* The symbol that a module exports. */
extern const struct gpu_api gpu_module;
