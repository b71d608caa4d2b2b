/* Copies: pinned and pageable, one way and both; and the orders in which they are enqueued. */
#include "gpu/base/cuda_error.h"
#include "gpu/kernels/spin/spin.h"
#include "gpu/lanes/machine.h"

enum { IN, OUT };

/* ---- rates -------------------------------------------------------------------------------------
 */

struct way {
    bool in, out, pinned;
};

static int copy(struct machine *machine, bool out, bool pinned, cudaStream_t stream,
                struct error *error)
{
    void *host = pinned ? machine->pinned[out] : machine->pageable[out];
    CUDA_TRY(cudaMemcpyAsync(out ? host : machine->memory[IN], out ? machine->memory[OUT] : host,
                             MACHINE_BYTES, out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                             stream),
             error);
    return 0;
}

/* Pageable memory on the thread's default stream: the lanes' streams are for pinned memory alone.
 */
static int copy_turn(struct machine *machine, const void *argument, struct error *error)
{
    const struct way *way = argument;
    cudaStream_t other = way->pinned ? machine->streams[OUT] : cudaStreamPerThread;
    int rc = 0;
    if (way->in)
        rc = copy(machine, false, way->pinned,
                  way->pinned ? machine->streams[IN] : cudaStreamPerThread, error);
    if (!rc && way->out)
        rc = copy(machine, true, way->pinned, other, error);
    if (!rc)
        rc = machine_synchronize(machine, 2, error);
    if (!rc && !way->pinned)
        CUDA_TRY(cudaStreamSynchronize(cudaStreamPerThread), error);
    return rc;
}

static int rate(struct machine *machine, struct way way, double *ret, struct error *error)
{
    double ns = 0;
    int rc = machine_middle_ns(machine, copy_turn, &way, &ns, error);
    *ret = (double)(MACHINE_BYTES * ((uint64_t)way.in + way.out)) * 1e9 / (ns > 0 ? ns : 1);
    return rc;
}

int machine_copies(struct machine *machine, struct gpu_machine *ret, struct error *error)
{
    int rc = 0;
    for (int pinned = 0; !rc && pinned < 2; pinned++)
        for (int out = 0; !rc && out < 2; out++)
            rc = rate(machine, (struct way){.in = !out, .out = out, .pinned = pinned},
                      &ret->rates[pinned][out], error);
    if (!rc)
        rc = rate(machine, (struct way){true, true, true}, &ret->both_rate, error);
    return rc;
}

/* ---- batches of three stages -------------------------------------------------------------------
 */

enum stage { COPY_IN, KERNEL, COPY_OUT, STAGES };

struct order {
    enum gpu_machine_issue issue;
    uint64_t kernel_ns;
};

static int enqueue(struct machine *machine, enum stage stage, uint32_t batch, cudaStream_t stream,
                   uint64_t kernel_ns, struct error *error)
{
    const uint64_t at = batch * MACHINE_BATCH_BYTES;
    char *memory = (char *)machine->memory[IN] + at;
    char *from = (char *)machine->pinned[IN] + at, *to = (char *)machine->pinned[OUT] + at;
    if (stage == KERNEL)
        CUDA_TRY(op_spin(kernel_ns, stream), error);
    else if (stage == COPY_IN)
        CUDA_TRY(cudaMemcpyAsync(memory, from, MACHINE_BATCH_BYTES, cudaMemcpyHostToDevice, stream),
                 error);
    else
        CUDA_TRY(cudaMemcpyAsync(to, memory, MACHINE_BATCH_BYTES, cudaMemcpyDeviceToHost, stream),
                 error);
    return 0;
}

/* In the stage's own stream, behind the batch's stage before. */
static int enqueue_behind(struct machine *machine, enum stage stage, uint32_t batch,
                          uint64_t kernel_ns, struct error *error)
{
    cudaStream_t stream = machine->streams[stage];
    if (stage > COPY_IN)
        CUDA_TRY(cudaStreamWaitEvent(stream, machine->events[stage - 1][batch], 0), error);
    int rc = enqueue(machine, stage, batch, stream, kernel_ns, error);
    if (!rc && stage < COPY_OUT)
        CUDA_TRY(cudaEventRecord(machine->events[stage][batch], stream), error);
    return rc;
}

static int enqueue_of(struct machine *machine, const struct order *order, enum stage stage,
                      uint32_t batch, struct error *error)
{
    if (order->issue == GPU_MACHINE_SEQUENTIAL)
        return enqueue(machine, stage, batch, machine->streams[0], order->kernel_ns, error);
    if (order->issue != GPU_MACHINE_BLOCKING)
        return enqueue_behind(machine, stage, batch, order->kernel_ns, error);
    int rc = enqueue(machine, stage, batch, machine->streams[stage], order->kernel_ns, error);
    if (!rc)
        CUDA_TRY(cudaStreamSynchronize(machine->streams[stage]), error);
    return rc;
}

static int batches_turn(struct machine *machine, const void *argument, struct error *error)
{
    const struct order *order = argument;
    const bool grouped = order->issue == GPU_MACHINE_GROUPED;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < MACHINE_BATCHES * STAGES; i++) {
        const uint32_t stage = grouped ? i / MACHINE_BATCHES : i % STAGES;
        const uint32_t batch = grouped ? i % MACHINE_BATCHES : i / STAGES;
        rc = enqueue_of(machine, order, (enum stage)stage, batch, error);
    }
    return rc ? rc : machine_synchronize(machine, STAGES, error);
}

struct alone {
    enum stage stage;
    uint64_t kernel_ns;
};

/* All batches' stage, without the others. */
static int alone_turn(struct machine *machine, const void *argument, struct error *error)
{
    const struct alone *alone = argument;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < MACHINE_BATCHES; i++)
        rc = enqueue(machine, alone->stage, i, machine->streams[0], alone->kernel_ns, error);
    return rc ? rc : machine_synchronize(machine, 1, error);
}

static int stage_alone(struct machine *machine, enum stage stage, uint64_t kernel_ns,
                       double *ret_us, struct error *error)
{
    const struct alone alone = {stage, kernel_ns};
    double ns = 0;
    int rc = machine_middle_ns(machine, alone_turn, &alone, &ns, error);
    *ret_us = ns / 1e3 / MACHINE_BATCHES;
    return rc;
}

/* Kernels take as long as the copy in: equal stages gain most. */
int machine_issue(struct machine *machine, struct gpu_machine *ret, struct error *error)
{
    double ns = 0;
    ret->batches = MACHINE_BATCHES;
    ret->batch_bytes = MACHINE_BATCH_BYTES;
    int rc = stage_alone(machine, COPY_IN, 0, &ret->stage_us[COPY_IN], error);
    const uint64_t kernel_ns = (uint64_t)(ret->stage_us[COPY_IN] * 1e3);
    if (!rc)
        rc = stage_alone(machine, KERNEL, kernel_ns, &ret->stage_us[KERNEL], error);
    if (!rc)
        rc = stage_alone(machine, COPY_OUT, 0, &ret->stage_us[COPY_OUT], error);
    for (int issue = 0; !rc && issue < GPU_MACHINE_ISSUES; issue++) {
        const struct order order = {(enum gpu_machine_issue)issue, kernel_ns};
        rc = machine_middle_ns(machine, batches_turn, &order, &ns, error);
        ret->issue_us[issue] = ns / 1e3;
    }
    return rc;
}
